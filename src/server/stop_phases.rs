//! The phases in which the server stops. [`super::daemon`] orders them.
//!
//! 1. *Stopping*: no new call is accepted and no delivery is begun; streams of events end. Requests and deliveries
//!    under way go on, and so do the links of agents, which answer their calls. Events that arrive over open
//!    connections and from agents are accepted: the store is closed last.
//! 2. *Closing*: no connection is accepted, and each one ends with its request. This begins together with the phase
//!    before, unless the server stops because a write failed: then it begins once everything under way has ended, so
//!    that probes are told meanwhile.
//! 3. *Links ending*: once everything under way has ended, or after `limits.drain`, agents are told that the server
//!    restarts. Calls that are still under way fail, and their callers are told.

use tokio_util::sync::CancellationToken;

/// One token for each phase, cancelled when it begins.
#[derive(Clone, Debug, Default)]
pub struct StopPhases {
    pub stopping: CancellationToken,
    pub closing: CancellationToken,
    pub links_ending: CancellationToken,
}

impl StopPhases {
    /// The phases of a server that begins to stop when `stopping` is cancelled.
    pub fn new(stopping: CancellationToken) -> Self {
        Self { stopping, closing: CancellationToken::new(), links_ending: CancellationToken::new() }
    }
}
