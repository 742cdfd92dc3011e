//! Deletes old events. An event that is still queued, or is a dead letter, is never deleted.
//!
//! Deletion in small steps, soon after history has grown, keeps the database small: sled reuses the room of deleted rows
//! and never gives it back, so that the file keeps the size of the longest history it has held.

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

/// Events deleted in one write, so that emits do not wait long behind it.
const DELETED_PER_WRITE: usize = 100;

/// Events deleted in one write if history grows faster than it is deleted. A group of writes holds about as many emits.
const DELETED_PER_WRITE_BEHIND: usize = 1000;

/// The part of the size limit by which history may outgrow it before it is pruned.
const SLACK: u64 = 16;

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

impl History {
    pub fn bytes(&self) -> u64 {
        self.counters.bytes.load(Relaxed)
    }

    /// Waits until history is larger than the last [`History::prune`] left or allowed it, by a part of that limit.
    pub async fn outgrown(&self) {
        self.counters.outgrown.notified().await;
    }

    /// Deletes events, oldest first, until the rest is neither too old nor too large. Returns the number deleted.
    pub async fn prune(&self, retention: Retention) -> Result<usize, StoreError> {
        let mut deleted = DeletedCount::default();
        let result = self.delete_old(retention, &mut deleted).await;
        if deleted.damaged > 0 {
            log::warn!("history: {} damaged events were past their retention and are deleted", deleted.damaged);
        }
        let threshold = self.bytes().max(retention.bytes).saturating_add(retention.bytes / SLACK);
        self.counters.threshold.store(threshold, Relaxed);
        result.map(|()| deleted.events)
    }

    async fn delete_old(&self, retention: Retention, deleted: &mut DeletedCount) -> Result<(), StoreError> {
        let horizon = Timestamp::now().before(retention.keep);
        let mut from = vec![keys::EVENT];
        loop {
            let bytes = self.bytes();
            let behind = bytes > retention.bytes.saturating_add(retention.bytes / SLACK * 2);
            let limit = if behind { DELETED_PER_WRITE_BEHIND } else { DELETED_PER_WRITE };
            let mut candidates = Vec::with_capacity(limit);
            for key in self.store.keys(from.clone()..vec![keys::EVENT + 1]).take(limit) {
                let Some(at) = event_position(&key?) else { continue };
                if bytes <= retention.bytes && at.accepted_at >= horizon {
                    break;
                }
                candidates.push(at);
            }
            let Some(last) = candidates.last() else { return Ok(()) };
            // The next round starts behind the events of this one, those that were kept included.
            from = event_key(*last);
            from.push(0);
            let history = self.clone();
            let delete = move |batch: &mut Batch<'_>| {
                let mut count = DeletedCount::default();
                for at in candidates {
                    if history.bytes() <= retention.bytes && at.accepted_at >= horizon {
                        break;
                    }
                    let result = history.delete_settled(batch, at)?;
                    count.events += usize::from(result != DeleteResult::Kept);
                    count.damaged += usize::from(result == DeleteResult::DeletedDamaged);
                }
                Ok::<_, StoreError>(count)
            };
            let count = self.store.write(delete).await??;
            deleted.events += count.events;
            deleted.damaged += count.damaged;
        }
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
