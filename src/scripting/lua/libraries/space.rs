//! What only programs of a space have: `svc` through the space's agent (`svc.client`, `svc.event.emit`, `svc.agent`),
//! `os.getenv`, `time.sleep`, and `runtime.jsonrpc.method`, by which a set-up script says who handles what.

use super::{Boxed, Maker, Raise, raw, seconds};
use crate::scripting::lua::space_program::{Capabilities, MethodHandler, ProgramContext, SpaceAgent};
use mlua::{Lua, LuaString, Table, Value};
use serde_json::value::RawValue;
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    sync::Arc,
};

/// The handlers that a set-up script has named so far. It is there during such a run only.
#[derive(Default)]
pub(in crate::scripting::lua) struct Handlers(pub BTreeMap<String, MethodHandler>);

/// What is around the present run.
pub(super) fn surroundings(lua: &Lua) -> Result<Arc<ProgramContext>, Raise> {
    let surroundings = lua.app_data_ref::<Arc<ProgramContext>>().map(|around| around.clone());
    surroundings.ok_or_else(|| Raise::Message("this is no program of a space".to_owned()))
}

/// The agent of the space that the present run is in.
pub(super) fn agent(lua: &Lua) -> Result<Arc<dyn SpaceAgent>, Raise> {
    Ok(surroundings(lua)?.agent.clone())
}

/// `svc`: `call` is `svc.client.call`, `svc.event` and `svc.client` what their names say, and `svc.agent` what
/// `svc.methods` stands on. Who registers methods says what the agent is to run, so that a confined program does not have
/// the last.
pub(super) fn svc(maker: &Maker<'_>, reach: Capabilities) -> mlua::Result<Table> {
    let module = maker.lua.create_table()?;
    let client = client(maker)?;
    module.raw_set("call", client.raw_get::<Value>("call")?)?;
    module.raw_set("client", client)?;
    let event = maker.lua.create_table()?;
    let emit = maker.waiting("svc.event.emit", |lua, (kind, payload): (String, Option<Table>)| async move {
        let payload = params(&lua, payload)?;
        let emitted = agent(&lua)?.emit(&kind, payload).await?;
        Boxed::new(&lua, Some(emitted.get()))
    })?;
    event.raw_set("emit", emit)?;
    module.raw_set("event", event)?;
    if reach == Capabilities::Full {
        module.raw_set("agent", registrar(maker)?)?;
    }
    Ok(module)
}

/// `svc.agent`: `register(registration)`, `unregister(local_name)`.
fn registrar(maker: &Maker<'_>) -> mlua::Result<Table> {
    let registrar = maker.lua.create_table()?;
    let register = maker.waiting("register", |lua, registration: Table| async move {
        let registration = raw(&lua, &Value::Table(registration))?;
        let directory = surroundings(&lua)?.directory.clone();
        let registered = agent(&lua)?.register(directory, registration).await?;
        Boxed::new(&lua, Some(registered.get()))
    })?;
    registrar.raw_set("register", register)?;
    let unregister = maker.waiting("unregister", |lua, local_name: Option<String>| async move {
        let removed = agent(&lua)?.unregister(local_name.as_deref()).await?;
        Boxed::new(&lua, Some(removed.get()))
    })?;
    registrar.raw_set("unregister", unregister)?;
    Ok(registrar)
}

/// `svc.client`: `list()`, `call(name, params)`, `notify(name, params)`, `batch({ { name, params }, … })`.
fn client(maker: &Maker<'_>) -> mlua::Result<Table> {
    let module = maker.lua.create_table()?;
    let list = maker.waiting("svc.client.list", |lua, ()| async move {
        let listed = agent(&lua)?.methods().await?;
        #[derive(serde::Deserialize)]
        struct Listed<'a> {
            #[serde(borrow)]
            methods: &'a RawValue,
        }
        let listed: Listed<'_> = understood(listed.get())?;
        Boxed::new(&lua, Some(listed.methods.get()))
    })?;
    module.raw_set("list", list)?;
    let call = maker.waiting("svc.client.call", |lua, (name, given): (String, Option<Table>)| async move {
        let request = request(name, params(&lua, given)?, Some(1));
        let answer = agent(&lua)?.call(sent(&request)).await?;
        let answer = answer.ok_or_else(|| Raise::Message("there was no answer".to_owned()))?;
        let answer: Answer<'_> = understood(answer.get())?;
        match (answer.result, answer.error) {
            (Some(result), _) => Boxed::new(&lua, Some(result.get())),
            (None, Some(error)) => Err(Raise::Table(Boxed::new(&lua, Some(error.get()))?)),
            (None, None) => Err(Raise::Message("the answer has neither result nor error".to_owned())),
        }
    })?;
    module.raw_set("call", call)?;
    let notify = maker.waiting("svc.client.notify", |lua, (name, given): (String, Option<Table>)| async move {
        let request = request(name, params(&lua, given)?, None);
        agent(&lua)?.call(sent(&request)).await?;
        Ok(())
    })?;
    module.raw_set("notify", notify)?;
    let batch = maker.waiting("svc.client.batch", |lua, calls: Table| async move {
        let mut requests = Vec::new();
        for (index, call) in calls.sequence_values::<Table>().enumerate() {
            let call = call?;
            let (name, given) = (call.raw_get::<String>(1)?, call.raw_get::<Option<Table>>(2)?);
            requests.push(request(name, params(&lua, given)?, Some(index + 1)));
        }
        if requests.is_empty() {
            return Boxed::new(&lua, Some("[]"));
        }
        let answers = agent(&lua)?.call(sent(&requests)).await?;
        let answers = answers.ok_or_else(|| Raise::Message("there was no answer".to_owned()))?;
        Boxed::new(&lua, Some(answers.get()))
    })?;
    module.raw_set("batch", batch)?;
    Ok(module)
}

#[derive(serde::Serialize)]
struct Request {
    jsonrpc: &'static str,
    method: String,
    params: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<usize>,
}

#[derive(serde::Deserialize)]
struct Answer<'a> {
    #[serde(borrow, default, deserialize_with = "crate::model::jsonrpc::present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "crate::model::jsonrpc::present")]
    error: Option<&'a RawValue>,
}

fn request(method: String, params: Box<RawValue>, id: Option<usize>) -> Request {
    Request { jsonrpc: "2.0", method, params, id }
}

fn sent(request: &impl serde::Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(request).expect("a request is JSON")
}

fn understood<'a, T: serde::Deserialize<'a>>(json: &'a str) -> Result<T, Raise> {
    serde_json::from_str(json).map_err(|error| Raise::Message(format!("the agent's answer makes no sense: {error}")))
}

fn params(lua: &Lua, params: Option<Table>) -> Result<Box<RawValue>, Raise> {
    match params {
        Some(params) => raw(lua, &Value::Table(params)),
        None => Ok(RawValue::from_string("{}".to_owned()).expect("an empty object is JSON")),
    }
}

/// `os.getenv(name)`.
pub(super) fn os(maker: &Maker<'_>) -> mlua::Result<Table> {
    let module = maker.lua.create_table()?;
    let getenv = maker.function("os.getenv", |lua, name: LuaString| {
        let around = surroundings(lua)?;
        let value = around.environment.get(OsStr::from_bytes(&name.as_bytes()));
        Ok(value.map(|value| lua.create_string(value.clone().into_vec())).transpose()?)
    })?;
    module.raw_set("getenv", getenv)?;
    Ok(module)
}

/// `time.sleep(seconds)`.
pub(super) fn sleep(maker: &Maker<'_>) -> mlua::Result<mlua::Function> {
    maker.waiting("time.sleep", |_, span: f64| async move {
        tokio::time::sleep(seconds(span, "the time")?).await;
        Ok(())
    })
}

/// The function behind `runtime.jsonrpc.method`, which has looked whether the handler is there: whether it is the
/// first of its name, or nothing if nobody asks for handlers.
pub(super) fn note(maker: &Maker<'_>) -> mlua::Result<mlua::Function> {
    maker.lua.create_function(|lua, (name, library, function): (String, String, String)| {
        match lua.app_data_mut::<Handlers>() {
            Some(mut handlers) => Ok(Some(handlers.0.insert(name, MethodHandler { library, function }).is_none())),
            None => Ok(None),
        }
    })
}
