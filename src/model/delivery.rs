//! Deliveries: the state of one event on its way to one sink, its attempts, and the dead letter it may end as.
//!
//! These types are stored as JSON by the queue engine and shown by the HTTP API, so their field names are a file
//! format and an API at once. The rules that move a delivery from state to state are in [`crate::routing::queue`].

use super::{
    id::{EventId, SinkId},
    timestamp::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr, sync::Arc, time::Duration};

/// One event on its way to one sink.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Delivery {
    pub sink_id: SinkId,
    /// The sink's name when the event was routed.
    pub name: Arc<str>,
    pub state: DeliveryState,
    pub sequence: u64,
    /// All of them, or the first and the last of many.
    pub attempts: Vec<Attempt>,
}

/// The state of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// In the sink's queue, before its first attempt or between two.
    Queued,
    Delivered,
    /// A script declined the event.
    Skipped,
    /// The queue was full when the event was accepted.
    Dropped,
    /// Given up; the event is, or was, a dead letter of the sink.
    Dead,
    /// Deleted together with its sink.
    Discarded,
}

/// One settled attempt to deliver an event.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Attempt {
    /// Counted from 1 since the event was queued; a redelivery starts anew.
    pub number: u32,
    pub at: Timestamp,
    pub duration_ms: f64,
    pub outcome: AttemptOutcome,
    /// The HTTP status of the receiver's response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The beginning of the receiver's response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// Lines that a script printed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<String>,
}

/// The outcome of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    Delivered,
    /// A script declined the event.
    Skipped,
    /// Another attempt follows if any are left.
    Failed,
    /// No further attempt makes sense.
    Dead,
}

/// The two kinds of attempts that the figures of the last hour count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttemptKind {
    /// The event was delivered, or a script declined it.
    Delivered,
    /// The attempt failed, with or without another one to follow.
    Failed,
}

impl AttemptOutcome {
    pub fn kind(self) -> AttemptKind {
        match self {
            Self::Delivered | Self::Skipped => AttemptKind::Delivered,
            Self::Failed | Self::Dead => AttemptKind::Failed,
        }
    }
}

/// An event that a sink's queue has given up on.
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

impl DeliveryState {
    pub const ALL: [Self; 6] =
        [Self::Queued, Self::Delivered, Self::Skipped, Self::Dropped, Self::Dead, Self::Discarded];

    /// The name used in JSON and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Delivered => "delivered",
            Self::Skipped => "skipped",
            Self::Dropped => "dropped",
            Self::Dead => "dead",
            Self::Discarded => "discarded",
        }
    }

    /// Returns true if no attempt will follow.
    pub const fn is_settled(self) -> bool {
        !matches!(self, Self::Queued)
    }

    /// Returns true if the sink wanted the event and will not get it.
    pub const fn is_lost(self) -> bool {
        matches!(self, Self::Dropped | Self::Dead)
    }
}

impl fmt::Display for DeliveryState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for DeliveryState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|state| state.as_str() == text);
        known.ok_or_else(|| format!("expected one of {}", Self::ALL.map(Self::as_str).join(", ")))
    }
}

impl Attempt {
    /// The time at which the attempt ended.
    pub fn ended_at(&self) -> Timestamp {
        self.at.after(Duration::try_from_secs_f64(self.duration_ms / 1000.0).unwrap_or_default())
    }
}

impl AttemptOutcome {
    /// The name used in JSON and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
            Self::Dead => "dead",
        }
    }
}

impl fmt::Display for AttemptOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
