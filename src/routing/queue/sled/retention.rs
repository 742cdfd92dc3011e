//! Deletes old events. An event that is still queued, or is a dead letter, is never deleted.
//!
//! A write that adds to a history beyond its limit deletes as much from its other end, so that history cannot grow faster than
//! it is deleted: sled reuses the room of deleted rows and never gives it back, and the file keeps the size of the longest
//! history it has held. [`History::prune`] deletes by age, and what the writes left.

use super::{
    history::History,
    rows::{RoutedRow, dead_key, decode, delivery_key, event_key, event_position, position_bytes, queue_key},
};
use crate::{
    model::{id::SinkId, timestamp::Timestamp},
    platform::store::{Batch, StoreError, keys, readable},
    routing::queue::{DeadLetter, HistoryPosition, Retention},
};
use std::sync::atomic::Ordering::Relaxed;

/// Old events looked at in one write of [`History::prune`], so that emits do not wait long behind it.
const EVENTS_PER_WRITE: usize = 100;

/// Old events looked at in a write that adds one. More than one, because some are kept, and others may be smaller than the new one.
const EVENTS_PER_ACCEPT: usize = 32;

/// Bytes by which history may exceed its limit. A few events are then deleted together.
const SLACK: u64 = 64 << 10;

/// The result for one old event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DeleteResult {
    Deleted,
    /// The event was damaged, and is deleted with all its deliveries.
    DeletedDamaged,
    Kept,
}

/// The events deleted in one or more writes.
#[derive(Clone, Copy, Default)]
struct DeletedCount {
    events: usize,
    damaged: usize,
}

/// The rule by which one write deletes.
#[derive(Clone, Copy)]
struct DeleteRule {
    /// Events before this time are deleted, whatever the size of history.
    horizon: Timestamp,
    /// The size down to which the oldest events are deleted.
    bytes: u64,
    /// Events to look at.
    events: usize,
}

impl History {
    pub fn bytes(&self) -> u64 {
        self.counters.bytes.load(Relaxed)
    }

    /// Deletes the oldest events if history has outgrown the limit of the last [`History::prune`]. Part of every write
    /// that adds an event.
    pub fn make_room(&self, batch: &mut Batch<'_>) -> Result<(), StoreError> {
        let bytes = self.counters.limit.load(Relaxed);
        if self.bytes() <= bytes.saturating_add(SLACK) || self.store.has_snapshot() {
            return Ok(());
        }
        let rule = DeleteRule { horizon: Timestamp::from_micros(0), bytes, events: EVENTS_PER_ACCEPT };
        let from = self.counters.oldest.lock().clone();
        let (_, next) = self.delete_from(batch, &from, rule)?;
        *self.counters.oldest.lock() = next.unwrap_or(from);
        Ok(())
    }

    /// Deletes events, oldest first, until the rest is neither too old nor too large. Returns the number deleted.
    pub async fn prune(&self, retention: Retention) -> Result<usize, StoreError> {
        self.counters.limit.store(retention.bytes, Relaxed);
        let mut deleted = DeletedCount::default();
        let result = self.delete_old(retention, &mut deleted).await;
        if deleted.damaged > 0 {
            log::warn!("history: {} damaged events were past their retention and are deleted", deleted.damaged);
        }
        result.map(|()| deleted.events)
    }

    async fn delete_old(&self, retention: Retention, deleted: &mut DeletedCount) -> Result<(), StoreError> {
        let horizon = Timestamp::now().before(retention.keep);
        let rule = DeleteRule { horizon, bytes: retention.bytes, events: EVENTS_PER_WRITE };
        let mut from = vec![keys::EVENT];
        loop {
            let (history, first) = (self.clone(), from.clone());
            let result = self.store.write(move |batch| history.delete_from(batch, &first, rule)).await?;
            let (count, next) = result?;
            deleted.events += count.events;
            deleted.damaged += count.damaged;
            let Some(next) = next else { break };
            from = next;
        }
        // The events before this one were kept, and are looked at again by the next call.
        *self.counters.oldest.lock() = from;
        Ok(())
    }

    /// Deletes old events from this key on. Returns the key to continue from, or none if nothing is left to delete.
    fn delete_from(
        &self,
        batch: &mut Batch<'_>,
        from: &[u8],
        rule: DeleteRule,
    ) -> Result<(DeletedCount, Option<Vec<u8>>), StoreError> {
        let keys: Vec<_> = batch.keys_between(from, &[keys::EVENT + 1]).take(rule.events).collect();
        let (mut count, mut next) = (DeletedCount::default(), None);
        for key in keys {
            let key = key?;
            let Some(at) = event_position(&key) else { continue };
            if self.bytes() <= rule.bytes && at.accepted_at >= rule.horizon {
                return Ok((count, None));
            }
            let result = self.delete_settled(batch, at)?;
            count.events += usize::from(result != DeleteResult::Kept);
            count.damaged += usize::from(result == DeleteResult::DeletedDamaged);
            let mut after = key.to_vec();
            after.push(0);
            next = Some(after);
        }
        Ok((count, next))
    }

    /// Deletes an event and its deliveries, unless a queue or a dead letter still needs it.
    fn delete_settled(&self, batch: &mut Batch<'_>, at: HistoryPosition) -> Result<DeleteResult, StoreError> {
        let key = event_key(at);
        let Some(value) = readable(batch.get(&key))? else { return self.delete_damaged(batch, at, 0) };
        let Some(value) = value else { return Ok(DeleteResult::Kept) };
        let Some(row) = readable(decode::<RoutedRow>(&key, &value))? else {
            return self.delete_damaged(batch, at, value.len());
        };
        let mut freed = value.len();
        let mut deliveries = Vec::new();
        for routed in &row.routed {
            let delivery = Self::delivery_in(batch, at, routed.sink)?;
            let row = delivery.as_ref().and_then(|delivery| delivery.row.as_ref());
            let sequence = row.map_or(routed.sequence, |row| row.sequence);
            let is_needed = match &delivery {
                // A redelivery has another sequence number than the first routing, and the damaged record held it.
                Some(delivery) if delivery.row.is_none() => is_held(batch, routed.sink, at)?,
                _ => {
                    exists(batch, &queue_key(routed.sink, sequence))?
                        || exists(batch, &dead_key(routed.sink, sequence))?
                }
            };
            if is_needed {
                return Ok(DeleteResult::Kept);
            }
            if let Some(delivery) = delivery {
                freed += delivery.size;
                deliveries.push(delivery_key(at, routed.sink));
            }
        }
        self.delete_rows(batch, at, deliveries, freed);
        Ok(DeleteResult::Deleted)
    }

    /// Deletes a damaged event of `size` bytes with all its deliveries. Nothing can be delivered from it any more: a
    /// queue that still holds it makes it a dead letter.
    fn delete_damaged(
        &self,
        batch: &mut Batch<'_>,
        at: HistoryPosition,
        size: usize,
    ) -> Result<DeleteResult, StoreError> {
        let prefix = keys::key(keys::DELIVERY, &[&position_bytes(at)]);
        let deliveries = batch.keys(&prefix).map(|key| Ok(key?.to_vec())).collect::<Result<Vec<_>, StoreError>>()?;
        let mut freed = size;
        for key in &deliveries {
            freed += readable(batch.get(key))?.flatten().map_or(0, |value| value.len());
        }
        self.delete_rows(batch, at, deliveries, freed);
        Ok(DeleteResult::DeletedDamaged)
    }

    fn delete_rows(&self, batch: &mut Batch<'_>, at: HistoryPosition, deliveries: Vec<Vec<u8>>, freed: usize) {
        self.resize(batch, freed, 0);
        batch.delete(event_key(at));
        self.index.remove(at);
        for key in deliveries {
            batch.delete(key);
        }
    }
}

/// Returns `true` if any place in the sink's queue, or any of its dead letters, holds the event.
fn is_held(batch: &Batch<'_>, sink: SinkId, at: HistoryPosition) -> Result<bool, StoreError> {
    for key in batch.keys(&keys::key(keys::QUEUE, &[sink.as_bytes()])) {
        if readable(batch.get(&key?))?.flatten().is_some_and(|value| *value == position_bytes(at)[..]) {
            return Ok(true);
        }
    }
    for key in batch.keys(&keys::key(keys::DEAD, &[sink.as_bytes()])) {
        let key = key?;
        let Some(value) = readable(batch.get(&key))?.flatten() else { continue };
        if readable(decode::<DeadLetter>(&key, &value))?.is_some_and(|letter| letter.event_id == at.id) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Tells if there is a record under the key, damaged or not.
fn exists(batch: &Batch<'_>, key: &[u8]) -> Result<bool, StoreError> {
    Ok(readable(batch.get(key))?.is_none_or(|value| value.is_some()))
}
