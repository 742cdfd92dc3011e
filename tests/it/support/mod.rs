//! What every test of the whole needs: a daemon in a fresh directory on a free port, spaces with their agents, and a
//! receiver that records what it is sent. Tests wait on conditions; nothing here sleeps and hopes.

pub mod clients;
mod daemon;
mod receiver;
mod space;

pub use daemon::{Daemon, Reply};
pub use receiver::{Answer, Received, Receiver};
pub use space::{Space, registration};

use std::time::{Duration, Instant};

/// How long a condition may take to come true before the test fails. Generous: a busy machine is no bug.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `condition` yields something.
#[track_caller]
pub fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process has ended, waited for or not.
pub fn ended(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.map_or(true, |stat| stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('Z')))
}
