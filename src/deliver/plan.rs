//! What follows from an attempt: done, another try and when, or the dead letters.

use crate::{
    config,
    queue::{AttemptOutcome, Settlement},
    sink::{Outcome, Sink, Target},
    timestamp::Timestamp,
};
use std::time::Duration;

/// The schedule of attempts.
pub(super) struct Plan {
    backoff: Vec<Duration>,
    longest_wait: Duration,
}

impl Plan {
    /// One attempt more than there are waits.
    pub fn new(settings: &config::Delivery) -> Self {
        Self { backoff: settings.backoff.iter().map(|span| span.0).collect(), longest_wait: settings.retry_after.0 }
    }

    /// What attempt `number` (from 1) means for the event.
    pub fn settle(&self, sink: &Sink, outcome: &Outcome, number: u32) -> Settlement {
        match outcome {
            Outcome::Delivered | Outcome::Skipped(_) => Settlement::Done,
            Outcome::Dead(why) => Settlement::Dead(why.clone()),
            Outcome::Failed { why, retry_after } => {
                let Some(backoff) = self.backoff.get(number as usize - 1) else { return Settlement::Dead(why.clone()) };
                let wait = match (retry_after, &sink.target) {
                    (None, _) => *backoff,
                    // A script says when; a receiver's header says not before when.
                    (Some(asked), Target::Script(_)) => (*asked).min(self.longest_wait),
                    (Some(asked), _) => (*asked).min(self.longest_wait).max(*backoff),
                };
                Settlement::Retry(Timestamp::now().after(wait))
            }
        }
    }
}

/// The outcome as history tells it.
pub(super) fn outcome(outcome: &Outcome) -> AttemptOutcome {
    match outcome {
        Outcome::Delivered => AttemptOutcome::Delivered,
        Outcome::Skipped(_) => AttemptOutcome::Skipped,
        Outcome::Failed { .. } => AttemptOutcome::Failed,
        Outcome::Dead(_) => AttemptOutcome::Dead,
    }
}
