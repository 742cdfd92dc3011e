//! The servers of this agent, and the state of the link to each.

use super::{server_link::ServerLink, server_url::ServerUrl};
use crate::model::{api::agent::ServerLinkView, timestamp::Timestamp};
use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

/// Time for which a request waits for a link that is being made, from the start of the agent or the loss of the link.
pub const LINK_WAIT: Duration = Duration::from_secs(10);

/// One slot for each server, in the order in which they were configured.
pub struct ServerLinks {
    slots: Vec<ServerSlot>,
    /// Notified when a link is made.
    made: watch::Sender<()>,
}

/// One server.
pub struct ServerSlot {
    pub server: ServerUrl,
    state: Mutex<SlotState>,
    made: watch::Sender<()>,
}

/// The state of a link, and the time at which it became connected or disconnected.
#[derive(Clone, Debug)]
struct SlotState {
    link: LinkState,
    since: Timestamp,
    began: Instant,
}

#[derive(Clone, Debug)]
enum LinkState {
    Connecting { error: Option<String> },
    Connected(Arc<ServerLink>),
}

impl ServerLinks {
    pub fn new(servers: &[ServerUrl]) -> Self {
        let made = watch::Sender::new(());
        Self { slots: servers.iter().map(|server| ServerSlot::new(server.clone(), made.clone())).collect(), made }
    }

    pub fn slots(&self) -> &[ServerSlot] {
        &self.slots
    }

    /// The links that are up.
    pub fn up(&self) -> Vec<Arc<ServerLink>> {
        self.slots.iter().filter_map(ServerSlot::link).collect()
    }

    /// Waits until a link is up, if the agent has just started or has just lost one.
    pub async fn wait_up(&self) {
        let mut made = self.made.subscribe();
        let Some(began) = self.slots.iter().map(|slot| slot.state.lock().began).max() else { return };
        let up = async { while self.up().is_empty() && made.changed().await.is_ok() {} };
        let _ = timeout_at(began + LINK_WAIT, up).await;
    }

    /// The warnings of all servers about the present registration, each once.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<String> = self.up().iter().flat_map(|link| link.warnings()).collect();
        warnings.sort_unstable();
        warnings.dedup();
        warnings
    }

    pub fn statuses(&self) -> Vec<ServerLinkView> {
        self.slots.iter().map(ServerSlot::status).collect()
    }
}

impl ServerSlot {
    fn new(server: ServerUrl, made: watch::Sender<()>) -> Self {
        Self { server, state: Mutex::new(SlotState::now(LinkState::Connecting { error: None })), made }
    }

    pub fn connected(&self, link: Arc<ServerLink>) {
        *self.state.lock() = SlotState::now(LinkState::Connected(link));
        self.made.send_replace(());
    }

    pub fn disconnected(&self, error: String) {
        let mut state = self.state.lock();
        let link = LinkState::Connecting { error: Some(error) };
        match &state.link {
            LinkState::Connecting { .. } => state.link = link,
            LinkState::Connected(_) => *state = SlotState::now(link),
        }
    }

    fn link(&self) -> Option<Arc<ServerLink>> {
        match &self.state.lock().link {
            LinkState::Connected(link) => Some(link.clone()),
            LinkState::Connecting { .. } => None,
        }
    }

    fn status(&self) -> ServerLinkView {
        let SlotState { link, since, .. } = self.state.lock().clone();
        let url = self.server.to_string();
        match link {
            LinkState::Connected(link) => {
                let published = link.published().borrow().is_some();
                ServerLinkView { url, connected: true, since, error: None, published, refusal: link.refusal() }
            }
            LinkState::Connecting { error } => {
                ServerLinkView { url, connected: false, since, error, published: false, refusal: None }
            }
        }
    }
}

impl SlotState {
    fn now(link: LinkState) -> Self {
        Self { link, since: Timestamp::now(), began: Instant::now() }
    }
}
