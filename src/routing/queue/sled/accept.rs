//! Accepting an event, on the writer thread: its rows and its places in queues, then its publication once they are on
//! disk.

use super::{
    audit_bursts::EventLoss,
    history::History,
    queues::{QueueState, QueuedBy},
    rows::{EventRow, RoutedSink, position_bytes, queue_key, sequence_key},
};
use crate::{
    model::{event::Event, id::SinkId},
    platform::{
        audit::Audit,
        store::{Batch, StoreError},
    },
    routing::queue::{HistoryPosition, RouteTarget},
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
    pub fn publish_accepted(&self, event: &Arc<Event>, result: &AcceptResult) {
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
                self.push_ready(queued.iter().map(|(sink, sequence)| (*sink, *sequence, *at)), QueuedBy::Acceptance);
            }
            AcceptResult::Repeated(_) => self.metrics.events_repeated.increment(),
            AcceptResult::IdTaken | AcceptResult::UndeliveredFull | AcceptResult::Unreadable(_) => {}
        }
    }
}

/// Tells a repeated emit from another event that took the same id.
fn is_repeat(stored: &Event, event: &Event) -> bool {
    stored.user_id == event.user_id && stored.kind == event.kind && stored.data.get() == event.data.get()
}
