//! What follows from an attempt: done, another try and when, or the dead letters.

use super::recipient::Recipient;
use crate::{
    delivery::sinks::Outcome,
    model::timestamp::Timestamp,
    platform::config,
    routing::queue::{AttemptOutcome, Settlement},
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

    /// The longest an event ever waits for its next attempt. A clock that was set back must not make it more.
    pub fn longest(&self) -> Duration {
        self.backoff.iter().copied().fold(self.longest_wait, Duration::max)
    }

    /// What attempt `number` (from 1) means for the event; `None` if it was none.
    pub fn settle(
        &self,
        recipient: &Recipient,
        outcome: &Outcome,
        number: u32,
    ) -> Option<(AttemptOutcome, Settlement)> {
        Some(match outcome {
            Outcome::Delivered => (AttemptOutcome::Delivered, Settlement::Done),
            Outcome::Skipped(_) => (AttemptOutcome::Skipped, Settlement::Done),
            Outcome::Dead(why) => (AttemptOutcome::Dead, Settlement::Dead(why.clone())),
            Outcome::Failed { why, retry_after } => {
                (AttemptOutcome::Failed, self.after_failure(recipient, why, *retry_after, number))
            }
            Outcome::Postponed(_) => return None,
        })
    }

    fn after_failure(&self, recipient: &Recipient, why: &str, asked: Option<Duration>, number: u32) -> Settlement {
        let Some(backoff) = self.backoff.get(number as usize - 1) else { return Settlement::Dead(why.to_owned()) };
        let wait = match asked {
            None => *backoff,
            // A script says when; a receiver's header says not before when.
            Some(asked) if recipient.keeps_the_time() => asked.min(self.longest_wait),
            Some(asked) => asked.min(self.longest_wait).max(*backoff),
        };
        Settlement::Retry(Timestamp::now().after(wait))
    }
}
