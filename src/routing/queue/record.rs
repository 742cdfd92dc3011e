//! What is kept of an event: the envelope, where it was routed, and every attempt to deliver it.

use crate::model::{
    delivery::{Attempt, Delivery, DeliveryState},
    event::Event,
    id::SinkId,
    timestamp::Timestamp,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// An event with all that became of it.
#[derive(Clone, Debug)]
pub struct Record {
    pub event: Arc<Event>,
    pub deliveries: Vec<Delivery>,
}

/// Where the router sent an event, as stored with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Routed {
    pub sink: SinkId,
    pub name: Arc<str>,
    pub sequence: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dropped: bool,
}

/// An event's row: `{"event":…,"routed":[…]}`. The event is serialised before the writer thread sees it.
#[derive(Deserialize)]
pub(super) struct EventRow {
    pub event: Event,
    pub routed: Vec<Routed>,
}

/// A delivery's row, from its first attempt on. Until then the event's row says all there is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct DeliveryRow {
    pub state: DeliveryState,
    pub sequence: u64,
    /// Failed attempts since it was last queued.
    pub failures: u32,
    pub due: Timestamp,
    pub attempts: Vec<Attempt>,
}

impl EventRow {
    /// The row's bytes, around an event that is JSON already.
    pub fn encode(event: &[u8], routed: &[Routed]) -> Vec<u8> {
        let mut row = Vec::with_capacity(event.len() + 32 + routed.len() * 96);
        row.extend_from_slice(b"{\"event\":");
        row.extend_from_slice(event);
        row.extend_from_slice(b",\"routed\":");
        serde_json::to_writer(&mut row, routed).expect("a vector takes every byte");
        row.push(b'}');
        row
    }
}
