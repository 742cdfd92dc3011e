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
    last_refusal: Mutex<Option<(Timestamp, String)>>,
    last_warning: Mutex<Option<Instant>>,
}

/// The least time between two warnings about one source in the log.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

impl SourceActivity {
    /// Counts a request whose events are stored.
    pub fn accept(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that was not verified or was over the limit.
    pub fn refuse(&self, reason: &impl ToString) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        *self.last_refusal.lock() = Some((Timestamp::now(), reason.to_string()));
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
        self.last_refusal.lock().clone()
    }
}
