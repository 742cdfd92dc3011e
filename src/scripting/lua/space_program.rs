//! Programs of a space: what they find around them, and how they reach its agent.
//!
//! Such a program is the space's own, so it may read files and start processes, unless it is confined. What it is
//! given with each run is in [`Surroundings`]: the same state may run for another directory next.

use super::ScriptError;
use crate::{model::owner::Owner, platform::kv::Kv};
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use std::{collections::BTreeMap, ffi::OsString, path::PathBuf, sync::Arc, time::Duration};

/// How far a program of a space reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It has `fs`, `process`, `os` and `svc.agent`.
    Whole,
    /// It has none of them, and starts no process by any other way.
    Confined,
}

/// What a run of a space's program finds around it.
pub struct Surroundings {
    /// Where relative paths start, where processes run, and what a registration is relative to.
    pub directory: PathBuf,
    /// The environment it sees and its processes get, all of it.
    pub environment: BTreeMap<OsString, OsString>,
    pub agent: Arc<dyn SpaceAgent>,
    pub voice: Voice,
}

/// Where what a run prints and logs goes.
#[derive(Clone)]
pub enum Voice {
    /// Into the run's log, up to its bound.
    Kept,
    /// Straight out, line by line.
    Aloud(Arc<dyn Listener>),
}

/// Hears what a run says.
pub trait Listener: Send + Sync {
    /// A line of `print`.
    fn printed(&self, line: &[u8]);

    /// A line of `log`.
    fn logged(&self, line: &[u8]);
}

/// The agent of the space that a program runs in. The message of a failure is shown to the program.
pub trait SpaceAgent: Send + Sync {
    /// Raises an event, and tells of it: `{"event_id", "event_type"}`.
    fn emit(&self, kind: &str, payload: Box<RawValue>) -> Reply<Box<RawValue>>;

    /// The methods that the space's owner sees: `{"methods": […]}`.
    fn methods(&self) -> Reply<Box<RawValue>>;

    /// Sends a JSON-RPC request or a batch, and gives the answer if there is one.
    fn call(&self, request: Box<RawValue>) -> Reply<Option<Box<RawValue>>>;

    /// Registers methods in place of all that the space registered before. The server runs in `directory`.
    fn register(&self, directory: PathBuf, registration: Box<RawValue>) -> Reply<Box<RawValue>>;

    /// Removes the method of this local name, or all.
    fn unregister(&self, local_name: Option<&str>) -> Reply<Box<RawValue>>;

    /// What the space remembers.
    fn kv(&self) -> &dyn Memory;
}

/// What all programs of a space remember together, as [`Kv`] keeps it. Keys and values are short enough.
pub trait Memory: Send + Sync {
    /// What is under `key`.
    fn get(&self, key: &str) -> Reply<Option<Box<RawValue>>>;

    /// Puts `value` under `key`, for as long as `ttl` says or for good.
    fn set(&self, key: &str, value: Box<RawValue>, ttl: Option<Duration>) -> Reply<()>;

    /// The same, only if nothing is there: whether it did.
    fn add(&self, key: &str, value: Box<RawValue>, ttl: Option<Duration>) -> Reply<bool>;

    /// Adds to the integer under `key`: the sum.
    fn increment(&self, key: &str, by: i64, ttl: Option<Duration>) -> Reply<i64>;

    /// Removes `key`: whether it was there.
    fn delete(&self, key: &str) -> Reply<bool>;
}

/// The memory of a space, where it is kept: there is one owner only.
impl Memory for Kv {
    fn get(&self, key: &str) -> Reply<Option<Box<RawValue>>> {
        let value = Self::get(self, Owner::Global, key).map_err(|error| error.to_string());
        Box::pin(std::future::ready(value))
    }

    fn set(&self, key: &str, value: Box<RawValue>, ttl: Option<Duration>) -> Reply<()> {
        let (kv, key) = (self.clone(), key.to_owned());
        Box::pin(async move { kv.set(Owner::Global, &key, value, ttl).await.map_err(|error| error.to_string()) })
    }

    fn add(&self, key: &str, value: Box<RawValue>, ttl: Option<Duration>) -> Reply<bool> {
        let (kv, key) = (self.clone(), key.to_owned());
        Box::pin(async move { kv.add(Owner::Global, &key, value, ttl).await.map_err(|error| error.to_string()) })
    }

    fn increment(&self, key: &str, by: i64, ttl: Option<Duration>) -> Reply<i64> {
        let (kv, key) = (self.clone(), key.to_owned());
        Box::pin(async move { kv.increment(Owner::Global, &key, by, ttl).await.map_err(|error| error.to_string()) })
    }

    fn delete(&self, key: &str) -> Reply<bool> {
        let (kv, key) = (self.clone(), key.to_owned());
        Box::pin(async move { kv.delete(Owner::Global, &key).await.map_err(|error| error.to_string()) })
    }
}

/// What comes back from an agent.
pub type Reply<T> = BoxFuture<'static, Result<T, String>>;

/// Where a JSON-RPC method is handled: a function of a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handler {
    pub library: String,
    pub function: String,
}

/// How the run of a program went.
#[derive(Debug)]
pub struct Launched {
    pub result: Result<(), ScriptError>,
    /// What it printed and logged, if that is [`Voice::Kept`].
    pub log: Vec<String>,
    /// The processor time it took.
    pub cpu: Duration,
    /// What it gave to `runtime.jsonrpc.method`, by local name.
    pub handlers: BTreeMap<String, Handler>,
}
