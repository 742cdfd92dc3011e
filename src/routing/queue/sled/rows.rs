//! The keys and rows of the queues and their history.

use super::super::record::DeliveryRow;
use crate::{
    model::id::{EventId, SinkId},
    platform::store::{StoreError, keys},
};

pub fn delivery_key(event: EventId, sink: SinkId) -> Vec<u8> {
    keys::key(keys::DELIVERY, &[event.as_bytes(), sink.as_bytes()])
}

pub fn queue_key(sink: SinkId, sequence: u64) -> Vec<u8> {
    keys::key(keys::QUEUE, &[sink.as_bytes(), &sequence.to_be_bytes()])
}

pub fn dead_key(sink: SinkId, sequence: u64) -> Vec<u8> {
    keys::key(keys::DEAD, &[sink.as_bytes(), &sequence.to_be_bytes()])
}

pub fn delivery_row(key: &[u8], value: Option<&[u8]>) -> Result<Option<DeliveryRow>, StoreError> {
    value.map(|value| read(key, value)).transpose()
}

/// Decodes the record under `key`.
pub fn read<T: serde::de::DeserializeOwned>(key: &[u8], value: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(value).map_err(|error| StoreError::damaged(key, error))
}

pub fn encode(record: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("records are plain data with string keys")
}

pub fn sink_and_sequence(key: &[u8]) -> Option<(SinkId, u64)> {
    Some((SinkId::from_slice(key.get(1..17)?)?, keys::number(key, 17)?))
}
