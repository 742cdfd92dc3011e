//! History of the embedded engine: storing events and deliveries, and reading them back in pages.
//!
//! The size of all rows is counted as they are written, so that the limit on history needs no scan. A page continues
//! past damaged rows. Old events are deleted in [`super::retention`].

use super::rows::{
    DeliveryRow, EventRow, RoutedSink, StoredDelivery, decode, delivery_key, encode, event_key, timeline_key,
    timeline_position, timeline_start, undamaged,
};
use crate::{
    model::{
        delivery::{Attempt, Delivery, DeliveryState},
        event::Event,
        id::{EventId, SinkId},
        timestamp::Timestamp,
    },
    platform::store::{Batch, Store, StoreError, keys},
    routing::queue::{HistoryCursor, HistoryFilter, HistoryPage, Record},
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// Events read for one page. A filter that matches little then gives a short page and a cursor to continue from.
const EVENTS_PER_PAGE: usize = 5000;

/// A handle to the events and deliveries in the store. Cloning it is cheap.
#[derive(Clone)]
pub struct History {
    pub(super) store: Store,
    /// The size of all event and delivery rows. Only the writer thread changes it.
    pub(super) bytes: Arc<AtomicU64>,
}

impl History {
    pub fn open(store: Store) -> Result<Self, StoreError> {
        let bytes = store.get(&[keys::HISTORY])?.and_then(|value| keys::number(&value, 0)).unwrap_or(0);
        Ok(Self { store, bytes: Arc::new(AtomicU64::new(bytes)) })
    }

    /// Returns an event's row as of the last group that was written.
    pub fn event(&self, id: EventId) -> Result<Option<EventRow>, StoreError> {
        let key = event_key(id);
        self.store.get(&key)?.map(|value| decode(&key, &value)).transpose()
    }

    /// Returns an event's row as the batch sees it, the writes of its own group included.
    pub fn event_in(batch: &Batch<'_>, id: EventId) -> Result<Option<EventRow>, StoreError> {
        let key = event_key(id);
        batch.get(&key)?.map(|value| decode(&key, &value)).transpose()
    }

    /// Returns a delivery's row as of the last group that was written.
    pub fn delivery(&self, event: EventId, sink: SinkId) -> Result<Option<DeliveryRow>, StoreError> {
        let key = delivery_key(event, sink);
        self.store.get(&key)?.map(|value| decode(&key, &value)).transpose()
    }

    /// Returns a delivery's row as the batch sees it; `None` if there was no attempt yet.
    pub fn delivery_in(batch: &Batch<'_>, event: EventId, sink: SinkId) -> Result<Option<StoredDelivery>, StoreError> {
        let key = delivery_key(event, sink);
        let value = match undamaged(batch.get(&key))? {
            Some(Some(value)) => value,
            Some(None) => return Ok(None),
            None => return Ok(Some(StoredDelivery { row: None, size: 0 })),
        };
        Ok(Some(StoredDelivery { row: undamaged(decode(&key, &value))?, size: value.len() }))
    }

    pub fn put_event(&self, batch: &mut Batch<'_>, event: &Event, row: Vec<u8>) {
        self.resize(batch, 0, row.len());
        batch.put(event_key(event.id), row);
        batch.put(timeline_key(HistoryCursor { ts: event.ts, id: event.id }), b"");
    }

    /// Stores a delivery's row in place of one of `old_size` bytes.
    pub fn put_delivery(&self, batch: &mut Batch<'_>, key: Vec<u8>, old_size: usize, row: &DeliveryRow) {
        let row = encode(row);
        self.resize(batch, old_size, row.len());
        batch.put(key, row);
    }

    pub fn record(&self, id: EventId, has_queue: impl Fn(SinkId) -> bool) -> Result<Option<Record>, StoreError> {
        self.event(id)?.map(|row| self.with_deliveries(row, has_queue)).transpose()
    }

    pub fn page(&self, filter: &HistoryFilter, has_queue: impl Fn(SinkId) -> bool) -> Result<HistoryPage, StoreError> {
        let first = timeline_start(filter.since.unwrap_or(Timestamp::from_micros(0)));
        let end = match (filter.after, filter.until) {
            (Some(cursor), _) => timeline_key(cursor),
            (None, Some(until)) => timeline_start(Timestamp::from_micros(until.micros() + 1)),
            (None, None) => vec![keys::TIMELINE + 1],
        };
        let mut page = HistoryPage { records: Vec::new(), next: None };
        if first >= end {
            return Ok(page);
        }
        let mut position = None;
        for (read, entry) in self.store.range(first..end).rev().enumerate() {
            if page.records.len() == filter.limit || read == EVENTS_PER_PAGE {
                page.next = position;
                break;
            }
            let (key, _) = entry?;
            let Some(at) = timeline_position(&key) else { continue };
            position = Some(at);
            // Absent if it was deleted between the two reads.
            let Some(row) = undamaged(self.event(at.id))?.flatten() else { continue };
            if !filter.selects_event(&row.event) {
                continue;
            }
            let record = self.with_deliveries(row, &has_queue)?;
            if filter.selects_any(&record.deliveries) {
                page.records.push(record);
            }
        }
        Ok(page)
    }

    fn with_deliveries(&self, row: EventRow, has_queue: impl Fn(SinkId) -> bool) -> Result<Record, StoreError> {
        let mut deliveries = Vec::with_capacity(row.routed.len());
        for routed in row.routed {
            // The state of a delivery whose row is damaged is unknown, so it is left out.
            if let Some(stored) = undamaged(self.delivery(row.event.id, routed.sink))? {
                deliveries.push(delivery(routed, stored, &has_queue));
            }
        }
        Ok(Record { event: Arc::new(row.event), deliveries })
    }

    /// Counts rows that leave and rows that come. Only the writer thread calls this, so load and store need not be
    /// one atomic step.
    pub(super) fn resize(&self, batch: &mut Batch<'_>, removed: usize, added: usize) {
        let bytes = (self.bytes.load(Relaxed) + added as u64).saturating_sub(removed as u64);
        self.bytes.store(bytes, Relaxed);
        batch.put([keys::HISTORY], bytes.to_be_bytes());
    }
}

/// Merges what the event's row and the delivery's row say of a delivery.
fn delivery(routed: RoutedSink, row: Option<DeliveryRow>, has_queue: impl Fn(SinkId) -> bool) -> Delivery {
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
