//! An attempt that has been made and not yet settled.
//!
//! Sinks and subscriptions make attempts; [`crate::delivery::deliver`] settles them.

use crate::{
    model::timestamp::Timestamp,
    routing::queue::{Attempt, AttemptOutcome},
};
use bytes::Bytes;
use std::time::Duration;

/// The result of an attempt that was made.
#[derive(Debug)]
pub struct CompletedAttempt {
    pub outcome: AttemptOutcome,
    /// The reason that the event was not delivered, in one line. Present for failed and dead attempts.
    pub error: Option<String>,
    /// The prospects of another attempt after a failed one.
    pub failure_kind: FailureKind,
    /// The wait that the receiver asked for; `None` leaves it to the backoff.
    pub retry_after: Option<RetryAfter>,
    /// The HTTP status, if there was a response.
    pub status: Option<u16>,
    /// Lines that a script printed.
    pub log: Vec<String>,
    /// The beginning of the receiver's response.
    pub response: Option<String>,
    /// The body that was posted.
    pub sent: Option<Bytes>,
    pub duration: Duration,
}

/// The prospects of another attempt after a failed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Another attempt may succeed.
    Passing,
    /// Every attempt fails until the sink, its script or the egress policy is changed.
    Lasting,
    /// The receiver says that it is gone, and its sink wants to be paused then.
    Gone,
}

/// A wait before the next attempt, as a receiver asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAfter {
    /// Exactly this long, in place of the backoff: a script sets the time itself.
    Exactly(Duration),
    /// At least this long, and no shorter than the backoff: a `Retry-After` header.
    AtLeast(Duration),
}

/// Nothing was attempted, because there was no room to run the script or the connection to the agent broke. This
/// uses up none of the event's attempts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Postponed(pub String);

impl CompletedAttempt {
    pub fn delivered() -> Self {
        Self::new(AttemptOutcome::Delivered, None)
    }

    pub fn skipped() -> Self {
        Self::new(AttemptOutcome::Skipped, None)
    }

    /// A failure after which the event may be attempted again.
    pub fn failed(error: String) -> Self {
        Self::new(AttemptOutcome::Failed, Some(error))
    }

    /// A failure after which no further attempt makes sense.
    pub fn dead(error: String) -> Self {
        Self::new(AttemptOutcome::Dead, Some(error))
    }

    pub fn with_retry_after(self, retry_after: Option<RetryAfter>) -> Self {
        Self { retry_after, ..self }
    }

    pub fn of_kind(self, failure_kind: FailureKind) -> Self {
        Self { failure_kind, ..self }
    }

    fn new(outcome: AttemptOutcome, error: Option<String>) -> Self {
        Self {
            outcome,
            error,
            failure_kind: FailureKind::Passing,
            retry_after: None,
            status: None,
            log: Vec::new(),
            response: None,
            sent: None,
            duration: Duration::ZERO,
        }
    }

    /// Returns the record of this attempt that is kept with the delivery.
    pub fn into_record(self, number: u32, at: Timestamp) -> Attempt {
        Attempt {
            number,
            at,
            duration_ms: self.duration.as_secs_f64() * 1e3,
            outcome: self.outcome,
            status: self.status,
            error: self.error,
            response: self.response,
            log: self.log,
        }
    }
}
