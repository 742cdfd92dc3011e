//! Dead letters: storing one, listing them, and queueing them again. The writing steps run on the writer thread.

use super::{
    queues::QueueState,
    rows::{DeliveryRow, dead_key, decode, delivery_key, encode, queue_key, sequence_key},
};
use crate::{
    model::{
        id::{EventId, SinkId},
        timestamp::Timestamp,
    },
    platform::{
        audit::{Audit, Entry},
        store::{Batch, StoreError},
    },
    routing::queue::{DeadLetter, DeadLetterFilter, DeliveryState},
};

impl QueueState {
    /// Returns the sink's dead letters after the given sequence number, oldest first.
    pub fn dead_letters(&self, sink: SinkId, after: u64, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        let range = dead_key(sink, after.saturating_add(1))..dead_key(sink, u64::MAX);
        let decoded = self.store.range(range).take(limit).map(|entry| {
            let (key, value) = entry?;
            decode(&key, &value)
        });
        decoded.collect()
    }

    /// Stores a dead letter, and deletes the oldest if that is one too many.
    pub fn put_dead_letter(&self, batch: &mut Batch<'_>, sink: SinkId, letter: &DeadLetter) {
        let DeadLetter { event_id, event_type, attempts, why, .. } = letter;
        log::warn!("sink {sink}: event {event_id} is given up after {attempts} attempts: {why}");
        let entry = Entry::new(None, "event.give_up", format!("sink:{sink}")).with(serde_json::json!({
            "event_id": event_id, "event_type": event_type, "attempts": attempts, "reason": why,
        }));
        Audit::record(batch, &entry);
        batch.put(dead_key(sink, letter.sequence), encode(letter));
        let mut queues = self.queues();
        let Some(queue) = queues.get_mut(&sink) else { return };
        queue.dead_letters.push_back(letter.sequence);
        while queue.dead_letters.len() > self.limits.dead_letters
            && let Some(oldest) = queue.dead_letters.pop_front()
        {
            log::warn!("sink {sink}: its oldest dead letter, number {oldest}, is deleted to make room for a new one");
            batch.delete(dead_key(sink, oldest));
        }
    }

    /// Moves dead letters to the tail of their queue, as far as there is room. Returns their new sequence numbers.
    pub fn requeue(
        &self,
        batch: &mut Batch<'_>,
        sink: SinkId,
        letters: &DeadLetterFilter,
    ) -> Result<Vec<(u64, EventId)>, StoreError> {
        let numbers = self.queues().get(&sink).map(|queue| queue.dead_letters.clone()).unwrap_or_default();
        let mut queued = Vec::new();
        for number in numbers {
            let key = dead_key(sink, number);
            let letter: DeadLetter = match batch.get(&key)? {
                Some(value) => decode(&key, &value)?,
                None => return Err(StoreError::damaged(&key, "it is missing")),
            };
            if matches!(letters, DeadLetterFilter::Events(events) if !events.contains(&letter.event_id)) {
                continue;
            }
            let sequence = {
                let mut queues = self.queues();
                let Some(queue) = queues.get_mut(&sink) else { break };
                if queue.reserved >= self.limits.queue {
                    break;
                }
                queue.reserved += 1;
                queue.dead_letters.retain(|other| *other != number);
                queue.last_sequence += 1;
                queue.last_sequence
            };
            batch.put(sequence_key(sink), sequence.to_be_bytes());
            batch.put(queue_key(sink, sequence), *letter.event_id.as_bytes());
            batch.delete(key);
            let row_key = delivery_key(letter.event_id, sink);
            if let Some(old) = batch.get(&row_key)? {
                let mut row: DeliveryRow = decode(&row_key, &old)?;
                row.state = DeliveryState::Queued;
                row.sequence = sequence;
                row.failures = 0;
                row.due = Timestamp::from_micros(0);
                self.history.put_delivery(batch, row_key, old.len(), &row);
            }
            queued.push((sequence, letter.event_id));
        }
        Ok(queued)
    }
}
