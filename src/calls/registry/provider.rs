//! A space that serves a method, and a call's place at it.

use crate::{
    calls::agent_link::AgentLink,
    model::{
        id::SpaceId,
        method::{Method, MethodServerHealth, ServerMode},
    },
};
use parking_lot::RwLock;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Time that a restart of a serial method server may take.
const RESTART_TIME: Duration = Duration::from_secs(10);

/// A space that serves a method.
pub struct Provider {
    server: Arc<RegisteredServer>,
    pub local_name: Arc<str>,
    /// The method as this space defines it.
    pub(super) method: Arc<Method>,
    /// Calls of this method in flight to this space. A registration that replaces another keeps the count.
    in_flight: Arc<AtomicUsize>,
}

/// The method server of one registration, shared by its methods.
pub(super) struct RegisteredServer {
    pub space: SpaceId,
    pub space_name: Arc<str>,
    pub link: Arc<AgentLink>,
    pub generation: u64,
    pub timeout: Duration,
    pub mode: ServerMode,
    /// The health that the agent reported last.
    pub health: RwLock<MethodServerHealth>,
}

/// A call's place at a provider, which counts as in flight until this is dropped.
pub struct CallPlace {
    provider: Arc<Provider>,
}

impl Provider {
    /// The provider of a method, with the count of the provider that it replaces.
    pub(super) fn new(method: &Arc<Method>, server: &Arc<RegisteredServer>, before: Option<&Self>) -> Self {
        Self {
            server: server.clone(),
            local_name: method.local_name.clone(),
            method: method.clone(),
            in_flight: before.map_or_else(Arc::default, |before| before.in_flight.clone()),
        }
    }

    /// Takes a place here even if another provider has fewer calls: an event goes to the space that subscribed.
    pub fn take_place(self: &Arc<Self>) -> CallPlace {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        CallPlace { provider: self.clone() }
    }

    /// Takes a place here if still `count` calls are in flight.
    pub(super) fn take_place_if(self: &Arc<Self>, count: usize) -> Option<CallPlace> {
        let counted = self.in_flight.compare_exchange(count, count + 1, Ordering::AcqRel, Ordering::Relaxed);
        counted.ok().map(|_| CallPlace { provider: self.clone() })
    }

    pub fn space(&self) -> SpaceId {
        self.server.space
    }

    pub fn space_name(&self) -> &Arc<str> {
        &self.server.space_name
    }

    pub fn link(&self) -> &AgentLink {
        &self.server.link
    }

    pub fn generation(&self) -> u64 {
        self.server.generation
    }

    pub fn timeout(&self) -> Duration {
        self.server.timeout
    }

    /// Time in which the agent must reply. A call to a serial method server waits for its turn behind all that are under way,
    /// and one that nobody waits for any more. The agent ends each after twice the timeout, with a restart of the program.
    pub fn reply_limit(&self) -> Duration {
        let RegisteredServer { timeout, mode, link, .. } = &*self.server;
        match mode {
            ServerMode::Concurrent => *timeout,
            ServerMode::Serial => {
                let turns = u32::try_from(link.calls_under_way()).unwrap_or(u32::MAX).saturating_add(2);
                timeout.saturating_mul(2).saturating_add(RESTART_TIME).saturating_mul(turns)
            }
        }
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    pub fn health(&self) -> MethodServerHealth {
        match self.server.link.is_up() {
            true => self.server.health.read().clone(),
            false => MethodServerHealth::Unlinked,
        }
    }

    pub fn is_running(&self) -> bool {
        self.server.link.is_up() && *self.server.health.read() == MethodServerHealth::Running
    }
}

impl std::ops::Deref for CallPlace {
    type Target = Provider;

    fn deref(&self) -> &Provider {
        &self.provider
    }
}

impl Drop for CallPlace {
    fn drop(&mut self) {
        self.provider.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}
