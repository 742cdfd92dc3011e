//! Counts of what a source did since the server started, for its owner to see why nothing arrives.

use crate::model::timestamp::Timestamp;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

#[derive(Default)]
pub struct SourceActivity {
    accepted: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    last_refusal: Mutex<Option<SourceRefusal>>,
    /// The refusals of each kind.
    refusals: Mutex<HashMap<&'static str, RefusalKind>>,
    last_warning: Mutex<Option<Instant>>,
    last_secret_warning: Mutex<Option<Instant>>,
}

/// The refusals of one kind.
#[derive(Default)]
struct RefusalKind {
    last: Option<Instant>,
    /// The time at which the report of one could not be stored. The next one after a while is reported instead.
    report_failed: Option<Instant>,
}

struct SourceRefusal {
    at: Timestamp,
    reason: String,
}

/// The time without a refusal of one kind after which the next one is reported again.
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

    /// Counts a request that was not verified or was over the limit. Returns true if that is to be reported: there was
    /// no refusal of this kind for a while, or one could not be reported. A stranger who is refused all the time does
    /// not hide another kind of failure.
    pub fn refuse(&self, kind: &'static str, reason: &impl ToString) -> bool {
        self.refused.fetch_add(1, Ordering::Relaxed);
        *self.last_refusal.lock() = Some(SourceRefusal { at: Timestamp::now(), reason: reason.to_string() });
        let mut refusals = self.refusals.lock();
        let refusals = refusals.entry(kind).or_default();
        let before = refusals.last.replace(Instant::now());
        let is_due = before.is_none_or(|before| before.elapsed() >= QUIET_TIME)
            || refusals.report_failed.is_some_and(|failed| failed.elapsed() >= REPORT_AGAIN);
        if is_due {
            refusals.report_failed = None;
        }
        is_due
    }

    /// Notes that a refusal of this kind could not be reported.
    pub fn report_failed(&self, kind: &'static str) {
        self.refusals.lock().entry(kind).or_default().report_failed = Some(Instant::now());
    }

    /// Counts a verified request that was kept as a dead letter. Returns true if it is time for a warning in the log.
    pub fn fail(&self) -> bool {
        self.failed.fetch_add(1, Ordering::Relaxed);
        is_warning_due(&self.last_warning)
    }

    /// Returns true if it is time for a warning in the log that the secret cannot be read.
    pub fn warn_of_secret(&self) -> bool {
        is_warning_due(&self.last_secret_warning)
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

/// Returns true, and notes the time, if the last warning is long enough ago.
fn is_warning_due(last: &Mutex<Option<Instant>>) -> bool {
    let mut last = last.lock();
    let is_due = last.is_none_or(|last| last.elapsed() >= WARNING_INTERVAL);
    if is_due {
        *last = Some(Instant::now());
    }
    is_due
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_a_new_kind_is_reported_among_those_of_another() {
        let activity = SourceActivity::default();
        let refuse = |kind| activity.refuse(kind, &"a");
        assert_eq!((refuse("unverified"), refuse("unverified")), (true, false));
        assert_eq!((refuse("secret"), refuse("unverified"), refuse("secret")), (true, false, false));
    }

    #[test]
    fn an_unread_secret_is_logged_at_intervals_whatever_else_happens() {
        let activity = SourceActivity::default();
        activity.refuse("unverified", &"a");
        activity.fail();
        assert_eq!((activity.warn_of_secret(), activity.warn_of_secret()), (true, false));
        *activity.last_secret_warning.lock() = Instant::now().checked_sub(WARNING_INTERVAL);
        assert!(activity.warn_of_secret());
    }

    #[test]
    fn a_refusal_is_reported_once_and_again_if_the_report_failed() {
        let activity = SourceActivity::default();
        assert_eq!((activity.refuse("a", &"a"), activity.refuse("a", &"a")), (true, false));
        activity.report_failed("a");
        assert!(!activity.refuse("a", &"a"), "not at once");
        activity.refusals.lock().get_mut("a").unwrap().report_failed = Instant::now().checked_sub(REPORT_AGAIN);
        assert!(activity.refuse("b", &"b"), "one of another kind is not in its place");
        assert_eq!((activity.refuse("a", &"a"), activity.refuse("a", &"a")), (true, false));
    }
}
