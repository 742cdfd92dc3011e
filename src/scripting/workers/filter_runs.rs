//! The runs of filters: at most so many events of an owner at a time, and the answers that are overdue.

use super::places::{EVENTS_PER_OWNER, WorkerKey};
use crate::platform::keyed_semaphore::KeyedSemaphore;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// The events of one owner that wait for their turn to be filtered.
const MAX_WAITING: usize = 4096;

/// The state of all runs of filters.
pub(super) struct FilterRuns {
    pub turns: KeyedSemaphore<WorkerKey>,
    /// The number of overdue answers of each owner that has any.
    overdue: Mutex<HashMap<WorkerKey, usize>>,
    /// The number of all overdue answers, so that nobody looks further without any.
    overdue_count: AtomicUsize,
}

/// An answer that is overdue, until this is dropped.
pub(super) struct OverdueAnswer {
    runs: Arc<FilterRuns>,
    key: WorkerKey,
}

impl FilterRuns {
    /// Returns true if an answer to this owner is overdue.
    pub fn is_overdue(&self, key: WorkerKey) -> bool {
        self.overdue_count.load(Relaxed) > 0 && self.overdue.lock().contains_key(&key)
    }

    /// Notes that an answer to this owner is overdue.
    pub fn begin_overdue(self: &Arc<Self>, key: WorkerKey) -> OverdueAnswer {
        *self.overdue.lock().entry(key).or_default() += 1;
        self.overdue_count.fetch_add(1, Relaxed);
        OverdueAnswer { runs: self.clone(), key }
    }
}

impl Default for FilterRuns {
    fn default() -> Self {
        Self {
            turns: KeyedSemaphore::new(EVENTS_PER_OWNER, MAX_WAITING),
            overdue: Mutex::default(),
            overdue_count: AtomicUsize::new(0),
        }
    }
}

impl Drop for OverdueAnswer {
    fn drop(&mut self) {
        let mut overdue = self.runs.overdue.lock();
        if let Some(count) = overdue.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                overdue.remove(&self.key);
            }
        }
        self.runs.overdue_count.fetch_sub(1, Relaxed);
    }
}
