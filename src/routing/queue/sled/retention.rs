//! Deletes old events. An event that is still queued, or is a dead letter, is never deleted.

use super::{
    history::History,
    rows::{
        EventRow, dead_key, decode, delivery_key, event_key, queue_key, timeline_key, timeline_position, undamaged,
    },
};
use crate::{
    model::{
        id::{EventId, SinkId},
        timestamp::Timestamp,
    },
    platform::store::{Batch, StoreError, keys},
    routing::queue::{DeadLetter, HistoryCursor, Retention},
};
use std::sync::atomic::Ordering::Relaxed;

/// Events deleted in one write, so that emits do not wait long behind it.
const DELETED_PER_WRITE: usize = 100;

impl History {
    /// Deletes events, oldest first, until the rest is neither too old nor too large. Returns the number deleted.
    pub async fn prune(&self, retention: Retention) -> Result<usize, StoreError> {
        let horizon = Timestamp::now().before(retention.keep);
        let mut deleted = 0;
        let mut from = vec![keys::TIMELINE];
        loop {
            let too_large = self.bytes.load(Relaxed) > retention.bytes;
            let mut candidates = Vec::with_capacity(DELETED_PER_WRITE);
            for entry in self.store.range(from.clone()..vec![keys::TIMELINE + 1]).take(DELETED_PER_WRITE) {
                let (key, _) = entry?;
                let Some(at) = timeline_position(&key) else { continue };
                if !too_large && at.ts >= horizon {
                    break;
                }
                candidates.push(at);
            }
            let Some(last) = candidates.last() else { return Ok(deleted) };
            // The next round starts behind the events of this one, those that were kept included.
            from = timeline_key(*last);
            from.push(0);
            let history = self.clone();
            let delete = move |batch: &mut Batch<'_>| {
                let mut count = 0;
                for at in candidates {
                    if history.bytes.load(Relaxed) <= retention.bytes && at.ts >= horizon {
                        break;
                    }
                    count += usize::from(history.delete_settled(batch, at)?);
                }
                Ok::<_, StoreError>(count)
            };
            deleted += self.store.write(delete).await??;
        }
    }

    /// Deletes an event and its deliveries, unless a queue or a dead letter still needs it. Returns `true` if it did.
    fn delete_settled(&self, batch: &mut Batch<'_>, at: HistoryCursor) -> Result<bool, StoreError> {
        let key = event_key(at.id);
        let Some(value) = undamaged(batch.get(&key))? else { return self.delete_damaged(batch, at, 0) };
        let Some(value) = value else {
            batch.delete(timeline_key(at));
            return Ok(false);
        };
        let Some(row) = undamaged(decode::<EventRow>(&key, &value))? else {
            return self.delete_damaged(batch, at, value.len());
        };
        let mut freed = value.len();
        let mut deliveries = Vec::new();
        for routed in &row.routed {
            let delivery = Self::delivery_in(batch, at.id, routed.sink)?;
            let row = delivery.as_ref().and_then(|delivery| delivery.row.as_ref());
            let sequence = row.map_or(routed.sequence, |row| row.sequence);
            let is_needed = match &delivery {
                // A redelivery has another sequence number than the first routing, and the damaged record held it.
                Some(delivery) if delivery.row.is_none() => is_held(batch, routed.sink, at.id)?,
                _ => {
                    exists(batch, &queue_key(routed.sink, sequence))?
                        || exists(batch, &dead_key(routed.sink, sequence))?
                }
            };
            if is_needed {
                return Ok(false);
            }
            if let Some(delivery) = delivery {
                freed += delivery.size;
                deliveries.push(delivery_key(at.id, routed.sink));
            }
        }
        self.resize(batch, freed, 0);
        batch.delete(key);
        batch.delete(timeline_key(at));
        for key in deliveries {
            batch.delete(key);
        }
        Ok(true)
    }

    /// Deletes a damaged event of `size` bytes with all its deliveries. Nothing can be delivered from it any more: a
    /// queue that still holds it makes it a dead letter.
    fn delete_damaged(&self, batch: &mut Batch<'_>, at: HistoryCursor, size: usize) -> Result<bool, StoreError> {
        let deliveries = batch.keys(&keys::key(keys::DELIVERY, &[at.id.as_bytes()])).collect::<Result<Vec<_>, _>>()?;
        let mut freed = size;
        for key in deliveries {
            freed += undamaged(batch.get(&key))?.flatten().map_or(0, |value| value.len());
            batch.delete(key.to_vec());
        }
        self.resize(batch, freed, 0);
        batch.delete(event_key(at.id));
        batch.delete(timeline_key(at));
        Ok(true)
    }
}

/// Tells if there is a record under the key, damaged or not.
/// Returns `true` if any place in the sink's queue, or any of its dead letters, holds the event.
fn is_held(batch: &Batch<'_>, sink: SinkId, event: EventId) -> Result<bool, StoreError> {
    for key in batch.keys(&keys::key(keys::QUEUE, &[sink.as_bytes()])) {
        if undamaged(batch.get(&key?))?.flatten().is_some_and(|value| *value == event.as_bytes()[..]) {
            return Ok(true);
        }
    }
    for key in batch.keys(&keys::key(keys::DEAD, &[sink.as_bytes()])) {
        let key = key?;
        let Some(value) = undamaged(batch.get(&key))?.flatten() else { continue };
        if undamaged(decode::<DeadLetter>(&key, &value))?.is_some_and(|letter| letter.event_id == event) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn exists(batch: &Batch<'_>, key: &[u8]) -> Result<bool, StoreError> {
    Ok(undamaged(batch.get(key))?.is_none_or(|value| value.is_some()))
}
