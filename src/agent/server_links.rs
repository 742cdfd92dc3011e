//! The servers of this agent, and the state of the link to each.

use super::{server_link::ServerLink, server_url::ServerUrl};
use crate::model::{api::agent::ServerLinkView, timestamp::Timestamp};
use parking_lot::Mutex;
use std::sync::Arc;

/// One slot for each server, in the order in which they were configured.
pub struct ServerLinks(Vec<ServerSlot>);

/// One server.
pub struct ServerSlot {
    pub server: ServerUrl,
    /// The state of its link, and the time at which it became connected or disconnected.
    state: Mutex<(LinkState, Timestamp)>,
}

#[derive(Clone, Debug)]
enum LinkState {
    Connecting { error: Option<String> },
    Connected(Arc<ServerLink>),
}

impl ServerLinks {
    pub fn new(servers: &[ServerUrl]) -> Self {
        Self(servers.iter().cloned().map(ServerSlot::new).collect())
    }

    pub fn slots(&self) -> &[ServerSlot] {
        &self.0
    }

    /// The links that are up.
    pub fn up(&self) -> Vec<Arc<ServerLink>> {
        self.0.iter().filter_map(ServerSlot::link).collect()
    }

    pub fn statuses(&self) -> Vec<ServerLinkView> {
        self.0.iter().map(ServerSlot::status).collect()
    }
}

impl ServerSlot {
    fn new(server: ServerUrl) -> Self {
        Self { server, state: Mutex::new((LinkState::Connecting { error: None }, Timestamp::now())) }
    }

    pub fn connected(&self, link: Arc<ServerLink>) {
        *self.state.lock() = (LinkState::Connected(link), Timestamp::now());
    }

    pub fn disconnected(&self, error: String) {
        let mut state = self.state.lock();
        let since = match &state.0 {
            LinkState::Connecting { .. } => state.1,
            LinkState::Connected(_) => Timestamp::now(),
        };
        *state = (LinkState::Connecting { error: Some(error) }, since);
    }

    fn link(&self) -> Option<Arc<ServerLink>> {
        match &self.state.lock().0 {
            LinkState::Connected(link) => Some(link.clone()),
            LinkState::Connecting { .. } => None,
        }
    }

    fn status(&self) -> ServerLinkView {
        let (state, since) = self.state.lock().clone();
        let url = self.server.to_string();
        match state {
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
