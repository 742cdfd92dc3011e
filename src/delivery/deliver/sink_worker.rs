//! One sink's worker: takes the head of the queue, makes the attempt, settles it, and repeats until the queue is empty.
//!
//! Each queue has one worker at most, so that its events are delivered in order and one at a time, and a slow recipient
//! holds up no other. A queue belongs to a sink or to a method's subscription ([`Recipient`]); both have a [`SinkId`],
//! and this file calls both sinks.

use super::{
    bodies_ahead::{AHEAD, AHEAD_BYTES, AheadShared, BodiesAhead},
    delivery_permit::{DeliveryPermit, KeptPermit},
    recipient::{Recipient, Recipients},
    retry_policy::{RetryDecision, RetryPolicy, SinkFinding},
    running_attempts::{INTERRUPTED, RunningAttempts},
    sink_pools::SinkPools,
};
use crate::{
    delivery::{
        CompletedAttempt, FailureKind, Postponed, SinkFailures,
        sinks::{EventBody, Sink, SinksError, renders_ahead},
    },
    model::{
        batch_spec::BatchSpec,
        event::{Actor, Event},
        id::SinkId,
        owner::Owner,
        timestamp::Timestamp,
        units::Span,
    },
    platform::{
        audit::{Audit, AuditEntry},
        collection::Edit,
        keyed_semaphore::KeyedSemaphore,
        metrics::Metrics,
        owner_pool::Priority,
        store::StoreError,
    },
    routing::{
        feed::{DeliveryUpdate, Feed},
        queue::{AttemptOutcome, Engine, PendingDelivery, QueueHead, SettledAttempt},
    },
    scripting::lua::EventInput,
};
use futures_util::FutureExt;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::Notify;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The wait after a postponed attempt, and after a failed read of the queue.
const POSTPONED_WAIT: Duration = Duration::from_secs(1);

/// The most bytes of data of the events of a batch. The output of a template, which holds them again, has a limit too.
const MAX_BATCH_BYTES: usize = 512 << 10;

/// The wait after a defect of the server ended a worker.
const PANIC_WAIT: Duration = Duration::from_secs(30);

/// The error of an attempt that met a defect of the server.
const PANICKED: &str = "the server failed during this attempt: its log says why";

/// Everything that the workers of the sinks share.
pub(super) struct DelivererState {
    pub engine: Arc<dyn Engine>,
    pub running_attempts: RunningAttempts,
    pub recipients: Recipients,
    pub retry_policy: RetryPolicy,
    pub failures: SinkFailures,
    /// Events that a queue holds at most.
    pub queue_limit: usize,
    pub ahead: AheadShared,
    /// Places for attempts at sinks, whose duration is limited by the server.
    pub sink_pools: SinkPools,
    /// Permits for calls of methods, whose duration is limited by their owners. They are separate for each owner, so
    /// that long calls of one owner delay no other.
    pub method_permits: KeyedSemaphore<Owner>,
    pub feed: Feed,
    pub metrics: Arc<Metrics>,
    pub sink_workers: Mutex<HashMap<SinkId, SinkWorkerHandle>>,
    pub tasks: TaskTracker,
    pub shutdown: CancellationToken,
}

/// The handle of a running worker.
pub(super) struct SinkWorkerHandle {
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
    /// One event, or those of a batch.
    batch: Vec<PendingDelivery>,
    permit: DeliveryPermit,
}

/// The bodies ahead of a sink, from its first template on.
type LazyBodies = Option<Box<BodiesAhead>>;

/// State that a worker keeps from one event to the next, until its queue is empty.
struct SinkWorkerState {
    /// The priority of the next event among those of the owner.
    priority: Priority,
    kept: Option<KeptPermit>,
    ahead: LazyBodies,
}

/// The continuation of a worker after one step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Continue,
    Stop,
}

impl DelivererState {
    /// Runs a sink's worker, and again after a while if it panics: one attempt that hits a defect of the server must
    /// not end the delivery to the sink.
    pub async fn supervise_sink_worker(&self, sink: SinkId, retry_now: &Notify) {
        while AssertUnwindSafe(self.run_sink_worker(sink, retry_now)).catch_unwind().await.is_err() {
            log::error!("the worker of sink {sink} panicked and starts again in {} s", PANIC_WAIT.as_secs());
            if self.wait_for_retry(PANIC_WAIT, retry_now).await == Next::Stop {
                self.sink_workers.lock().remove(&sink);
                return;
            }
        }
    }

    /// Runs a sink's worker from its first event to an empty queue.
    async fn run_sink_worker(&self, sink: SinkId, retry_now: &Notify) {
        loop {
            if let Some(worker) = self.sink_workers.lock().get_mut(&sink) {
                worker.wake_state = WakeState::Idle;
            }
            let mut state = SinkWorkerState { priority: Priority::New, kept: None, ahead: None };
            while self.deliver_head(sink, retry_now, &mut state).await == Next::Continue {}
            drop(state);
            let mut workers = self.sink_workers.lock();
            let woken = workers.get(&sink).is_some_and(|worker| worker.wake_state == WakeState::Woken);
            if !woken || self.shutdown.is_cancelled() {
                workers.remove(&sink);
                return;
            }
        }
    }

    /// Delivers the event at the head of the queue: take, attempt, settle.
    async fn deliver_head(&self, sink: SinkId, retry_now: &Notify, state: &mut SinkWorkerState) -> Next {
        let TakenHead { recipient, mut batch, mut permit } = match self.take(sink, retry_now, state).await {
            Ok(taken) => taken,
            Err(next) => return next,
        };
        let ahead = &mut state.ahead;
        let started_at = Timestamp::now();
        let running = self.running_attempts.begin(sink, batch[0].sequence);
        if running.was_interrupted() {
            // An event behind this one may have ended the server.
            ahead.get_or_insert_default().turn_off();
        }
        let attempted = if running.counts_as_failed() {
            // Which event of the batch ended the server is not known: the first is attempted alone from now on.
            batch.truncate(1);
            Ok(CompletedAttempt::failed(INTERRUPTED.to_owned()))
        } else {
            let attempt = AssertUnwindSafe(self.attempt(&recipient, &batch, &mut permit, ahead)).catch_unwind();
            attempt.await.unwrap_or_else(|_| {
                log::error!("an attempt at event {} for sink {sink} panicked", batch[0].event.id);
                Ok(CompletedAttempt::failed(PANICKED.to_owned()))
            })
        };
        let delivered = matches!(&attempted, Ok(completed) if completed.outcome == AttemptOutcome::Delivered);
        state.priority = Priority::Continued;
        state.kept = Some(permit).filter(|_| delivered).and_then(|permit| KeptPermit::new(permit, &recipient));
        if !delivered {
            discard(ahead);
        }
        let Ok(completed) = attempted else {
            drop(running);
            return self.wait_for_retry(POSTPONED_WAIT, retry_now).await;
        };
        self.settle(&recipient, batch, completed, started_at).await;
        if running.counts_as_failed() {
            // The note says so until the failure is on disk.
            self.engine.flushed().await;
        }
        if delivered {
            running.end_settled();
        }
        if self.shutdown.is_cancelled() { Next::Stop } else { Next::Continue }
    }

    /// Waits until the head of the queue is due and a permit is free, then takes it. The event stays in the queue.
    ///
    /// The event is read last: an event that waits, for its time or for a permit, waits on disk.
    async fn take(&self, sink: SinkId, retry_now: &Notify, state: &mut SinkWorkerState) -> Result<TakenHead, Next> {
        let head = self.wait_until_due(sink, retry_now, &mut state.kept).await?;
        // Looked up for each attempt, so that a change of the sink takes effect on the next one. The lookup also sees
        // every change that a pending notification stands for.
        let _ = retry_now.notified().now_or_never();
        let mut recipient = self.recipients.find(sink).ok_or(Next::Stop)?;
        if let Some(spec) = recipient.batch() {
            state.kept = None;
            self.wait_for_batch(sink, &head, spec, retry_now).await?;
            recipient = self.recipients.find(sink).ok_or(Next::Stop)?;
        }
        let permit = match state.kept.take().and_then(|kept| kept.take_for(&recipient)) {
            Some(permit) => permit,
            None => tokio::select! {
                // A permit is mostly free, and the shutdown need not be watched then.
                biased;
                permit = self.permit(&recipient, &head, state.priority) => permit,
                () = self.shutdown.cancelled() => return Err(Next::Stop),
            },
        };
        if self.shutdown.is_cancelled() {
            return Err(Next::Stop);
        }
        let max = recipient.batch().map_or(1, |batch| batch.max);
        match self.engine.next_deliveries(sink, max, MAX_BATCH_BYTES).await {
            Ok(batch) if batch.is_empty() => Err(Next::Stop),
            Ok(batch) => Ok(TakenHead { recipient, batch, permit }),
            Err(error @ StoreError::Unreadable(_)) => {
                drop(permit);
                log::warn!("the queue of sink {sink} cannot be read and is tried again: {error}");
                Err(self.wait_for_retry(POSTPONED_WAIT, retry_now).await)
            }
            Err(error) => {
                // Final: the store has stopped, and queued events are delivered after a restart.
                log::error!("delivery to sink {sink} has stopped: {error}");
                Err(Next::Stop)
            }
        }
    }

    async fn permit(&self, recipient: &Recipient, head: &QueueHead, priority: Priority) -> DeliveryPermit {
        match recipient {
            Recipient::Sink(sink) => {
                DeliveryPermit::Sink(self.sink_pools.acquire(sink.id, sink.owner, head, priority).await)
            }
            Recipient::Method(_) => {
                let permit = self.method_permits.acquire(recipient.owner()).await;
                DeliveryPermit::Method(permit.expect("any number may wait"))
            }
        }
    }

    /// Waits until the queue holds a whole batch, or its first event has waited for as long as it may.
    async fn wait_for_batch(
        &self,
        sink: SinkId,
        head: &QueueHead,
        spec: BatchSpec,
        retry_now: &Notify,
    ) -> Result<(), Next> {
        let Span(wait) = spec.wait;
        // Events that failed together are attempted together again.
        if wait.is_zero() || head.failures > 0 {
            return Ok(());
        }
        let accepted_at = match self.engine.next_delivery(sink).await {
            Ok(Some(first)) => first.accepted_at,
            // Told when the batch is read.
            Ok(None) | Err(_) => return Ok(()),
        };
        let left = accepted_at.after(wait).from_now().min(wait);
        tokio::select! {
            () = self.shutdown.cancelled() => Err(Next::Stop),
            // The sink may have been changed: begin anew with what it is now.
            () = retry_now.notified() => Err(Next::Continue),
            () = self.engine.filled(sink, spec.max.min(self.queue_limit)) => Ok(()),
            () = tokio::time::sleep(left) => Ok(()),
        }
    }

    /// Makes the attempt.
    async fn attempt(
        &self,
        recipient: &Recipient,
        batch: &[PendingDelivery],
        permit: &mut DeliveryPermit,
        ahead: &mut LazyBodies,
    ) -> Result<CompletedAttempt, Postponed> {
        let began = Instant::now();
        // On the heap, so that a worker that waits takes little memory.
        let attempt = Box::pin(async {
            let body = self.body_ahead(recipient, &batch[0], ahead).await;
            let completed = self.recipients.attempt(recipient, batch.iter().map(input).collect(), body).await?;
            Ok(CompletedAttempt { duration: began.elapsed(), ..completed })
        });
        match permit {
            DeliveryPermit::Sink(permit) => self.sink_pools.watch(permit, attempt).await,
            DeliveryPermit::Method(_) => attempt.await,
        }
    }

    /// Takes the body of an event if it was rendered ahead, and sees to it that those of the next events are.
    async fn body_ahead(
        &self,
        recipient: &Recipient,
        pending: &PendingDelivery,
        ahead: &mut LazyBodies,
    ) -> Option<EventBody> {
        let Recipient::Sink(sink) = recipient else { return None };
        if !renders_ahead(sink) {
            discard(ahead);
            return None;
        }
        let ahead = ahead.get_or_insert_default();
        let body = ahead.take(&self.ahead, sink, &input(pending)).await;
        if let Some(ready) = ahead.wants_more_than()
            && self.engine.depth(sink.id).queued > 1 + ready
            && let Ok(next) = self.engine.next_deliveries(sink.id, 1 + ready + AHEAD, AHEAD_BYTES).await
        {
            let inputs = next.iter().skip(1 + ready).map(input).collect();
            ahead.begin(&self.ahead, &self.recipients.sink_context, sink, inputs);
        }
        body
    }

    /// Lets the retry policy decide about the event, and records the settled attempt in the queue and the feed. The
    /// events of a batch share their fate.
    async fn settle(
        &self,
        recipient: &Recipient,
        batch: Vec<PendingDelivery>,
        completed: CompletedAttempt,
        started_at: Timestamp,
    ) {
        self.metrics.attempt_time.observe(completed.duration);
        if let Recipient::Sink(sink) = recipient {
            let is_first = self.sink_pools.record(sink.id, &completed);
            // Deleted during the attempt.
            if is_first && !self.has_sink(sink.id) {
                self.sink_pools.forget(sink.id);
            }
        }
        let (number, event) = (batch[0].attempt_number(), batch[0].event.clone());
        let RetryDecision { settled, finding } =
            self.retry_policy.decide(completed, number, started_at, recipient.on_failure());
        let others = match batch.len() {
            1 => Vec::new(),
            size => vec![settled.for_another(); size - 1],
        };
        let settled: Vec<_> = batch.into_iter().zip(std::iter::once(settled).chain(others)).collect();
        settled.iter().for_each(|(pending, settled)| self.publish(recipient, pending, settled));
        self.engine.settle_all(settled).await;
        if let Recipient::Sink(sink) = recipient {
            self.record_finding(sink, &event, finding).await;
        }
    }

    /// Records what an attempt shows about its sink, and pauses a sink whose receiver is gone.
    async fn record_finding(&self, sink: &Arc<Sink>, event: &Event, finding: SinkFinding) {
        if self.failures.is_dropping(sink.id) && self.engine.depth(sink.id).live <= self.queue_limit / 2 {
            self.failures.end_dropping(sink.id);
        }
        match finding {
            SinkFinding::Undecided => {}
            SinkFinding::Works => self.failures.end(sink.reported(), event),
            SinkFinding::GaveUp => self.failures.end_hold(sink.reported(), event),
            // Deleted during the attempt: nobody is left to be told.
            SinkFinding::Fails { .. } if !self.has_sink(sink.id) => {}
            SinkFinding::Fails { state, reason, kind } => {
                self.failures.fail(sink.reported(), event, state, &reason, kind);
                if !self.has_sink(sink.id) {
                    self.failures.forget(sink.id);
                } else if kind == FailureKind::Gone {
                    self.pause_sink(sink, &reason).await;
                }
            }
        }
    }

    fn has_sink(&self, id: SinkId) -> bool {
        self.recipients.sinks.get(id).is_some()
    }

    /// Makes a sink inactive, unless it was changed since it was attempted. Its queue stays.
    async fn pause_sink(&self, attempted: &Arc<Sink>, reason: &str) {
        let decide = |before: Arc<Sink>| async move {
            if before.updated_at != attempted.updated_at {
                return Ok(Edit::put(before));
            }
            let entry = AuditEntry::new(Some(Actor::system()), "sink.pause", format!("sink:{}", before.id))
                .with(serde_json::json!({"name": before.name, "reason": reason}));
            let paused = before.paused(reason.to_owned(), Timestamp::now());
            Ok::<_, SinksError>(Edit::put(paused).with(move |batch| Audit::record(batch, &entry)))
        };
        match self.recipients.sinks.edit(attempted.id, decide).await {
            Ok(_) | Err(SinksError::NotFound(_)) => {}
            // The next attempt pauses it.
            Err(error) => log::warn!("sink `{}` ({}) is not paused: {error}", attempted.name, attempted.id),
        }
    }

    /// Waits for the time of the next attempt, without a place; stops if the queue is empty.
    async fn wait_until_due(
        &self,
        sink: SinkId,
        retry_now: &Notify,
        kept: &mut Option<KeptPermit>,
    ) -> Result<QueueHead, Next> {
        let head = self.engine.queue_head(sink).ok_or(Next::Stop)?;
        let wait = head.wait.min(self.retry_policy.longest_wait());
        if !wait.is_zero() {
            *kept = None;
            if self.wait_for_retry(wait, retry_now).await == Next::Stop {
                return Err(Next::Stop);
            }
        }
        Ok(head)
    }

    /// Waits, unless the retry is made due at once.
    async fn wait_for_retry(&self, wait: Duration, retry_now: &Notify) -> Next {
        tokio::select! {
            () = self.shutdown.cancelled() => Next::Stop,
            () = retry_now.notified() => Next::Continue,
            () = tokio::time::sleep(wait) => Next::Continue,
        }
    }

    fn publish(&self, recipient: &Recipient, pending: &PendingDelivery, settled: &SettledAttempt) {
        let PendingDelivery { event, sequence, .. } = pending;
        let attempt = &settled.attempt;
        self.feed.attempted(recipient.id(), attempt, || DeliveryUpdate {
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
        });
    }
}

fn discard(ahead: &mut LazyBodies) {
    if let Some(ahead) = ahead {
        ahead.clear();
    }
}

/// The event as a template or a script sees it.
fn input(pending: &PendingDelivery) -> EventInput {
    EventInput {
        event: pending.event.clone(),
        sequence: pending.sequence,
        attempt: pending.attempt_number(),
        missed: pending.missed.clone(),
        replay: pending.replay,
    }
}
