//! The retry policy: decides after an attempt whether the event is done, retried later, or a dead letter.
//!
//! [`super::worker`] records the decision in the queue.

use crate::{
    delivery::{CompletedAttempt, RetryAfter},
    model::timestamp::Timestamp,
    platform::config,
    routing::queue::{AttemptOutcome, SettledAttempt, Settlement},
};
use std::time::Duration;

pub(super) struct RetryPolicy {
    /// The wait after each failed attempt. There is one attempt more than there are waits.
    backoff: Vec<Duration>,
    /// The longest wait that a receiver can ask for.
    max_retry_after: Duration,
}

impl RetryPolicy {
    pub fn new(settings: &config::DeliveryConfig) -> Self {
        Self { backoff: settings.backoff.iter().map(|span| span.0).collect(), max_retry_after: settings.retry_after.0 }
    }

    /// The longest that an event ever waits for its next attempt, also if it was scheduled under other settings.
    pub fn longest_wait(&self) -> Duration {
        self.backoff.iter().copied().fold(self.max_retry_after, Duration::max)
    }

    /// Decides the event's fate after attempt `number` (counted from 1), which began `at` this time.
    pub fn decide(&self, completed: CompletedAttempt, number: u32, at: Timestamp) -> SettledAttempt {
        let settlement = match completed.outcome {
            AttemptOutcome::Delivered | AttemptOutcome::Skipped => Settlement::Complete,
            AttemptOutcome::Failed => self.schedule_retry(&completed, number),
            AttemptOutcome::Dead => dead_letter(&completed),
        };
        SettledAttempt { attempt: completed.into_record(number, at), settlement }
    }

    /// Schedules the next attempt after a failed one; gives the event up after the last.
    fn schedule_retry(&self, failed: &CompletedAttempt, number: u32) -> Settlement {
        let Some(backoff) = self.backoff.get(number as usize - 1).copied() else { return dead_letter(failed) };
        let wait = match failed.retry_after {
            None => backoff,
            Some(RetryAfter::Exactly(wait)) => wait.min(self.max_retry_after),
            Some(RetryAfter::AtLeast(wait)) => wait.min(self.max_retry_after).max(backoff),
        };
        Settlement::Retry(wait)
    }
}

fn dead_letter(attempt: &CompletedAttempt) -> Settlement {
    Settlement::DeadLetter(attempt.error.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::config::Span;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    /// Returns the wait that a failed attempt leads to; `None` if the event is given up.
    fn wait_after(number: u32, retry_after: Option<RetryAfter>) -> Option<Duration> {
        let settings = config::DeliveryConfig {
            backoff: vec![Span(seconds(10)), Span(seconds(60))],
            retry_after: Span(seconds(100)),
            ..config::DeliveryConfig::default()
        };
        let failed = CompletedAttempt::failed("no".to_owned()).with_retry_after(retry_after);
        match RetryPolicy::new(&settings).decide(failed, number, Timestamp::now()).settlement {
            Settlement::Retry(wait) => Some(wait),
            Settlement::DeadLetter(why) => {
                assert_eq!(why, "no");
                None
            }
            Settlement::Complete => panic!("a failed attempt is not complete"),
        }
    }

    #[test]
    fn a_failed_attempt_is_retried_after_its_backoff_and_given_up_after_the_last() {
        for (number, wait) in [(1, Some(10)), (2, Some(60)), (3, None)] {
            assert_eq!(wait_after(number, None), wait.map(seconds));
        }
    }

    #[test]
    fn a_header_lengthens_the_backoff_and_a_script_replaces_it_both_within_the_limit() {
        for (retry_after, wait) in [
            (RetryAfter::AtLeast(seconds(1)), 10),
            (RetryAfter::AtLeast(seconds(30)), 30),
            (RetryAfter::AtLeast(seconds(1000)), 100),
            (RetryAfter::Exactly(seconds(1)), 1),
            (RetryAfter::Exactly(seconds(1000)), 100),
        ] {
            assert_eq!(wait_after(1, Some(retry_after)), Some(seconds(wait)), "{retry_after:?}");
        }
    }
}
