//! The phases in which the server stops. [`super::daemon`] orders them.
//!
//! 1. *Stopping*: no connection and no new call is accepted and no delivery is begun; streams of events end. Requests and
//!    deliveries under way go on, and so do the links of agents, which answer their calls. Events that arrive over open
//!    connections and from agents are accepted: the store is closed last.
//! 2. *Links ending*: once everything under way has ended, or after `limits.drain`, agents are told that the server
//!    restarts. Calls that are still under way fail, and their callers are told.

use tokio_util::sync::CancellationToken;

/// One token for each phase, cancelled when it begins.
#[derive(Clone, Debug, Default)]
pub struct StopPhases {
    pub stopping: CancellationToken,
    pub links_ending: CancellationToken,
}

impl StopPhases {
    /// The phases of a server that begins to stop when `stopping` is cancelled.
    pub fn new(stopping: CancellationToken) -> Self {
        Self { stopping, links_ending: CancellationToken::new() }
    }
}
