//! The steps of accepting and settling that run on the writer thread. Each puts its rows into the batch and keeps the
//! queues in memory in line with them.

use super::{
    audit_bursts::EventLoss,
    delivery_row::DeliveryRow,
    gaps::GapChange,
    history::History,
    queues::QueueState,
    rows::{EventRow, RoutedSink, delivery_key, position_bytes, queue_key, sequence_key},
};
use crate::{
    model::{delivery::AttemptKind, event::Event, id::SinkId, sequence::MissReason},
    platform::{
        audit::Audit,
        store::{Batch, StoreError},
    },
    routing::queue::{
        DeadLetter, DeliveryState, HistoryPosition, PendingDelivery, RouteTarget, SettledAttempt, Settlement,
    },
};
use std::sync::Arc;
use tokio::time::Instant;

/// The result of accepting an event on the writer thread.
pub enum AcceptResult {
    New {
        at: HistoryPosition,
        queued: Vec<(SinkId, u64)>,
        dropped: Vec<RouteTarget>,
        matched: Vec<RouteTarget>,
    },
    Repeated(EventRow),
    IdTaken,
    /// The user has too many bytes of undelivered events.
    UndeliveredFull,
    Unreadable(StoreError),
}

impl QueueState {
    /// Reserves a place in every target's queue that has room, and puts the event and its places into the batch.
    pub fn accept(
        &self,
        batch: &mut Batch<'_>,
        event: &Event,
        encoded: Vec<u8>,
        targets: Vec<RouteTarget>,
    ) -> AcceptResult {
        let stored = self.history.index.locate(event.id).map(|at| History::event_in(batch, at));
        match stored.unwrap_or(Ok(None)) {
            // Absent also if the index names an event that is gone.
            Ok(None) => {}
            Ok(Some(row)) if is_repeat(&row.event, event) => return AcceptResult::Repeated(row),
            Ok(Some(_)) => return AcceptResult::IdTaken,
            Err(error) => return AcceptResult::Unreadable(error),
        }
        if self.undelivered.bytes(event.user_id) > self.limits.undelivered
            && targets.iter().any(|target| self.has_counted_queue(target.sink))
        {
            return AcceptResult::UndeliveredFull;
        }
        if let Err(error) = self.make_room(batch) {
            return AcceptResult::Unreadable(error);
        }
        let at = HistoryPosition { accepted_at: self.history.next_accepted_time(), id: event.id };
        let mut routed = Vec::with_capacity(targets.len());
        let (mut queued, mut dropped, mut matched, mut entries) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut counted, mut gaps) = (Vec::new(), Vec::new());
        let mut queues = self.queues();
        for target in targets {
            // A sink deleted since the event was routed has no queue any more.
            let Some(queue) = queues.get_mut(&target.sink) else { continue };
            queue.last_sequence += 1;
            let sequence = queue.last_sequence;
            let full = queue.live() >= self.limits.queue;
            if full {
                dropped.push(target.clone());
                let detail = || {
                    serde_json::json!({
                        "sink": target.name, "event_id": event.id, "event_type": event.kind, "sequence": sequence,
                        "reason": format!("the queue holds {} events", self.limits.queue),
                    })
                };
                let sink = (target.sink, &*target.name);
                let losses = queue.losses_mut();
                gaps.push((target.sink, losses.gaps.add_dropped(sequence)));
                entries.extend(losses.bursts.count(EventLoss::Dropped, sink, sequence, detail, Instant::now()));
            } else {
                queue.reserved += 1;
                queued.push((target.sink, sequence));
                counted.extend(queue.counts().then_some(target.sink));
            }
            routed.push(RoutedSink { sink: target.sink, name: target.name.clone(), sequence, dropped: full });
            matched.push(target);
        }
        drop(queues);
        // Writes may read the disk, and everything waits for the queues.
        for RoutedSink { sink, sequence, dropped, .. } in &routed {
            batch.put(sequence_key(*sink), sequence.to_be_bytes());
            if !dropped {
                batch.put_new(queue_key(*sink, *sequence), position_bytes(at));
            }
        }
        gaps.iter().for_each(|(sink, change)| change.write(batch, *sink));
        entries.iter().for_each(|entry| Audit::record(batch, entry));
        self.undelivered.add(at, event.user_id, event.data.get().len(), &counted);
        self.history.put_event(batch, at, event.user_id, EventRow::encode(encoded, &routed));
        AcceptResult::New { at, queued, dropped, matched }
    }

    /// Publishes an event that is on disk to the hooks and the workers.
    pub fn accepted(&self, event: &Arc<Event>, result: &AcceptResult) {
        match result {
            AcceptResult::New { at, queued, dropped, matched } => {
                self.metrics.events_accepted.increment();
                self.metrics.matched.add(matched.len());
                self.metrics.dropped.add(dropped.len());
                for RouteTarget { name, sink } in dropped {
                    log::warn!("sink `{name}` ({sink}) is full: event {} is dropped for it", event.id);
                }
                (self.hooks.accepted)(event);
                if !dropped.is_empty() {
                    (self.hooks.dropped)(event, dropped);
                }
                if !queued.is_empty() {
                    self.cache.insert(*at, event.clone());
                }
                self.push_ready(queued.iter().map(|(sink, sequence)| (*sink, *sequence, *at)), false, None);
            }
            AcceptResult::Repeated(_) => self.metrics.events_repeated.increment(),
            AcceptResult::IdTaken | AcceptResult::UndeliveredFull | AcceptResult::Unreadable(_) => {}
        }
    }

    /// Applies settlements of the first events of a queue to it in memory. Returns the change of the gaps for each; `None`, and changes
    /// nothing, if they are not at the head any more, because the sink was deleted during the attempt.
    pub fn settle_in_memory(&self, batch: &[(PendingDelivery, SettledAttempt)]) -> Option<Vec<GapChange>> {
        let (first, _) = batch.first()?;
        let mut queues = self.queues();
        let queue = queues.get_mut(&first.sink)?;
        let is_queued = |(at, (pending, _)): (usize, &(PendingDelivery, SettledAttempt))| {
            let queued = queue.ready.get(at);
            queued.is_some_and(|queued| queued.sequence == pending.sequence && queued.event == Some(pending.position()))
        };
        if !batch.iter().enumerate().all(is_queued) {
            return None;
        }
        let mut kept = 0;
        let settle = |(pending, settled): &(PendingDelivery, SettledAttempt)| {
            if let Settlement::Retry(wait) = settled.settlement {
                let queued = &mut queue.ready[kept];
                queued.failures += 1;
                queued.recorded = true;
                queued.due = Some(Instant::now() + wait);
                kept += 1;
                return GapChange::default();
            }
            queue.reserved -= 1;
            let replay = queue.ready.remove(kept).and_then(|settled| settled.replay);
            if replay.is_some() && queue.release_replayed(self.limits.queue) {
                self.replays.room.notify_one();
            }
            self.undelivered.remove(pending.position(), pending.sink);
            match (&settled.settlement, &mut queue.losses) {
                (Settlement::DeadLetter(_), _) => {
                    queue.losses_mut().gaps.add_lost(pending.sequence, MissReason::DeadLetter)
                }
                (_, Some(losses)) => losses.gaps.remove_told(pending.sequence),
                (_, None) => GapChange::default(),
            }
        };
        Some(batch.iter().map(settle).collect())
    }

    pub fn count(&self, settled: &SettledAttempt) {
        match settled.state() {
            DeliveryState::Skipped => self.metrics.skipped.increment(),
            DeliveryState::Delivered => self.metrics.delivered.increment(),
            DeliveryState::Dead => self.metrics.dead.increment(),
            DeliveryState::Queued | DeliveryState::Dropped | DeliveryState::Discarded => {}
        }
        if settled.attempt.outcome.kind() == AttemptKind::Failed {
            self.metrics.attempts_failed.increment();
        }
    }

    pub fn write_settlement(
        &self,
        batch: &mut Batch<'_>,
        pending: &PendingDelivery,
        settled: SettledAttempt,
        gap: &GapChange,
    ) -> Result<(), StoreError> {
        let PendingDelivery { sink, sequence, event, .. } = pending;
        let (sink, sequence, position) = (*sink, *sequence, pending.position());
        if !self.has_queue(sink) {
            return Ok(());
        }
        let state = settled.state();
        let SettledAttempt { attempt, settlement } = settled;
        let old = if pending.recorded { History::delivery_in(batch, position, sink)? } else { None };
        let old_size = pending.recorded.then(|| old.as_ref().map_or(0, |old| old.size));
        let mut row = old.and_then(|old| old.row).unwrap_or(DeliveryRow {
            state,
            sequence,
            failures: pending.failures,
            due: attempt.at,
            attempts: Vec::new(),
            earlier: Vec::new(),
            replay: None,
        });
        row.state = state;
        let (number, at, ended_at) = (attempt.number, attempt.at, attempt.ended_at());
        row.add_attempt(attempt);
        match settlement {
            Settlement::Retry(wait) => {
                row.failures += 1;
                row.due = ended_at.after(wait);
            }
            Settlement::Complete => batch.delete_known(queue_key(sink, sequence), &position_bytes(position)),
            Settlement::DeadLetter(why) => {
                batch.delete_known(queue_key(sink, sequence), &position_bytes(position));
                let letter = DeadLetter {
                    event_id: event.id,
                    event_type: event.kind.as_str().to_owned(),
                    event_ts: event.ts,
                    sequence,
                    died_at: at,
                    why,
                    attempts: number,
                };
                self.put_dead_letter(batch, sink, &letter);
            }
        }
        gap.write(batch, sink);
        self.history.put_delivery(batch, event.user_id, delivery_key(position, sink), old_size, &row);
        Ok(())
    }
}

/// Tells a repeated emit from another event that took the same id.
fn is_repeat(stored: &Event, event: &Event) -> bool {
    stored.user_id == event.user_id && stored.kind == event.kind && stored.data.get() == event.data.get()
}
