//! Replay jobs as callers of an engine see them. The embedded engine runs them in [`super::sled`].

use crate::{
    model::{id::ReplayId, pattern::Patterns, replay::ReplayedState, sequence::SequenceRange, timestamp::Timestamp},
    platform::store::StoreError,
};

/// The fields of a new job. An absent field selects all.
#[derive(Clone, Debug, Default)]
pub struct NewReplay {
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub kind: Option<Patterns>,
    pub states: Vec<ReplayedState>,
    pub sequences: Vec<SequenceRange>,
    /// The most events a second.
    pub rate: Option<u32>,
}

/// A job that queues events as there is room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningReplay {
    pub id: ReplayId,
    pub rate: Option<u32>,
}

/// The result of one step of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayStep {
    /// Events queued.
    pub queued: usize,
    /// The next step need not wait for room in the queue.
    pub has_more: bool,
}

/// The reason that a job was not started or changed. Nothing is changed then.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("a replay to this sink is under way: wait until it has ended, or cancel it")]
    UnderWay,
    #[error("{0} replays to sinks of this owner are under way: wait until one has ended, or cancel one")]
    TooMany(usize),
    #[error("no replay to this sink is under way")]
    NoneUnderWay,
    #[error("this sink receives no events")]
    NoQueue,
    #[error(transparent)]
    Store(#[from] StoreError),
}
