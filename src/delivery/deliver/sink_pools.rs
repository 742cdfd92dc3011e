//! The permits for attempts at sinks: a pool for each state of health.
//!
//! A sink that responds finds a place however many others fail or hang, also if all belong to one owner: those have
//! pools of their own. Health follows the last attempt. A sink that hangs for the first time, or at its first attempt,
//! holds a place of its former pool for [`SLOW_AFTER`] only; then the attempt counts as one of a slow sink.
//!
//! A healthy sink that was idle gets a place for one event, so that it waits for no sink that has many. With more
//! events it keeps its next place for a [`TURN`].
//!
//! More requests on their way than keep the processors busy deliver nothing sooner, and their state leaves the
//! processors' caches. While the runtime is busy, an owner thus has few attempts that are younger than [`BRIEF`]. Older
//! ones wait for their receivers, and others begin meanwhile.

use crate::{
    delivery::CompletedAttempt,
    model::{delivery::AttemptKind, id::SinkId, id_map::IdMap, owner::Owner},
    platform::{
        owner_pool::{Pool, PoolPermit, Priority},
        runtime_load::RuntimeLoad,
    },
    routing::queue::QueueHead,
};
use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// The duration from which an attempt is slow, whatever its outcome.
const SLOW_AFTER: Duration = Duration::from_secs(1);

/// The time for which a healthy sink keeps its place for the events that follow. Among thousands of sinks that wait, a
/// place that is given back after each event returns when the sink's state has left the processor's caches.
const TURN: Duration = Duration::from_millis(20);

/// The time in which a receiver nearby answers, also while the processors are busy.
const BRIEF: Duration = Duration::from_millis(10);

/// The most attempts of an owner that are younger than [`BRIEF`], for each thread of a busy runtime.
const BRIEF_ATTEMPTS: usize = 24;

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
    health: Mutex<IdMap<SinkId, SinkHealth>>,
    healthy: Arc<Pool>,
    new: Arc<Pool>,
    failing: Arc<Pool>,
    slow: Arc<Pool>,
    /// Places for attempts at healthy sinks until they are [`BRIEF`] old. While the runtime is busy, an attempt needs
    /// one.
    brief: Arc<Pool>,
    load: RuntimeLoad,
}

/// A place for attempts at a sink, freed when dropped.
pub(super) struct SinkPermit {
    permit: PoolPermit,
    /// The place among brief attempts.
    brief: Option<PoolPermit>,
    owner: Owner,
    health: SinkHealth,
    priority: Priority,
    since: Instant,
}

impl SinkPools {
    /// Pools for `concurrency` attempts at healthy sinks, and for a part of that at others.
    pub fn new(concurrency: usize, load: RuntimeLoad) -> Self {
        let part = |divisor: usize| concurrency.div_ceil(divisor);
        Self {
            health: Mutex::default(),
            // A part is for owners that have no attempt under way, also if others have taken all they could get.
            healthy: Pool::with_reserve(concurrency, part(4)),
            new: Pool::new(part(8)),
            // Few, because attempts that fail at once follow each other without a pause.
            failing: Pool::new(part(32)),
            slow: Pool::with_transfers(part(4), concurrency),
            brief: Pool::for_each_owner(BRIEF_ATTEMPTS * load.threads()),
            load,
        }
    }

    /// Waits for a place for an attempt at the head of the sink's queue. Healthy sinks that were idle have priority
    /// over those with more events.
    pub async fn acquire(&self, sink: SinkId, owner: Owner, head: &QueueHead, priority: Priority) -> SinkPermit {
        let health = self.health(sink, head);
        let pool = match health {
            SinkHealth::New => &self.new,
            SinkHealth::Healthy => &self.healthy,
            SinkHealth::Failing => &self.failing,
            SinkHealth::Slow => &self.slow,
        };
        // Only healthy sinks have priorities: among failing ones, new events would leave few places to retries.
        let is_healthy = health == SinkHealth::Healthy;
        let permit = pool.acquire_for(if is_healthy { priority } else { Priority::New }, owner).await;
        // Taken last, so that only attempts that are made hold one.
        let brief = match is_healthy {
            true if self.load.is_busy() => Some(self.brief.acquire_for(priority, owner).await),
            true => self.brief.transfer(owner),
            false => None,
        };
        SinkPermit { permit, brief, owner, health, priority, since: Instant::now() }
    }

    /// Waits for an attempt. From [`BRIEF`] on, its place among brief ones is free; from [`SLOW_AFTER`] on, it counts
    /// as one of a slow sink.
    pub async fn watch<T>(&self, permit: &mut SinkPermit, mut attempt: impl Future<Output = T> + Unpin) -> T {
        let mut wait = SLOW_AFTER;
        if permit.brief.is_some() {
            match tokio::time::timeout(BRIEF, &mut attempt).await {
                Ok(completed) => return completed,
                Err(_) => permit.brief = None,
            }
            wait -= BRIEF;
        }
        while !permit.is_slow() {
            match tokio::time::timeout(wait, &mut attempt).await {
                Ok(completed) => return completed,
                Err(_) => self.move_to_slow(permit),
            }
            wait = SLOW_AFTER;
        }
        attempt.await
    }

    /// Makes a permit one of the slow pool, unless that has no room.
    fn move_to_slow(&self, permit: &mut SinkPermit) {
        if permit.health != SinkHealth::Slow
            && let Some(slow) = self.slow.transfer(permit.owner)
        {
            permit.permit = slow;
            permit.health = SinkHealth::Slow;
        }
    }

    /// Records the health that an attempt shows, and returns true if none was recorded before.
    pub fn record(&self, sink: SinkId, attempt: &CompletedAttempt) -> bool {
        let health = match attempt.outcome.kind() {
            _ if attempt.duration >= SLOW_AFTER => SinkHealth::Slow,
            AttemptKind::Delivered => SinkHealth::Healthy,
            AttemptKind::Failed => SinkHealth::Failing,
        };
        self.health.lock().insert(sink, health).is_none()
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
    fn is_slow(&self) -> bool {
        self.health == SinkHealth::Slow
    }

    /// Tells if the next event of the sink may have this place too.
    pub fn has_turn(&self) -> bool {
        self.health == SinkHealth::Healthy && self.priority == Priority::Continued && self.since.elapsed() < TURN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::UserId;
    use futures_util::FutureExt;

    const FIRST: QueueHead = QueueHead { wait: Duration::ZERO, sequence: 1, failures: 0, follows_dead_letter: false };

    fn pools(concurrency: usize) -> SinkPools {
        SinkPools::new(concurrency, RuntimeLoad::of_this_runtime())
    }

    fn ended(completed: CompletedAttempt, duration: Duration) -> CompletedAttempt {
        CompletedAttempt { duration, ..completed }
    }

    #[tokio::test]
    async fn health_follows_the_last_attempt() {
        let (pools, sink) = (pools(16), SinkId::new());
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

    #[tokio::test]
    async fn the_queue_tells_the_health_of_a_sink_after_a_start() {
        let (pools, sink) = (pools(16), SinkId::new());
        let later = QueueHead { sequence: 7, ..FIRST };
        assert_eq!(pools.health(sink, &later), SinkHealth::Healthy);
        assert_eq!(pools.health(sink, &QueueHead { failures: 1, ..later }), SinkHealth::Failing);
        assert_eq!(pools.health(sink, &QueueHead { follows_dead_letter: true, ..later }), SinkHealth::Failing);
    }

    #[tokio::test]
    async fn a_healthy_sink_has_a_place_while_thousands_of_its_owner_wait_for_one() {
        let pools = pools(16);
        let mut held = Vec::new();
        let mut waiting = Vec::new();
        for failures in [0, 1] {
            for _ in 0..1000 {
                let head = QueueHead { failures, ..FIRST };
                let mut acquiring = Box::pin({
                    let pools = &pools;
                    async move { pools.acquire(SinkId::new(), Owner::Global, &head, Priority::New).await }
                });
                match (&mut acquiring).now_or_never() {
                    Some(permit) => held.push(permit),
                    None => waiting.push(acquiring),
                }
            }
        }
        assert_eq!((held.len(), waiting.len()), (1 + 1, 1998));
        let healthy = QueueHead { sequence: 2, ..FIRST };
        assert!(pools.acquire(SinkId::new(), Owner::Global, &healthy, Priority::New).now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_hangs_gives_its_place_to_the_next() {
        let pools = pools(16);
        let place = || pools.acquire(SinkId::new(), Owner::Global, &FIRST, Priority::New).now_or_never();
        let mut hanging = place().unwrap();
        assert!(place().is_none());
        let mut watched = Box::pin(pools.watch(&mut hanging, std::future::pending::<()>()));
        let moment = Duration::from_millis(5);
        assert!(tokio::time::timeout(SLOW_AFTER - moment, &mut watched).await.is_err());
        assert!(place().is_none());
        assert!(tokio::time::timeout(2 * moment, &mut watched).await.is_err());
        assert!(place().is_some());
        drop(watched);
        assert!(hanging.is_slow());
    }

    #[tokio::test(start_paused = true)]
    async fn a_healthy_sink_with_more_events_keeps_its_place_for_a_turn_and_no_other_sink_does() {
        let pools = pools(64);
        let later = QueueHead { sequence: 7, ..FIRST };
        let place = |priority, head| {
            let pools = &pools;
            async move { pools.acquire(SinkId::new(), Owner::Global, &head, priority).await }
        };
        let healthy = place(Priority::Continued, later).await;
        assert!(healthy.has_turn());
        tokio::time::advance(TURN).await;
        assert!(!healthy.has_turn());
        assert!(!place(Priority::New, later).await.has_turn(), "it was idle");
        for other in [FIRST, QueueHead { failures: 1, ..later }] {
            assert!(!place(Priority::Continued, other).await.has_turn());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_runtime_has_few_young_attempts_of_an_owner_and_as_many_old_ones_as_an_idle_one() {
        let later = QueueHead { sequence: 7, ..FIRST };
        for (load, most) in [(RuntimeLoad::always_busy(), BRIEF_ATTEMPTS), (RuntimeLoad::of_this_runtime(), 192)] {
            let pools = SinkPools::new(512, load);
            let place = |owner| pools.acquire(SinkId::new(), owner, &later, Priority::New).now_or_never();
            let mut begun: Vec<_> = std::iter::from_fn(|| place(Owner::Global)).collect();
            assert_eq!(begun.len(), most);
            assert!(place(Owner::User(UserId::new())).is_some(), "another owner has places of its own");
            for permit in &mut begun {
                let watched = pools.watch(permit, Box::pin(tokio::time::sleep(BRIEF + Duration::from_millis(1))));
                watched.await;
            }
            begun.extend(std::iter::from_fn(|| place(Owner::Global)));
            assert_eq!(begun.len(), (2 * most).min(192), "the old ones do not count");
        }
    }
}
