//! Deletes old events. An event that is still queued, or is a dead letter, is never deleted.

use super::{
    history::History,
    rows::{
        DeliveryRow, EventRow, dead_key, decode, delivery_key, event_key, queue_key, timeline_key, timeline_position,
    },
};
use crate::{
    model::timestamp::Timestamp,
    platform::store::{Batch, StoreError, keys},
    routing::queue::{HistoryCursor, Retention},
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

    /// Deletes an event and its deliveries, unless a queue or a dead letter still needs it. Says if it did.
    fn delete_settled(&self, batch: &mut Batch<'_>, at: HistoryCursor) -> Result<bool, StoreError> {
        let key = event_key(at.id);
        let Some(value) = batch.get(&key)? else {
            batch.delete(timeline_key(at));
            return Ok(false);
        };
        let row: EventRow = decode(&key, &value)?;
        let mut freed = value.len();
        let mut deliveries = Vec::new();
        for routed in &row.routed {
            let key = delivery_key(at.id, routed.sink);
            let value = batch.get(&key)?;
            let delivery: Option<DeliveryRow> = value.as_ref().map(|value| decode(&key, value)).transpose()?;
            let sequence = delivery.map_or(routed.sequence, |row| row.sequence);
            if batch.get(&queue_key(routed.sink, sequence))?.is_some()
                || batch.get(&dead_key(routed.sink, sequence))?.is_some()
            {
                return Ok(false);
            }
            if let Some(value) = value {
                freed += value.len();
                deliveries.push(key);
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
}
