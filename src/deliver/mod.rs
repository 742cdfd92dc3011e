//! The event's way out: queue → deliver → settle. One worker per sink with something to deliver, so that
//! each sink gets its events in order and one at a time, and a slow one holds up nobody else.
//!
//! A worker exists only while its queue is not empty: the engine wakes a sink, the worker drains its
//! queue and goes. Ten thousand quiet sinks cost no task at all.

mod permits;
mod plan;
mod subscribe;

pub use subscribe::follow;

use crate::{
    config,
    id::SinkId,
    live::{Attempted, Feed, Live},
    metrics::Metrics,
    queue::{Attempt, Claim, Engine, Settlement},
    script::Input,
    sink::{self, Book, Sink},
    timestamp::Timestamp,
};
use futures_util::FutureExt;
use permits::Permits;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::sync::{Notify, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How long an attempt that could not even begin is put off.
const POSTPONED: Duration = Duration::from_secs(1);

/// Delivers what the queues hold.
#[derive(Clone)]
pub struct Deliverer(Arc<Shared>);

struct Shared {
    engine: Arc<dyn Engine>,
    book: Book,
    context: sink::Context,
    feed: Feed,
    metrics: Arc<Metrics>,
    plan: plan::Plan,
    permits: Permits,
    /// The sinks that have a worker.
    workers: Mutex<HashMap<SinkId, Worker>>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

/// What is known of a worker from outside.
struct Worker {
    since: Since,
    /// Ends its wait for the next attempt.
    hurry: Arc<Notify>,
}

/// What happened since a worker last looked: whether it may leave when it finds nothing to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Since {
    Nothing,
    Woken,
}

impl Deliverer {
    /// A deliverer that stops taking up work once `shutdown` is cancelled.
    pub fn new(
        settings: &config::Delivery,
        engine: Arc<dyn Engine>,
        book: Book,
        context: sink::Context,
        feed: Feed,
        metrics: Arc<Metrics>,
        shutdown: CancellationToken,
    ) -> Self {
        Self(Arc::new(Shared {
            engine,
            book,
            context,
            feed,
            metrics,
            plan: plan::Plan::new(settings),
            permits: Permits::new(settings.concurrency),
            workers: Mutex::default(),
            tasks: TaskTracker::new(),
            shutdown,
        }))
    }

    /// Gives every sink that is woken a worker, until shutdown.
    pub async fn run(&self, mut wakes: mpsc::UnboundedReceiver<SinkId>) {
        loop {
            tokio::select! {
                () = self.0.shutdown.cancelled() => return,
                wake = wakes.recv() => match wake {
                    Some(sink) => self.wake(sink),
                    None => return,
                },
            }
        }
    }

    /// Makes sure the sink has a worker that will look at its queue after this moment.
    pub fn wake(&self, sink: SinkId) {
        let mut workers = self.0.workers();
        if let Some(worker) = workers.get_mut(&sink) {
            worker.since = Since::Woken;
            return;
        }
        let hurry = Arc::new(Notify::new());
        workers.insert(sink, Worker { since: Since::Woken, hurry: hurry.clone() });
        let shared = self.0.clone();
        self.0.tasks.spawn(async move { shared.work(sink, &hurry).await });
    }

    /// As [`Deliverer::wake`], and an event that waits for its next attempt is tried at once: its sink was mended, or
    /// switched on again.
    pub fn hurry(&self, sink: SinkId) {
        self.wake(sink);
        if let Some(worker) = self.0.workers().get(&sink) {
            worker.hurry.notify_one();
        }
    }

    /// Waits until the deliveries in flight have ended. Only after shutdown was called for.
    pub async fn finished(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}

impl Shared {
    fn workers(&self) -> MutexGuard<'_, HashMap<SinkId, Worker>> {
        self.workers.lock().expect("no code panics while holding the workers")
    }

    /// One sink's worker, from its first event to an empty queue.
    async fn work(&self, sink: SinkId, hurry: &Notify) {
        loop {
            if let Some(worker) = self.workers().get_mut(&sink) {
                worker.since = Since::Nothing;
            }
            while self.deliver_head(sink, hurry).await == Next::GoOn {}
            let mut workers = self.workers();
            let woken = workers.get(&sink).is_some_and(|worker| worker.since == Since::Woken);
            if !woken || self.shutdown.is_cancelled() {
                workers.remove(&sink);
                return;
            }
        }
    }

    /// Attempts the event at the head of the queue, once it is due, and settles the attempt.
    ///
    /// The event itself is read last: what waits, for its time or for a permit, waits on disk.
    async fn deliver_head(&self, id: SinkId, hurry: &Notify) -> Next {
        let Some(due) = self.engine.due(id) else { return Next::Leave };
        let wait = due.from_now().min(self.plan.longest());
        if !wait.is_zero() {
            tokio::select! {
                () = self.shutdown.cancelled() => return Next::Leave,
                () = hurry.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
        // Looked up for each attempt: an edit takes effect on the next one. What it hurried until now is done with.
        let _ = hurry.notified().now_or_never();
        let Some(sink) = self.book.get(id).filter(|sink| sink.active) else { return Next::Leave };
        let permit = tokio::select! {
            () = self.shutdown.cancelled() => return Next::Leave,
            permit = self.permits.acquire(sink.owner) => permit,
        };
        let claim = match self.engine.head(id).await {
            Ok(Some(claim)) => claim,
            Ok(None) => return Next::Leave,
            Err(error) => {
                // Final: a store that fails needs a restart, and what waits is delivered after it.
                log::error!("sink {id} is not delivered to any more: {error}");
                return Next::Leave;
            }
        };
        let at = Timestamp::now();
        let number = claim.failures + 1;
        let input = Input { event: claim.event.clone(), sequence: claim.sequence, attempt: number };
        let attempted = sink::attempt(&self.context, &sink, input).await;
        drop(permit);
        let Some((outcome, settlement)) = self.plan.settle(&sink, &attempted.outcome, number) else {
            return self.unless_shutdown(tokio::time::sleep(POSTPONED)).await;
        };
        self.metrics.attempt_time.observe(attempted.duration);

        let attempt = Attempt {
            number,
            at,
            duration_ms: attempted.duration.as_secs_f64() * 1e3,
            outcome,
            status: attempted.status,
            error: attempted.error,
            response: attempted.response,
            log: attempted.log,
        };
        self.tell(&sink, &claim, &attempt, &settlement);
        self.engine.settle(&claim, attempt, settlement).await;
        if self.shutdown.is_cancelled() { Next::Leave } else { Next::GoOn }
    }

    async fn unless_shutdown(&self, wait: impl Future<Output = ()>) -> Next {
        tokio::select! {
            () = self.shutdown.cancelled() => Next::Leave,
            () = wait => Next::GoOn,
        }
    }

    fn tell(&self, sink: &Sink, claim: &Claim, attempt: &Attempt, settlement: &Settlement) {
        self.feed.publish(Live::Attempted(Arc::new(Attempted {
            event_id: claim.event.id,
            event_type: claim.event.kind.clone(),
            user: claim.event.user_id,
            owner: sink.owner,
            sink_id: sink.id,
            name: sink.name.as_str().into(),
            state: settlement.state(attempt.outcome),
            outcome: attempt.outcome,
            sequence: claim.sequence,
            attempt: attempt.number,
            status: attempt.status,
            error: attempt.error.clone(),
        })));
    }
}

/// What a worker does after a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    GoOn,
    Leave,
}
