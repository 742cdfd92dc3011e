//! The hub: the session in force of each space, and the changes that end or update it.

use crate::{
    calls::{
        agent_link::{AgentLink, AgentOutboxReceiver},
        registry::Registry,
    },
    delivery::{deliver::Deliverer, sinks::Sinks, subscriptions::Subscriptions},
    identity::Identity,
    model::{
        agent_protocol::{Goodbye, ToAgent},
        id::{SpaceId, UserId},
        script_spec::ScriptKind,
        space_state::SpaceState,
    },
    platform::{
        collection::Change as ScriptChange,
        keyed_limit::{KeyedLimit, KeyedPermit},
        keyed_mutex::KeyedMutex,
        keyed_semaphore::KeyedSemaphore,
        store::StoreError,
        task,
    },
    routing::emit::Emitter,
    scripting::{
        scripts::{Script, Scripts},
        workers::LuaWorkers,
    },
    spaces::{SpaceChange, Spaces},
};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::sync::{Notify, OwnedMutexGuard, Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Agents that may be connected and not have sent their hello yet. They do not count among the connections.
const MAX_AWAITING_HELLO: usize = 1024;

/// Registrations of one owner that wait for their check.
const MAX_CHECKING: usize = 2048;

/// Sockets that one agent token has open at once. An agent has one; while it reconnects, some that are lost may linger.
pub const MAX_SOCKETS: usize = 8;

/// All sessions of agents. Cloning the handle is cheap.
#[derive(Clone)]
pub struct AgentHub(pub(super) Arc<HubShared>);

/// Everything that sessions work with.
pub struct AgentHubDeps {
    pub zone: Arc<str>,
    pub max_payload: usize,
    pub heartbeat: Duration,
    pub identity: Identity,
    pub spaces: Spaces,
    pub scripts: Scripts,
    pub registry: Registry,
    pub sinks: Sinks,
    pub subscriptions: Subscriptions,
    /// Compiles the filters of methods.
    pub workers: LuaWorkers,
    pub emitter: Arc<Emitter>,
    pub deliverer: Deliverer,
    pub shutdown: CancellationToken,
}

pub(super) struct HubShared {
    pub deps: AgentHubDeps,
    /// The session in force of each space.
    sessions: Mutex<HashMap<SpaceId, Arc<AgentSession>>>,
    /// Locks by owner, held over a registration from its check to its publication: only methods of one owner can
    /// conflict.
    registering: KeyedMutex,
    /// Registrations of an owner whose schemas are being checked.
    pub checking: KeyedSemaphore<UserId>,
    pub awaiting_hello: Semaphore,
    /// The open sockets of each space, with those whose agent has not said hello yet.
    sockets: KeyedLimit<SpaceId>,
    /// Counts the running sessions.
    pub running: TaskTracker,
}

/// One linked agent.
pub(super) struct AgentSession {
    pub link: Arc<AgentLink>,
    pub owner: UserId,
    /// Notified when the owner's libraries may have changed since they were sent.
    pub libraries_changed: Notify,
}

impl AgentHub {
    /// A hub that ends the session of a space that is stopped or deleted, and withdraws its methods.
    pub fn new(deps: AgentHubDeps) -> Self {
        let hub = Self(Arc::new(HubShared {
            deps,
            sessions: Mutex::default(),
            registering: KeyedMutex::new(),
            checking: KeyedSemaphore::new(1, MAX_CHECKING),
            awaiting_hello: Semaphore::new(MAX_AWAITING_HELLO),
            sockets: KeyedLimit::new(MAX_SOCKETS),
            running: TaskTracker::new(),
        }));
        let listening = hub.clone();
        hub.0.deps.spaces.listen(move |change| listening.follow_space(change));
        let listening = hub.clone();
        hub.0.deps.scripts.listen(move |change| listening.follow_script(change));
        hub
    }

    /// A place for one more socket of the space's agent; `None` if it has [`MAX_SOCKETS`] open.
    pub fn admit_socket(&self, space: SpaceId) -> Option<KeyedPermit<SpaceId>> {
        self.0.sockets.take(space)
    }

    /// Removes the subscriptions of spaces that stopped while an earlier server did.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be written.
    pub async fn tidy(&self) -> Result<(), StoreError> {
        self.0.deps.subscriptions.retain(|space| self.0.is_deployed(space)).await
    }

    /// Waits until every session has ended with a goodbye. Only useful after shutdown was requested.
    pub async fn finished(&self) {
        self.0.running.close();
        self.0.running.wait().await;
    }

    /// Makes a new session the one in force; an older one ends with [`Goodbye::Replaced`].
    pub(super) fn begin_session(&self, space: SpaceId, owner: UserId) -> (Arc<AgentSession>, AgentOutboxReceiver) {
        let (link, messages) = AgentLink::new(space);
        let session = Arc::new(AgentSession { link, owner, libraries_changed: Notify::new() });
        let before = self.0.sessions.lock().insert(space, session.clone());
        if let Some(before) = before {
            before.link.end(Goodbye::Replaced);
        }
        // The space may have been stopped before there was a session to end.
        if !self.0.is_deployed(space) {
            session.link.end(Goodbye::Stopped);
        }
        (session, messages)
    }

    /// Withdraws the methods of a space and removes its subscriptions, unless it is deployed again by then.
    pub(super) fn withdraw(&self, space: SpaceId) {
        self.0.deps.registry.unregister(space);
        let (hub, deployed) = (self.clone(), self.clone());
        task::spawn(async move {
            let removed = hub.0.deps.subscriptions.remove_unless(space, move || deployed.0.is_deployed(space));
            if let Err(error) = removed.await {
                // The next start removes them.
                log::warn!("the subscriptions of space {space} stay for now: {error}");
            }
        });
    }

    /// Updates or ends the session of a changed space.
    fn follow_space(&self, change: &SpaceChange) {
        match change {
            SpaceChange::Created(_) | SpaceChange::Started(_) | SpaceChange::TokenRotated(_) => {}
            SpaceChange::Updated { before, after } => {
                if before.settings.health_check != after.settings.health_check
                    && let Some(link) = self.0.link(after.id)
                {
                    link.send_now(ToAgent::Check(after.settings.health_check.as_ref().map(raw_json)));
                }
            }
            SpaceChange::Stopped(space) => self.end_session(space.id, Goodbye::Stopped),
            SpaceChange::Deleted(space) => self.end_session(space.id, Goodbye::Revoked),
        }
    }

    fn end_session(&self, space: SpaceId, goodbye: Goodbye) {
        if let Some(link) = self.0.link(space) {
            link.end(goodbye);
        }
        self.withdraw(space);
    }

    /// Notifies the sessions whose libraries a change of a script concerns.
    fn follow_script(&self, change: &ScriptChange<Script>) {
        let (before, after) = change.sides();
        let libraries = before.into_iter().chain(after).filter(|script| script.kind == ScriptKind::Library);
        for owner in libraries.map(|library| library.owner) {
            for session in self.0.sessions.lock().values().filter(|session| owner.receives_events_of(session.owner)) {
                session.libraries_changed.notify_one();
            }
        }
    }
}

impl HubShared {
    /// Waits until no other registration of the same owner is under way.
    pub async fn lock_registration(&self, link: &AgentLink) -> OwnedMutexGuard<()> {
        // A space that is gone by now registers nothing, so any lock will do.
        let owner = self.deps.spaces.get(link.space()).map_or([0; 16], |space| *space.owner.as_bytes());
        self.registering.lock(&owner).await
    }

    pub fn is_deployed(&self, space: SpaceId) -> bool {
        self.deps.spaces.get(space).is_some_and(|space| space.state == SpaceState::Deployed)
    }

    /// Removes the session, unless another one is in force by now.
    pub fn remove_session(&self, session: &Arc<AgentSession>) {
        let (mut sessions, space) = (self.sessions.lock(), session.link.space());
        if sessions.get(&space).is_some_and(|current| Arc::ptr_eq(current, session)) {
            sessions.remove(&space);
            self.deps.registry.clear_refusal(space);
        }
    }

    fn link(&self, space: SpaceId) -> Option<Arc<AgentLink>> {
        self.sessions.lock().get(&space).map(|session| session.link.clone())
    }
}

/// Settings as raw JSON for the wire.
pub(super) fn raw_json(value: &impl serde::Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("settings are JSON")
}
