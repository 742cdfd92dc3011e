//! Replays: events of the history that a sink gets again.

use super::lenient::Lenient;
use crate::model::{
    id::ReplayId,
    pattern::Patterns,
    replay::{ReplayJob, ReplayState, ReplayedState},
    sequence::SequenceRange,
    timestamp::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most ranges of sequence numbers of one job.
pub const MAX_RANGES: usize = 1000;

/// The highest rate of a job, in events a second.
pub const MAX_RATE: u32 = 10_000;

#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayBody {
    /// Events accepted at this time or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Events accepted at this time or earlier. Events accepted after the job began are never replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Event patterns, as a sink has them.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub kind: Option<Patterns>,
    /// Events whose delivery to this sink is in one of these states; dropped and dead if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub states: Option<Vec<ReplayedState>>,
    /// Events with one of these sequence numbers, at most 1,000 ranges; any if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequences: Option<Vec<SequenceRange>>,
    /// The most events a second, 1 to 10,000; as many as the queue has room for if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub rate: Option<u32>,
}

/// A job that queues events of the history again.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Replay")]
pub struct ReplayView {
    /// Deliveries of the job carry it as `X-Service-Replay`.
    pub id: ReplayId,
    pub state: Lenient<ReplayState>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    pub until: Timestamp,
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    pub states: Vec<Lenient<ReplayedState>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sequences: Vec<SequenceRange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// The accepted time of the oldest event of the history when the job began: older ones could not be replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_since: Option<Timestamp>,
    /// Events selected when the job began; absent until they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matched: Option<u64>,
    /// Events queued so far.
    pub queued: u64,
    /// Events that were deleted from the history, or had left the selected states, before their turn. Known at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone: Option<u64>,
    /// The accepted time up to which the history has been looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<Timestamp>,
}

impl From<ReplayJob> for ReplayView {
    fn from(job: ReplayJob) -> Self {
        Self {
            id: job.id,
            state: job.state.into(),
            since: job.selection.since,
            until: job.selection.until,
            kind: job.selection.kind.map(|kind| kind.as_str().to_owned()),
            states: job.selection.states.into_iter().map(Lenient::from).collect(),
            sequences: job.selection.sequences,
            rate: job.rate,
            created_at: job.created_at,
            finished_at: job.finished_at,
            history_since: job.history_since,
            matched: job.matched,
            queued: job.queued,
            gone: job.gone,
            reached: job.reached,
        }
    }
}
