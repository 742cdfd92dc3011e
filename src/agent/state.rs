//! The state that the parts of an agent share: its links, its spool, its registration and its stores.
//!
//! [`super::run`] makes it; [`connection`](super::connection), [`setup`](super::setup) and [`api`](super::api) work on
//! it.

use super::{
    binding::{Binding, BoundSpace},
    child_env::ChildEnv,
    dial::Dialer,
    generations::Generations,
    health_check::HealthChecker,
    packages::Packages,
    proxy::ServerProxy,
    registrar::{RegisterError, Registrar},
    server_links::ServerLinks,
    settings::AgentSettings,
    setup_changes::{SetupChanges, SetupRuns},
    shutdown::Shutdown,
    spool::{Spool, SpoolError},
};
use crate::{
    model::{
        api::agent::{AgentSpaceView, AgentStatusView, SpoolReceiptView, SpoolView},
        event::{EventType, EventTypeError},
        id::{EventId, SpaceId},
        method::MethodNames,
        timestamp::Timestamp,
    },
    platform::kv::Kv,
    routing::emit::{self, EmitError},
    scripting::lua::CheckedSpace,
};
use serde_json::value::RawValue;
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio_util::task::TaskTracker;

/// The shared state of an agent.
pub struct AgentState {
    pub settings: AgentSettings,
    pub dialer: Dialer,
    pub proxy: ServerProxy,
    pub binding: Arc<Binding>,
    pub spool: Spool,
    pub links: Arc<ServerLinks>,
    pub registrar: Registrar,
    /// The set-up scripts that run now.
    pub setup_runs: SetupRuns,
    pub generations: Generations,
    pub child_env: ChildEnv,
    pub packages: Arc<Packages>,
    /// State of the startup script. Locked while the script runs, so that further links wait for it.
    pub startup_script: Mutex<StartupScriptState>,
    /// The key-value store of the space's programs and of health checks in Lua.
    pub kv: Kv,
    /// Counts the calls that are being answered, on all links.
    pub calls: TaskTracker,
    pub shutdown: Shutdown,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartupScriptState {
    #[default]
    NotRun,
    Run,
}

/// An event that was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum EmitFault {
    #[error("`type`: {0}")]
    Type(#[from] EventTypeError),
    #[error(transparent)]
    Payload(#[from] EmitError),
    #[error(transparent)]
    Spool(#[from] SpoolError),
}

impl AgentState {
    pub fn status(&self) -> AgentStatusView {
        AgentStatusView {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            space: self.binding.space().map(space_view),
            servers: self.links.statuses(),
            spool: SpoolView { depth: self.spool.depth(), limit: self.spool.limit() },
            registration: self.registrar.status(),
        }
    }

    /// Accepts an event, and returns once it is on disk. The spool sends it to a server.
    pub async fn emit(
        &self,
        kind: &str,
        payload: Option<Box<RawValue>>,
        id: Option<EventId>,
    ) -> Result<SpoolReceiptView, EmitFault> {
        if id == Some(EventId::NIL) {
            return Err(EmitError::NilId.into());
        }
        let event_ts = Timestamp::now();
        let event_type = EventType::custom(kind)?;
        let payload = payload.unwrap_or_else(|| RawValue::from_string("{}".to_owned()).expect("it is JSON"));
        emit::check_payload(&payload, self.max_payload())?;
        let event_id = self.spool.push(id, kind, payload, event_ts).await?;
        Ok(SpoolReceiptView { event_id, event_type, event_ts: Some(event_ts) })
    }

    /// Removes the method with this local name, or all methods.
    pub async fn unregister(
        &self,
        local_name: Option<&str>,
        by: Option<&SetupChanges>,
    ) -> Result<Vec<MethodNames>, RegisterError> {
        match local_name {
            Some(name) => self.registrar.unregister_one(name, by).await,
            None => self.registrar.unregister_all(by).await,
        }
    }

    /// The largest event payload, in bytes.
    pub fn max_payload(&self) -> usize {
        self.binding.space().map_or(self.settings.max_payload, |space| space.max_payload)
    }

    /// A checker for the space as it is now.
    pub fn health_checker(&self) -> HealthChecker {
        let space = self.binding.space();
        let checked_space = CheckedSpace {
            id: space.as_ref().map_or(SpaceId::NIL, |space| space.id),
            name: space.map(|space| space.name).unwrap_or_default(),
        };
        HealthChecker::new(checked_space, self.settings.directory.clone(), self.child_env.clone(), self.kv.clone())
    }
}

fn space_view(space: BoundSpace) -> AgentSpaceView {
    let BoundSpace { id, name, zone, max_payload } = space;
    AgentSpaceView { id, name, zone, max_payload }
}
