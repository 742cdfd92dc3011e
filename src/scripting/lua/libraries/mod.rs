//! What Lua can ask of us, one file a library.
//!
//! A library is a read-only table, there as a global and through `require`. Templates get the pure ones;
//! scripts also those that reach out. A function that fails raises a plain string on the script's own
//! line, never one of our values.

mod crypto;
mod fs;
pub mod http;
mod json;
mod kv;
pub mod log;
pub mod modules;
mod process;
mod re;
pub mod space;
pub mod svc;
#[cfg(test)]
mod tests;
mod time;

use super::{
    location,
    program::{Kind, Program},
    space_program::Capabilities,
};
use crate::{model::owner::Owner, platform::kv::Kv};
use http::HttpClient;
use mlua::{
    FromLuaMulti, Function, IntoLuaMulti, Lua, MultiValue, Table, Value,
    chunk::{ChunkMode, Compiler},
};
use modules::ModuleSource;
use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};
use svc::MethodCaller;

/// What scripts reach the world through.
#[derive(Clone)]
pub struct HostServices {
    pub http: Arc<dyn HttpClient>,
    /// What scripts remember things in, if there is something. Programs of a space ask its agent instead.
    pub kv: Option<Kv>,
    pub caller: Arc<dyn MethodCaller>,
    /// What `require` finds besides what comes with us.
    pub modules: Arc<dyn ModuleSource>,
}

static PRELUDE: LazyLock<Vec<u8>> = LazyLock::new(|| compiled(include_str!("../../../../lua/prelude.lua")));
static RUNTIME: LazyLock<Vec<u8>> = LazyLock::new(|| compiled(include_str!("../../../../lua/runtime.lua")));
static EVENT: LazyLock<Vec<u8>> = LazyLock::new(|| compiled(include_str!("../../../../lua/svc/event.lua")));

/// Where a state keeps the environment of the present run.
pub(super) const SCOPE: &str = "scope";

/// Where a state keeps what the present run has required.
pub(super) const LOADED: &str = "loaded";

/// Where a state keeps the function that calls another and tells a structured error from a result.
pub(super) const ATTEMPT: &str = "attempt";

/// Where a state keeps the function that calls another and notes where memory runs out.
pub(super) const TRACED: &str = "traced";

/// Where a state keeps `require`, and the function that has a library's function handle something.
pub(super) const REQUIRE: &str = "require";
pub(super) const HANDLE: &str = "handle";

/// How the interpreter says that memory ran out, to a `pcall` too.
pub(super) const NO_MEMORY: &str = "not enough memory";

/// The largest product of the lengths of a text and a pattern: some tens of milliseconds of work.
const SEARCH_WORK: usize = 64 << 20;

/// The most elements `table.move` moves.
const MOVE: usize = 1_000_000;

/// The most text among the arguments of a built-in function that reads numbers from it: some tens of milliseconds.
const ARGUMENTS: usize = 16 << 20;

/// The longest text a library function takes, unless it says otherwise.
const MAX_TEXT: usize = 4 << 20;

/// The longest time span, about a century: it can be added to any moment without passing the end of time.
const MAX_SPAN: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

/// Puts every library that this program gets into the globals of `lua`. Each module it requires gets an environment
/// with the metatable `environment`.
pub(super) fn install(
    lua: &Lua,
    program: &Program,
    owner: Owner,
    libraries: &HostServices,
    environment: &Table,
) -> mlua::Result<()> {
    let kind = program.0.kind;
    let native = lua.create_table()?;
    let chunks = lua.create_table()?;
    chunks.raw_set(program.0.name.as_str(), true)?;
    let modules = lua.create_table()?;
    native.raw_set("work", SEARCH_WORK)?;
    native.raw_set("move", MOVE)?;
    native.raw_set("text", ARGUMENTS)?;
    native.raw_set("kind", kind.name())?;
    native.raw_set("no_memory", NO_MEMORY)?;
    native.raw_set("modules", &modules)?;
    native.raw_set("log", log::function(lua)?)?;
    native.raw_set("scope", lua.create_function(|lua, ()| lua.named_registry_value::<Table>(SCOPE))?)?;
    native.raw_set("loaded", lua.create_function(loaded)?)?;
    let note = |lua: &Lua, (): ()| {
        location::note(lua);
        Ok(())
    };
    native.raw_set("place", lua.create_function(note)?)?;
    native.raw_set("here", lua.create_function(|lua, ()| Ok(location::here(lua)))?)?;
    native.raw_set("find", modules::finder(lua, owner, libraries.modules.clone(), environment, &chunks)?)?;
    native.raw_set("chunks", chunks)?;
    if is_about_an_event(kind) {
        native.raw_set("event", ours(lua, "svc/event", &EVENT)?.call::<Function>(())?)?;
    }
    ours(lua, "prelude", &PRELUDE)?.call::<()>(&native)?;
    lua.set_named_registry_value(ATTEMPT, native.raw_get::<Function>("attempt")?)?;
    lua.set_named_registry_value(TRACED, native.raw_get::<Function>("traced")?)?;
    lua.set_named_registry_value(REQUIRE, lua.globals().raw_get::<Function>("require")?)?;

    let maker = Maker { lua, raising: native.raw_get("raising")? };
    let globals = lua.globals();
    modules.raw_set("log", globals.raw_get::<Table>("log")?)?;
    modules.raw_set("json", json::module(&maker)?)?;
    modules.raw_set("time", time::module(&maker)?)?;
    modules.raw_set("crypto", crypto::module(&maker)?)?;
    modules.raw_set("re", re::module(&maker)?)?;
    if reaches_out(kind) {
        modules.raw_set("http", http::module(&maker, owner, &libraries.http)?)?;
        let memory = match kind {
            Kind::Space(_) => Some(kv::Keeper::Agent),
            _ => libraries.kv.clone().map(|kv| kv::Keeper::Host(owner, kv)),
        };
        if let Some(memory) = memory {
            modules.raw_set("kv", kv::module(&maker, &memory)?)?;
        }
    }
    match kind {
        Kind::Script => modules.raw_set("svc", svc::module(&maker, owner, &libraries.caller)?)?,
        Kind::Tool => modules.raw_set("svc", svc::acting(&maker)?)?,
        Kind::Space(reach) => {
            modules.raw_set("svc", space::svc(&maker, reach)?)?;
            modules.raw_get::<Table>("time")?.raw_set("sleep", space::sleep(&maker)?)?;
            native.raw_set("note", space::note(&maker)?)?;
            modules.raw_set("runtime", ours(lua, "runtime", &RUNTIME)?.call::<Table>(&native)?)?;
            lua.set_named_registry_value(HANDLE, native.raw_get::<Function>("handle")?)?;
            if reach == Capabilities::Full {
                modules.raw_set("fs", fs::module(&maker)?)?;
                modules.raw_set("process", process::module(&maker)?)?;
                modules.raw_set("os", space::os(&maker)?)?;
            }
        }
        Kind::Template | Kind::Library => {}
    }
    for module in modules.pairs::<String, Table>() {
        let (name, module) = module?;
        module.set_readonly(true);
        globals.raw_set(name, module)?;
    }
    // What is within `svc` can be required by itself too.
    if let Some(svc) = modules.raw_get::<Option<Table>>("svc")? {
        for name in ["agent", "client", "event"] {
            if let Some(inner) = svc.raw_get::<Option<Table>>(name)? {
                inner.set_readonly(true);
                modules.raw_set(format!("svc.{name}"), inner)?;
            }
        }
    }
    modules.set_readonly(true);
    native.set_readonly(true);
    Ok(())
}

/// Whether programs of this kind may do more than compute.
const fn reaches_out(kind: Kind) -> bool {
    matches!(kind, Kind::Script | Kind::Tool | Kind::Space(_))
}

/// Whether programs of this kind run for an event, which `svc.event` then tells of.
const fn is_about_an_event(kind: Kind) -> bool {
    matches!(kind, Kind::Template | Kind::Script)
}

/// What the present run has required so far: under its name each module that is loaded, in a box, and as a list
/// those that are being loaded, innermost last.
fn loaded(lua: &Lua, (): ()) -> mlua::Result<Table> {
    if let Some(loaded) = lua.named_registry_value(LOADED)? {
        return Ok(loaded);
    }
    let loaded = lua.create_table()?;
    lua.set_named_registry_value(LOADED, &loaded)?;
    Ok(loaded)
}

/// One of the Lua files that come with us, compiled once for all states.
fn ours(lua: &Lua, name: &str, bytecode: &[u8]) -> mlua::Result<Function> {
    lua.load(bytecode).set_name(format!("={name}")).set_mode(ChunkMode::Binary).into_function()
}

/// Without line numbers, so that none of ours is in a script's errors.
fn compiled(source: &str) -> Vec<u8> {
    Compiler::new().set_debug_level(0).compile(source).expect("the Lua that comes with us compiles")
}

/// Makes functions that raise strings.
pub(super) struct Maker<'a> {
    pub lua: &'a Lua,
    /// Turns `(worked, result or message, whether it is boxed, who raised it)` into a result or an error.
    raising: Function,
}

impl Maker<'_> {
    /// A function known to its users by `name`, which stands before its error messages.
    pub fn function<A: FromLuaMulti, R: IntoLuaMulti>(
        &self,
        name: &'static str,
        call: impl Fn(&Lua, A) -> Result<R, Raise> + Send + 'static,
    ) -> mlua::Result<Function> {
        let call = self.lua.create_function(move |lua, arguments: MultiValue| {
            let result = A::from_lua_multi(arguments, lua).map_err(Raise::from).and_then(|a| call(lua, a));
            settle(lua, name, None, result)
        })?;
        self.raising.call(call)
    }

    /// A function that may wait; the thread is free meanwhile.
    pub fn waiting<A, R, F>(
        &self,
        name: &'static str,
        call: impl Fn(Lua, A) -> F + Clone + Send + Sync + 'static,
    ) -> mlua::Result<Function>
    where
        A: FromLuaMulti + Send,
        R: IntoLuaMulti + Send,
        F: Future<Output = Result<R, Raise>> + Send,
    {
        let call = self.lua.create_async_function(move |lua, arguments: MultiValue| {
            let call = call.clone();
            // Should its time be over while it waits, nobody could tell where any more.
            location::note(&lua);
            async move {
                let result = match A::from_lua_multi(arguments, &lua) {
                    Ok(arguments) => call(lua.clone(), arguments).await,
                    Err(error) => Err(error.into()),
                };
                let place = location::forget(&lua);
                settle(&lua, name, place, result)
            }
        })?;
        self.raising.call(call)
    }
}

/// Why a library function fails.
pub(super) enum Raise {
    /// The script is told.
    Message(String),
    /// The script is given a table: an error with parts, of somebody else's making.
    Table(Boxed),
    /// The run cannot go on.
    Fatal(mlua::Error),
}

impl From<mlua::Error> for Raise {
    fn from(error: mlua::Error) -> Self {
        match error {
            mlua::Error::FromLuaConversionError { from, to, message } => {
                let hint = message.map_or_else(String::new, |message| format!(" ({message})"));
                Self::Message(format!("cannot take a {from} as {to}{hint}"))
            }
            other => Self::Fatal(other),
        }
    }
}

impl From<String> for Raise {
    fn from(message: String) -> Self {
        Self::Message(message)
    }
}

impl From<super::json::JsonError> for Raise {
    fn from(error: super::json::JsonError) -> Self {
        match error {
            super::json::JsonError::Lua(error) => Self::Fatal(error),
            other => Self::Message(other.to_string()),
        }
    }
}

fn settle<R: IntoLuaMulti>(
    lua: &Lua,
    name: &str,
    place: Option<String>,
    result: Result<R, Raise>,
) -> mlua::Result<MultiValue> {
    match result {
        Ok(value) => {
            let mut values = value.into_lua_multi(lua)?;
            values.push_front(Value::Boolean(true));
            Ok(values)
        }
        Err(Raise::Message(message)) => (false, format!("{name}: {message}")).into_lua_multi(lua),
        Err(Raise::Table(boxed)) => {
            let raiser = place.map_or_else(|| name.to_owned(), |place| format!("{place}: {name}"));
            (false, boxed.0, true, raiser).into_lua_multi(lua)
        }
        Err(Raise::Fatal(error)) => Err(error),
    }
}

/// The value as text, if it is some and not too long for work that no clock interrupts.
fn text<'a>(bytes: &'a [u8], what: &str, limit: usize) -> Result<&'a str, Raise> {
    sized(bytes, what, limit)?;
    std::str::from_utf8(bytes).map_err(|_| Raise::Message(format!("the {what} is not valid UTF-8")))
}

fn sized<'a>(bytes: &'a [u8], what: &str, limit: usize) -> Result<&'a [u8], Raise> {
    if bytes.len() > limit {
        return Err(Raise::Message(format!("the {what} has {} bytes; at most {limit} are taken", bytes.len())));
    }
    Ok(bytes)
}

/// A value read from JSON, or nothing, on its way back to Lua. It travels in a table of one field, which the
/// prelude opens: outside of the state, a large integer would lose its type.
pub(super) struct Boxed(Table);

impl Boxed {
    fn new(lua: &Lua, json: Option<&str>) -> Result<Self, Raise> {
        let holder = lua.create_table()?;
        if let Some(json) = json {
            super::json::read_into(lua, json, &holder, 1)?;
        }
        Ok(Self(holder))
    }
}

impl IntoLuaMulti for Boxed {
    fn into_lua_multi(self, lua: &Lua) -> mlua::Result<MultiValue> {
        (self.0, true).into_lua_multi(lua)
    }
}

/// A value as a script means a time span: seconds, fractions allowed. One past [`MAX_SPAN`] stops there.
fn seconds(value: f64, what: &str) -> Result<Duration, Raise> {
    if value.is_finite() && value > MAX_SPAN.as_secs_f64() {
        return Ok(MAX_SPAN);
    }
    Duration::try_from_secs_f64(value)
        .map_err(|_| Raise::Message(format!("{what} must be a number of seconds from 0 up")))
}

/// `value` as JSON text.
fn raw(lua: &Lua, value: &Value) -> Result<Box<serde_json::value::RawValue>, Raise> {
    let json = super::json::write(lua, value)?;
    let json = String::from_utf8(json).expect("JSON is text");
    Ok(serde_json::value::RawValue::from_string(json).expect("what was written is JSON"))
}
