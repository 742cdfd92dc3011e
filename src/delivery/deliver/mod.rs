//! The workers that empty the queues: take, attempt, settle.
//!
//! [`deliverer`] starts a worker for each queue that is not empty; [`sink_worker`] takes the head of the queue, makes
//! the attempt and settles it, with a [`delivery_permit`]; [`bodies_ahead`] renders the next bodies during an attempt.
//! [`recipient`] finds the sink or subscription behind a queue. [`sink_pools`] bounds the attempts at sinks that run at
//! once, in a pool for each state of health. [`retry_policy`] decides between completion, a retry and a dead letter.
//! [`running_attempts`] notes which attempts are under way, for the case that one of them ends the server. [`replays`]
//! lets replay jobs make progress. [`route_sync`] keeps routes and queues in line with the sinks and subscriptions.

mod bodies_ahead;
mod deliverer;
mod delivery_permit;
mod recipient;
mod replays;
mod retry_policy;
mod route_sync;
mod running_attempts;
mod sink_pools;
mod sink_worker;
#[cfg(test)]
mod tests;

pub use deliverer::{Deliverer, DelivererDeps};
pub use route_sync::sync_routes;
pub use running_attempts::RunningAttempts;
