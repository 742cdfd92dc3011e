//! The health of sinks, and the pools of places that it decides on.
//!
//! A sink that responds finds a place however many others fail or hang, also if all belong to one owner: those have pools
//! of their own. Health follows the last attempt. A sink that hangs for the first time, or at its first attempt, holds a
//! place of its former pool for [`SLOW_AFTER`] only; then the attempt counts as one of a slow sink. A healthy sink keeps its
//! place for a [`TURN`].

use crate::{
    delivery::CompletedAttempt,
    model::{delivery::AttemptKind, id::SinkId, owner::Owner},
    platform::owner_pool::{Pool, PoolPermit},
    routing::queue::QueueHead,
};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// The duration from which an attempt is slow, whatever its outcome.
pub(super) const SLOW_AFTER: Duration = Duration::from_secs(1);

/// The time for which a healthy sink keeps its place for the events that follow. Among thousands of sinks that wait, a place
/// that is given back after each event returns when the sink's state has left the processor's caches.
pub(super) const TURN: Duration = Duration::from_millis(20);

/// The health of a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SinkHealth {
    /// There was no attempt yet, or none since the sink was changed.
    New,
    /// The last attempt succeeded in time.
    Healthy,
    /// The last attempt failed, in time.
    Failing,
    /// The last attempt took longer than [`SLOW_AFTER`].
    Slow,
}

/// The health of each sink that was attempted since the start, and the pools.
pub(super) struct SinkPools {
    health: Mutex<HashMap<SinkId, SinkHealth>>,
    healthy: Arc<Pool>,
    new: Arc<Pool>,
    failing: Arc<Pool>,
    slow: Arc<Pool>,
}

/// A place for attempts at a sink, freed when dropped.
pub(super) struct SinkPermit {
    permit: PoolPermit,
    owner: Owner,
    health: SinkHealth,
    since: Instant,
}

impl SinkPools {
    /// Pools for `concurrency` attempts at healthy sinks, and for a part of that at others.
    pub fn new(concurrency: usize) -> Self {
        let part = |divisor: usize| concurrency.div_ceil(divisor);
        Self {
            health: Mutex::default(),
            // A part is for owners that have no attempt under way, also if others have taken all they could get.
            healthy: Pool::with_reserve(concurrency, part(4)),
            new: Pool::new(part(8)),
            // Few, because attempts that fail at once follow each other without a pause.
            failing: Pool::new(part(32)),
            slow: Pool::with_transfers(part(4), concurrency),
        }
    }

    /// Waits for a place for an attempt at the head of the sink's queue.
    pub async fn acquire(&self, sink: SinkId, owner: Owner, head: &QueueHead) -> SinkPermit {
        let health = self.health(sink, head);
        let pool = match health {
            SinkHealth::New => &self.new,
            SinkHealth::Healthy => &self.healthy,
            SinkHealth::Failing => &self.failing,
            SinkHealth::Slow => &self.slow,
        };
        SinkPermit { permit: pool.acquire(owner).await, owner, health, since: Instant::now() }
    }

    /// Makes a permit one of the slow pool, unless that has no room.
    pub fn move_to_slow(&self, permit: &mut SinkPermit) {
        if permit.health != SinkHealth::Slow
            && let Some(slow) = self.slow.transfer(permit.owner)
        {
            permit.permit = slow;
            permit.health = SinkHealth::Slow;
        }
    }

    pub fn record(&self, sink: SinkId, attempt: &CompletedAttempt) {
        let health = match attempt.outcome.kind() {
            _ if attempt.duration >= SLOW_AFTER => SinkHealth::Slow,
            AttemptKind::Delivered => SinkHealth::Healthy,
            AttemptKind::Failed => SinkHealth::Failing,
        };
        self.health.lock().insert(sink, health);
    }

    /// Counts a sink that was changed as new.
    pub fn renew(&self, sink: SinkId) {
        self.health.lock().insert(sink, SinkHealth::New);
    }

    pub fn forget(&self, sink: SinkId) {
        self.health.lock().remove(&sink);
    }

    /// The sink's health as recorded; after a start, as far as its queue tells it.
    fn health(&self, sink: SinkId, head: &QueueHead) -> SinkHealth {
        let recorded = self.health.lock().get(&sink).copied();
        recorded.unwrap_or(match head {
            QueueHead { failures: 1.., .. } | QueueHead { follows_dead_letter: true, .. } => SinkHealth::Failing,
            QueueHead { sequence: ..=1, .. } => SinkHealth::New,
            QueueHead { .. } => SinkHealth::Healthy,
        })
    }
}

impl SinkPermit {
    /// Tells if the attempt counts as one of a slow sink.
    pub fn is_slow(&self) -> bool {
        self.health == SinkHealth::Slow
    }

    /// Tells if the next event of the sink may have this place too.
    pub fn has_turn(&self) -> bool {
        self.health == SinkHealth::Healthy && self.since.elapsed() < TURN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    const FIRST: QueueHead = QueueHead { wait: Duration::ZERO, sequence: 1, failures: 0, follows_dead_letter: false };

    fn ended(completed: CompletedAttempt, duration: Duration) -> CompletedAttempt {
        CompletedAttempt { duration, ..completed }
    }

    #[test]
    fn health_follows_the_last_attempt() {
        let (pools, sink) = (SinkPools::new(16), SinkId::new());
        assert_eq!(pools.health(sink, &FIRST), SinkHealth::New);
        let failed = || CompletedAttempt::failed("no".to_owned());
        for (attempt, health) in [
            (ended(CompletedAttempt::delivered(), Duration::ZERO), SinkHealth::Healthy),
            (ended(failed(), Duration::ZERO), SinkHealth::Failing),
            (ended(failed(), SLOW_AFTER), SinkHealth::Slow),
            (ended(CompletedAttempt::skipped(), Duration::ZERO), SinkHealth::Healthy),
            (ended(CompletedAttempt::delivered(), SLOW_AFTER), SinkHealth::Slow),
        ] {
            pools.record(sink, &attempt);
            assert_eq!(pools.health(sink, &FIRST), health, "{attempt:?}");
        }
        pools.renew(sink);
        assert_eq!(pools.health(sink, &QueueHead { failures: 2, ..FIRST }), SinkHealth::New, "it was changed");
    }

    #[test]
    fn the_queue_tells_the_health_of_a_sink_after_a_start() {
        let (pools, sink) = (SinkPools::new(16), SinkId::new());
        let later = QueueHead { sequence: 7, ..FIRST };
        assert_eq!(pools.health(sink, &later), SinkHealth::Healthy);
        assert_eq!(pools.health(sink, &QueueHead { failures: 1, ..later }), SinkHealth::Failing);
        assert_eq!(pools.health(sink, &QueueHead { follows_dead_letter: true, ..later }), SinkHealth::Failing);
    }

    #[tokio::test]
    async fn a_healthy_sink_has_a_place_while_thousands_of_its_owner_wait_for_one() {
        let pools = SinkPools::new(16);
        let mut held = Vec::new();
        let mut waiting = Vec::new();
        for failures in [0, 1] {
            for _ in 0..1000 {
                let head = QueueHead { failures, ..FIRST };
                let mut acquiring = Box::pin({
                    let pools = &pools;
                    async move { pools.acquire(SinkId::new(), Owner::Global, &head).await }
                });
                match (&mut acquiring).now_or_never() {
                    Some(permit) => held.push(permit),
                    None => waiting.push(acquiring),
                }
            }
        }
        assert_eq!((held.len(), waiting.len()), (1 + 1, 1998));
        let healthy = QueueHead { sequence: 2, ..FIRST };
        assert!(pools.acquire(SinkId::new(), Owner::Global, &healthy).now_or_never().is_some());
    }

    #[tokio::test]
    async fn an_attempt_that_hangs_gives_its_place_to_the_next() {
        let pools = SinkPools::new(16);
        let mut hanging = pools.acquire(SinkId::new(), Owner::Global, &FIRST).await;
        assert!(pools.acquire(SinkId::new(), Owner::Global, &FIRST).now_or_never().is_none());
        pools.move_to_slow(&mut hanging);
        assert!(hanging.is_slow());
        assert!(pools.acquire(SinkId::new(), Owner::Global, &FIRST).now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_healthy_sink_alone_keeps_its_place_and_only_for_a_turn() {
        let pools = SinkPools::new(64);
        let later = QueueHead { sequence: 7, ..FIRST };
        let healthy = pools.acquire(SinkId::new(), Owner::Global, &later).await;
        assert!(healthy.has_turn());
        tokio::time::advance(TURN).await;
        assert!(!healthy.has_turn());
        for other in [FIRST, QueueHead { failures: 1, ..later }] {
            assert!(!pools.acquire(SinkId::new(), Owner::Global, &other).await.has_turn());
        }
    }
}
