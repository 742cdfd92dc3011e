//! The variables of a run's environment: `event`, `space`, `actor` and `custom`, made anew for every run.

use crate::scripting::lua::{
    inputs::{CheckedSpace, EventFields, TransformInput},
    json::{self, Mutability},
    program::DataUse,
};
use mlua::{Lua, Table, ffi};
use std::ffi::{CStr, c_int};

/// Fills the environment of a run for an event, with what the program can touch of its data.
///
/// # Errors
///
/// Fails if the event's data is over a budget or the state runs out of memory.
pub(super) fn fill_event(
    lua: &Lua,
    environment: &Table,
    fields: &EventFields,
    data_use: &DataUse,
) -> Result<(), json::JsonError> {
    let array = json::array_metatable(lua).map_err(json::JsonError::Lua)?;
    let mut filled = Ok(());
    // SAFETY: the stack has the environment and the metatable of arrays, and nothing is left on it. An error of Lua unwinds
    // through the closure, which owns nothing.
    let called = unsafe {
        lua.exec_raw::<()>((environment, array), |state| {
            filled = fill_raw(lua, state, fields, data_use);
            ffi::lua_settop(state, 0);
        })
    };
    called.map_err(json::JsonError::Lua)?;
    filled
}

/// Fills the environment of a run for a batch: `events`, each with its `space`, `actor` and `custom`.
///
/// # Errors
///
/// Fails if the data of an event is over a budget or the state runs out of memory.
pub(super) fn fill_batch(lua: &Lua, environment: &Table, batch: &[EventFields]) -> Result<(), json::JsonError> {
    let events = lua.create_table_with_capacity(batch.len(), 0).map_err(json::JsonError::Lua)?;
    for fields in batch {
        let scope = lua.create_table().map_err(json::JsonError::Lua)?;
        fill_event(lua, &scope, fields, &DataUse::Whole)?;
        let push = || {
            let event: Table = scope.raw_get("event")?;
            for name in ["space", "actor", "custom"] {
                event.raw_set(name, scope.raw_get::<Table>(name)?)?;
            }
            events.raw_push(event)
        };
        push().map_err(json::JsonError::Lua)?;
    }
    let array = json::array_metatable(lua).map_err(json::JsonError::Lua)?;
    events.set_metatable(Some(array)).map_err(json::JsonError::Lua)?;
    environment.raw_set("events", events).map_err(json::JsonError::Lua)
}

/// The places of the environment and the metatable of arrays on the stack.
const ENVIRONMENT: c_int = 1;
const ARRAY: c_int = 2;

/// Fills the environment, with one protected call around all of it.
///
/// # Safety
///
/// The call is protected, and the stack has the environment and the metatable of arrays.
unsafe fn fill_raw(
    lua: &Lua,
    state: *mut ffi::lua_State,
    fields: &EventFields,
    data_use: &DataUse,
) -> Result<(), json::JsonError> {
    let begin = || unsafe { ffi::lua_createtable(state, 0, 8) };
    let text = |value: &str| unsafe { ffi::lua_pushlstring(state, value.as_ptr().cast(), value.len()) };
    // Puts the value on top of the stack into the table below it.
    let put = |name: &CStr| unsafe { ffi::lua_rawsetfield(state, -2, name.as_ptr()) };
    let put_text = |name: &CStr, value: &str| {
        text(value);
        put(name);
    };
    let put_number = |name: &CStr, value: f64| {
        unsafe { ffi::lua_pushnumber(state, value) };
        put(name);
    };
    // Puts the table on top of the stack into the environment.
    let end = |name: &CStr| unsafe { ffi::lua_rawsetfield(state, ENVIRONMENT, name.as_ptr()) };
    begin();
    put_text(c"id", &fields.id);
    put_text(c"type", &fields.kind);
    put_text(c"ts", &fields.ts);
    put_number(c"sequence", fields.sequence as f64);
    put_number(c"attempt", fields.attempt.into());
    if !fields.replay.is_empty() {
        put_text(c"replay", &fields.replay);
    }
    if !fields.missed.is_empty() {
        begin();
        for (index, (from, to, reason)) in (1..).zip(&fields.missed) {
            begin();
            put_number(c"from", *from as f64);
            put_number(c"to", *to as f64);
            put_text(c"reason", reason);
            unsafe { ffi::lua_rawseti(state, -2, index) };
        }
        unsafe {
            ffi::lua_pushvalue(state, ARRAY);
            ffi::lua_setmetatable(state, -2);
        }
        put(c"missed");
    }
    match data_use {
        DataUse::Whole => unsafe { json::push(lua, state, ARRAY, &fields.data, Mutability::Writable)? },
        DataUse::Fields(names) => unsafe { json::push_fields(lua, state, ARRAY, &fields.data, names)? },
    }
    put(c"data");
    end(c"event");
    begin();
    put_text(c"id", &fields.space_id);
    put_text(c"name", &fields.space_name);
    begin();
    for (index, url) in (1..).zip(&fields.space_urls) {
        text(url);
        unsafe { ffi::lua_rawseti(state, -2, index) };
    }
    unsafe {
        ffi::lua_pushvalue(state, ARRAY);
        ffi::lua_setmetatable(state, -2);
    }
    put(c"urls");
    end(c"space");
    begin();
    put_text(c"id", &fields.actor_id);
    put_text(c"username", &fields.actor_username);
    put_text(c"kind", &fields.actor_kind);
    end(c"actor");
    begin();
    for (name, value) in &fields.custom {
        text(name);
        text(value);
        unsafe { ffi::lua_rawset(state, -3) };
    }
    end(c"custom");
    Ok(())
}

/// The arguments of filters: `event`, `space` and `actor`. All filters of one event get the same tables, so none may change
/// them.
///
/// # Errors
///
/// Fails if the event's data is over a budget or the state runs out of memory.
pub(super) fn filter_arguments(lua: &Lua, fields: &EventFields) -> Result<[Table; 3], json::JsonError> {
    let event = table(lua, |event| {
        event.raw_set("id", fields.id.as_str())?;
        event.raw_set("type", fields.kind.as_str())?;
        event.raw_set("ts", fields.ts.as_str())
    })?;
    json::read_frozen_into(lua, &fields.data, &event, "data")?;
    let space = space_of(lua, fields)?;
    space.raw_get::<Table>("urls").map_err(json::JsonError::Lua)?.set_readonly(true);
    let arguments = [event, space, actor_of(lua, fields)?];
    arguments.iter().for_each(|table| table.set_readonly(true));
    Ok(arguments)
}

fn space_of(lua: &Lua, fields: &EventFields) -> Result<Table, json::JsonError> {
    table(lua, |space| {
        let urls = lua.create_sequence_from(fields.space_urls.iter().map(String::as_str))?;
        urls.set_metatable(Some(json::array_metatable(lua)?))?;
        space.raw_set("id", fields.space_id.as_str())?;
        space.raw_set("name", fields.space_name.as_str())?;
        space.raw_set("urls", urls)
    })
}

fn actor_of(lua: &Lua, fields: &EventFields) -> Result<Table, json::JsonError> {
    table(lua, |actor| {
        actor.raw_set("id", fields.actor_id.as_str())?;
        actor.raw_set("username", fields.actor_username.as_str())?;
        actor.raw_set("kind", fields.actor_kind.as_str())
    })
}

/// Fills the environment of a transform: `request`, and the slug of its `source`.
///
/// `json` is the body if it is JSON, `form` if its content type says that it is a form; otherwise they are nil.
///
/// # Errors
///
/// Fails if a JSON body is over a budget or the state runs out of memory.
pub(super) fn fill_request(lua: &Lua, environment: &Table, input: &TransformInput) -> Result<(), json::JsonError> {
    let pairs = |pairs: &[(String, String)]| {
        table(lua, |table| pairs.iter().try_for_each(|(name, value)| table.raw_set(name.as_str(), value.as_str())))
    };
    let (headers, query) = (pairs(&input.headers)?, pairs(&input.query)?);
    let content_type = input.headers.iter().find(|(name, _)| name == "content-type").map_or("", |(_, value)| value);
    let is_form = content_type.split(';').next().unwrap_or_default().trim() == "application/x-www-form-urlencoded";
    let form: Vec<(String, String)> = match is_form {
        true => form_urlencoded::parse(&input.body).into_owned().collect(),
        false => Vec::new(),
    };
    let form = if is_form { Some(pairs(&form)?) } else { None };
    let request = table(lua, |request| {
        request.raw_set("headers", headers)?;
        request.raw_set("query", query)?;
        request.raw_set("body", lua.create_string(&input.body)?)?;
        request.raw_set("form", form)
    })?;
    if let Ok(text) = std::str::from_utf8(&input.body) {
        match json::read_into(lua, text, &request, "json") {
            Ok(()) | Err(json::JsonError::Syntax(_)) => {}
            Err(other) => return Err(other),
        }
    }
    let source = table(lua, |source| source.raw_set("slug", input.slug.as_str()))?;
    environment.raw_set("source", source).map_err(json::JsonError::Lua)?;
    environment.raw_set("request", request).map_err(json::JsonError::Lua)
}

/// Fills the environment of a health check.
pub(super) fn fill_space(lua: &Lua, environment: &Table, checked: &CheckedSpace) -> Result<(), json::JsonError> {
    let space = table(lua, |space| {
        space.raw_set("id", checked.id.to_string())?;
        space.raw_set("name", checked.name.as_str())
    })?;
    environment.raw_set("space", space).map_err(json::JsonError::Lua)
}

fn table(lua: &Lua, fill: impl FnOnce(&Table) -> mlua::Result<()>) -> Result<Table, json::JsonError> {
    let table = lua.create_table_with_capacity(0, 6).map_err(json::JsonError::Lua)?;
    fill(&table).map_err(json::JsonError::Lua)?;
    Ok(table)
}
