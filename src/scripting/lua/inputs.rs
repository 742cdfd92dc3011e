//! The inputs of a run, one type for each kind of run.

use super::host::{ProgramOutput, SpaceAgent, ToolContext};
use crate::model::{
    event::Event,
    id::{ReplayId, SpaceId},
    sequence::MissedRange,
};
use bytes::Bytes;
use serde_json::value::RawValue;
use std::{collections::BTreeMap, ffi::OsString, path::PathBuf, sync::Arc};

/// The event that a template or a script runs for.
#[derive(Clone, Debug)]
pub struct EventInput {
    pub event: Arc<Event>,
    /// The event's number in its sink, `event.sequence`.
    pub sequence: u64,
    /// The number of this attempt, from 1, `event.attempt`.
    pub attempt: u32,
    /// The numbers that the sink misses before this one, `event.missed`.
    pub missed: Vec<MissedRange>,
    /// The job that sends the event again, `event.replay`.
    pub replay: Option<ReplayId>,
}

impl EventInput {
    /// The first attempt at an event outside any queue.
    pub fn sample(event: Arc<Event>) -> Self {
        Self { event, sequence: 0, attempt: 1, missed: Vec::new(), replay: None }
    }
}

/// The parts of an [`EventInput`] that a template or a script reads, each as the text it becomes in Lua.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::scripting) struct EventFields {
    pub id: String,
    pub kind: String,
    pub ts: String,
    pub sequence: u64,
    pub attempt: u32,
    /// From, to and reason.
    pub missed: Vec<(u64, u64, String)>,
    /// Empty if the event is not sent again by a job.
    pub replay: String,
    /// A JSON text.
    pub data: String,
    pub space_id: String,
    pub space_name: String,
    pub space_urls: Vec<String>,
    pub custom: Vec<(String, String)>,
    pub actor_id: String,
    pub actor_username: String,
    pub actor_kind: String,
}

/// A verified request at a source, `request` to its transform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransformInput {
    /// The slug of the source, `source.slug`.
    pub slug: String,
    /// Names in lower case, values of one name joined.
    pub headers: Vec<(String, String)>,
    pub query: Vec<(String, String)>,
    pub body: Bytes,
}

/// One call of a tool.
#[derive(Clone)]
pub struct ToolCall {
    /// A JSON object: `params` to the tool, and its `...`.
    pub arguments: Box<RawValue>,
    /// The user that the tool acts as, who need not be its owner.
    pub context: ToolContext,
}

/// The space that a health check is about, `space` to the check.
#[derive(Clone, Debug)]
pub struct CheckedSpace {
    pub id: SpaceId,
    pub name: String,
}

/// The directory, environment and agent of a run of a space's program.
///
/// They belong to the run and not to the Lua state, which may run for another directory next.
pub struct ProgramContext {
    /// The start of relative paths, and the working directory of processes and of a registered method server.
    pub directory: PathBuf,
    /// The whole environment of the program and its processes.
    pub environment: BTreeMap<OsString, OsString>,
    pub agent: Arc<dyn SpaceAgent>,
    pub output: ProgramOutput,
}
