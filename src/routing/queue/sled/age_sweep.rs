//! The part of history that deletion by age has to look at.
//!
//! An event that a queue or a dead letter holds stays in history beyond its age. It is looked at again when something
//! was let go, not with every sweep: the cost of a sweep grows with what has become old since the last one.

use crate::model::timestamp::Timestamp;
use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
    time::Duration,
};
use tokio::time::Instant;

/// Time after which all old events are looked at in any case.
const WHOLE_SWEEP: Duration = Duration::from_secs(3600);

/// What the last sweep has left behind it.
#[derive(Default)]
pub struct AgeSweep {
    /// The horizon of the last sweep, in microseconds since 1970. The events before it were held.
    horizon: AtomicI64,
    /// One of them may be held no longer.
    is_released: AtomicBool,
    last_whole: Mutex<Option<Instant>>,
}

impl AgeSweep {
    /// Begins a sweep up to this time. Returns the time from which on events have to be looked at.
    pub fn begin(&self, horizon: Timestamp, now: Instant) -> Timestamp {
        // An event that is let go from here on is looked at by the next sweep.
        let before = self.horizon.swap(horizon.micros(), Relaxed);
        let mut last_whole = self.last_whole.lock();
        let is_due = last_whole.is_none_or(|last| now.saturating_duration_since(last) >= WHOLE_SWEEP);
        if self.is_released.swap(false, Relaxed) || is_due {
            *last_whole = Some(now);
            return Timestamp::from_micros(0);
        }
        Timestamp::from_micros(before)
    }

    /// A delivery of an event that was accepted at this time is settled.
    pub fn let_go(&self, accepted_at: Timestamp) {
        if accepted_at.micros() < self.horizon.load(Relaxed) {
            self.let_go_any();
        }
    }

    /// Old events may have been let go, or a sweep has failed.
    pub fn let_go_any(&self) {
        self.is_released.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_sweep_begins_where_the_last_one_ended_unless_an_old_event_was_let_go() {
        let (sweep, start) = (AgeSweep::default(), Timestamp::from_micros(0));
        let [first, second, third, fourth] = [1_000, 2_000, 3_000, 4_000].map(Timestamp::from_micros);
        assert_eq!(sweep.begin(first, Instant::now()), start);
        assert_eq!(sweep.begin(second, Instant::now()), first);
        sweep.let_go(second);
        assert_eq!(sweep.begin(third, Instant::now()), second, "it was not old");
        sweep.let_go(second);
        assert_eq!(sweep.begin(third, Instant::now()), start);
        assert_eq!(sweep.begin(fourth, Instant::now()), third);
        tokio::time::advance(WHOLE_SWEEP).await;
        assert_eq!(sweep.begin(fourth, Instant::now()), start);
    }
}
