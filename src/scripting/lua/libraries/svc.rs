//! `svc` on the server. A script gets `retry`, `skip` and `dead`, each of which makes its verdict, and `call(method,
//! params)`. A tool gets `call` and `event.emit(type, payload)`, both as the user who runs it.

use super::{arguments::seconds, boxed_json::BoxedJson, function_builder::FunctionBuilder, run_context::tool_context};
use crate::{
    model::owner::Owner,
    scripting::lua::{
        bounded_text::bounded,
        host::{MethodCaller, ToolContext},
        json::write_raw,
        verdict::{FirstVerdict, Verdict},
    },
};
use mlua::{Table, Value};
use serde_json::value::RawValue;
use std::sync::Arc;

/// `svc` of a script.
pub(super) fn for_scripts(
    builder: &FunctionBuilder<'_>,
    owner: Owner,
    caller: &Arc<dyn MethodCaller>,
) -> mlua::Result<Table> {
    let library = builder.lua.create_table()?;
    library.raw_set(
        "retry",
        builder.function("svc.retry", |lua, (after, why): (f64, Option<String>)| {
            let verdict = Verdict::Retry { after: seconds(after, "the wait")?, why: reason(why) };
            Ok(FirstVerdict::record(lua, "svc.retry", verdict)?)
        })?,
    )?;
    let skip = builder.function("svc.skip", |lua, why: Option<String>| {
        Ok(FirstVerdict::record(lua, "svc.skip", Verdict::Skip(reason(why)))?)
    })?;
    library.raw_set("skip", skip)?;
    let dead = builder.function("svc.dead", |lua, why: Option<String>| {
        Ok(FirstVerdict::record(lua, "svc.dead", Verdict::Dead(reason(why)))?)
    })?;
    library.raw_set("dead", dead)?;
    let caller = caller.clone();
    let call = builder.async_function("svc.call", move |lua, (method, params): (String, Value)| {
        let caller = caller.clone();
        async move {
            let result = caller.call(owner, &method, write_raw(&lua, &params)?).await?;
            Ok(BoxedJson::new(&lua, Some(result.get()))?)
        }
    })?;
    library.raw_set("call", call)?;
    Ok(library)
}

/// `svc` of a tool. The user that the tool acts as is known only to the run.
pub(super) fn for_tools(builder: &FunctionBuilder<'_>) -> mlua::Result<Table> {
    let library = builder.lua.create_table()?;
    let call = builder.async_function("svc.call", |lua, (method, params): (String, Value)| async move {
        let ToolContext { owner, caller, .. } = tool_context(&lua)?;
        let result = caller.call(owner, &method, write_raw(&lua, &params)?).await?;
        Ok(BoxedJson::new(&lua, Some(result.get()))?)
    })?;
    library.raw_set("call", call)?;
    let event = builder.lua.create_table()?;
    let emit =
        builder.async_function("svc.event.emit", |lua, (kind, payload): (String, Option<Table>)| async move {
            let ToolContext { owner, emitter, .. } = tool_context(&lua)?;
            let payload = match payload {
                Some(payload) => write_raw(&lua, &Value::Table(payload))?,
                None => RawValue::from_string("{}".to_owned()).expect("an empty object is JSON"),
            };
            let emitted = emitter.emit(owner, &kind, payload).await?;
            Ok(BoxedJson::new(&lua, Some(emitted.get()))?)
        })?;
    event.raw_set("emit", emit)?;
    library.raw_set("event", event)?;
    Ok(library)
}

/// The bounded reason of a verdict.
fn reason(why: Option<String>) -> String {
    why.map(|why| bounded(&why).to_owned()).unwrap_or_default()
}
