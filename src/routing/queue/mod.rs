//! What waits to be delivered: one bounded, durable queue per sink, behind one trait.
//!
//! An engine promises four things. An accepted event is on disk in every queue that had room before
//! the receipt is given. A queue yields its events in the order of their sequence numbers, and the
//! numbers have no gaps but those that drops leave. What was not settled is yielded again after a
//! crash. A full queue loses the new event for its own sink and no other.
//!
//! [`crate::routing::emit`] puts events in, [`crate::delivery::deliver`] takes them out; [`sled`] is the embedded engine.

mod query;
mod record;
pub mod sled;
#[cfg(test)]
mod tests;

pub use crate::model::delivery::{Attempt, AttemptOutcome, DeadLetter, Delivery, DeliveryState};
pub use query::{Cursor, Page, Query};
pub use record::{Record, Routed};

use crate::{
    model::{
        event::Event,
        id::{EventId, SinkId},
        timestamp::Timestamp,
    },
    platform::{audit::Entry, store::StoreError},
};
use async_trait::async_trait;
use std::{sync::Arc, time::Duration};

/// A sink an event was routed to. The name is kept with the event, for when the sink is gone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    pub sink: SinkId,
    pub name: Arc<str>,
}

/// Proof that an event is on disk, and where it went.
#[derive(Clone, Debug)]
pub struct Receipt {
    pub event: Arc<Event>,
    /// Every sink it matched.
    pub matched: Vec<Target>,
    /// Those among them whose queue was full.
    pub dropped: Vec<Target>,
    pub freshness: Freshness,
}

/// Whether an emit stored something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    New,
    /// The id was stored before; the receipt is that of the first time.
    Repeated,
}

/// Why an event was not accepted. Nothing is queued then.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the id {0} belongs to another event: use a new one")]
    IdTaken(EventId),
}

/// The event at the head of a queue, handed to the sink's one worker.
#[derive(Clone, Debug)]
pub struct Claim {
    pub sink: SinkId,
    pub sequence: u64,
    pub event: Arc<Event>,
    /// Attempts that have failed since it was queued.
    pub failures: u32,
    /// When the next attempt is due.
    pub due: Timestamp,
}

/// What an attempt means for the event at the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// It leaves the queue.
    Done,
    /// It stays at the head until this moment.
    Retry(Timestamp),
    /// It leaves the queue for the dead letters.
    Dead(String),
}

impl Settlement {
    /// How far the delivery has come with an attempt of this outcome.
    pub fn state(&self, outcome: AttemptOutcome) -> DeliveryState {
        match (self, outcome) {
            (Self::Retry(_), _) => DeliveryState::Queued,
            (Self::Dead(_), _) => DeliveryState::Dead,
            (Self::Done, AttemptOutcome::Skipped) => DeliveryState::Skipped,
            (Self::Done, _) => DeliveryState::Delivered,
        }
    }
}

/// How full a queue is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    pub queued: usize,
    /// The number of the last event routed here, dropped ones included.
    pub last_sequence: u64,
    pub dead: usize,
}

/// Which dead letters to send again.
#[derive(Clone, Debug)]
pub enum Which {
    All,
    Events(Vec<EventId>),
}

/// What a redelivery did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redelivered {
    pub queued: usize,
    /// Dead letters of the sink still there, for want of room or because they were not asked for.
    pub remaining: usize,
}

/// What history may take.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    pub keep: Duration,
    pub bytes: u64,
}

/// Bounded durable queues, and the record of what went through them.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// Makes sure the sink has a queue. Nothing is written for one that has had no event yet.
    fn open(&self, sink: SinkId);

    /// Throws away the sink's queue and its dead letters; says how many events were waiting.
    async fn discard(&self, sink: SinkId) -> Result<usize, StoreError>;

    /// Stores the event and queues it for each target, all or nothing.
    async fn accept(&self, event: Arc<Event>, targets: Vec<Target>) -> Result<Receipt, AcceptError>;

    /// When the event at the head of the sink's queue may be attempted; `None` if nothing waits.
    fn due(&self, sink: SinkId) -> Option<Timestamp>;

    /// What the sink's worker should do next; `None` if nothing waits. It stays at the head until settled.
    async fn head(&self, sink: SinkId) -> Result<Option<Claim>, StoreError>;

    /// Records an attempt. The queue moves on at once; the disk follows, and a crash before it does redelivers.
    async fn settle(&self, claim: &Claim, attempt: Attempt, settlement: Settlement);

    /// Queues dead letters again, at the tail and under new numbers, as far as there is room. `entry` goes into the
    /// audit log with them, and gets their number.
    async fn redeliver(&self, sink: SinkId, which: Which, entry: Entry) -> Result<Redelivered, StoreError>;

    /// The sink's dead letters, oldest first, after the given sequence number.
    fn dead_letters(&self, sink: SinkId, after: u64, limit: usize) -> Result<Vec<DeadLetter>, StoreError>;

    /// How full the sink's queue is.
    fn depth(&self, sink: SinkId) -> Depth;

    /// Every sink that has a queue.
    fn sinks(&self) -> Vec<SinkId>;

    /// One event with its deliveries.
    fn record(&self, id: EventId) -> Result<Option<Record>, StoreError>;

    /// Events, newest first.
    fn history(&self, query: &Query) -> Result<Page, StoreError>;

    /// Forgets settled events that are older or more than may be kept; says how many.
    async fn prune(&self, retention: Retention) -> Result<usize, StoreError>;
}
