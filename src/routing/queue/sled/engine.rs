//! [`Engine`] on the embedded store.

use super::{
    dead_letters::Requeued,
    queues::{EngineHooks, QueueLimits, QueueState},
    rows::{queue_key, sequence_key},
    write_ops::AcceptResult,
};
use crate::{
    model::{
        event::Event,
        id::{EventId, SinkId},
        owner::Owner,
        units::Size,
    },
    platform::{
        audit::{Audit, AuditEntry},
        metrics::Metrics,
        store::{Store, StoreError, keys},
    },
    routing::queue::{
        AcceptError, Acceptance, BurstEnd, DeadLetter, DeadLetterFilter, Engine, HistoryFilter, HistoryPage,
        PendingDelivery, QueueDepth, QueueHead, Receipt, Record, Redelivered, Retention, RouteTarget, SettledAttempt,
    },
};
use async_trait::async_trait;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

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
            queues.iter_mut().flat_map(|(sink, queue)| queue.losses.end(*sink, &queue.name, end, now)).collect()
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
            batch.delete(sequence_key(sink));
            batch.delete_prefix(&keys::key(keys::QUEUE, &[sink.as_bytes()]))?;
            batch.delete_prefix(&keys::key(keys::DEAD, &[sink.as_bytes()]))?;
            let Some(queue) = queue else { return Ok(0) };
            queue.ready.iter().filter_map(|queued| queued.event).for_each(|at| state.undelivered.remove(at, sink));
            Ok(queue.reserved)
        });
        let queued = queued.await??;
        self.0.metrics.discarded.add(queued);
        Ok(queued)
    }

    async fn accept(&self, event: Arc<Event>, targets: Vec<RouteTarget>) -> Result<Receipt, AcceptError> {
        self.0.store.check_room()?;
        let encoded = serde_json::to_vec(&*event).expect("an event is plain data with string keys");
        let (state, after) = (self.0.clone(), self.0.clone());
        let stamped = event.clone();
        let accepted = self.0.store.write_then(move |batch| state.accept(batch, &stamped, &encoded, targets), {
            let event = event.clone();
            move |result| after.accepted(&event, result)
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
            follows_dead_letter: queue.dead_letters.back().is_some_and(|letter| letter + 1 == head.sequence),
        })
    }

    async fn head(&self, sink: SinkId) -> Result<Option<PendingDelivery>, StoreError> {
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
                    }));
                }
                Some((at, Ok(None))) => damaged(format!("its event {} is missing", at.id)),
                Some((_, Err(error @ StoreError::Damaged { .. }))) => error,
                Some((_, Err(error))) => return Err(error),
                None => damaged("it names no event".to_owned()),
            };
            if self.0.remove_head(sink, head) {
                self.0.give_up_damaged(sink, head, &damage);
            }
        }
        Ok(None)
    }

    async fn settle(&self, pending: PendingDelivery, settled: SettledAttempt) {
        if !self.0.settle_in_memory(&pending, &settled.settlement) {
            return;
        }
        self.0.count(&settled);
        let state = self.0.clone();
        self.0.store.write_soon(move |batch| {
            if let Err(error) = state.write_settlement(batch, &pending, settled) {
                log::error!("settling {} for sink {}: {error}", pending.event.id, pending.sink);
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
        let (state, after) = (self.0.clone(), self.0.clone());
        let requeued = self.0.store.write_then(
            move |batch| {
                let requeued = state.requeue(batch, sink, &letters)?;
                if !requeued.queued.is_empty() {
                    let detail = serde_json::json!({"redelivered": requeued.queued.len()});
                    Audit::record(batch, &entry.with(detail));
                }
                Ok::<_, StoreError>(requeued)
            },
            move |requeued| {
                if let Ok(Requeued { queued, .. }) = requeued {
                    after.metrics.matched.add(queued.len());
                    after.push_ready(queued.iter().map(|(sequence, event)| (sink, *sequence, *event)), true);
                }
            },
        );
        let Requeued { queued, damaged } = requeued.await??;
        Ok(Redelivered { queued: queued.len(), remaining: self.depth(sink).dead, damaged })
    }

    fn dead_letters(&self, sink: SinkId, after: u64, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        self.0.dead_letters(sink, after, limit)
    }

    fn depth(&self, sink: SinkId) -> QueueDepth {
        self.0.queues().get(&sink).map_or_else(QueueDepth::default, |queue| QueueDepth {
            queued: queue.reserved,
            last_sequence: queue.last_sequence,
            dead: queue.dead_letters.len(),
            oldest: queue.ready.front().and_then(|head| Some(head.event?.accepted_at)),
        })
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

#[cfg(test)]
impl SledEngine {
    /// Returns the events that wait for a sink: sequence number, event, failures.
    pub(in crate::routing::queue) fn waiting(&self, sink: SinkId) -> Vec<(u64, EventId, u32)> {
        let queues = self.0.queues();
        let ready = queues.get(&sink).map(|queue| &queue.ready).into_iter().flatten();
        ready.map(|queued| (queued.sequence, queued.event.unwrap().id, queued.failures)).collect()
    }
}
