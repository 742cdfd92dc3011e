//! Counts of what a source did since the server started, for its owner to see why nothing arrives.

use crate::model::timestamp::Timestamp;
use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

#[derive(Default)]
pub struct SourceActivity {
    accepted: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    last_refusal: Mutex<Option<SourceRefusal>>,
    last_warning: Mutex<Option<Instant>>,
    /// The time at which the report of a refusal could not be stored. The next refusal after a while is reported instead.
    report_failed: Mutex<Option<Instant>>,
}

struct SourceRefusal {
    at: Timestamp,
    instant: Instant,
    reason: String,
}

/// The time without a refusal after which the next one is reported again.
const QUIET_TIME: Duration = Duration::from_secs(600);

/// The time after which a refusal is reported in place of one whose report failed.
const REPORT_AGAIN: Duration = Duration::from_secs(5);

/// The least time between two warnings about one source in the log.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

impl SourceActivity {
    /// Counts a request whose events are stored.
    pub fn accept(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that was not verified or was over the limit. Returns true if that is to be reported: there was no
    /// refusal for a while, or it could not be reported.
    pub fn refuse(&self, reason: &impl ToString) -> bool {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let refusal = SourceRefusal { at: Timestamp::now(), instant: Instant::now(), reason: reason.to_string() };
        let before = self.last_refusal.lock().replace(refusal);
        let mut failed = self.report_failed.lock();
        let is_due = before.is_none_or(|before| before.instant.elapsed() >= QUIET_TIME)
            || failed.is_some_and(|failed| failed.elapsed() >= REPORT_AGAIN);
        if is_due {
            *failed = None;
        }
        is_due
    }

    /// Notes that a refusal could not be reported.
    pub fn report_failed(&self) {
        *self.report_failed.lock() = Some(Instant::now());
    }

    /// Counts a verified request that was kept as a dead letter. Returns true if it is time for a warning in the log.
    pub fn fail(&self) -> bool {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let mut last = self.last_warning.lock();
        let is_due = last.is_none_or(|last| last.elapsed() >= WARNING_INTERVAL);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }

    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// The time and the reason of the last refusal.
    pub fn last_refusal(&self) -> Option<(Timestamp, String)> {
        self.last_refusal.lock().as_ref().map(|refusal| (refusal.at, refusal.reason.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_reported_once_and_again_if_the_report_failed() {
        let activity = SourceActivity::default();
        assert_eq!((activity.refuse(&"a"), activity.refuse(&"a")), (true, false));
        activity.report_failed();
        assert!(!activity.refuse(&"a"), "not at once");
        *activity.report_failed.lock() = Instant::now().checked_sub(REPORT_AGAIN);
        assert_eq!((activity.refuse(&"a"), activity.refuse(&"a")), (true, false));
    }
}
