//! What is kept of an event: the envelope, where it was routed, and every attempt to deliver it.

use crate::model::{
    event::Event,
    id::{EventId, SinkId},
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

/// One event on its way to one sink.
#[derive(Clone, Debug, Serialize)]
pub struct Delivery {
    pub sink_id: SinkId,
    pub name: Arc<str>,
    pub state: DeliveryState,
    pub sequence: u64,
    pub attempts: Vec<Attempt>,
}

/// How far a delivery has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    Queued,
    Delivered,
    /// A script declined it.
    Skipped,
    /// The queue was full.
    Dropped,
    /// Given up; a dead letter.
    Dead,
    /// Thrown away with its sink.
    Discarded,
}

/// One try.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Attempt {
    /// Counted from 1 since the event was queued; a redelivery starts anew.
    pub number: u32,
    pub at: Timestamp,
    pub duration_ms: f64,
    pub outcome: AttemptOutcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The beginning of what the receiver answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// What a script printed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<String>,
}

/// How a try ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    Delivered,
    Skipped,
    Failed,
    /// A script said that no further attempt makes sense.
    Dead,
}

/// An event a sink's queue has given up on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeadLetter {
    pub event_id: EventId,
    pub event_type: String,
    pub event_ts: Timestamp,
    pub sequence: u64,
    pub died_at: Timestamp,
    pub why: String,
    pub attempts: u32,
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
