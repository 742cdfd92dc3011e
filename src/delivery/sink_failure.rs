//! The failure of one sink, and the sink as a report about it needs it.

use crate::model::{id::SinkId, owner::Owner, timestamp::Timestamp};
use serde::{Deserialize, Serialize};

/// The failure of one sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkFailure {
    pub state: FailureState,
    /// The error of the last attempt that was recorded here.
    pub reason: String,
    /// The sink has to be changed, its script or the egress policy: attempts alone do not mend it.
    #[serde(default)]
    pub needs_change: bool,
    pub since: Timestamp,
}

/// The state of a sink whose deliveries fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureState {
    /// Its last event became a dead letter.
    Failing,
    /// It holds the event at the head of its queue.
    Held,
}

/// The sink that a report is about.
#[derive(Clone, Copy, Debug)]
pub struct ReportedSink<'a> {
    pub id: SinkId,
    pub name: &'a str,
    pub owner: Owner,
}
