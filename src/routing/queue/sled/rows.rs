//! The rows of queues and history on disk, and their keys.
//!
//! | key | value |
//! |---|---|
//! | `SEQUENCE` sink | the last sequence number given |
//! | `QUEUE` sink sequence | the event's position |
//! | `DEAD` sink sequence | a [`DeadLetter`](crate::model::delivery::DeadLetter) |
//! | `GAP` sink sequence | the last number of a range that the sink misses, and the reason, see [`super::gaps`] |
//! | `NUMBER` sink sequence | the position of an event that was queued again under this number |
//! | `REPLAY` sink job | a [`ReplayJob`](crate::model::replay::ReplayJob) |
//! | `EVENT` position | an [`EventRow`] |
//! | `DELIVERY` position sink | a [`DeliveryRow`](super::delivery_row::DeliveryRow), from the first attempt on, in a short form after a first one that succeeded |
//! | `HISTORY` | the size of all event and delivery rows |
//!
//! A position is the accepted time and the id of an event. Rows in the order of time are appended at one place and
//! deleted at another, which keeps the database small; an emitter may choose random ids, and rows in their order would
//! be scattered.

use crate::{
    model::{
        event::Event,
        id::{EventId, ReplayId, SinkId, UserId},
        timestamp::Timestamp,
    },
    platform::store::{StoreError, keys, readable},
    routing::queue::{HistoryPosition, RouteTarget},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::sync::Arc;

/// An event's row: `{"event":…,"routed":[…]}`. The event is encoded before the writer thread sees it, and the routes
/// are added there.
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

/// The part of an event's row that retention needs.
#[derive(Deserialize)]
pub struct RoutedRow {
    pub event: EventUser,
    pub routed: Vec<RoutedSink>,
}

/// The user of an event.
#[derive(Deserialize)]
pub struct EventUser {
    pub user_id: UserId,
}

impl EventRow {
    const EVENT_FIELD: &[u8] = b"{\"event\":";
    /// Bytes that most events take beside their data.
    const ENVELOPE: usize = 512;
    /// Bytes that most routes take.
    const ROUTE: usize = 128;
    const ROUTED_FIELD: &[u8] = b",\"routed\":";

    /// Decodes the event of a row without its routes, of which there may be thousands.
    pub fn decode_event(key: &[u8], row: &[u8]) -> Result<Event, StoreError> {
        let Some(event) = row.strip_prefix(Self::EVENT_FIELD) else {
            return decode::<Self>(key, row).map(|row| row.event);
        };
        let mut events = serde_json::Deserializer::from_slice(event).into_iter();
        let event = events.next().unwrap_or_else(|| Err(serde::de::Error::custom("the event is missing")));
        event.map_err(|error| StoreError::damaged(key, error))
    }

    /// Finds the user of a row's event without decoding the row; `None` if it is damaged.
    pub fn user(row: &[u8]) -> Option<UserId> {
        // Quotes are escaped in strings, so that this is a field; the fields before it are short.
        const FIELD: &[u8] = b"\"user_id\":\"";
        let start = row.windows(FIELD.len()).position(|window| window == FIELD)? + FIELD.len();
        std::str::from_utf8(row.get(start..start + 36)?).ok()?.parse().ok()
    }

    /// Decodes the routes of a row without its event; `None` if they are damaged.
    pub fn routes(row: &[u8]) -> Option<Vec<RoutedSink>> {
        // The last field, and quotes are escaped in the names of sinks, so that no later text looks like it.
        let field = Self::ROUTED_FIELD;
        let start = row.windows(field.len()).rposition(|window| window == field)? + field.len();
        serde_json::from_slice(row[start..].strip_suffix(b"}")?).ok()
    }

    /// Returns the beginning of the row, up to the end of the event, with room for one route.
    pub fn encode_event(event: &Event) -> Vec<u8> {
        let mut row = Vec::with_capacity(event.data.get().len() + Self::ENVELOPE + Self::ROUTE);
        row.extend_from_slice(Self::EVENT_FIELD);
        serde_json::to_writer(&mut row, event).expect("an event is plain data with string keys");
        row
    }

    /// Completes the row that [`Self::encode_event`] began.
    pub fn encode(mut row: Vec<u8>, routed: &[RoutedSink]) -> Vec<u8> {
        row.reserve_exact(Self::ROUTED_FIELD.len() + routed.len() * Self::ROUTE);
        row.extend_from_slice(Self::ROUTED_FIELD);
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
    readable(read.inspect_err(|error| {
        if matches!(error, StoreError::Damaged { .. }) {
            log::warn!("{error}");
        }
    }))
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

pub fn gap_key(sink: SinkId, from: u64) -> Vec<u8> {
    keys::key(keys::GAP, &[sink.as_bytes(), &from.to_be_bytes()])
}

pub fn number_key(sink: SinkId, sequence: u64) -> Vec<u8> {
    keys::key(keys::NUMBER, &[sink.as_bytes(), &sequence.to_be_bytes()])
}

pub fn replay_key(sink: SinkId, job: ReplayId) -> Vec<u8> {
    keys::key(keys::REPLAY, &[sink.as_bytes(), job.as_bytes()])
}

/// Returns the sink of a key made by [`replay_key`].
pub fn replay_of(key: &[u8]) -> Option<SinkId> {
    SinkId::from_slice(key.get(1..17)?)
}

pub fn event_key(at: HistoryPosition) -> Vec<u8> {
    keys::key(keys::EVENT, &[&position_bytes(at)])
}

/// Returns the first key that an event accepted at this time or later can have.
pub fn first_event_key(accepted_at: Timestamp) -> Vec<u8> {
    keys::key(keys::EVENT, &[&time_bytes(accepted_at)])
}

pub fn delivery_key(at: HistoryPosition, sink: SinkId) -> Vec<u8> {
    keys::key(keys::DELIVERY, &[&position_bytes(at), sink.as_bytes()])
}

/// Returns the bytes of a position in keys and queue rows. They sort as positions do.
pub fn position_bytes(at: HistoryPosition) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&time_bytes(at.accepted_at));
    bytes[8..].copy_from_slice(at.id.as_bytes());
    bytes
}

/// The inverse of [`position_bytes`].
pub fn position(bytes: &[u8]) -> Option<HistoryPosition> {
    Some(HistoryPosition { accepted_at: time(bytes.get(..8)?)?, id: EventId::from_slice(&bytes[8..])? })
}

/// Returns the position in a key made by [`event_key`].
pub fn event_position(key: &[u8]) -> Option<HistoryPosition> {
    position(key.get(1..)?)
}

/// Returns the position in a key made by [`delivery_key`].
pub fn delivery_position(key: &[u8]) -> Option<HistoryPosition> {
    position(key.get(1..25)?)
}

/// Returns the bytes of an accepted time. No event was accepted before 1970.
fn time_bytes(accepted_at: Timestamp) -> [u8; 8] {
    u64::try_from(accepted_at.micros()).unwrap_or(0).to_be_bytes()
}

/// The inverse of [`time_bytes`].
fn time(bytes: &[u8]) -> Option<Timestamp> {
    let micros = u64::from_be_bytes(bytes.try_into().ok()?);
    Some(Timestamp::from_micros(i64::try_from(micros).ok()?))
}

/// Returns the number in a row that holds nothing else.
pub fn stored_number(key: &[u8], value: &[u8]) -> Result<u64, StoreError> {
    value.try_into().map(u64::from_be_bytes).map_err(|_| StoreError::damaged(key, "it is no number"))
}

/// Returns the sink and sequence number of a key made by [`queue_key`], [`dead_key`], [`gap_key`] or [`number_key`].
pub fn sink_and_sequence(key: &[u8]) -> Option<(SinkId, u64)> {
    Some((SinkId::from_slice(key.get(1..17)?)?, u64::from_be_bytes(key.get(17..)?.try_into().ok()?)))
}
