//! The event's way out: queue → deliver → settle. One worker per sink with something to deliver, so that
//! each sink gets its events in order and one at a time, and a slow one holds up nobody else. A method that subscribed
//! to events is delivered to in the same way: what is said of sinks here goes for every [`recipient`].
//!
//! A worker exists only while its queue is not empty: the engine wakes a sink, the worker drains its
//! queue and goes. Ten thousand quiet sinks cost no task at all.

mod permits;
mod recipient;
mod retry_policy;
mod route_sync;
#[cfg(test)]
mod tests;

pub use route_sync::follow;

use crate::{
    delivery::{
        sinks::{self, Book},
        subscriptions::{self, Door, Subscriptions},
    },
    model::{
        id::{SinkId, SpaceId},
        timestamp::Timestamp,
    },
    platform::{config, metrics::Metrics},
    routing::{
        feed::{Attempted, Feed, Live},
        queue::{Attempt, Claim, Engine, Settlement},
    },
    scripting::lua::EventInput,
};
use futures_util::FutureExt;
use parking_lot::{Mutex, MutexGuard};
use permits::Permits;
use recipient::Recipient;
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::sync::{Notify, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How long an attempt that could not even begin is put off.
const POSTPONED: Duration = Duration::from_secs(1);

/// Delivers what the queues hold.
#[derive(Clone)]
pub struct Deliverer(Arc<Shared>);

/// What a deliverer works with.
pub struct Parts {
    pub engine: Arc<dyn Engine>,
    pub book: Book,
    pub subscriptions: Subscriptions,
    pub door: Arc<dyn Door>,
    pub context: sinks::Context,
    pub feed: Feed,
    pub metrics: Arc<Metrics>,
}

struct Shared {
    parts: Parts,
    /// For calls of methods.
    methods: subscriptions::Context,
    plan: retry_policy::Plan,
    /// For attempts at sinks, which end soon.
    permits: Permits,
    /// For calls of methods. How long those take is for their owners to say, so they share with nobody.
    lines: Permits,
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
    pub fn new(settings: &config::Delivery, parts: Parts, shutdown: CancellationToken) -> Self {
        let methods = subscriptions::Context {
            book: parts.book.clone(),
            runtime: parts.context.runtime.clone(),
            door: parts.door.clone(),
        };
        Self(Arc::new(Shared {
            parts,
            methods,
            plan: retry_policy::Plan::new(settings),
            permits: Permits::shared(settings.concurrency),
            lines: Permits::per_owner(settings.concurrency.div_ceil(2)),
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

    /// Takes up again what waits for the methods of a space: to be called whenever the door to them has opened.
    pub fn served(&self, space: SpaceId) {
        for subscription in self.0.parts.subscriptions.of_space(space) {
            self.hurry(subscription.id);
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
        self.workers.lock()
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
        let Some(due) = self.parts.engine.due(id) else { return Next::Leave };
        let wait = due.from_now().min(self.plan.longest());
        if !wait.is_zero() && self.pause(wait, hurry).await == Next::Leave {
            return Next::Leave;
        }
        // Looked up for each attempt: an edit takes effect on the next one. What it hurried until now is done with.
        let _ = hurry.notified().now_or_never();
        let Some(recipient) = self.recipient(id) else { return Next::Leave };
        let permits = match recipient {
            Recipient::Sink(_) => &self.permits,
            Recipient::Method(_) => &self.lines,
        };
        let permit = tokio::select! {
            () = self.shutdown.cancelled() => return Next::Leave,
            permit = permits.acquire(recipient.owner()) => permit,
        };
        let claim = match self.parts.engine.head(id).await {
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
        let input = EventInput { event: claim.event.clone(), sequence: claim.sequence, attempt: number };
        let attempted = self.attempt(&recipient, input).await;
        drop(permit);
        let Some((outcome, settlement)) = self.plan.settle(&recipient, &attempted.outcome, number) else {
            return self.pause(POSTPONED, hurry).await;
        };
        self.parts.metrics.attempt_time.observe(attempted.duration);

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
        self.tell(&recipient, &claim, &attempt, &settlement);
        self.parts.engine.settle(&claim, attempt, settlement).await;
        if self.shutdown.is_cancelled() { Next::Leave } else { Next::GoOn }
    }

    /// Waits, unless it is hurried.
    async fn pause(&self, wait: Duration, hurry: &Notify) -> Next {
        tokio::select! {
            () = self.shutdown.cancelled() => Next::Leave,
            () = hurry.notified() => Next::GoOn,
            () = tokio::time::sleep(wait) => Next::GoOn,
        }
    }

    fn tell(&self, recipient: &Recipient, claim: &Claim, attempt: &Attempt, settlement: &Settlement) {
        self.parts.feed.publish(Live::Attempted(Arc::new(Attempted {
            event_id: claim.event.id,
            event_type: claim.event.kind.clone(),
            user: claim.event.user_id,
            owner: recipient.owner(),
            sink_id: recipient.id(),
            name: recipient.name(),
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
