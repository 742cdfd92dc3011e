//! The rows of queues and history on disk, and their keys.
//!
//! | key | value |
//! |---|---|
//! | `SEQUENCE` sink | the last sequence number given |
//! | `QUEUE` sink sequence | the event's id |
//! | `DEAD` sink sequence | a [`DeadLetter`](crate::model::delivery::DeadLetter) |
//! | `EVENT` event | an [`EventRow`] |
//! | `DELIVERY` event sink | a [`DeliveryRow`], from the first attempt on |
//! | `TIMELINE` time event | nothing; orders events by time |
//! | `HISTORY` | the size of all event and delivery rows |

use crate::{
    model::{
        delivery::{Attempt, DeliveryState},
        event::Event,
        id::{EventId, SinkId},
        timestamp::Timestamp,
    },
    platform::store::{StoreError, keys},
    routing::queue::{HistoryCursor, RouteTarget},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::sync::Arc;

/// An event's row: `{"event":…,"routed":[…]}`. The event is encoded before the writer thread sees it.
#[derive(Deserialize)]
pub struct EventRow {
    pub event: Event,
    pub routed: Vec<RoutedSink>,
}

/// A sink that an event was routed to, as stored with the event.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RoutedSink {
    pub sink: SinkId,
    pub name: Arc<str>,
    pub sequence: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dropped: bool,
}

/// A delivery's row, written from its first attempt on. Until then the event's row says everything about the delivery.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeliveryRow {
    pub state: DeliveryState,
    pub sequence: u64,
    /// Failed attempts since the event was last queued.
    pub failures: u32,
    pub due: Timestamp,
    pub attempts: Vec<Attempt>,
}

/// A delivery's row with its size on disk.
pub struct StoredDelivery {
    /// Absent if it is damaged; the attempts it held are lost then, and the delivery continues without them.
    pub row: Option<DeliveryRow>,
    pub size: usize,
}

impl EventRow {
    /// Returns the row's bytes, given an event that is JSON already.
    pub fn encode(event: &[u8], routed: &[RoutedSink]) -> Vec<u8> {
        let mut row = Vec::with_capacity(event.len() + 32 + routed.len() * 96);
        row.extend_from_slice(b"{\"event\":");
        row.extend_from_slice(event);
        row.extend_from_slice(b",\"routed\":");
        serde_json::to_writer(&mut row, routed).expect("writing to a vector does not fail");
        row.push(b'}');
        row
    }
}

impl From<&RoutedSink> for RouteTarget {
    fn from(routed: &RoutedSink) -> Self {
        Self { sink: routed.sink, name: routed.name.clone() }
    }
}

pub fn encode(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("records are plain data with string keys")
}

/// Turns a damaged record into an absent one and logs the damage, for steps that can continue without the record.
pub fn undamaged<T>(read: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Ok(record) => Ok(Some(record)),
        Err(error @ StoreError::Damaged { .. }) => {
            log::warn!("{error}");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Decodes the record under `key`.
pub fn decode<T: DeserializeOwned>(key: &[u8], value: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(value).map_err(|error| StoreError::damaged(key, error))
}

pub fn sequence_key(sink: SinkId) -> Vec<u8> {
    keys::key(keys::SEQUENCE, &[sink.as_bytes()])
}

pub fn queue_key(sink: SinkId, sequence: u64) -> Vec<u8> {
    keys::key(keys::QUEUE, &[sink.as_bytes(), &sequence.to_be_bytes()])
}

pub fn dead_key(sink: SinkId, sequence: u64) -> Vec<u8> {
    keys::key(keys::DEAD, &[sink.as_bytes(), &sequence.to_be_bytes()])
}

pub fn event_key(id: EventId) -> Vec<u8> {
    keys::key(keys::EVENT, &[id.as_bytes()])
}

pub fn delivery_key(event: EventId, sink: SinkId) -> Vec<u8> {
    keys::key(keys::DELIVERY, &[event.as_bytes(), sink.as_bytes()])
}

pub fn timeline_key(HistoryCursor { ts, id }: HistoryCursor) -> Vec<u8> {
    keys::key(keys::TIMELINE, &[&sortable(ts), id.as_bytes()])
}

/// Returns the first key of the timeline at or after this time.
pub fn timeline_start(ts: Timestamp) -> Vec<u8> {
    keys::key(keys::TIMELINE, &[&sortable(ts)])
}

/// Returns the sink and sequence number of a key made by [`queue_key`] or [`dead_key`].
pub fn sink_and_sequence(key: &[u8]) -> Option<(SinkId, u64)> {
    Some((SinkId::from_slice(key.get(1..17)?)?, keys::number(key, 17)?))
}

/// Returns the position of a key made by [`timeline_key`].
pub fn timeline_position(key: &[u8]) -> Option<HistoryCursor> {
    let ts = i64::try_from(keys::number(key, 1)?).ok()?;
    Some(HistoryCursor { ts: Timestamp::from_micros(ts), id: EventId::from_slice(key.get(9..)?)? })
}

/// Returns bytes that sort as the timestamps do. No event is older than 1970.
fn sortable(ts: Timestamp) -> [u8; 8] {
    u64::try_from(ts.micros()).unwrap_or(0).to_be_bytes()
}
