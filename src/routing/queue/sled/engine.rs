//! [`Engine`] on the embedded store.

use super::{
    accept::AcceptResult,
    dead_letters::LettersQueuedAgain,
    queues::{EngineHooks, QueueLimits, QueueState, QueuedBy, SinkQueue},
    replays::ReplayedEvents,
    rows::{EventRow, queue_key, sequence_key},
};
use crate::{
    model::{
        event::Event,
        id::{EventId, SinkId},
        owner::Owner,
        replay::{ReplayChange, ReplayJob},
        sequence::{SequenceNumber, SequenceRange},
        units::Size,
    },
    platform::{
        audit::{Audit, AuditEntry},
        metrics::Metrics,
        store::{Batch, Store, StoreError, keys},
    },
    routing::queue::{
        AcceptError, AcceptOptions, Acceptance, BurstEnd, DeadLetter, DeadLetterFilter, Engine, HistoryFilter,
        HistoryPage, NewReplay, OrderedEmits, PendingDelivery, QueueDepth, QueueHead, Receipt, Record, Redelivered,
        ReplayError, ReplayStep, Retention, RouteTarget, RunningReplay, SettledAttempt,
    },
};
use async_trait::async_trait;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Dead letters that are queued again in one write, so that no other write waits long.
const LETTERS_AT_ONCE: usize = 500;

/// Queues in the embedded store. Cloning the handle is cheap.
#[derive(Clone)]
pub struct SledEngine(Arc<QueueState>);

impl SledEngine {
    /// Reads the queues back from `store`, and wakes the sinks that have something to deliver.
    pub fn open(
        store: Store,
        metrics: Arc<Metrics>,
        limits: QueueLimits,
        hooks: EngineHooks,
    ) -> Result<Self, StoreError> {
        Ok(Self(QueueState::recover(store, metrics, limits, hooks)?))
    }

    /// Queues some dead letters again, in one write.
    async fn redeliver_step(
        &self,
        sink: SinkId,
        letters: Vec<u64>,
        entry: AuditEntry,
    ) -> Result<LettersQueuedAgain, StoreError> {
        let (state, after) = (self.0.clone(), self.0.clone());
        let redelivered = self.0.store.write_then(
            move |batch| {
                let redelivered = state.queue_letters_again(batch, sink, &letters)?;
                if !redelivered.queued.is_empty() {
                    let detail = serde_json::json!({"redelivered": redelivered.queued.len()});
                    Audit::record(batch, &entry.with(detail));
                }
                Ok::<_, StoreError>(redelivered)
            },
            move |redelivered| {
                if let Ok(LettersQueuedAgain { queued, .. }) = redelivered {
                    after.metrics.matched.add(queued.len());
                    after.push_ready(
                        queued.iter().map(|(sequence, event)| (sink, *sequence, *event)),
                        QueuedBy::Redelivery,
                    );
                }
            },
        );
        redelivered.await?
    }
}

#[async_trait]
impl Engine for SledEngine {
    fn open_queue(&self, target: &RouteTarget, owner: Owner) {
        let mut queues = self.0.queues();
        let queue = queues.entry(target.sink).or_default();
        queue.name = target.name.clone();
        queue.owner = Some(owner);
        if !queue.counts() {
            let events = queue.ready.iter().filter_map(|queued| queued.event);
            events.for_each(|at| self.0.undelivered.remove(at, target.sink));
        }
    }

    async fn end_bursts(&self, end: BurstEnd) -> Result<(), StoreError> {
        let now = Instant::now();
        let entries: Vec<_> = {
            let mut queues = self.0.queues();
            let end_bursts = |(sink, queue): (&SinkId, &mut Box<SinkQueue>)| {
                let SinkQueue { name, losses, .. } = &mut **queue;
                losses.as_mut().map(|losses| losses.bursts.end(*sink, name, end, now))
            };
            queues.iter_mut().filter_map(end_bursts).flatten().collect()
        };
        if entries.is_empty() {
            return Ok(());
        }
        self.0.store.write(move |batch| entries.iter().for_each(|entry| Audit::record(batch, entry))).await
    }

    async fn discard_queue(&self, sink: SinkId) -> Result<usize, StoreError> {
        let state = self.0.clone();
        let queued = self.0.store.write(move |batch| {
            let queue = state.queues().remove(&sink);
            state.replays.remove(sink);
            state.history.counters.age_sweep.let_go_any();
            batch.delete(sequence_key(sink));
            for kind in [keys::QUEUE, keys::DEAD, keys::GAP, keys::NUMBER, keys::REPLAY] {
                batch.delete_prefix(&keys::key(kind, &[sink.as_bytes()]))?;
            }
            let Some(mut queue) = queue else { return Ok(0) };
            queue.end_fill();
            queue.ready.iter().filter_map(|queued| queued.event).for_each(|at| state.undelivered.remove(at, sink));
            Ok(queue.reserved)
        });
        let queued = queued.await??;
        self.0.metrics.discarded.add(queued);
        Ok(queued)
    }

    async fn accept(
        &self,
        event: Arc<Event>,
        targets: Vec<RouteTarget>,
        options: AcceptOptions,
    ) -> Result<Receipt, AcceptError> {
        let AcceptOptions { order, memory } = options;
        self.0.store.check_room().inspect_err(|_| order.iter().for_each(OrderedEmits::refuse_rest))?;
        let encoded = EventRow::encode_event(&event);
        let (state, after) = (self.0.clone(), self.0.clone());
        let stamped = event.clone();
        let accept = move |batch: &mut Batch<'_>| {
            if order.as_ref().is_some_and(OrderedEmits::is_refusing) {
                return AcceptResult::UndeliveredFull;
            }
            let result = state.accept(batch, &stamped, encoded, targets);
            if let (AcceptResult::UndeliveredFull, Some(order)) = (&result, order) {
                order.refuse_rest();
            }
            result
        };
        let accepted = self.0.store.write_then(accept, {
            let event = event.clone();
            move |result| {
                after.publish_accepted(&event, result);
                drop(memory);
            }
        });
        match accepted.await? {
            AcceptResult::New { dropped, matched, .. } => {
                Ok(Receipt { event, matched, dropped, acceptance: Acceptance::New })
            }
            AcceptResult::Repeated(row) => {
                let dropped = row.routed.iter().filter(|routed| routed.dropped).map(RouteTarget::from).collect();
                let matched = row.routed.iter().map(RouteTarget::from).collect();
                Ok(Receipt { event: Arc::new(row.event), matched, dropped, acceptance: Acceptance::Repeated })
            }
            AcceptResult::IdTaken => Err(AcceptError::IdTaken(event.id)),
            AcceptResult::UndeliveredFull => {
                Err(AcceptError::UndeliveredFull { limit: Size(self.0.limits.undelivered) })
            }
            AcceptResult::Unreadable(error) => Err(error.into()),
        }
    }

    fn queue_head(&self, sink: SinkId) -> Option<QueueHead> {
        let queues = self.0.queues();
        let queue = queues.get(&sink)?;
        let head = queue.ready.front()?;
        Some(QueueHead {
            wait: head.due.map_or(Duration::ZERO, |due| due.saturating_duration_since(Instant::now())),
            sequence: head.sequence,
            failures: head.failures,
            follows_dead_letter: queue.losses().dead_letters.back().is_some_and(|letter| letter + 1 == head.sequence),
        })
    }

    async fn filled(&self, sink: SinkId, events: usize) {
        let awaited = self.0.queues().get_mut(&sink).and_then(|queue| queue.await_fill(events));
        if let Some(filled) = awaited {
            filled.notified().await;
        }
    }

    async fn next_delivery(&self, sink: SinkId) -> Result<Option<PendingDelivery>, StoreError> {
        // An attempt that cannot be settled would be repeated without end.
        if let Some(stopped) = self.0.store.failure() {
            return Err(stopped);
        }
        while let Some(head) = self.0.head(sink) {
            let damaged = |reason: String| StoreError::damaged(&queue_key(sink, head.sequence), reason);
            let damage = match head.event.map(|at| (at, self.0.event(at))) {
                Some((at, Ok(Some(event)))) => {
                    return Ok(Some(PendingDelivery {
                        sink,
                        sequence: head.sequence,
                        accepted_at: at.accepted_at,
                        event,
                        failures: head.failures,
                        recorded: head.recorded,
                        missed: self.0.missed_before(sink, head.sequence),
                        replay: head.replay,
                    }));
                }
                Some((at, Ok(None))) => damaged(format!("its event {} is missing", at.id)),
                Some((_, Err(error @ StoreError::Damaged { .. }))) => error,
                Some((_, Err(error))) => return Err(error),
                None => damaged("it names no event".to_owned()),
            };
            if let Some(gap) = self.0.remove_damaged_head(sink, head) {
                self.0.give_up_damaged(sink, head, &damage, gap);
            }
        }
        Ok(None)
    }

    async fn next_deliveries(
        &self,
        sink: SinkId,
        max: usize,
        bytes: usize,
    ) -> Result<Vec<PendingDelivery>, StoreError> {
        let Some(first) = self.next_delivery(sink).await? else { return Ok(Vec::new()) };
        if max <= 1 {
            return Ok(vec![first]);
        }
        let mut size = first.event.data.get().len();
        let behind: Vec<_> = {
            let queues = self.0.queues();
            let ready = queues.get(&sink).map(|queue| &queue.ready).into_iter().flatten();
            let behind = ready.skip_while(|queued| queued.sequence <= first.sequence).copied();
            behind.take_while(|queued| queued.failures == first.failures).take(max - 1).collect()
        };
        let mut told = first.sequence;
        let mut batch = vec![first];
        for queued in behind {
            // A damaged one is dealt with when it is at the head.
            let Some(at) = queued.event else { break };
            let Ok(Some(event)) = self.0.event(at) else { break };
            size += event.data.get().len();
            if size > bytes {
                break;
            }
            batch.push(PendingDelivery {
                sink,
                sequence: queued.sequence,
                accepted_at: at.accepted_at,
                event,
                failures: queued.failures,
                recorded: queued.recorded,
                missed: self.0.missed_between(sink, told, queued.sequence),
                replay: queued.replay,
            });
            told = queued.sequence;
        }
        Ok(batch)
    }

    async fn settle_all(&self, batch: Vec<(PendingDelivery, SettledAttempt)>) {
        let Some(gaps) = self.0.settle_in_memory(&batch) else { return };
        batch.iter().for_each(|(_, settled)| self.0.count_settled(settled));
        let state = self.0.clone();
        // One job, so that all of it is in one group on disk.
        self.0.store.write_soon(move |writes| {
            for ((pending, settled), gap) in batch.into_iter().zip(gaps) {
                if let Err(error) = state.write_settlement(writes, &pending, settled, &gap) {
                    log::error!("settling {} for sink {}: {error}", pending.event.id, pending.sink);
                }
            }
        });
    }

    async fn flushed(&self) {
        // A failure is that of the whole store.
        let _ = self.0.store.write(|_| ()).await;
    }

    async fn redeliver(
        &self,
        sink: SinkId,
        letters: DeadLetterFilter,
        entry: AuditEntry,
    ) -> Result<Redelivered, StoreError> {
        let state = self.0.clone();
        let mut selected = self.0.store.write(move |_| state.letter_numbers(sink)).await?;
        if let DeadLetterFilter::Events(events) = letters {
            let state = self.0.clone();
            selected = read_beside(move || state.letters_of(sink, selected, &events)).await?;
        }
        let mut total = Redelivered { queued: 0, remaining: 0, damaged: 0 };
        for step in selected.chunks(LETTERS_AT_ONCE) {
            let LettersQueuedAgain { queued, damaged, is_full } =
                self.redeliver_step(sink, step.to_vec(), entry.renewed()).await?;
            total.queued += queued.len();
            total.damaged += damaged;
            if is_full {
                break;
            }
        }
        Ok(Redelivered { remaining: self.depth(sink).dead, ..total })
    }

    async fn start_replay(&self, sink: SinkId, new: NewReplay, entry: AuditEntry) -> Result<ReplayJob, ReplayError> {
        let state = self.0.clone();
        let started = self.0.store.write(move |batch| state.start_replay(batch, sink, new, entry)).await?;
        self.0.replays.room.notify_one();
        started
    }

    async fn change_replay(
        &self,
        sink: SinkId,
        change: ReplayChange,
        entry: AuditEntry,
    ) -> Result<ReplayJob, ReplayError> {
        let state = self.0.clone();
        let changed = self.0.store.write(move |batch| state.change_replay(batch, sink, change, entry)).await?;
        self.0.replays.room.notify_one();
        changed
    }

    fn replays(&self, sink: SinkId) -> Vec<ReplayJob> {
        self.0.replays.of(sink)
    }

    fn running_replays(&self) -> Vec<(SinkId, RunningReplay)> {
        self.0.replays.running()
    }

    async fn advance_replay(&self, sink: SinkId, most: usize) -> Result<ReplayStep, StoreError> {
        let Some(job) = self.0.replays.running_of(sink) else { return Ok(ReplayStep::default()) };
        self.0.store.check_room()?;
        let (id, is_counted) = (job.id, job.matched.is_some());
        let state = self.0.clone();
        if !is_counted {
            if let Some(matched) = read_beside(move || state.count_replay(sink, &job)).await? {
                let state = self.0.clone();
                self.0.store.write(move |batch| state.put_count(batch, sink, id, matched)).await?;
            }
            return Ok(ReplayStep { queued: 0, has_more: true });
        }
        let room = self.0.free_replay_places(sink).min(most);
        if room == 0 {
            return Ok(ReplayStep::default());
        }
        let scan = move || state.scan_history(sink, &job.selection, job.reached, room);
        let scanned = read_beside(scan).await?;
        let (state, after) = (self.0.clone(), self.0.clone());
        let fed = self.0.store.write_then(
            move |batch| state.advance_replay(batch, sink, id, &scanned),
            move |fed| {
                if let Ok(ReplayedEvents { queued, .. }) = fed {
                    after.metrics.matched.add(queued.len());
                    let queued = queued.iter().map(|(sequence, event)| (sink, *sequence, *event));
                    after.push_ready(queued, QueuedBy::Replay(id));
                }
            },
        );
        let ReplayedEvents { queued, is_finished, has_no_room } = fed.await??;
        let has_more = !is_finished && !has_no_room && queued.len() < room && self.0.free_replay_places(sink) > 0;
        Ok(ReplayStep { queued: queued.len(), has_more })
    }

    async fn wait_for_replay_room(&self) {
        self.0.replays.room.notified().await;
    }

    fn dead_letters(&self, sink: SinkId, after: u64, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        self.0.dead_letters(sink, after, limit)
    }

    fn depth(&self, sink: SinkId) -> QueueDepth {
        self.0.queues().get(&sink).map_or_else(QueueDepth::default, |queue| QueueDepth {
            queued: queue.reserved,
            live: queue.live(),
            last_sequence: queue.last_sequence,
            dead: queue.losses().dead_letters.len(),
            oldest: queue.ready.front().and_then(|head| Some(head.event?.accepted_at)),
        })
    }

    fn numbers(&self, sink: SinkId, range: SequenceRange) -> Result<Vec<SequenceNumber>, StoreError> {
        self.0.numbers(sink, range)
    }

    fn sinks(&self) -> Vec<SinkId> {
        self.0.queues().keys().copied().collect()
    }

    fn record(&self, id: EventId) -> Result<Option<Record>, StoreError> {
        match self.0.history.index.locate(id) {
            Some(at) => self.0.history.record(at, |sink| self.0.has_queue(sink)),
            None => Ok(None),
        }
    }

    fn history(&self, filter: &HistoryFilter) -> Result<HistoryPage, StoreError> {
        self.0.history.page(filter, |sink| self.0.has_queue(sink))
    }

    fn history_bytes(&self) -> u64 {
        self.0.history.bytes()
    }

    async fn prune(&self, retention: Retention) -> Result<usize, StoreError> {
        self.0.prune(retention).await
    }
}

/// Runs a long read of the database beside the tasks that must not wait for it.
async fn read_beside<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let joined = tokio::task::spawn_blocking(read).await;
    joined.unwrap_or_else(|error| Err(StoreError::Unreadable(Arc::new(std::io::Error::other(error)))))
}

/// An event that waits in a queue.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::routing::queue) struct WaitingDelivery {
    pub sequence: u64,
    pub event: EventId,
    pub failures: u32,
    /// The next attempt is far away.
    pub is_held: bool,
    pub is_replayed: bool,
}

#[cfg(test)]
impl SledEngine {
    /// Returns the numbers that a sink misses and was not told of.
    pub(in crate::routing::queue) fn missed(&self, sink: SinkId) -> Vec<u64> {
        let missed = self.0.missed_before(sink, u64::MAX);
        missed.into_iter().flat_map(|range| range.from..=range.to).collect()
    }

    /// Returns the events that wait for a sink.
    pub(in crate::routing::queue) fn waiting(&self, sink: SinkId) -> Vec<WaitingDelivery> {
        let queues = self.0.queues();
        let ready = queues.get(&sink).map(|queue| &queue.ready).into_iter().flatten();
        let far = Instant::now() + Duration::from_secs(60);
        let waiting = |queued: &super::queues::QueuedEvent| WaitingDelivery {
            sequence: queued.sequence,
            event: queued.event.unwrap().id,
            failures: queued.failures,
            is_held: queued.due.is_some_and(|due| due > far),
            is_replayed: queued.replay.is_some(),
        };
        ready.map(waiting).collect()
    }
}
