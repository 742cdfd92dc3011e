//! History of the embedded engine: storing events and deliveries, and reading them back in pages.
//!
//! History is in the order in which events were accepted. The accepted time of an event is later than that of every
//! event before it, also if the machine's clock was set back. The size of all rows is counted as they are written, so
//! that the limit on history needs no scan. A page continues past damaged rows. [`super::retention`] deletes old
//! events.

use super::{
    age_sweep::AgeSweep,
    delivery_row::{DeliveryRow, StoredDelivery},
    event_index::EventIndex,
    owner_index::OwnerIndex,
    rows::{
        EventRow, RoutedSink, decode, delivery_key, delivery_position, event_key, event_position, first_event_key,
        stored_number, undamaged,
    },
};
use crate::{
    model::{
        delivery::{Attempt, Delivery, DeliveryState},
        event::Event,
        id::{EventId, SinkId, UserId},
        timestamp::Timestamp,
    },
    platform::store::{Batch, Store, StoreError, keys, readable},
    routing::queue::{HistoryFilter, HistoryPage, HistoryPosition, Record},
};
use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
};

/// Events read for one page. A filter that matches little then gives a short page and a cursor to continue from.
const EVENTS_PER_PAGE: usize = 5000;

/// Bytes of payloads that a filter passes over for one page.
const PASSED_BYTES_PER_PAGE: usize = 16 << 20;

/// A handle to the events and deliveries in the store. Cloning it is cheap.
#[derive(Clone)]
pub struct History {
    pub(super) store: Store,
    pub(super) counters: Arc<HistoryCounters>,
    pub(super) index: Arc<EventIndex>,
    pub(super) owners: Arc<OwnerIndex>,
}

/// Counters of history. Only the writer thread changes the first two, so load and store need not be one atomic step.
pub(super) struct HistoryCounters {
    /// The size of all event and delivery rows.
    pub bytes: AtomicU64,
    /// The accepted time of the last event, in microseconds since 1970.
    last_accepted: AtomicI64,
    /// The size beyond which a write deletes old events.
    pub limit: AtomicU64,
    /// The size beyond which it deletes old dead letters too.
    pub dead_letter_limit: AtomicU64,
    pub age_sweep: AgeSweep,
}

impl History {
    pub fn open(store: Store) -> Result<Self, StoreError> {
        let (index, mut last_accepted) = (EventIndex::default(), 0);
        let owners = OwnerIndex::default();
        let mut users = Vec::new();
        for key in store.keys(vec![keys::EVENT]..vec![keys::EVENT + 1]) {
            let key = key?;
            let Some(at) = event_position(&key) else { continue };
            index.insert(at);
            last_accepted = at.accepted_at.micros();
            // The user of a damaged event is unknown, and its age alone deletes it.
            if let Some(value) = readable(store.get(&key))?.flatten()
                && let Some(user) = EventRow::user(&value)
            {
                owners.add(user, at.accepted_at, value.len());
                users.push((at.accepted_at, user));
            }
        }
        count_deliveries(&store, &owners, users)?;
        let counters = HistoryCounters {
            bytes: AtomicU64::new(stored_size(&store)?),
            last_accepted: AtomicI64::new(last_accepted),
            limit: AtomicU64::new(u64::MAX),
            dead_letter_limit: AtomicU64::new(u64::MAX),
            age_sweep: AgeSweep::default(),
        };
        Ok(Self { store, counters: Arc::new(counters), index: Arc::new(index), owners: Arc::new(owners) })
    }

    /// Returns an event's row as of the last group that was written.
    pub fn event(&self, at: HistoryPosition) -> Result<Option<EventRow>, StoreError> {
        let key = event_key(at);
        self.store.get(&key)?.map(|value| decode(&key, &value)).transpose()
    }

    /// Returns an event as of the last group that was written.
    pub fn event_alone(&self, at: HistoryPosition) -> Result<Option<Event>, StoreError> {
        let key = event_key(at);
        self.store.get(&key)?.map(|value| EventRow::decode_event(&key, &value)).transpose()
    }

    /// Returns an event's row as the batch sees it, the writes of its own group included.
    pub fn event_in(batch: &Batch<'_>, at: HistoryPosition) -> Result<Option<EventRow>, StoreError> {
        let key = event_key(at);
        batch.get(&key)?.map(|value| decode(&key, &value)).transpose()
    }

    /// Returns a delivery's row as of the last group that was written.
    pub fn delivery(&self, at: HistoryPosition, sink: SinkId) -> Result<Option<DeliveryRow>, StoreError> {
        let key = delivery_key(at, sink);
        self.store.get(&key)?.map(|value| DeliveryRow::decode(&key, &value)).transpose()
    }

    /// Returns a delivery's row as the batch sees it; `None` if there was no attempt yet. Damage is not logged, because
    /// every sweep would log it again.
    pub fn delivery_in(
        batch: &Batch<'_>,
        at: HistoryPosition,
        sink: SinkId,
    ) -> Result<Option<StoredDelivery>, StoreError> {
        let key = delivery_key(at, sink);
        let value = match readable(batch.get(&key))? {
            Some(Some(value)) => value,
            Some(None) => return Ok(None),
            None => return Ok(Some(StoredDelivery { row: None, size: 0 })),
        };
        Ok(Some(StoredDelivery { row: readable(DeliveryRow::decode(&key, &value))?, size: value.len() }))
    }

    /// Returns the accepted time of the next event. Only the writer thread calls this.
    pub fn next_accepted_time(&self) -> Timestamp {
        let last = self.counters.last_accepted.load(Relaxed);
        let accepted_at = Timestamp::now().micros().max(last.saturating_add(1));
        self.counters.last_accepted.store(accepted_at, Relaxed);
        Timestamp::from_micros(accepted_at)
    }

    /// Returns the accepted time of the last event. Only the writer thread calls this.
    pub fn last_accepted(&self) -> Timestamp {
        Timestamp::from_micros(self.counters.last_accepted.load(Relaxed))
    }

    pub fn put_event(&self, batch: &mut Batch<'_>, at: HistoryPosition, user: UserId, row: Vec<u8>) {
        self.resize(batch, 0, row.len());
        self.owners.add(user, at.accepted_at, row.len());
        batch.put_new(event_key(at), row);
        self.index.insert(at);
    }

    /// Stores a delivery's row, of an event of this user, in place of one of so many bytes. `None` says that there is
    /// none, and saves a read.
    pub fn put_delivery(
        &self,
        batch: &mut Batch<'_>,
        user: UserId,
        key: Vec<u8>,
        old_size: Option<usize>,
        row: &DeliveryRow,
    ) {
        let row = row.encode();
        self.resize(batch, old_size.unwrap_or(0), row.len());
        self.owners.resize(user, old_size.unwrap_or(0), row.len());
        match old_size {
            Some(_) => batch.put(key, row),
            None => batch.put_new(key, row),
        }
    }

    /// Returns an event with its deliveries. `has_queue` tells the sinks that exist from those that were deleted.
    pub fn record(
        &self,
        at: HistoryPosition,
        has_queue: impl Fn(SinkId) -> bool,
    ) -> Result<Option<Record>, StoreError> {
        self.event(at)?.map(|row| self.with_deliveries(at, row, has_queue)).transpose()
    }

    pub fn page(&self, filter: &HistoryFilter, has_queue: impl Fn(SinkId) -> bool) -> Result<HistoryPage, StoreError> {
        let first = first_event_key(filter.since.unwrap_or(Timestamp::from_micros(0)));
        let end = match (filter.after, filter.until) {
            (Some(position), _) => event_key(position),
            (None, Some(until)) => first_event_key(Timestamp::from_micros(until.micros().saturating_add(1))),
            (None, None) => vec![keys::EVENT + 1],
        };
        let mut page = HistoryPage { records: Vec::new(), next: None };
        if first >= end {
            return Ok(page);
        }
        let (mut position, mut passed) = (None, 0);
        for (read, key) in self.store.keys(first..end).rev().enumerate() {
            let is_costly = read == EVENTS_PER_PAGE || passed >= PASSED_BYTES_PER_PAGE;
            if page.records.len() == filter.limit || is_costly {
                page.next = position;
                break;
            }
            let Some(at) = event_position(&key?) else { continue };
            // The event itself may be hidden from the caller.
            position = Some(HistoryPosition { id: EventId::NIL, ..at });
            // Absent if it was deleted between the two reads.
            let Some(row) = undamaged(self.event(at))?.flatten() else { continue };
            let size = row.event.data.get().len();
            if !filter.selects_event(&row.event) {
                passed += size;
                continue;
            }
            let record = self.with_deliveries(at, row, &has_queue)?;
            if filter.selects_any(&record.event, &record.deliveries) {
                page.records.push(record);
            } else {
                passed += size;
            }
        }
        Ok(page)
    }

    fn with_deliveries(
        &self,
        at: HistoryPosition,
        row: EventRow,
        has_queue: impl Fn(SinkId) -> bool,
    ) -> Result<Record, StoreError> {
        let mut deliveries = Vec::with_capacity(row.routed.len());
        for routed in row.routed {
            // The state of a delivery whose row is damaged is unknown, so it is left out.
            if let Some(stored) = undamaged(self.delivery(at, routed.sink))? {
                deliveries.push(delivery(routed, stored, &has_queue));
            }
        }
        Ok(Record { accepted_at: at.accepted_at, event: Arc::new(row.event), deliveries })
    }

    /// Counts rows that leave and rows that come. Only the writer thread calls this.
    pub(super) fn resize(&self, batch: &mut Batch<'_>, removed: usize, added: usize) {
        let counters = &self.counters;
        let bytes = (counters.bytes.load(Relaxed) + added as u64).saturating_sub(removed as u64);
        counters.bytes.store(bytes, Relaxed);
        batch.put([keys::HISTORY], bytes.to_be_bytes());
    }
}

/// Adds the sizes of deliveries to the users of their events, which are in the same order.
fn count_deliveries(store: &Store, owners: &OwnerIndex, users: Vec<(Timestamp, UserId)>) -> Result<(), StoreError> {
    let mut users = users.into_iter().peekable();
    for key in store.keys(vec![keys::DELIVERY]..vec![keys::DELIVERY + 1]) {
        let key = key?;
        let Some(at) = delivery_position(&key) else { continue };
        while users.next_if(|(accepted_at, _)| *accepted_at < at.accepted_at).is_some() {}
        if let Some((_, user)) = users.peek().filter(|(accepted_at, _)| *accepted_at == at.accepted_at) {
            owners.resize(*user, 0, readable(store.get(&key))?.flatten().map_or(0, |value| value.len()));
        }
    }
    Ok(())
}

/// Returns the size of all event and delivery rows: as it was counted, or counted anew if that number is damaged.
fn stored_size(store: &Store) -> Result<u64, StoreError> {
    let key = [keys::HISTORY];
    let counted = store.get(&key).and_then(|value| value.map(|value| stored_number(&key, &value)).transpose());
    if let Some(counted) = undamaged(counted)? {
        return Ok(counted.unwrap_or(0));
    }
    let mut bytes = 0;
    for kind in [keys::EVENT, keys::DELIVERY] {
        for key in store.keys(vec![kind]..vec![kind + 1]) {
            bytes += readable(store.get(&key?))?.flatten().map_or(0, |value| value.len() as u64);
        }
    }
    Ok(bytes)
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
