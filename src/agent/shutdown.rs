//! Why and when the agent ends. The first reason counts.

use super::{binding::HomeError, dial::ServerUrl};
use std::sync::OnceLock;
use tokio_util::sync::CancellationToken;

/// Why the agent ends.
#[derive(Clone, Debug)]
pub enum Reason {
    /// Somebody on this machine asked for it.
    Asked,
    /// Whoever watched over it is gone, or wants it gone.
    Abandoned,
    /// A server stopped the space.
    Stopped(ServerUrl),
    /// Another agent came with the same token.
    Replaced(ServerUrl),
    /// The token is not good any more.
    Revoked(ServerUrl),
    /// The data directory belongs to another space.
    Foreign(HomeError),
}

/// How a link is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parting {
    /// The space stops, and its servers are told.
    Goodbye,
    /// Only this agent goes.
    Silence,
}

/// The end, before and after it has come.
#[derive(Default)]
pub struct End {
    reason: OnceLock<Reason>,
    begun: CancellationToken,
    leaving: CancellationToken,
}

impl End {
    /// Ends the agent; only the first reason counts.
    pub fn begin(&self, reason: Reason) {
        let _ = self.reason.set(reason);
        self.begun.cancel();
    }

    /// Resolves once there is a reason.
    pub async fn begun(&self) -> &Reason {
        self.begun.cancelled().await;
        self.reason.get().expect("the reason is set before")
    }

    /// Whether there is a reason.
    pub fn has_begun(&self) -> bool {
        self.begun.is_cancelled()
    }

    /// Tells the links to part.
    pub fn leave(&self) {
        self.leaving.cancel();
    }

    /// Resolves once the links are to part, and says how.
    pub async fn leaving(&self) -> Parting {
        self.leaving.cancelled().await;
        match self.reason.get() {
            Some(Reason::Asked | Reason::Stopped(_)) => Parting::Goodbye,
            // The space has not stopped: another agent is there or will be, or nobody knows us any more.
            Some(Reason::Abandoned | Reason::Replaced(_) | Reason::Revoked(_) | Reason::Foreign(_)) | None => {
                Parting::Silence
            }
        }
    }
}
