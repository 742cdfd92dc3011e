//! One space's part in serving a method, and the choice between several (SPEC D2).

use super::Published;
use crate::{
    calls::agent_link::Link,
    model::{agent_protocol::MethodServerHealth, id::SpaceId, method::Method},
};
use parking_lot::RwLock;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// A space that serves a method.
pub struct Provider {
    server: Arc<Server>,
    pub local_name: Arc<str>,
    /// Calls of this method that are out to this space. A registration that replaces another goes on counting.
    in_flight: Arc<AtomicUsize>,
}

/// What the methods of one registration have in common.
pub(super) struct Server {
    space: SpaceId,
    space_name: Arc<str>,
    link: Arc<Link>,
    generation: u64,
    timeout: Duration,
    health: RwLock<MethodServerHealth>,
}

/// Whether a provider takes calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderHealth {
    Running,
    /// Its method server died and is being started again.
    Restarting(String),
    /// Its agent is away.
    Unlinked,
}

/// A call's place at a provider: counted from the choice until this is dropped.
pub struct Turn {
    provider: Arc<Provider>,
}

impl Published {
    /// Takes a turn at the provider with the fewest calls in flight, the one that registered first if several have;
    /// `None` if none is running.
    pub fn take_turn(&self) -> Option<Turn> {
        loop {
            let running = self.providers.iter().filter(|provider| provider.is_running());
            let (provider, count) =
                running.map(|provider| (provider, provider.in_flight())).min_by_key(|(_, count)| *count)?;
            // Another call may have chosen the same one meanwhile; then the choice is made again.
            let counted = provider.in_flight.compare_exchange(count, count + 1, Ordering::AcqRel, Ordering::Relaxed);
            if counted.is_ok() {
                return Some(Turn { provider: provider.clone() });
            }
        }
    }
}

impl Provider {
    pub(super) fn new(method: &Method, server: &Arc<Server>, before: Option<&Self>) -> Self {
        Self {
            server: server.clone(),
            local_name: method.local_name.clone(),
            in_flight: before.map_or_else(Arc::default, |before| before.in_flight.clone()),
        }
    }

    /// Takes a turn here, whoever else is idle: an event goes to the space that subscribed.
    pub fn take_turn(self: &Arc<Self>) -> Turn {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        Turn { provider: self.clone() }
    }

    pub fn space(&self) -> SpaceId {
        self.server.space
    }

    pub fn space_name(&self) -> &Arc<str> {
        &self.server.space_name
    }

    pub fn link(&self) -> &Link {
        &self.server.link
    }

    pub fn generation(&self) -> u64 {
        self.server.generation
    }

    pub fn timeout(&self) -> Duration {
        self.server.timeout
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    pub fn health(&self) -> ProviderHealth {
        if !self.server.link.is_up() {
            return ProviderHealth::Unlinked;
        }
        match &*self.server.health.read() {
            MethodServerHealth::Running => ProviderHealth::Running,
            MethodServerHealth::Restarting { reason } => ProviderHealth::Restarting(reason.clone()),
        }
    }

    fn is_running(&self) -> bool {
        let health = || self.server.health.read();
        self.server.link.is_up() && *health() == MethodServerHealth::Running
    }
}

impl Server {
    pub fn new(space: SpaceId, space_name: Arc<str>, link: Arc<Link>, generation: u64, timeout: Duration) -> Self {
        Self { space, space_name, link, generation, timeout, health: RwLock::new(MethodServerHealth::Running) }
    }

    pub fn space(&self) -> SpaceId {
        self.space
    }

    pub fn note(&self, health: MethodServerHealth) {
        *self.health.write() = health;
    }
}

impl std::ops::Deref for Turn {
    type Target = Provider;

    fn deref(&self) -> &Provider {
        &self.provider
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.provider.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}
