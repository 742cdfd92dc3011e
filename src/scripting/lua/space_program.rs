//! Programs of a space: what they find around them, and how they reach its agent.
//!
//! Such a program is the space's own, so it may read files and start processes, unless it is confined. What it is
//! given with each run is in [`ProgramContext`]: the same state may run for another directory next.

use super::ScriptError;
use crate::{model::owner::Owner, platform::kv::Kv};
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use std::{collections::BTreeMap, ffi::OsString, path::PathBuf, sync::Arc, time::Duration};

/// How far a program of a space reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capabilities {
    /// It has `fs`, `process`, `os` and `svc.agent`.
    Full,
    /// It has none of them, and starts no process by any other way.
    Sandboxed,
}

/// What a run of a space's program finds around it.
pub struct ProgramContext {
    /// Where relative paths start, where processes run, and what a registration is relative to.
    pub directory: PathBuf,
    /// The environment it sees and its processes get, all of it.
    pub environment: BTreeMap<OsString, OsString>,
    pub agent: Arc<dyn SpaceAgent>,
    pub output: ProgramOutput,
}

/// Where what a run prints and logs goes.
#[derive(Clone)]
pub enum ProgramOutput {
    /// Into the run's log, up to its bound.
    Captured,
    /// Straight out, line by line.
    Streamed(Arc<dyn OutputWriter>),
}

/// Hears what a run says.
pub trait OutputWriter: Send + Sync {
    /// A line of `print`.
    fn printed(&self, line: &[u8]);

    /// A line of `log`.
    fn logged(&self, line: &[u8]);
}

/// The agent of the space that a program runs in. The message of a failure is shown to the program.
pub trait SpaceAgent: Send + Sync {
    /// Raises an event, and tells of it: `{"event_id", "event_type"}`.
    fn emit(&self, kind: &str, payload: Box<RawValue>) -> AgentReply<Box<RawValue>>;

    /// The methods that the space's owner sees: `{"methods": […]}`.
    fn methods(&self) -> AgentReply<Box<RawValue>>;

    /// Sends a JSON-RPC request or a batch, and gives the answer if there is one.
    fn call(&self, request: Box<RawValue>) -> AgentReply<Option<Box<RawValue>>>;

    /// Registers methods in place of all that the space registered before. The server runs in `directory`.
    fn register(&self, directory: PathBuf, registration: Box<RawValue>) -> AgentReply<Box<RawValue>>;

    /// Removes the method of this local name, or all.
    fn unregister(&self, local_name: Option<&str>) -> AgentReply<Box<RawValue>>;

    /// What the space remembers.
    fn kv(&self) -> &dyn SpaceKv;
}

/// What all programs of a space remember together, as [`Kv`] keeps it. Keys and values are short enough.
pub trait SpaceKv: Send + Sync {
    /// What is under `key`.
    fn get(&self, key: &str) -> AgentReply<Option<Box<RawValue>>>;

    /// Puts `value` under `key`, for as long as `ttl` says or for good.
    fn set(&self, key: &str, value: Box<RawValue>, ttl: Option<Duration>) -> AgentReply<()>;

    /// The same, only if nothing is there: whether it did.
    fn add(&self, key: &str, value: Box<RawValue>, ttl: Option<Duration>) -> AgentReply<bool>;

    /// Adds to the integer under `key`: the sum.
    fn increment(&self, key: &str, by: i64, ttl: Option<Duration>) -> AgentReply<i64>;

    /// Removes `key`: whether it was there.
    fn delete(&self, key: &str) -> AgentReply<bool>;
}

/// The memory of a space, where it is kept: there is one owner only.
impl SpaceKv for Kv {
    fn get(&self, key: &str) -> AgentReply<Option<Box<RawValue>>> {
        let value = Self::get(self, Owner::Global, key).map_err(|error| error.to_string());
        Box::pin(std::future::ready(value))
    }

    fn set(&self, key: &str, value: Box<RawValue>, ttl: Option<Duration>) -> AgentReply<()> {
        let (kv, key) = (self.clone(), key.to_owned());
        Box::pin(async move { kv.set(Owner::Global, &key, value, ttl).await.map_err(|error| error.to_string()) })
    }

    fn add(&self, key: &str, value: Box<RawValue>, ttl: Option<Duration>) -> AgentReply<bool> {
        let (kv, key) = (self.clone(), key.to_owned());
        Box::pin(async move { kv.add(Owner::Global, &key, value, ttl).await.map_err(|error| error.to_string()) })
    }

    fn increment(&self, key: &str, by: i64, ttl: Option<Duration>) -> AgentReply<i64> {
        let (kv, key) = (self.clone(), key.to_owned());
        Box::pin(async move { kv.increment(Owner::Global, &key, by, ttl).await.map_err(|error| error.to_string()) })
    }

    fn delete(&self, key: &str) -> AgentReply<bool> {
        let (kv, key) = (self.clone(), key.to_owned());
        Box::pin(async move { kv.delete(Owner::Global, &key).await.map_err(|error| error.to_string()) })
    }
}

/// What comes back from an agent.
pub type AgentReply<T> = BoxFuture<'static, Result<T, String>>;

/// Where a JSON-RPC method is handled: a function of a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodHandler {
    pub library: String,
    pub function: String,
}

/// How the run of a program went.
#[derive(Debug)]
pub struct ProgramRun {
    pub result: Result<(), ScriptError>,
    /// What it printed and logged, if that is [`ProgramOutput::Captured`].
    pub log: Vec<String>,
    /// The processor time it took.
    pub cpu: Duration,
    /// What it gave to `runtime.jsonrpc.method`, by local name.
    pub handlers: BTreeMap<String, MethodHandler>,
}
