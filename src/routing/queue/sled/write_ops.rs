//! What the engine does on the writer thread, one step at a time: admit an event, write a settlement, bury a dead
//! letter, queue one again. Each step puts its rows into the batch and keeps the lanes in line with them.

use super::{
    Accepted, Shared, Waiting,
    rows::{dead_key, delivery_key, delivery_row, encode, queue_key, read},
};
use crate::{
    model::{
        event::Event,
        id::{EventId, SinkId},
        timestamp::Timestamp,
    },
    platform::{
        audit::{Audit, Entry},
        store::{Batch, StoreError, keys},
    },
    routing::queue::{
        Attempt, AttemptOutcome, Claim, DeadLetter, DeliveryState, Routed, Settlement, Target, Which,
        record::{DeliveryRow, EventRow},
    },
};
use std::sync::Arc;

impl Shared {
    /// Reserves a place in every queue that has one, and puts the event and its places into the batch.
    pub(super) fn admit(&self, batch: &mut Batch<'_>, event: &Event, encoded: &[u8], targets: Vec<Target>) -> Accepted {
        match self.history.stored(batch, event.id) {
            Ok(None) => {}
            Ok(Some(row)) if is_repeat(&row.event, event) => return Accepted::Repeated(row),
            Ok(Some(_)) => return Accepted::IdTaken,
            Err(error) => return Accepted::Unreadable(error),
        }
        let mut routed = Vec::with_capacity(targets.len());
        let (mut queued, mut dropped, mut matched) = (Vec::new(), Vec::new(), Vec::new());
        let mut lanes = self.lanes();
        for target in targets {
            // A sink deleted since the event was routed has no lane, and no claim to the event.
            let Some(lane) = lanes.get_mut(&target.sink) else { continue };
            lane.last_sequence += 1;
            let sequence = lane.last_sequence;
            batch.put(keys::key(keys::SEQUENCE, &[target.sink.as_bytes()]), sequence.to_be_bytes());
            let full = lane.reserved >= self.bounds.queue;
            if full {
                dropped.push(target.clone());
            } else {
                lane.reserved += 1;
                batch.put(queue_key(target.sink, sequence), *event.id.as_bytes());
                queued.push((target.sink, sequence));
            }
            routed.push(Routed { sink: target.sink, name: target.name.clone(), sequence, dropped: full });
            matched.push(target);
        }
        drop(lanes);
        for target in &dropped {
            self.audit_drop(batch, event, target);
        }
        self.history.put_event(batch, event, EventRow::encode(encoded, &routed));
        Accepted::New { queued, dropped, matched }
    }

    pub(super) fn audit_drop(&self, batch: &mut Batch<'_>, event: &Event, target: &Target) {
        let entry = Entry::new(None, "event.drop", format!("sink:{}", target.sink)).with(serde_json::json!({
            "sink": target.name, "event_id": event.id, "event_type": event.kind,
            "reason": format!("the queue holds {} events", self.bounds.queue),
        }));
        Audit::record(batch, &entry);
    }

    /// The event is on disk: lets the workers see it.
    pub(super) fn make_ready(&self, event: &Arc<Event>, accepted: &Accepted) {
        match accepted {
            Accepted::New { queued, dropped, matched } => {
                self.metrics.events_accepted.increment();
                self.metrics.matched.add(matched.len());
                self.metrics.dropped.add(dropped.len());
                for target in dropped {
                    let Target { name, sink } = target;
                    log::warn!("sink `{name}` ({sink}) is full: event {} is dropped for it", event.id);
                }
                (self.signals.accepted)(event);
                self.push_ready(queued.iter().map(|(sink, sequence)| (*sink, *sequence, event.id)));
            }
            Accepted::Repeated(_) => self.metrics.events_repeated.increment(),
            Accepted::IdTaken | Accepted::Unreadable(_) => {}
        }
    }

    pub(super) fn push_ready(&self, queued: impl Iterator<Item = (SinkId, u64, EventId)>) {
        let mut lanes = self.lanes();
        for (sink, sequence, event) in queued {
            let Some(lane) = lanes.get_mut(&sink) else { continue };
            let was_empty = lane.ready.is_empty();
            lane.ready.push_back(Waiting { sequence, event, failures: 0, due: Timestamp::from_micros(0) });
            if was_empty {
                let _ = self.signals.ready.send(sink);
            }
        }
    }

    pub(super) fn count(&self, attempt: &Attempt, settlement: &Settlement) {
        match settlement {
            Settlement::Done if attempt.outcome == AttemptOutcome::Skipped => self.metrics.skipped.increment(),
            Settlement::Done => self.metrics.delivered.increment(),
            Settlement::Dead(_) => self.metrics.dead.increment(),
            Settlement::Retry(_) => {}
        }
        if matches!(attempt.outcome, AttemptOutcome::Failed | AttemptOutcome::Dead) {
            self.metrics.attempts_failed.increment();
        }
    }

    pub(super) fn write_settlement(
        &self,
        batch: &mut Batch<'_>,
        claim: &Claim,
        attempt: Attempt,
        settlement: Settlement,
    ) -> Result<(), StoreError> {
        let Claim { sink, sequence, event, .. } = claim;
        let (sink, sequence) = (*sink, *sequence);
        if !self.lanes().contains_key(&sink) {
            return Ok(());
        }
        let key = delivery_key(event.id, sink);
        let old = batch.get(&key)?;
        let mut row = delivery_row(&key, old.as_deref())?.unwrap_or(DeliveryRow {
            state: DeliveryState::Queued,
            sequence,
            failures: 0,
            due: attempt.at,
            attempts: Vec::new(),
        });
        row.state = settlement.state(attempt.outcome);
        let (number, at) = (attempt.number, attempt.at);
        row.attempts.push(attempt);
        match settlement {
            Settlement::Retry(due) => {
                row.failures += 1;
                row.due = due;
            }
            Settlement::Done => batch.delete(queue_key(sink, sequence)),
            Settlement::Dead(why) => {
                batch.delete(queue_key(sink, sequence));
                let letter = DeadLetter {
                    event_id: event.id,
                    event_type: event.kind.as_str().to_owned(),
                    event_ts: event.ts,
                    sequence,
                    died_at: at,
                    why,
                    attempts: number,
                };
                self.bury(batch, sink, &letter);
            }
        }
        self.history.put_delivery(batch, key, old.map_or(0, |old| old.len()), &row);
        Ok(())
    }

    /// Puts a dead letter, and takes the oldest away if that is one too many.
    pub(super) fn bury(&self, batch: &mut Batch<'_>, sink: SinkId, letter: &DeadLetter) {
        let DeadLetter { event_id, event_type, attempts, why, .. } = letter;
        log::warn!("sink {sink}: event {event_id} is given up after {attempts} attempts: {why}");
        let entry = Entry::new(None, "event.give_up", format!("sink:{sink}")).with(serde_json::json!({
            "event_id": event_id, "event_type": event_type, "attempts": attempts, "reason": why,
        }));
        Audit::record(batch, &entry);
        batch.put(dead_key(sink, letter.sequence), encode(letter));
        let mut lanes = self.lanes();
        let Some(lane) = lanes.get_mut(&sink) else { return };
        lane.letters.push_back(letter.sequence);
        while lane.letters.len() > self.bounds.dead_letters
            && let Some(oldest) = lane.letters.pop_front()
        {
            log::warn!("sink {sink}: its oldest dead letter, number {oldest}, makes room for a new one");
            batch.delete(dead_key(sink, oldest));
        }
    }

    /// Moves dead letters to the tail of their queue, as far as there is room.
    pub(super) fn requeue(
        &self,
        batch: &mut Batch<'_>,
        sink: SinkId,
        which: &Which,
    ) -> Result<Vec<(u64, EventId)>, StoreError> {
        let letters = self.lanes().get(&sink).map(|lane| lane.letters.clone()).unwrap_or_default();
        let mut queued = Vec::new();
        for number in letters {
            let key = dead_key(sink, number);
            let letter: DeadLetter = match batch.get(&key)? {
                Some(value) => read(&key, &value)?,
                None => return Err(StoreError::damaged(&key, "it is missing")),
            };
            if matches!(which, Which::Events(events) if !events.contains(&letter.event_id)) {
                continue;
            }
            let sequence = {
                let mut lanes = self.lanes();
                let Some(lane) = lanes.get_mut(&sink) else { break };
                if lane.reserved >= self.bounds.queue {
                    break;
                }
                lane.reserved += 1;
                lane.letters.retain(|other| *other != number);
                lane.last_sequence += 1;
                lane.last_sequence
            };
            batch.put(keys::key(keys::SEQUENCE, &[sink.as_bytes()]), sequence.to_be_bytes());
            batch.put(queue_key(sink, sequence), *letter.event_id.as_bytes());
            batch.delete(key);
            let row_key = delivery_key(letter.event_id, sink);
            let old = batch.get(&row_key)?;
            if let Some(mut row) = delivery_row(&row_key, old.as_deref())? {
                row.state = DeliveryState::Queued;
                row.sequence = sequence;
                row.failures = 0;
                row.due = Timestamp::from_micros(0);
                self.history.put_delivery(batch, row_key, old.map_or(0, |old| old.len()), &row);
            }
            queued.push((sequence, letter.event_id));
        }
        Ok(queued)
    }
}

/// Whether an emit with an id already stored is the same emit once more, and not another that took its id.
fn is_repeat(stored: &Event, event: &Event) -> bool {
    stored.user_id == event.user_id && stored.kind == event.kind && stored.data.get() == event.data.get()
}
