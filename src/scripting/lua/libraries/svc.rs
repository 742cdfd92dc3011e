//! `svc`: what a script decides (`retry`, `skip`, `dead`, each to be returned) and `call(method, params)`; for a tool,
//! which decides nothing, `call` and `event.emit(type, payload)`, both as whoever runs it.

use super::{Boxed, Maker, Raise, raw, seconds};
use crate::{
    model::owner::Owner,
    scripting::lua::{Verdict, bounded_text::bounded},
};
use futures_util::future::BoxFuture;
use mlua::{Lua, Table, Value};
use serde_json::value::RawValue;
use std::sync::Arc;

/// Calls methods on a script's behalf.
pub trait MethodCaller: Send + Sync {
    /// Calls a method as this owner would. The message of a failure is shown to the script.
    fn call(
        &self,
        owner: Owner,
        method: &str,
        params: Box<RawValue>,
    ) -> BoxFuture<'static, Result<Box<RawValue>, String>>;
}

/// Raises events on a script's behalf.
pub trait EventEmitter: Send + Sync {
    /// Raises an event as this owner would, and tells of it as JSON (`event_id` and what else there is to say). The
    /// message of a failure is shown to the script.
    fn emit(
        &self,
        owner: Owner,
        kind: &str,
        payload: Box<RawValue>,
    ) -> BoxFuture<'static, Result<Box<RawValue>, String>>;
}

/// As whom a run acts, and through what.
#[derive(Clone)]
pub struct ToolContext {
    pub owner: Owner,
    pub caller: Arc<dyn MethodCaller>,
    pub emitter: Arc<dyn EventEmitter>,
}

pub(super) fn module(maker: &Maker<'_>, owner: Owner, caller: &Arc<dyn MethodCaller>) -> mlua::Result<Table> {
    let module = maker.lua.create_table()?;
    module.raw_set(
        "retry",
        maker.function("svc.retry", |_, (after, why): (f64, Option<String>)| {
            Ok(Verdict::Retry { after: seconds(after, "the wait")?, why: reason(why) })
        })?,
    )?;
    module.raw_set("skip", maker.function("svc.skip", |_, why: Option<String>| Ok(Verdict::Skip(reason(why))))?)?;
    module.raw_set("dead", maker.function("svc.dead", |_, why: Option<String>| Ok(Verdict::Dead(reason(why))))?)?;
    let caller = caller.clone();
    let call = maker.waiting("svc.call", move |lua, (method, params): (String, Value)| {
        let caller = caller.clone();
        async move {
            let result = caller.call(owner, &method, raw(&lua, &params)?).await?;
            Boxed::new(&lua, Some(result.get()))
        }
    })?;
    module.raw_set("call", call)?;
    Ok(module)
}

/// What a run has that acts as someone, whom only the run knows.
pub(super) fn acting(maker: &Maker<'_>) -> mlua::Result<Table> {
    let module = maker.lua.create_table()?;
    let call = maker.waiting("svc.call", |lua, (method, params): (String, Value)| async move {
        let ToolContext { owner, caller, .. } = present(&lua)?;
        let result = caller.call(owner, &method, raw(&lua, &params)?).await?;
        Boxed::new(&lua, Some(result.get()))
    })?;
    module.raw_set("call", call)?;
    let event = maker.lua.create_table()?;
    let emit = maker.waiting("svc.event.emit", |lua, (kind, payload): (String, Option<Table>)| async move {
        let ToolContext { owner, emitter, .. } = present(&lua)?;
        let payload = match payload {
            Some(payload) => raw(&lua, &Value::Table(payload))?,
            None => RawValue::from_string("{}".to_owned()).expect("an empty object is JSON"),
        };
        let emitted = emitter.emit(owner, &kind, payload).await?;
        Boxed::new(&lua, Some(emitted.get()))
    })?;
    event.raw_set("emit", emit)?;
    event.set_readonly(true);
    module.raw_set("event", event)?;
    Ok(module)
}

/// As whom the present run acts.
fn present(lua: &Lua) -> Result<ToolContext, Raise> {
    let acting = lua.app_data_ref::<ToolContext>().map(|acting| acting.clone());
    acting.ok_or_else(|| Raise::Message("nobody is there to act as".to_owned()))
}

/// Why a script decided as it did.
fn reason(why: Option<String>) -> String {
    why.map(|why| bounded(&why).to_owned()).unwrap_or_default()
}
