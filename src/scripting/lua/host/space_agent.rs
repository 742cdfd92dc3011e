//! The agent of a space, as the space's programs reach it.

use crate::{model::owner::Owner, platform::kv::Kv};
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use std::{path::PathBuf, time::Duration};

/// The agent of the space that a program runs in.
pub trait SpaceAgent: Send + Sync {
    /// Emits an event and returns its description: `{"event_id", "event_type"}`.
    fn emit(&self, kind: &str, payload: Box<RawValue>) -> AgentReply<Box<RawValue>>;

    /// The methods that the space's owner sees: `{"methods": […]}`.
    fn methods(&self) -> AgentReply<Box<RawValue>>;

    /// Sends a JSON-RPC request or a batch and returns the response, if there is one.
    fn call(&self, request: Box<RawValue>) -> AgentReply<Option<Box<RawValue>>>;

    /// Registers methods in place of all that the space registered before. The method server runs in `directory`.
    fn register(&self, directory: PathBuf, registration: Box<RawValue>) -> AgentReply<Box<RawValue>>;

    /// Removes the method of this local name, or all.
    fn unregister(&self, local_name: Option<&str>) -> AgentReply<Box<RawValue>>;

    /// The space's key-value store.
    fn kv(&self) -> &dyn SpaceKv;
}

/// The key-value store that all programs of a space share, with the rules of [`Kv`]. The caller has checked the sizes
/// of keys and values.
pub trait SpaceKv: Send + Sync {
    fn get(&self, key: &str) -> AgentReply<Option<Box<RawValue>>>;

    /// Stores `value` under `key` for the time `ttl`, or for good.
    fn set(&self, key: &str, value: Box<RawValue>, ttl: Option<Duration>) -> AgentReply<()>;

    /// Stores `value` only if the key is free, and returns whether it did.
    fn add(&self, key: &str, value: Box<RawValue>, ttl: Option<Duration>) -> AgentReply<bool>;

    /// Adds to the integer under `key` and returns the sum.
    fn increment(&self, key: &str, by: i64, ttl: Option<Duration>) -> AgentReply<i64>;

    /// Removes `key` and returns whether it was there.
    fn delete(&self, key: &str) -> AgentReply<bool>;
}

/// The reply of an agent, or the message of its failure.
pub type AgentReply<T> = BoxFuture<'static, Result<T, String>>;

/// The agent's own store, in which there is one owner only.
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
