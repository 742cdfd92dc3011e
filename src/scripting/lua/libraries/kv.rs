//! `kv`: `get(key)`, `set(key, value, [ttl])`, `add(key, value, [ttl])`, `increment(key, [by], [ttl])`,
//! `delete(key)`. Values are the owner's, shared by all its scripts; a time to live is in seconds. Those of a space are
//! with its agent, and shared by all its programs.

use super::{Boxed, Maker, Raise, raw, seconds, space::agent};
use crate::{
    model::owner::Owner,
    platform::kv::{Kv, KvError, check_key, check_value},
};
use mlua::{Table, Value};
use serde_json::value::RawValue;
use std::time::Duration;

/// Who keeps the values.
#[derive(Clone)]
pub(super) enum Keeper {
    /// The host of the script.
    Host(Owner, Kv),
    /// The agent that the present run finds around it.
    Agent,
}

pub(super) fn module(maker: &Maker<'_>, keeper: &Keeper) -> mlua::Result<Table> {
    let module = maker.lua.create_table()?;
    let get = match keeper.clone() {
        Keeper::Host(owner, kv) => maker.function("kv.get", move |lua, key: String| {
            let value = kv.get(owner, &key)?;
            Boxed::new(lua, value.as_ref().map(|value| value.get()))
        })?,
        Keeper::Agent => maker.waiting("kv.get", |lua, key: String| async move {
            check_key(&key)?;
            let value = agent(&lua)?.kv().get(&key).await?;
            Boxed::new(&lua, value.as_ref().map(|value| value.get()))
        })?,
    };
    module.raw_set("get", get)?;
    let set = {
        let keeper = keeper.clone();
        maker.waiting("kv.set", move |lua, (key, value, ttl): (String, Value, Option<f64>)| {
            let keeper = keeper.clone();
            async move {
                let (value, ttl) = (given(&lua, &value)?, span(ttl)?);
                match keeper {
                    Keeper::Host(owner, kv) => kv.set(owner, &key, value, ttl).await?,
                    Keeper::Agent => {
                        check(&key, &value)?;
                        agent(&lua)?.kv().set(&key, value, ttl).await?;
                    }
                }
                Ok(())
            }
        })?
    };
    module.raw_set("set", set)?;
    let add = {
        let keeper = keeper.clone();
        maker.waiting("kv.add", move |lua, (key, value, ttl): (String, Value, Option<f64>)| {
            let keeper = keeper.clone();
            async move {
                let (value, ttl) = (given(&lua, &value)?, span(ttl)?);
                Ok(match keeper {
                    Keeper::Host(owner, kv) => kv.add(owner, &key, value, ttl).await?,
                    Keeper::Agent => {
                        check(&key, &value)?;
                        agent(&lua)?.kv().add(&key, value, ttl).await?
                    }
                })
            }
        })?
    };
    module.raw_set("add", add)?;
    let increment = {
        let keeper = keeper.clone();
        maker.waiting("kv.increment", move |lua, (key, by, ttl): (String, Option<i64>, Option<f64>)| {
            let keeper = keeper.clone();
            async move {
                let (by, ttl) = (by.unwrap_or(1), span(ttl)?);
                Ok(match keeper {
                    Keeper::Host(owner, kv) => kv.increment(owner, &key, by, ttl).await?,
                    Keeper::Agent => {
                        check_key(&key)?;
                        agent(&lua)?.kv().increment(&key, by, ttl).await?
                    }
                })
            }
        })?
    };
    module.raw_set("increment", increment)?;
    let delete = {
        let keeper = keeper.clone();
        maker.waiting("kv.delete", move |lua, key: String| {
            let keeper = keeper.clone();
            async move {
                Ok(match keeper {
                    Keeper::Host(owner, kv) => kv.delete(owner, &key).await?,
                    Keeper::Agent => {
                        check_key(&key)?;
                        agent(&lua)?.kv().delete(&key).await?
                    }
                })
            }
        })?
    };
    module.raw_set("delete", delete)?;
    Ok(module)
}

impl From<KvError> for Raise {
    fn from(error: KvError) -> Self {
        Self::Message(error.to_string())
    }
}

/// The value to store. `nil` would read back as absent, so it is refused.
fn given(lua: &mlua::Lua, value: &Value) -> Result<Box<RawValue>, Raise> {
    if value.is_nil() {
        return Err(Raise::Message("the value is nil: use kv.delete".to_owned()));
    }
    raw(lua, value)
}

/// What is too long is not sent anywhere.
fn check(key: &str, value: &RawValue) -> Result<(), KvError> {
    check_value(value)?;
    check_key(key)
}

fn span(ttl: Option<f64>) -> Result<Option<Duration>, Raise> {
    ttl.map(|ttl| seconds(ttl, "the time to live")).transpose()
}
