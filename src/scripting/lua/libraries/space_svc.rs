//! `svc` in programs of a space, which goes through the space's agent: `svc.client`, `svc.event.emit` and `svc.agent`.
//! Also the function behind `runtime.jsonrpc.method`, by which a set-up script registers handlers.

use super::{
    boxed_json::BoxedJson,
    function_builder::FunctionBuilder,
    library_error::LibraryError,
    run_context::{agent, program_context},
};
use crate::{
    model::jsonrpc::{Id, Request, ResponseMembers},
    scripting::lua::{json::write_raw, program::Capabilities, results::MethodHandler},
};
use mlua::{Lua, Table, Value};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The handlers that a set-up script has registered so far. The value exists only during such a run.
#[derive(Default)]
pub(in crate::scripting::lua) struct RegisteredHandlers(pub BTreeMap<String, MethodHandler>);

/// `svc`: `client`, `event`, `call` (an alias of `client.call`) and `agent`, on which `svc.methods` is built.
///
/// Registering methods makes the agent run a process, so a sandboxed program has no `agent`.
pub(super) fn svc(builder: &FunctionBuilder<'_>, capabilities: Capabilities) -> mlua::Result<Table> {
    let library = builder.lua.create_table()?;
    let client = client(builder)?;
    library.raw_set("call", client.raw_get::<Value>("call")?)?;
    library.raw_set("client", client)?;
    let event = builder.lua.create_table()?;
    let emit =
        builder.async_function("svc.event.emit", |lua, (kind, payload): (String, Option<Table>)| async move {
            let payload = params(&lua, payload)?;
            let emitted = agent(&lua)?.emit(&kind, payload).await?;
            Ok(BoxedJson::new(&lua, Some(emitted.get()))?)
        })?;
    event.raw_set("emit", emit)?;
    library.raw_set("event", event)?;
    if capabilities == Capabilities::Full {
        library.raw_set("agent", registrar(builder)?)?;
    }
    Ok(library)
}

/// `svc.agent`: `register(registration)`, `unregister(local_name)`.
fn registrar(builder: &FunctionBuilder<'_>) -> mlua::Result<Table> {
    let registrar = builder.lua.create_table()?;
    let register = builder.async_function("register", |lua, registration: Table| async move {
        let registration = write_raw(&lua, &Value::Table(registration))?;
        let directory = program_context(&lua)?.directory.clone();
        let registered = agent(&lua)?.register(directory, registration).await?;
        Ok(BoxedJson::new(&lua, Some(registered.get()))?)
    })?;
    registrar.raw_set("register", register)?;
    let unregister = builder.async_function("unregister", |lua, local_name: Option<String>| async move {
        let removed = agent(&lua)?.unregister(local_name.as_deref()).await?;
        Ok(BoxedJson::new(&lua, Some(removed.get()))?)
    })?;
    registrar.raw_set("unregister", unregister)?;
    Ok(registrar)
}

/// `svc.client`: `list()`, `call(name, params)`, `notify(name, params)`, `batch({ { name, params }, … })`.
fn client(builder: &FunctionBuilder<'_>) -> mlua::Result<Table> {
    let library = builder.lua.create_table()?;
    let list = builder.async_function("svc.client.list", |lua, ()| async move {
        let listed = agent(&lua)?.methods().await?;
        #[derive(serde::Deserialize)]
        struct Listed<'a> {
            #[serde(borrow)]
            methods: &'a RawValue,
        }
        let listed: Listed<'_> = parse(listed.get())?;
        Ok(BoxedJson::new(&lua, Some(listed.methods.get()))?)
    })?;
    library.raw_set("list", list)?;
    let call = builder.async_function("svc.client.call", |lua, (name, given): (String, Option<Table>)| async move {
        let request = request(name, params(&lua, given)?, Some(1));
        let answer = agent(&lua)?.call(to_json(&request)).await?;
        let answer = answer.ok_or_else(|| LibraryError::Message("there was no answer".to_owned()))?;
        let answer: ResponseMembers<'_> = parse(answer.get())?;
        match (answer.result, answer.error) {
            (Some(result), _) => Ok(BoxedJson::new(&lua, Some(result.get()))?),
            (None, Some(error)) => Err(LibraryError::Table(BoxedJson::new(&lua, Some(error.get()))?)),
            (None, None) => Err(LibraryError::Message("the answer has neither result nor error".to_owned())),
        }
    })?;
    library.raw_set("call", call)?;
    let notify =
        builder.async_function("svc.client.notify", |lua, (name, given): (String, Option<Table>)| async move {
            let request = request(name, params(&lua, given)?, None);
            agent(&lua)?.call(to_json(&request)).await?;
            Ok(())
        })?;
    library.raw_set("notify", notify)?;
    let batch = builder.async_function("svc.client.batch", |lua, calls: Table| async move {
        let mut requests = Vec::new();
        for (index, call) in calls.sequence_values::<Table>().enumerate() {
            let call = call?;
            let (name, given) = (call.raw_get::<String>(1)?, call.raw_get::<Option<Table>>(2)?);
            requests.push(request(name, params(&lua, given)?, Some(index + 1)));
        }
        if requests.is_empty() {
            return Ok(BoxedJson::new(&lua, Some("[]"))?);
        }
        let answers = agent(&lua)?.call(to_json(&requests)).await?;
        let answers = answers.ok_or_else(|| LibraryError::Message("there was no answer".to_owned()))?;
        if answers.get().starts_with('{') {
            // One response is the refusal of the whole batch.
            let refusal: ResponseMembers<'_> = parse(answers.get())?;
            let no_error = || LibraryError::Message("the answer is no list of responses".to_owned());
            let error = refusal.error.ok_or_else(no_error)?;
            return Err(LibraryError::Table(BoxedJson::new(&lua, Some(error.get()))?));
        }
        Ok(BoxedJson::new(&lua, Some(answers.get()))?)
    })?;
    library.raw_set("batch", batch)?;
    Ok(library)
}

fn request(method: String, params: Box<RawValue>, id: Option<usize>) -> Request {
    Request { method, params: Some(params), id: id.map(Id::number) }
}

fn to_json(request: &impl serde::Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(request).expect("a request is JSON")
}

fn parse<'a, T: serde::Deserialize<'a>>(json: &'a str) -> Result<T, LibraryError> {
    serde_json::from_str(json)
        .map_err(|error| LibraryError::Message(format!("the agent's answer makes no sense: {error}")))
}

fn params(lua: &Lua, params: Option<Table>) -> Result<Box<RawValue>, LibraryError> {
    match params {
        Some(params) => Ok(write_raw(lua, &Value::Table(params))?),
        None => Ok(RawValue::from_string("{}".to_owned()).expect("an empty object is JSON")),
    }
}

/// The function behind `runtime.jsonrpc.method`, which has checked that the handler exists. It returns whether the
/// handler is the first of its name, or nothing outside of a set-up script.
pub(super) fn register_handler(builder: &FunctionBuilder<'_>) -> mlua::Result<mlua::Function> {
    builder.lua.create_function(|lua, (name, library, function): (String, String, String)| {
        match lua.app_data_mut::<RegisteredHandlers>() {
            Some(mut handlers) => Ok(Some(handlers.0.insert(name, MethodHandler { library, function }).is_none())),
            None => Ok(None),
        }
    })
}
