//! Replay jobs: the selection of events that a sink gets again, and how far the job has come.
//!
//! These types are stored as JSON by the queue engine and shown by the HTTP API, so their field names are a file
//! format and an API at once.

use super::{delivery::DeliveryState, id::ReplayId, pattern::Patterns, sequence::SequenceRange, timestamp::Timestamp};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Selects events of a sink's history. Every event selected was routed to the sink before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplaySelection {
    /// Events accepted at this time or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Events accepted at this time or earlier, and before the job began.
    pub until: Timestamp,
    /// Events whose type matches.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Patterns>,
    /// Events whose delivery is in one of these states when their turn comes.
    pub states: Vec<ReplayedState>,
    /// Events that have or had one of these numbers; any if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sequences: Vec<SequenceRange>,
}

/// The state of a delivery that a replay can repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayedState {
    Dropped,
    Dead,
    Delivered,
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayState {
    /// It queues events as there is room.
    Running,
    Paused,
    /// Every event selected was queued, or is gone.
    Done,
    Cancelled,
}

/// A change of a job that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayChange {
    Pause,
    Resume,
    Cancel,
}

/// A job that queues events of the history for a sink again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplayJob {
    pub id: ReplayId,
    pub state: ReplayState,
    #[serde(flatten)]
    pub selection: ReplaySelection,
    /// The most events a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// The accepted time of the oldest event of the history when the job began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_since: Option<Timestamp>,
    /// Events selected when the job began; absent until they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matched: Option<u64>,
    /// Events queued so far.
    pub queued: u64,
    /// Events counted that were not there, or not in a selected state any more, when their turn came. Known at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone: Option<u64>,
    /// The accepted time up to which the history has been looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<Timestamp>,
}

impl ReplayedState {
    pub const ALL: [Self; 3] = [Self::Dropped, Self::Dead, Self::Delivered];

    /// The states of events that the sink has lost.
    pub const LOST: [Self; 2] = [Self::Dropped, Self::Dead];

    /// The name used in JSON and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dropped => "dropped",
            Self::Dead => "dead",
            Self::Delivered => "delivered",
        }
    }

    /// The state that a delivery can be repeated from; `None` if it cannot.
    pub const fn of(state: DeliveryState) -> Option<Self> {
        match state {
            DeliveryState::Dropped => Some(Self::Dropped),
            DeliveryState::Dead => Some(Self::Dead),
            DeliveryState::Delivered => Some(Self::Delivered),
            DeliveryState::Queued | DeliveryState::Skipped | DeliveryState::Discarded => None,
        }
    }
}

impl ReplayState {
    pub const ALL: [Self; 4] = [Self::Running, Self::Paused, Self::Done, Self::Cancelled];

    /// The name used in JSON and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
        }
    }

    pub const fn is_finished(self) -> bool {
        matches!(self, Self::Done | Self::Cancelled)
    }
}

impl ReplayJob {
    /// Ends the job.
    pub fn finish(&mut self, state: ReplayState, now: Timestamp) {
        self.state = state;
        self.finished_at = Some(now);
        if state == ReplayState::Done {
            self.gone = self.matched.map(|matched| matched.saturating_sub(self.queued));
        }
    }
}

impl fmt::Display for ReplayedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for ReplayState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ReplayedState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|state| state.as_str() == text);
        known.ok_or_else(|| format!("expected one of {}", Self::ALL.map(Self::as_str).join(", ")))
    }
}
