//! Sequence numbers of a sink: what became of each.

use super::lenient::Lenient;
use crate::model::{
    id::EventId,
    sequence::{MissReason, NumberState, SequenceNumber},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most numbers of one request.
pub const MAX_NUMBERS: u64 = 1000;

/// The numbers of a request without a first one.
pub const DEFAULT_NUMBERS: u64 = 50;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SequenceQuery {
    /// The first number, from 1 on; if absent, that of the last fifty.
    #[schemars(range(min = 1))]
    pub from: Option<u64>,
    /// The last number, at most 999 after the first; as many as that if absent.
    pub to: Option<u64>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SequenceNumbers")]
pub struct SequenceView {
    /// One for each number that was given, in order.
    pub items: Vec<NumberView>,
    /// The last number given.
    pub last_sequence: u64,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SequenceNumber")]
pub struct NumberView {
    pub sequence: u64,
    /// `unknown` if the event is not in the history any more, or was not found among too many events for other sinks.
    pub state: Lenient<NumberState>,
    /// Present if the sink did not get the event under this number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Lenient<MissReason>>,
    /// Absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<EventId>,
}

impl From<SequenceNumber> for NumberView {
    fn from(SequenceNumber { sequence, state, reason, event_id }: SequenceNumber) -> Self {
        Self { sequence, state: state.into(), reason: reason.map(Lenient::from), event_id }
    }
}
