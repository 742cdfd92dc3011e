//! The servers this agent belongs to, and how the link to each stands.

use super::{dial::ServerUrl, server_link::Link};
use crate::model::timestamp::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use std::sync::Arc;

/// One seat for each server, in the order they were named.
pub struct Links(Vec<Seat>);

/// One server.
pub struct Seat {
    pub server: ServerUrl,
    state: Mutex<(State, Timestamp)>,
}

/// How its link stands.
#[derive(Clone, Debug)]
enum State {
    Connecting { error: Option<String> },
    Connected(Arc<Link>),
}

/// The same, for people.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Standing {
    pub url: String,
    pub connected: bool,
    /// Since when it has been so.
    pub since: Timestamp,
    /// Why it is not connected.
    pub error: Option<String>,
    /// Whether it has the methods that are registered.
    pub published: bool,
    /// Why it has not.
    pub refusal: Option<String>,
}

impl Links {
    pub fn new(servers: &[ServerUrl]) -> Self {
        Self(servers.iter().cloned().map(Seat::new).collect())
    }

    pub fn seats(&self) -> &[Seat] {
        &self.0
    }

    /// The links that are up.
    pub fn up(&self) -> Vec<Arc<Link>> {
        self.0.iter().filter_map(Seat::link).collect()
    }

    pub fn standings(&self) -> Vec<Standing> {
        self.0.iter().map(Seat::standing).collect()
    }
}

impl Seat {
    fn new(server: ServerUrl) -> Self {
        Self { server, state: Mutex::new((State::Connecting { error: None }, Timestamp::now())) }
    }

    /// A link is up from here on.
    pub fn connect(&self, link: Arc<Link>) {
        *self.state() = (State::Connected(link), Timestamp::now());
    }

    /// There is no link.
    pub fn disconnect(&self, why: String) {
        let mut state = self.state();
        let since = match &state.0 {
            State::Connecting { .. } => state.1,
            State::Connected(_) => Timestamp::now(),
        };
        *state = (State::Connecting { error: Some(why) }, since);
    }

    fn link(&self) -> Option<Arc<Link>> {
        match &self.state().0 {
            State::Connected(link) => Some(link.clone()),
            State::Connecting { .. } => None,
        }
    }

    fn standing(&self) -> Standing {
        let (state, since) = self.state().clone();
        let url = self.server.to_string();
        match state {
            State::Connected(link) => {
                let published = link.published().borrow().is_some();
                Standing { url, connected: true, since, error: None, published, refusal: link.refusal() }
            }
            State::Connecting { error } => {
                Standing { url, connected: false, since, error, published: false, refusal: None }
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, (State, Timestamp)> {
        self.state.lock()
    }
}
