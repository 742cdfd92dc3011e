//! One bounded, durable queue per sink, behind one trait.
//!
//! A queue engine gives four guarantees:
//!
//! - The receipt of an accepted event is given after the event is on disk in every queue that had room.
//! - A queue yields its events in the order of their sequence numbers, and skips only the numbers of dropped and of
//!   damaged events.
//! - An event whose delivery was not settled is yielded again after a crash.
//! - A full queue loses the new event for its own sink and no other.
//!
//! A delivery passes through two stages here: [`PendingDelivery`] is the head of a queue, handed to the sink's only
//! worker; [`SettledAttempt`] is an attempt with its consequence for the queue. Between the two the worker makes the
//! attempt, in [`crate::delivery::deliver`]. [`crate::routing::emit`] puts events in; [`sled`] is the embedded engine.

mod engine;
mod history;
mod replay;
mod settlement;
pub mod sled;
#[cfg(test)]
mod tests;

pub use crate::model::delivery::{Attempt, AttemptOutcome, DeadLetter, Delivery, DeliveryState};
pub use engine::{
    AcceptError, AcceptOptions, Acceptance, BurstEnd, DeadLetterFilter, Engine, OrderedEmits, QueueDepth, QueueHead,
    Receipt, Redelivered, Retention, RouteTarget,
};
pub use history::{AttemptFilter, DeliverySelection, HistoryFilter, HistoryPage, HistoryPosition, Record};
pub use replay::{NewReplay, ReplayError, ReplayStep, RunningReplay};
pub use settlement::{PendingDelivery, SettledAttempt, Settlement};
