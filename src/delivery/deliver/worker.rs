//! One sink's worker: takes the head of the queue, makes the attempt, settles it, and repeats until the queue is empty.
//!
//! Each queue has one worker at most, so that its events are delivered in order and one at a time, and a slow recipient
//! holds up no other. A queue belongs to a sink or to a method's subscription ([`Recipient`]); both have a [`SinkId`],
//! and this file calls both sinks.

use super::{
    health::{SLOW_AFTER, SinkPermit, SinkPools},
    method_permits::MethodPermits,
    recipient::{Recipient, Recipients},
    retry_policy::RetryPolicy,
    running_attempts::{INTERRUPTED, RunningAttempts},
};
use crate::{
    delivery::{CompletedAttempt, Postponed},
    model::{id::SinkId, timestamp::Timestamp},
    platform::{metrics::Metrics, store::StoreError},
    routing::{
        feed::{DeliveryUpdate, Feed, FeedItem},
        queue::{Engine, PendingDelivery, QueueHead, SettledAttempt},
    },
    scripting::lua::EventInput,
};
use futures_util::FutureExt;
use parking_lot::Mutex;
use std::{collections::HashMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The wait after a postponed attempt, and after a failed read of the queue.
const POSTPONED_WAIT: Duration = Duration::from_secs(1);

/// The wait after a defect of the server ended a worker.
const PANIC_WAIT: Duration = Duration::from_secs(30);

/// The error of an attempt that met a defect of the server.
const PANICKED: &str = "the server failed during this attempt: its log says why";

/// Everything that the workers share.
pub(super) struct DelivererState {
    pub engine: Arc<dyn Engine>,
    pub running_attempts: RunningAttempts,
    pub recipients: Recipients,
    pub retry_policy: RetryPolicy,
    /// Places for attempts at sinks, whose duration is limited by the server.
    pub sink_pools: SinkPools,
    /// Permits for calls of methods, whose duration is limited by their owners. They are separate for each owner, so that
    /// long calls of one owner delay no other.
    pub method_permits: MethodPermits,
    pub feed: Feed,
    pub metrics: Arc<Metrics>,
    pub workers: Mutex<HashMap<SinkId, Worker>>,
    pub tasks: TaskTracker,
    pub shutdown: CancellationToken,
}

/// The handle of a running worker.
pub(super) struct Worker {
    pub wake_state: WakeState,
    /// Ends the wait for a scheduled retry.
    pub retry_now: Arc<Notify>,
}

/// Tells a worker that found nothing to do if it may end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WakeState {
    Idle,
    /// The sink was woken since the worker last looked at the queue.
    Woken,
}

/// The head of a queue, taken for an attempt.
struct TakenHead {
    recipient: Recipient,
    pending: PendingDelivery,
    permit: DeliveryPermit,
}

/// Permission to run one delivery, released when dropped.
enum DeliveryPermit {
    Sink(SinkPermit),
    Method(#[expect(dead_code, reason = "held until it is dropped")] OwnedSemaphorePermit),
}

/// The continuation of a worker after one step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Continue,
    Stop,
}

impl DelivererState {
    /// Runs a sink's worker, and again after a while if it panics: one attempt that hits a defect of the server must not
    /// end the delivery to the sink.
    pub async fn run_worker_again(&self, sink: SinkId, retry_now: &Notify) {
        while AssertUnwindSafe(self.run_worker(sink, retry_now)).catch_unwind().await.is_err() {
            log::error!("the worker of sink {sink} panicked and starts again in {} s", PANIC_WAIT.as_secs());
            if self.pause(PANIC_WAIT, retry_now).await == Next::Stop {
                self.workers.lock().remove(&sink);
                return;
            }
        }
    }

    /// Runs a sink's worker from its first event to an empty queue.
    async fn run_worker(&self, sink: SinkId, retry_now: &Notify) {
        loop {
            if let Some(worker) = self.workers.lock().get_mut(&sink) {
                worker.wake_state = WakeState::Idle;
            }
            while self.deliver_head(sink, retry_now).await == Next::Continue {}
            let mut workers = self.workers.lock();
            let woken = workers.get(&sink).is_some_and(|worker| worker.wake_state == WakeState::Woken);
            if !woken || self.shutdown.is_cancelled() {
                workers.remove(&sink);
                return;
            }
        }
    }

    /// Delivers the event at the head of the queue: take, attempt, settle.
    async fn deliver_head(&self, sink: SinkId, retry_now: &Notify) -> Next {
        let TakenHead { recipient, pending, mut permit } = match self.take(sink, retry_now).await {
            Ok(taken) => taken,
            Err(next) => return next,
        };
        let started_at = Timestamp::now();
        let running = self.running_attempts.begin(sink, pending.sequence);
        let attempted = if running.counts_as_failed() {
            Ok(CompletedAttempt::failed(INTERRUPTED.to_owned()))
        } else {
            let attempt = AssertUnwindSafe(self.attempt(&recipient, &pending, &mut permit)).catch_unwind();
            attempt.await.unwrap_or_else(|_| {
                log::error!("an attempt at event {} for sink {sink} panicked", pending.event.id);
                Ok(CompletedAttempt::failed(PANICKED.to_owned()))
            })
        };
        drop(permit);
        match attempted {
            Ok(completed) => self.settle(&recipient, pending, completed, started_at).await,
            Err(_) => {
                drop(running);
                return self.pause(POSTPONED_WAIT, retry_now).await;
            }
        }
        if running.counts_as_failed() {
            // The note says so until the failure is on disk.
            self.engine.flushed().await;
        }
        if self.shutdown.is_cancelled() { Next::Stop } else { Next::Continue }
    }

    /// Waits until the head of the queue is due and a permit is free, then takes it. The event stays in the queue.
    ///
    /// The event is read last: an event that waits, for its time or for a permit, waits on disk.
    async fn take(&self, sink: SinkId, retry_now: &Notify) -> Result<TakenHead, Next> {
        let head = self.wait_until_due(sink, retry_now).await?;
        // Looked up for each attempt, so that a change of the sink takes effect on the next one. The lookup also sees
        // every change that a pending notification stands for.
        let _ = retry_now.notified().now_or_never();
        let recipient = self.recipients.find(sink).ok_or(Next::Stop)?;
        let permit = tokio::select! {
            () = self.shutdown.cancelled() => return Err(Next::Stop),
            permit = self.permit(&recipient, &head) => permit,
        };
        match self.engine.head(sink).await {
            Ok(Some(pending)) => Ok(TakenHead { recipient, pending, permit }),
            Ok(None) => Err(Next::Stop),
            Err(error @ StoreError::Unreadable(_)) => {
                drop(permit);
                log::warn!("the queue of sink {sink} cannot be read and is tried again: {error}");
                Err(self.pause(POSTPONED_WAIT, retry_now).await)
            }
            Err(error) => {
                // Final: the store has stopped, and queued events are delivered after a restart.
                log::error!("delivery to sink {sink} has stopped: {error}");
                Err(Next::Stop)
            }
        }
    }

    async fn permit(&self, recipient: &Recipient, head: &QueueHead) -> DeliveryPermit {
        match recipient {
            Recipient::Sink(sink) => DeliveryPermit::Sink(self.sink_pools.acquire(sink.id, sink.owner, head).await),
            Recipient::Method(_) => DeliveryPermit::Method(self.method_permits.acquire(recipient.owner()).await),
        }
    }

    /// Makes the attempt. While it lasts, its place counts among those of slow sinks from [`SLOW_AFTER`] on.
    async fn attempt(
        &self,
        recipient: &Recipient,
        pending: &PendingDelivery,
        permit: &mut DeliveryPermit,
    ) -> Result<CompletedAttempt, Postponed> {
        let input = EventInput {
            event: pending.event.clone(),
            sequence: pending.sequence,
            attempt: pending.attempt_number(),
            missed: pending.missed.clone(),
            replay: pending.replay,
        };
        // On the heap, so that a worker that waits takes little memory.
        let mut attempt = Box::pin(self.recipients.attempt(recipient, input));
        if let DeliveryPermit::Sink(permit) = permit {
            while !permit.is_slow() {
                match tokio::time::timeout(SLOW_AFTER, &mut attempt).await {
                    Ok(completed) => return completed,
                    Err(_) => self.sink_pools.move_to_slow(permit),
                }
            }
        }
        attempt.await
    }

    /// Lets the retry policy decide about the event, and records the settled attempt in the queue and the feed.
    async fn settle(
        &self,
        recipient: &Recipient,
        pending: PendingDelivery,
        completed: CompletedAttempt,
        started_at: Timestamp,
    ) {
        self.metrics.attempt_time.observe(completed.duration);
        if let Recipient::Sink(sink) = recipient {
            self.sink_pools.record(sink.id, &completed);
        }
        let settled = self.retry_policy.decide(completed, pending.attempt_number(), started_at);
        self.publish(recipient, &pending, &settled);
        self.engine.settle(pending, settled).await;
    }

    /// Waits for the time of the next attempt; stops if the queue is empty.
    async fn wait_until_due(&self, sink: SinkId, retry_now: &Notify) -> Result<QueueHead, Next> {
        let head = self.engine.queue_head(sink).ok_or(Next::Stop)?;
        let wait = head.wait.min(self.retry_policy.longest_wait());
        if !wait.is_zero() && self.pause(wait, retry_now).await == Next::Stop {
            return Err(Next::Stop);
        }
        Ok(head)
    }

    /// Waits, unless the retry is made due at once.
    async fn pause(&self, wait: Duration, retry_now: &Notify) -> Next {
        tokio::select! {
            () = self.shutdown.cancelled() => Next::Stop,
            () = retry_now.notified() => Next::Continue,
            () = tokio::time::sleep(wait) => Next::Continue,
        }
    }

    fn publish(&self, recipient: &Recipient, pending: &PendingDelivery, settled: &SettledAttempt) {
        let PendingDelivery { event, sequence, .. } = pending;
        let attempt = &settled.attempt;
        self.feed.publish(FeedItem::Delivery(Arc::new(DeliveryUpdate {
            event_id: event.id,
            event_type: event.kind.clone(),
            user: event.user_id,
            owner: recipient.owner(),
            sink_id: recipient.id(),
            name: recipient.name(),
            state: settled.state(),
            outcome: attempt.outcome,
            sequence: *sequence,
            attempt: attempt.number,
            status: attempt.status,
            error: attempt.error.clone(),
        })));
    }
}
