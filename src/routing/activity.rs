//! Counts of the last hour by minute, in memory: accepted events by user, attempts and drops by sink.
//!
//! A restart begins at zero. What was silent for an hour is forgotten, so the size is bounded by the users and sinks
//! there are. [`super::feed`] counts everything that it publishes.

use crate::model::{
    delivery::{AttemptKind, AttemptOutcome},
    id::{SinkId, UserId},
    id_map::IdMap,
    timestamp::Timestamp,
};
use parking_lot::Mutex;
use std::sync::Arc;

/// The minutes that are counted, the present one included.
pub const MINUTES: usize = 60;

/// The longest error that is kept, in bytes.
const MAX_ERROR: usize = 500;

/// Counts by minute, oldest first, the present minute last.
pub type MinuteCounts = [u32; MINUTES];

/// A handle to the counts. Cloning it is cheap.
#[derive(Clone, Default)]
pub struct RecentActivity(Arc<Mutex<ActivityCounters>>);

/// The last hour of one sink.
#[derive(Clone, Debug, PartialEq)]
pub struct SinkActivity {
    /// Attempts that delivered the event, or whose script declined it.
    pub delivered: MinuteCounts,
    /// Attempts that failed.
    pub failed: MinuteCounts,
    /// Events that were lost because the queue was full.
    pub dropped: MinuteCounts,
    /// The last attempt failed.
    pub is_failing: bool,
    pub last_error: Option<SinkError>,
}

/// The error of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkError {
    pub at: Timestamp,
    pub message: String,
}

#[derive(Default)]
struct ActivityCounters {
    /// The minute in which the silent were last forgotten.
    swept: i64,
    events: IdMap<UserId, MinuteRing>,
    sinks: IdMap<SinkId, SinkCounters>,
}

/// Most sinks neither fail nor drop, and have one ring.
#[derive(Default)]
struct SinkCounters {
    delivered: MinuteRing,
    failed: Option<Box<MinuteRing>>,
    dropped: Option<Box<MinuteRing>>,
    is_failing: bool,
    last_error: Option<SinkError>,
}

/// A count for each of the last [`MINUTES`] minutes up to `newest`, at the minute modulo their number.
struct MinuteRing {
    newest: i64,
    counts: MinuteCounts,
}

impl RecentActivity {
    pub fn count_event(&self, user: UserId) {
        self.with(Timestamp::now(), |counters, minute| counters.events.entry(user).or_default().count(minute));
    }

    pub fn count_drop(&self, sink: SinkId) {
        self.with(Timestamp::now(), |counters, minute| {
            counters.sinks.entry(sink).or_default().dropped.get_or_insert_default().count(minute);
        });
    }

    pub fn count_attempt(&self, sink: SinkId, outcome: AttemptOutcome, error: Option<&str>) {
        self.count_attempt_at(Timestamp::now(), sink, outcome, error);
    }

    /// The events of this user in the last hour; those of all users if it is `None`.
    pub fn events(&self, user: Option<UserId>, now: Timestamp) -> MinuteCounts {
        let counters = self.0.lock();
        let mut sum = [0; MINUTES];
        match user {
            Some(user) => counters.events.get(&user).into_iter().for_each(|ring| ring.add_to(&mut sum, minute(now))),
            None => counters.events.values().for_each(|ring| ring.add_to(&mut sum, minute(now))),
        }
        sum
    }

    pub fn sink(&self, sink: SinkId, now: Timestamp) -> SinkActivity {
        let counters = self.0.lock();
        counters.sinks.get(&sink).map(|sink| sink.view(minute(now))).unwrap_or_default()
    }

    fn count_attempt_at(&self, now: Timestamp, sink: SinkId, outcome: AttemptOutcome, error: Option<&str>) {
        self.with(now, |counters, minute| {
            let sink = counters.sinks.entry(sink).or_default();
            sink.is_failing = outcome.kind() == AttemptKind::Failed;
            if sink.is_failing {
                sink.failed.get_or_insert_default().count(minute);
            } else {
                sink.delivered.count(minute);
            }
            if let Some(error) = error {
                sink.last_error = Some(SinkError { at: now, message: shortened(error) });
            }
        });
    }

    /// Changes the counters, after forgetting the silent if a new minute has begun.
    fn with(&self, now: Timestamp, change: impl FnOnce(&mut ActivityCounters, i64)) {
        let (mut counters, minute) = (self.0.lock(), minute(now));
        if counters.swept < minute {
            counters.swept = minute;
            counters.events.retain(|_, ring| ring.is_recent(minute));
            counters.sinks.retain(|_, sink| sink.is_recent(minute));
        }
        change(&mut counters, minute);
    }
}

impl SinkCounters {
    fn is_recent(&self, minute: i64) -> bool {
        let recent = |ring: &Option<Box<MinuteRing>>| ring.as_ref().is_some_and(|ring| ring.is_recent(minute));
        self.delivered.is_recent(minute) || recent(&self.failed) || recent(&self.dropped)
    }

    fn view(&self, minute: i64) -> SinkActivity {
        let counts = |ring: Option<&MinuteRing>| {
            let mut counts = [0; MINUTES];
            ring.into_iter().for_each(|ring| ring.add_to(&mut counts, minute));
            counts
        };
        SinkActivity {
            delivered: counts(Some(&self.delivered)),
            failed: counts(self.failed.as_deref()),
            dropped: counts(self.dropped.as_deref()),
            is_failing: self.is_failing,
            last_error: self.last_error.clone(),
        }
    }
}

impl MinuteRing {
    fn count(&mut self, minute: i64) {
        // A clock that was set back counts towards the newest minute.
        let minute = minute.max(self.newest);
        for passed in (self.newest + 1).max(minute - MINUTES as i64 + 1)..=minute {
            self.counts[slot(passed)] = 0;
        }
        self.newest = minute;
        let count = &mut self.counts[slot(minute)];
        *count = count.saturating_add(1);
    }

    fn is_recent(&self, minute: i64) -> bool {
        self.newest > minute - MINUTES as i64
    }

    /// Adds the counts to `sum`, whose last place is `minute`.
    fn add_to(&self, sum: &mut MinuteCounts, minute: i64) {
        for (place, sum) in sum.iter_mut().enumerate() {
            let at = minute - (MINUTES - 1 - place) as i64;
            if at <= self.newest && at > self.newest - MINUTES as i64 {
                *sum = sum.saturating_add(self.counts[slot(at)]);
            }
        }
    }
}

impl Default for MinuteRing {
    fn default() -> Self {
        Self { newest: i64::MIN / 2, counts: [0; MINUTES] }
    }
}

impl Default for SinkActivity {
    fn default() -> Self {
        let none = [0; MINUTES];
        Self { delivered: none, failed: none, dropped: none, is_failing: false, last_error: None }
    }
}

fn minute(at: Timestamp) -> i64 {
    at.seconds().div_euclid(60)
}

fn slot(minute: i64) -> usize {
    minute.rem_euclid(MINUTES as i64) as usize
}

fn shortened(error: &str) -> String {
    error[..error.floor_char_boundary(MAX_ERROR)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const NOON: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

    fn minutes(count: u64) -> Duration {
        Duration::from_secs(60 * count)
    }

    #[test]
    fn attempts_are_counted_in_their_minute_and_forgotten_after_an_hour() {
        let (activity, sink) = (RecentActivity::default(), SinkId::new());
        activity.count_attempt_at(NOON, sink, AttemptOutcome::Delivered, None);
        let later = NOON.after(minutes(59));
        activity.count_attempt_at(later, sink, AttemptOutcome::Failed, Some("refused"));
        activity.count_attempt_at(later, sink, AttemptOutcome::Failed, None);
        let shown = activity.sink(sink, later);
        assert_eq!((shown.delivered[0], shown.delivered.iter().sum::<u32>()), (1, 1));
        assert_eq!((shown.failed[59], shown.is_failing), (2, true));
        assert_eq!(shown.last_error, Some(SinkError { at: later, message: "refused".to_owned() }));
        let next = activity.sink(sink, NOON.after(minutes(60)));
        assert_eq!((next.delivered, next.failed[58]), ([0; MINUTES], 2));
        let past = NOON.after(minutes(119));
        activity.count_attempt_at(past, SinkId::new(), AttemptOutcome::Delivered, None);
        assert_eq!(activity.sink(sink, past), SinkActivity::default());
        assert_eq!(activity.0.lock().sinks.len(), 1, "a silent sink takes no memory");
    }

    #[test]
    fn a_gap_in_time_leaves_no_old_counts_behind() {
        let mut ring = MinuteRing::default();
        ring.count(100);
        ring.count(100 + MINUTES as i64);
        let mut sum = [0; MINUTES];
        ring.add_to(&mut sum, 100 + MINUTES as i64);
        assert_eq!((sum.iter().sum::<u32>(), sum[MINUTES - 1]), (1, 1));
        ring.count(7);
        assert_eq!(ring.counts[slot(100 + MINUTES as i64)], 2, "a clock that was set back");
    }

    #[test]
    fn events_are_counted_by_user() {
        let (activity, ada, eve) = (RecentActivity::default(), UserId::new(), UserId::new());
        activity.count_event(ada);
        activity.count_event(ada);
        activity.count_event(eve);
        let sum = |user| activity.events(user, Timestamp::now()).iter().sum::<u32>();
        assert_eq!((sum(Some(ada)), sum(Some(eve)), sum(None)), (2, 1, 3));
    }

    #[test]
    fn a_long_error_is_cut_between_characters() {
        assert_eq!(shortened(&"é".repeat(300)).len(), 500);
        assert_eq!(shortened("short"), "short");
    }
}
