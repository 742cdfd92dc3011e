//! The retry policy: decides after an attempt whether the event is done, retried later, or a dead letter.
//!
//! An event of a sink with `on_failure = "hold"` is never given up: after the waits of the backoff it is held, and the
//! waits double up to a limit. A lasting failure, which no attempt can mend, skips the attempts that are left.
//!
//! [`super::worker`] records the decision in the queue.

use crate::{
    delivery::{CompletedAttempt, FailureKind, FailureState, RetryAfter},
    model::{failure_policy::OnFailure, timestamp::Timestamp},
    platform::config,
    routing::queue::{AttemptOutcome, SettledAttempt, Settlement},
};
use std::time::Duration;

/// The wait that is doubled for held events if the backoff has none, and the least one.
const FIRST_HOLD_WAIT: Duration = Duration::from_secs(5);
const LEAST_HOLD_WAIT: Duration = Duration::from_millis(1);

pub(super) struct RetryPolicy {
    /// The wait after each failed attempt. There is one attempt more than there are waits.
    backoff: Vec<Duration>,
    /// The longest wait that a receiver can ask for.
    max_retry_after: Duration,
    /// The longest wait between attempts at an event that is held.
    hold_max: Duration,
}

/// A settled attempt, and its meaning for the sink.
pub(super) struct RetryDecision {
    pub settled: SettledAttempt,
    pub finding: SinkFinding,
}

/// The meaning of an attempt for its sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SinkFinding {
    /// It takes events.
    Works,
    Fails {
        state: FailureState,
        reason: String,
        kind: FailureKind,
    },
    /// Its script gave the event up by itself, so that the sink does not hold it any more.
    GaveUp,
    /// Attempts are left.
    Undecided,
}

impl RetryPolicy {
    pub fn new(settings: &config::DeliveryConfig) -> Self {
        Self {
            backoff: settings.backoff.iter().map(|span| span.0).collect(),
            max_retry_after: settings.retry_after.0,
            hold_max: settings.hold_max.0,
        }
    }

    /// The longest that an event ever waits for its next attempt, also if it was scheduled under other settings.
    pub fn longest_wait(&self) -> Duration {
        self.backoff.iter().copied().fold(self.max_retry_after.max(self.hold_max), Duration::max)
    }

    /// Decides the event's fate after attempt `number` (counted from 1), which began `at` this time.
    pub fn decide(
        &self,
        completed: CompletedAttempt,
        number: u32,
        at: Timestamp,
        on_failure: OnFailure,
    ) -> RetryDecision {
        let settlement = match completed.outcome {
            AttemptOutcome::Delivered | AttemptOutcome::Skipped => Settlement::Complete,
            AttemptOutcome::Failed => self.schedule_retry(&completed, number, on_failure),
            // A script gives this event up by itself.
            AttemptOutcome::Dead => dead_letter(&completed),
        };
        let finding = self.finding(&completed, number, &settlement);
        RetryDecision { settled: SettledAttempt { attempt: completed.into_record(number, at), settlement }, finding }
    }

    fn finding(&self, completed: &CompletedAttempt, number: u32, settlement: &Settlement) -> SinkFinding {
        let kind = completed.failure_kind;
        let state = match (completed.outcome, settlement) {
            (AttemptOutcome::Delivered | AttemptOutcome::Skipped, _) => return SinkFinding::Works,
            (AttemptOutcome::Failed, Settlement::DeadLetter(_)) => FailureState::Failing,
            (AttemptOutcome::Failed, Settlement::Retry(_))
                if kind != FailureKind::Passing || number as usize > self.backoff.len() =>
            {
                FailureState::Held
            }
            (AttemptOutcome::Dead, _) => return SinkFinding::GaveUp,
            (AttemptOutcome::Failed, _) => return SinkFinding::Undecided,
        };
        SinkFinding::Fails { state, reason: completed.error.clone().unwrap_or_default(), kind }
    }

    /// Schedules the next attempt after a failed one; gives the event up after the last, unless it is to be held.
    fn schedule_retry(&self, failed: &CompletedAttempt, number: u32, on_failure: OnFailure) -> Settlement {
        match (failed.failure_kind, on_failure) {
            (FailureKind::Passing, _) => {}
            (FailureKind::Lasting, OnFailure::DeadLetter) => return dead_letter(failed),
            (FailureKind::Lasting, OnFailure::Hold) | (FailureKind::Gone, _) => {
                return Settlement::Retry(self.hold_max);
            }
        }
        let backoff = match (self.backoff.get(number as usize - 1).copied(), on_failure) {
            (Some(backoff), OnFailure::DeadLetter) => backoff,
            (Some(backoff), OnFailure::Hold) => backoff.min(self.hold_max),
            (None, OnFailure::DeadLetter) => return dead_letter(failed),
            (None, OnFailure::Hold) => self.hold_wait(number),
        };
        let wait = match failed.retry_after {
            None => backoff,
            Some(RetryAfter::Exactly(wait)) => wait.min(self.max_retry_after),
            Some(RetryAfter::AtLeast(wait)) => wait.min(self.max_retry_after).max(backoff),
        };
        Settlement::Retry(wait)
    }

    /// The wait after an attempt that follows those of the backoff: the last wait of the backoff, doubled for each of
    /// them.
    fn hold_wait(&self, number: u32) -> Duration {
        let last = self.backoff.last().copied().unwrap_or(FIRST_HOLD_WAIT).max(LEAST_HOLD_WAIT);
        let doublings = number.saturating_sub(self.backoff.len() as u32);
        last.saturating_mul(2_u32.saturating_pow(doublings)).min(self.hold_max)
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

    fn decide(failed: CompletedAttempt, number: u32, on_failure: OnFailure) -> RetryDecision {
        let settings = config::DeliveryConfig {
            backoff: vec![Span(seconds(10)), Span(seconds(60))],
            retry_after: Span(seconds(100)),
            hold_max: Span(seconds(1000)),
            ..config::DeliveryConfig::default()
        };
        RetryPolicy::new(&settings).decide(failed, number, Timestamp::now(), on_failure)
    }

    fn failed() -> CompletedAttempt {
        CompletedAttempt::failed("no".to_owned())
    }

    fn fails(state: FailureState, kind: FailureKind) -> SinkFinding {
        SinkFinding::Fails { state, reason: "no".to_owned(), kind }
    }

    /// Returns the wait that a failed attempt leads to; `None` if the event is given up.
    fn wait_after(number: u32, retry_after: Option<RetryAfter>) -> Option<Duration> {
        match decide(failed().with_retry_after(retry_after), number, OnFailure::DeadLetter).settled.settlement {
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
    fn a_held_event_waits_twice_as_long_each_time_up_to_the_limit_and_is_never_given_up() {
        let held = fails(FailureState::Held, FailureKind::Passing);
        for (number, wait, finding) in [
            (1, 10, &SinkFinding::Undecided),
            (2, 60, &SinkFinding::Undecided),
            (3, 120, &held),
            (4, 240, &held),
            (6, 960, &held),
            (7, 1000, &held),
            (1_000_000, 1000, &held),
            (u32::MAX, 1000, &held),
        ] {
            let decided = decide(failed(), number, OnFailure::Hold);
            assert_eq!(decided.settled.settlement, Settlement::Retry(seconds(wait)), "{number}");
            assert_eq!((decided.settled.attempt.number, &decided.finding), (number, finding));
        }
    }

    #[test]
    fn a_failure_that_attempts_do_not_mend_spares_the_attempts_that_are_left() {
        use {FailureKind::*, OnFailure::*};
        let letter = || Settlement::DeadLetter("no".to_owned());
        let held = || Settlement::Retry(seconds(1000));
        for (kind, on_failure, settlement, state) in [
            (Lasting, DeadLetter, letter(), FailureState::Failing),
            (Lasting, Hold, held(), FailureState::Held),
            (Gone, DeadLetter, held(), FailureState::Held),
            (Gone, Hold, held(), FailureState::Held),
        ] {
            let decided = decide(failed().of_kind(kind), 1, on_failure);
            assert_eq!((decided.settled.settlement, decided.finding), (settlement, fails(state, kind)));
        }
    }

    #[test]
    fn a_sink_fails_with_the_last_attempt_and_works_with_a_success_and_a_script_that_gives_up_is_neither() {
        assert_eq!(decide(failed(), 2, OnFailure::DeadLetter).finding, SinkFinding::Undecided);
        let last = decide(failed(), 3, OnFailure::DeadLetter).finding;
        assert_eq!(last, fails(FailureState::Failing, FailureKind::Passing));
        for success in [CompletedAttempt::delivered(), CompletedAttempt::skipped()] {
            assert_eq!(decide(success, 3, OnFailure::Hold).finding, SinkFinding::Works);
        }
        let given_up = decide(CompletedAttempt::dead("no".to_owned()), 1, OnFailure::Hold);
        assert_eq!(given_up.settled.settlement, Settlement::DeadLetter("no".to_owned()));
        assert_eq!(given_up.finding, SinkFinding::GaveUp);
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
