//! The record of events for the embedded engine: reading it back, and forgetting what is old.
//!
//! Rows are counted in bytes as they are written, so that the bound on history needs no scan. An event
//! that still waits in a queue or lies among the dead letters is never forgotten.

use super::rows::{dead_key, delivery_key, delivery_row, encode, queue_key, read};
use crate::{
    model::{
        event::Event,
        id::{EventId, SinkId},
        timestamp::Timestamp,
    },
    platform::store::{Batch, Store, StoreError, keys},
    routing::queue::{
        Attempt, Cursor, Delivery, DeliveryState, Page, Query, Record, Retention, Routed,
        record::{DeliveryRow, EventRow},
    },
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// Events looked at for one page. A filter that matches little then gives a short page and a cursor to go on from.
const LOOKED_AT: usize = 5000;

/// Events forgotten in one write, so that emits do not wait long behind it.
const FORGOTTEN_AT_ONCE: usize = 100;

pub struct History {
    store: Store,
    bytes: Arc<AtomicU64>,
}

impl History {
    pub fn open(store: Store) -> Result<Self, StoreError> {
        let bytes = store.get(&[keys::HISTORY])?.and_then(|value| keys::number(&value, 0)).unwrap_or(0);
        Ok(Self { store, bytes: Arc::new(AtomicU64::new(bytes)) })
    }

    pub fn event(&self, id: EventId) -> Result<Option<EventRow>, StoreError> {
        let key = event_key(id);
        self.store.get(&key)?.map(|value| read(&key, &value)).transpose()
    }

    /// The row of an event with this id, the group's own included.
    pub fn stored(&self, batch: &Batch<'_>, id: EventId) -> Result<Option<EventRow>, StoreError> {
        let key = event_key(id);
        batch.get(&key)?.map(|value| read(&key, &value)).transpose()
    }

    pub fn put_event(&self, batch: &mut Batch<'_>, event: &Event, row: Vec<u8>) {
        self.grow(batch, 0, row.len());
        batch.put(event_key(event.id), row);
        batch.put(timeline_key(event.ts, event.id), []);
    }

    pub fn put_delivery(&self, batch: &mut Batch<'_>, key: Vec<u8>, old: usize, row: &DeliveryRow) {
        let row = encode(row);
        self.grow(batch, old, row.len());
        batch.put(key, row);
    }

    pub fn record(&self, id: EventId, has_queue: impl Fn(SinkId) -> bool) -> Result<Option<Record>, StoreError> {
        self.event(id)?.map(|row| self.with_deliveries(row, has_queue)).transpose()
    }

    fn with_deliveries(&self, row: EventRow, has_queue: impl Fn(SinkId) -> bool) -> Result<Record, StoreError> {
        let id = row.event.id;
        let delivery = |routed: Routed| -> Result<Delivery, StoreError> {
            let key = delivery_key(id, routed.sink);
            let row = delivery_row(&key, self.store.get(&key)?.as_deref())?;
            Ok(delivery(routed, row, &has_queue))
        };
        let deliveries = row.routed.into_iter().map(delivery).collect::<Result<_, _>>()?;
        Ok(Record { event: Arc::new(row.event), deliveries })
    }

    pub fn page(&self, query: &Query, has_queue: impl Fn(SinkId) -> bool) -> Result<Page, StoreError> {
        let first = keys::key(keys::TIMELINE, &[&order(query.since.unwrap_or(Timestamp::from_micros(0)))]);
        let end = match (query.after, query.until) {
            (Some(Cursor { ts, id }), _) => timeline_key(ts, id),
            (None, Some(until)) => keys::key(keys::TIMELINE, &[&order(Timestamp::from_micros(until.micros() + 1))]),
            (None, None) => vec![keys::TIMELINE + 1],
        };
        let mut page = Page { records: Vec::new(), next: None };
        if first >= end {
            return Ok(page);
        }
        let mut place = None;
        for (looked_at, entry) in self.store.range(first..end).rev().enumerate() {
            if page.records.len() == query.limit || looked_at == LOOKED_AT {
                page.next = place;
                break;
            }
            let (key, _) = entry?;
            let at = cursor(&key).ok_or_else(|| StoreError::damaged(&key, "its key is no time and id"))?;
            place = Some(at);
            // Forgotten between the two reads.
            let Some(row) = self.event(at.id)? else { continue };
            if !query.wants_event(&row.event) {
                continue;
            }
            let record = self.with_deliveries(row, &has_queue)?;
            if query.wants_any(&record.deliveries) {
                page.records.push(record);
            }
        }
        Ok(page)
    }

    /// Forgets from the oldest on, until what is left is neither too old nor too much.
    pub async fn prune(&self, retention: Retention) -> Result<usize, StoreError> {
        let horizon = Timestamp::now().before(retention.keep);
        let mut forgotten = 0;
        let mut from = vec![keys::TIMELINE];
        loop {
            let too_much = self.bytes.load(Relaxed) > retention.bytes;
            let mut candidates = Vec::with_capacity(FORGOTTEN_AT_ONCE);
            for entry in self.store.range(from.clone()..vec![keys::TIMELINE + 1]).take(FORGOTTEN_AT_ONCE) {
                let (key, _) = entry?;
                let Some(at) = cursor(&key) else { continue };
                if !too_much && at.ts >= horizon {
                    break;
                }
                candidates.push(at);
            }
            let Some(last) = candidates.last() else { return Ok(forgotten) };
            // The next round starts behind what this one looked at, pinned events included.
            from = timeline_key(last.ts, last.id);
            from.push(0);
            let this = Self { store: self.store.clone(), bytes: self.bytes.clone() };
            let forget = move |batch: &mut Batch<'_>| {
                let mut count = 0;
                for at in candidates {
                    if this.bytes.load(Relaxed) <= retention.bytes && at.ts >= horizon {
                        break;
                    }
                    count += usize::from(this.forget(batch, at)?);
                }
                Ok::<_, StoreError>(count)
            };
            forgotten += self.store.write(forget).await??;
        }
    }

    /// Removes an event and its deliveries, unless a queue or the dead letters still need it.
    fn forget(&self, batch: &mut Batch<'_>, at: Cursor) -> Result<bool, StoreError> {
        let Some(value) = batch.get(&event_key(at.id))? else {
            batch.delete(timeline_key(at.ts, at.id));
            return Ok(false);
        };
        let row: EventRow = read(&event_key(at.id), &value)?;
        let mut freed = value.len();
        let mut deliveries = Vec::new();
        for routed in &row.routed {
            let key = delivery_key(at.id, routed.sink);
            let value = batch.get(&key)?;
            let sequence = delivery_row(&key, value.as_deref())?.map_or(routed.sequence, |row| row.sequence);
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
        self.grow(batch, freed, 0);
        batch.delete(event_key(at.id));
        batch.delete(timeline_key(at.ts, at.id));
        for key in deliveries {
            batch.delete(key);
        }
        Ok(true)
    }

    /// Only the writer thread comes here, so the two steps need not be one.
    fn grow(&self, batch: &mut Batch<'_>, gone: usize, come: usize) {
        let bytes = (self.bytes.load(Relaxed) + come as u64).saturating_sub(gone as u64);
        self.bytes.store(bytes, Relaxed);
        batch.put([keys::HISTORY], bytes.to_be_bytes());
    }
}

/// What the two rows together say of a delivery.
fn delivery(routed: Routed, row: Option<DeliveryRow>, has_queue: impl Fn(SinkId) -> bool) -> Delivery {
    let (state, sequence, attempts): (_, _, Vec<Attempt>) = match row {
        Some(row) => (row.state, row.sequence, row.attempts),
        None if routed.dropped => (DeliveryState::Dropped, routed.sequence, Vec::new()),
        None => (DeliveryState::Queued, routed.sequence, Vec::new()),
    };
    let state = match state {
        DeliveryState::Queued if !has_queue(routed.sink) => DeliveryState::Discarded,
        state => state,
    };
    Delivery { sink_id: routed.sink, name: routed.name, state, sequence, attempts }
}

fn event_key(id: EventId) -> Vec<u8> {
    keys::key(keys::EVENT, &[id.as_bytes()])
}

fn timeline_key(ts: Timestamp, id: EventId) -> Vec<u8> {
    keys::key(keys::TIMELINE, &[&order(ts), id.as_bytes()])
}

/// Bytes that sort as the moments do. No event is older than 1970.
fn order(ts: Timestamp) -> [u8; 8] {
    u64::try_from(ts.micros()).unwrap_or(0).to_be_bytes()
}

fn cursor(key: &[u8]) -> Option<Cursor> {
    let ts = i64::try_from(keys::number(key, 1)?).ok()?;
    Some(Cursor { ts: Timestamp::from_micros(ts), id: EventId::from_slice(key.get(9..)?)? })
}
