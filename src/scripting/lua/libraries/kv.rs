//! `kv`: `get(key)`, `set(key, value, [ttl])`, `add(key, value, [ttl])`, `increment(key, [by], [ttl])`, `delete(key)`.
//!
//! Values belong to the owner and are shared by all its scripts; those of a space are kept by its agent and shared by
//! all its programs. A time to live is in seconds.

use super::{
    arguments::seconds, boxed_json::BoxedJson, function_builder::FunctionBuilder, library_error::LibraryError,
    run_context::agent,
};
use crate::{
    platform::kv::{KvError, check_key, check_value},
    scripting::lua::{host::SpaceKv, json::write_raw},
};
use futures_util::FutureExt as _;
use mlua::{Table, Value};
use serde_json::value::RawValue;
use std::{sync::Arc, time::Duration};

/// The store of the values.
#[derive(Clone)]
pub(super) enum KvBackend {
    /// The store of the runtime.
    Host(Arc<dyn SpaceKv>),
    /// The agent of the present run's space.
    Agent,
}

pub(super) fn library(builder: &FunctionBuilder<'_>, backend: &KvBackend) -> mlua::Result<Table> {
    let library = builder.lua.create_table()?;
    let get = match backend.clone() {
        KvBackend::Host(kv) => builder.function("kv.get", move |lua, key: String| {
            let value = kv.get(&key).now_or_never().expect("the `get` of a runtime's store never waits")?;
            Ok(BoxedJson::new(lua, value.as_ref().map(|value| value.get()))?)
        })?,
        KvBackend::Agent => builder.async_function("kv.get", |lua, key: String| async move {
            check_key(&key)?;
            let value = agent(&lua)?.kv().get(&key).await?;
            Ok(BoxedJson::new(&lua, value.as_ref().map(|value| value.get()))?)
        })?,
    };
    library.raw_set("get", get)?;
    let set = {
        let backend = backend.clone();
        builder.async_function("kv.set", move |lua, (key, value, ttl): (String, Value, Option<f64>)| {
            let backend = backend.clone();
            async move {
                let (value, ttl) = (stored_value(&lua, &value)?, time_to_live(ttl)?);
                match backend {
                    KvBackend::Host(kv) => kv.set(&key, value, ttl).await?,
                    KvBackend::Agent => {
                        check_sizes(&key, &value)?;
                        agent(&lua)?.kv().set(&key, value, ttl).await?;
                    }
                }
                Ok(())
            }
        })?
    };
    library.raw_set("set", set)?;
    let add = {
        let backend = backend.clone();
        builder.async_function("kv.add", move |lua, (key, value, ttl): (String, Value, Option<f64>)| {
            let backend = backend.clone();
            async move {
                let (value, ttl) = (stored_value(&lua, &value)?, time_to_live(ttl)?);
                Ok(match backend {
                    KvBackend::Host(kv) => kv.add(&key, value, ttl).await?,
                    KvBackend::Agent => {
                        check_sizes(&key, &value)?;
                        agent(&lua)?.kv().add(&key, value, ttl).await?
                    }
                })
            }
        })?
    };
    library.raw_set("add", add)?;
    let increment = {
        let backend = backend.clone();
        builder.async_function("kv.increment", move |lua, (key, by, ttl): (String, Option<i64>, Option<f64>)| {
            let backend = backend.clone();
            async move {
                let (by, ttl) = (by.unwrap_or(1), time_to_live(ttl)?);
                Ok(match backend {
                    KvBackend::Host(kv) => kv.increment(&key, by, ttl).await?,
                    KvBackend::Agent => {
                        check_key(&key)?;
                        agent(&lua)?.kv().increment(&key, by, ttl).await?
                    }
                })
            }
        })?
    };
    library.raw_set("increment", increment)?;
    let delete = {
        let backend = backend.clone();
        builder.async_function("kv.delete", move |lua, key: String| {
            let backend = backend.clone();
            async move {
                Ok(match backend {
                    KvBackend::Host(kv) => kv.delete(&key).await?,
                    KvBackend::Agent => {
                        check_key(&key)?;
                        agent(&lua)?.kv().delete(&key).await?
                    }
                })
            }
        })?
    };
    library.raw_set("delete", delete)?;
    Ok(library)
}

impl From<KvError> for LibraryError {
    fn from(error: KvError) -> Self {
        Self::Message(error.to_string())
    }
}

/// The value to store, as JSON. `nil` would read back as absent, so it is refused.
fn stored_value(lua: &mlua::Lua, value: &Value) -> Result<Box<RawValue>, LibraryError> {
    if value.is_nil() {
        return Err(LibraryError::Message("the value is nil: use kv.delete".to_owned()));
    }
    Ok(write_raw(lua, value)?)
}

/// Checks the sizes before anything is sent to the agent.
fn check_sizes(key: &str, value: &RawValue) -> Result<(), KvError> {
    check_value(value)?;
    check_key(key)
}

fn time_to_live(ttl: Option<f64>) -> Result<Option<Duration>, LibraryError> {
    ttl.map(|ttl| seconds(ttl, "the time to live")).transpose()
}
