//! The settings of one agent process, and the signals that stop it.

use super::server_url::{BearerToken, ServerUrl};
use crate::platform::store::StoreOptions;
use std::{path::PathBuf, time::Duration};
use tokio_util::sync::CancellationToken;

/// Settings of an agent.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    pub servers: Vec<ServerUrl>,
    pub token: BearerToken,
    /// The data directory.
    pub data: PathBuf,
    /// The registration to publish with the first link.
    pub methods_file: Option<PathBuf>,
    /// Time limit of a set-up script.
    pub setup_timeout: Duration,
    /// Largest number of spooled events.
    pub spool: usize,
    pub heartbeat: Duration,
    /// The largest event payload until a server has named its own limit, in bytes.
    pub max_payload: usize,
    /// Time for calls under way to end once the agent stops.
    pub drain: Duration,
    /// The way in which the data directory is opened.
    pub store: StoreOptions,
    /// Working directory of health checks and of the startup script.
    pub directory: PathBuf,
    /// The name of this machine.
    pub node_id: String,
    pub reconnect: ReconnectPolicy,
    /// A new method server that ends within this time has not started.
    pub start_check: Duration,
    /// Time in which a server must answer a registration.
    pub answer_timeout: Duration,
}

/// Waits between attempts to connect.
#[derive(Clone, Copy, Debug)]
pub struct ReconnectPolicy {
    /// Upper bound of the first wait; it doubles with each attempt.
    pub first: Duration,
    /// Upper bound of every wait.
    pub limit: Duration,
    /// The shortest and the longest wait after a refused token.
    pub token_refused: (Duration, Duration),
    /// A link that lasted this long resets the waits.
    pub stable_after: Duration,
}

/// Signals that stop an agent from outside.
#[derive(Clone, Debug, Default)]
pub struct StopSignals {
    /// The space stops, and its servers get a goodbye.
    pub stop: CancellationToken,
    /// The supervising process is gone, or wants the agent gone. The space stays deployed.
    pub abandoned: CancellationToken,
}

impl Default for ReconnectPolicy {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(200),
            limit: Duration::from_secs(15),
            token_refused: (Duration::from_secs(15), Duration::from_secs(60)),
            stable_after: Duration::from_secs(5),
        }
    }
}
