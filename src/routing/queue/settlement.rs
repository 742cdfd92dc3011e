//! The stages of a delivery: pending at the head of its queue, then settled after an attempt.

use super::{Attempt, AttemptOutcome, DeliveryState, HistoryPosition};
use crate::model::{
    event::Event,
    id::{ReplayId, SinkId},
    sequence::MissedRange,
    timestamp::Timestamp,
};
use std::{sync::Arc, time::Duration};

/// The event at the head of a queue, handed to the sink's only worker. It stays at the head until it is settled.
#[derive(Debug)]
pub struct PendingDelivery {
    pub sink: SinkId,
    pub sequence: u64,
    /// The time at which the event was accepted.
    pub accepted_at: Timestamp,
    pub event: Arc<Event>,
    /// Attempts that have failed since the event was queued.
    pub failures: u32,
    /// The delivery was attempted before, and that is stored.
    pub recorded: bool,
    /// The numbers before this one that the sink misses and was not told of. This delivery tells of them.
    pub missed: Vec<MissedRange>,
    /// The job that queued the event again.
    pub replay: Option<ReplayId>,
}

/// An attempt together with its consequence for the queue.
#[derive(Clone, Debug)]
pub struct SettledAttempt {
    pub attempt: Attempt,
    pub settlement: Settlement,
}

/// The consequence of an attempt for the event at the head of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// The event leaves the queue, delivered or skipped.
    Complete,
    /// The event stays at the head and is attempted again after this wait, which starts when the attempt has ended.
    Retry(Duration),
    /// The event leaves the queue and becomes a dead letter for this reason.
    DeadLetter(String),
}

impl PendingDelivery {
    /// The event's place in history.
    pub fn position(&self) -> HistoryPosition {
        HistoryPosition { accepted_at: self.accepted_at, id: self.event.id }
    }

    /// The number of the attempt to be made now, counted from 1.
    pub fn attempt_number(&self) -> u32 {
        self.failures + 1
    }
}

impl SettledAttempt {
    /// The same for another event of the batch that was attempted. The receiver's response is kept with the first one
    /// only.
    #[must_use]
    pub fn for_another(&self) -> Self {
        let attempt = Attempt { response: None, log: Vec::new(), ..self.attempt.clone() };
        Self { attempt, settlement: self.settlement.clone() }
    }

    /// The state of the delivery after this attempt.
    pub fn state(&self) -> DeliveryState {
        match (&self.settlement, self.attempt.outcome) {
            (Settlement::Retry(_), _) => DeliveryState::Queued,
            (Settlement::DeadLetter(_), _) => DeliveryState::Dead,
            (Settlement::Complete, AttemptOutcome::Skipped) => DeliveryState::Skipped,
            (Settlement::Complete, _) => DeliveryState::Delivered,
        }
    }
}
