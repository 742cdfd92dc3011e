//! `kv`: `get(key)`, `set(key, value, [ttl])`, `add(key, value, [ttl])`, `increment(key, [by], [ttl])`,
//! `delete(key)`. Values are the owner's, shared by all its scripts; a time to live is in seconds.

use super::{Boxed, Maker, Raise, raw, seconds};
use crate::{
    kv::{Kv, KvError},
    owner::Owner,
};
use mlua::{Table, Value};
use std::time::Duration;

pub(super) fn module(maker: &Maker<'_>, owner: Owner, kv: &Kv) -> mlua::Result<Table> {
    let module = maker.lua.create_table()?;
    let get = {
        let kv = kv.clone();
        maker.function("kv.get", move |lua, key: String| {
            let value = kv.get(owner, &key)?;
            Boxed::new(lua, value.as_ref().map(|value| value.get()))
        })?
    };
    module.raw_set("get", get)?;
    let set = {
        let kv = kv.clone();
        maker.waiting("kv.set", move |lua, (key, value, ttl): (String, Value, Option<f64>)| {
            let kv = kv.clone();
            async move { Ok(kv.set(owner, &key, given(&lua, &value)?, span(ttl)?).await?) }
        })?
    };
    module.raw_set("set", set)?;
    let add = {
        let kv = kv.clone();
        maker.waiting("kv.add", move |lua, (key, value, ttl): (String, Value, Option<f64>)| {
            let kv = kv.clone();
            async move { Ok(kv.add(owner, &key, given(&lua, &value)?, span(ttl)?).await?) }
        })?
    };
    module.raw_set("add", add)?;
    let increment = {
        let kv = kv.clone();
        maker.waiting("kv.increment", move |_, (key, by, ttl): (String, Option<i64>, Option<f64>)| {
            let kv = kv.clone();
            async move { Ok(kv.increment(owner, &key, by.unwrap_or(1), span(ttl)?).await?) }
        })?
    };
    module.raw_set("increment", increment)?;
    let delete = {
        let kv = kv.clone();
        maker.waiting("kv.delete", move |_, key: String| {
            let kv = kv.clone();
            async move { Ok(kv.delete(owner, &key).await?) }
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
fn given(lua: &mlua::Lua, value: &Value) -> Result<Box<serde_json::value::RawValue>, Raise> {
    if value.is_nil() {
        return Err(Raise::Message("the value is nil: use kv.delete".to_owned()));
    }
    raw(lua, value)
}

fn span(ttl: Option<f64>) -> Result<Option<Duration>, Raise> {
    ttl.map(|ttl| seconds(ttl, "the time to live")).transpose()
}
