//! Installs the libraries of a program in its Lua state.

use super::{
    crypto, fs, function_builder::FunctionBuilder, http, json, kv, modules, process, re, registry_keys, run_log,
    space_svc, svc, time,
};
use crate::{
    model::owner::Owner,
    scripting::lua::{
        host::HostServices,
        location,
        program::{Capabilities, Program, ProgramKind, compile_builtin, load},
    },
};
use mlua::{Function, Lua, Table, Value, Variadic};
use std::sync::LazyLock;

static PRELUDE: LazyLock<Vec<u8>> = LazyLock::new(|| compile_builtin(include_str!("../../../../lua/prelude.lua")));
static RUNTIME: LazyLock<Vec<u8>> = LazyLock::new(|| compile_builtin(include_str!("../../../../lua/runtime.lua")));
static EVENT: LazyLock<Vec<u8>> = LazyLock::new(|| compile_builtin(include_str!("../../../../lua/svc/event.lua")));

/// The interpreter's message when memory runs out, also to a `pcall`.
pub(in crate::scripting::lua) const NO_MEMORY: &str = "not enough memory";

/// The largest product of the lengths of a text and a pattern: some tens of milliseconds of work.
const MAX_SEARCH_WORK: usize = 64 << 20;

/// The most elements that `table.move` moves.
const MAX_MOVE: usize = 1_000_000;

/// The most text among the arguments of a built-in function that reads numbers from it: some tens of milliseconds.
const MAX_ARGUMENT_TEXT: usize = 16 << 20;

/// The owner under which every program of a runtime makes its requests. A runtime serves one owner; the server, which
/// answers the requests of a worker, knows which.
const OWNER: Owner = Owner::Global;

/// Puts every library that this program gets into the globals of `lua`. Each module it requires gets an environment
/// with the metatable `environment`.
pub(in crate::scripting::lua) fn install(
    lua: &Lua,
    program: &Program,
    services: &HostServices,
    environment: &Table,
) -> mlua::Result<()> {
    let kind = program.0.kind;
    let native = lua.create_table()?;
    let chunks = lua.create_table()?;
    chunks.raw_set(program.0.name.as_str(), true)?;
    let libraries = lua.create_table()?;
    native.raw_set("work", MAX_SEARCH_WORK)?;
    native.raw_set("move", MAX_MOVE)?;
    native.raw_set("text", MAX_ARGUMENT_TEXT)?;
    native.raw_set("kind", kind.name())?;
    native.raw_set("no_memory", NO_MEMORY)?;
    native.raw_set("modules", &libraries)?;
    native.raw_set("log", run_log::function(lua)?)?;
    native.raw_set("scope", lua.create_function(|lua, ()| lua.named_registry_value::<Table>(registry_keys::SCOPE))?)?;
    native.raw_set("loaded", lua.create_function(loaded)?)?;
    let record = |lua: &Lua, (): ()| {
        location::record(lua);
        Ok(())
    };
    native.raw_set("record_location", lua.create_function(record)?)?;
    native.raw_set("location", lua.create_function(|lua, ()| Ok(location::current(lua)))?)?;
    let find = match kind {
        // A filter has no time to ask the server for a module.
        ProgramKind::Filter => lua.create_function(|_, _: Variadic<Value>| Ok(Value::Nil))?,
        _ => modules::finder(lua, OWNER, services.modules.clone(), environment, &chunks)?,
    };
    native.raw_set("find", find)?;
    native.raw_set("chunks", chunks)?;
    if runs_for_an_event(kind) {
        native.raw_set("event", load(lua, "svc/event", &EVENT)?.call::<Function>(())?)?;
    }
    load(lua, "prelude", &PRELUDE)?.call::<()>(&native)?;
    lua.set_named_registry_value(registry_keys::ATTEMPT, native.raw_get::<Function>("attempt")?)?;
    lua.set_named_registry_value(registry_keys::TRACED, native.raw_get::<Function>("traced")?)?;
    lua.set_named_registry_value(registry_keys::UNREADABLE, native.raw_get::<Function>("unreadable")?)?;
    lua.set_named_registry_value(registry_keys::REQUIRE, lua.globals().raw_get::<Function>("require")?)?;

    let builder = FunctionBuilder { lua, raising: native.raw_get("raising")? };
    let globals = lua.globals();
    libraries.raw_set("log", globals.raw_get::<Table>("log")?)?;
    libraries.raw_set("json", json::library(&builder)?)?;
    libraries.raw_set("time", time::library(&builder)?)?;
    libraries.raw_set("crypto", crypto::library(&builder)?)?;
    libraries.raw_set("re", re::library(&builder)?)?;
    if has_effects(kind) {
        libraries.raw_set("http", http::library(&builder, OWNER, &services.http)?)?;
        let backend = match kind {
            ProgramKind::Space(_) => Some(kv::KvBackend::Agent),
            _ => services.kv.clone().map(kv::KvBackend::Host),
        };
        if let Some(backend) = backend {
            libraries.raw_set("kv", kv::library(&builder, &backend)?)?;
        }
    }
    match kind {
        ProgramKind::Script => libraries.raw_set("svc", svc::for_scripts(&builder, OWNER, &services.caller)?)?,
        ProgramKind::Tool => libraries.raw_set("svc", svc::for_tools(&builder)?)?,
        ProgramKind::Space(capabilities) => {
            libraries.raw_set("svc", space_svc::svc(&builder, capabilities)?)?;
            libraries.raw_get::<Table>("time")?.raw_set("sleep", time::sleep(&builder)?)?;
            native.raw_set("register_handler", space_svc::register_handler(&builder)?)?;
            libraries.raw_set("runtime", load(lua, "runtime", &RUNTIME)?.call::<Table>(&native)?)?;
            lua.set_named_registry_value(registry_keys::HANDLE, native.raw_get::<Function>("handle")?)?;
            if capabilities == Capabilities::Full {
                libraries.raw_set("fs", fs::library(&builder)?)?;
                libraries.raw_set("process", process::library(&builder)?)?;
                libraries.raw_set("os", process::os(&builder)?)?;
            }
        }
        ProgramKind::Template | ProgramKind::Transform | ProgramKind::Filter | ProgramKind::Library => {}
    }
    // The tables within `svc` can be required by themselves too.
    if let Some(svc) = libraries.raw_get::<Option<Table>>("svc")? {
        for name in ["agent", "client", "event"] {
            if let Some(table) = svc.raw_get::<Option<Table>>(name)? {
                libraries.raw_set(format!("svc.{name}"), table)?;
            }
        }
    }
    let freeze: Function = native.raw_get("library")?;
    for library in libraries.pairs::<String, Table>() {
        let (name, library) = library?;
        freeze.call::<()>((name.as_str(), &library))?;
        if !name.contains('.') {
            globals.raw_set(name, library)?;
        }
    }
    libraries.set_readonly(true);
    native.set_readonly(true);
    Ok(())
}

/// Returns true for programs that may do more than compute.
const fn has_effects(kind: ProgramKind) -> bool {
    matches!(kind, ProgramKind::Script | ProgramKind::Tool | ProgramKind::Space(_))
}

/// Returns true for programs that run for an event, which `svc.event` then describes.
const fn runs_for_an_event(kind: ProgramKind) -> bool {
    matches!(kind, ProgramKind::Template | ProgramKind::Script)
}

/// The table of the modules that the present run has required: its fields are the loaded modules, boxed, by name; its
/// list items are the names of the modules being loaded, innermost last.
fn loaded(lua: &Lua, (): ()) -> mlua::Result<Table> {
    if let Some(loaded) = lua.named_registry_value(registry_keys::LOADED)? {
        return Ok(loaded);
    }
    let loaded = lua.create_table()?;
    lua.set_named_registry_value(registry_keys::LOADED, &loaded)?;
    Ok(loaded)
}
