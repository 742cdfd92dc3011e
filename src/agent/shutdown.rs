//! The shutdown of the agent: its reason, and the two moments at which it begins and at which the links are closed.
//!
//! Only the first reason counts. Between the two moments the agent drains: it finishes calls and sends its last events.

use super::{binding::BindingError, server_url::ServerUrl};
use std::sync::OnceLock;
use tokio_util::sync::CancellationToken;

/// Reason why the agent stops.
#[derive(Clone, Debug)]
pub enum StopReason {
    /// A signal on this machine.
    Requested,
    /// The process that supervised the agent is gone, or wants it gone.
    Abandoned,
    /// A server stopped the space.
    SpaceStopped(ServerUrl),
    /// Another agent connected with the same token.
    Replaced(ServerUrl),
    /// The token is not valid any more.
    Revoked(ServerUrl),
    /// The data directory belongs to another space.
    WrongSpace(BindingError),
}

/// The way in which the agent leaves its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkClosing {
    /// The space stops.
    WithGoodbye,
    /// Only this agent ends, and the space stays deployed.
    WithoutGoodbye,
}

/// State of the shutdown.
#[derive(Default)]
pub struct Shutdown {
    reason: OnceLock<StopReason>,
    begun: CancellationToken,
    closing_links: CancellationToken,
}

impl Shutdown {
    /// Begins the shutdown; only the first reason counts.
    pub fn begin(&self, reason: StopReason) {
        let _ = self.reason.set(reason);
        self.begun.cancel();
    }

    /// Resolves once the shutdown has begun.
    pub async fn begun(&self) -> &StopReason {
        self.begun.cancelled().await;
        self.reason.get().expect("the reason is set before")
    }

    pub fn has_begun(&self) -> bool {
        self.begun.is_cancelled()
    }

    /// Makes the links close.
    pub fn close_links(&self) {
        self.closing_links.cancel();
    }

    /// Resolves once the links are to close.
    pub async fn links_closing(&self) -> LinkClosing {
        self.closing_links.cancelled().await;
        match self.reason.get() {
            Some(StopReason::Requested | StopReason::SpaceStopped(_)) => LinkClosing::WithGoodbye,
            // The space has not stopped: another agent serves it or will, or no server knows this one any more.
            Some(
                StopReason::Abandoned | StopReason::Replaced(_) | StopReason::Revoked(_) | StopReason::WrongSpace(_),
            )
            | None => LinkClosing::WithoutGoodbye,
        }
    }
}
