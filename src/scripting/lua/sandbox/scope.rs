//! The variables of a run's environment: `event`, `space`, `actor` and `custom`, made anew for every run.

use crate::scripting::lua::{
    inputs::{CheckedSpace, EventFields},
    json,
};
use mlua::{Lua, Table, ffi};
use std::ffi::{CStr, c_int};

/// Fills the environment of a run for an event.
///
/// # Errors
///
/// Fails if the event's data is over a budget or the state runs out of memory.
pub(super) fn fill_event(lua: &Lua, environment: &Table, fields: &EventFields) -> Result<(), json::JsonError> {
    let array = json::array_metatable(lua).map_err(json::JsonError::Lua)?;
    let mut filled = Ok(());
    // SAFETY: the stack has the environment and the metatable of arrays, and nothing is left on it. An error of Lua unwinds
    // through the closure, which owns nothing.
    let called = unsafe {
        lua.exec_raw::<()>((environment, array), |state| {
            filled = fill_raw(lua, state, fields);
            ffi::lua_settop(state, 0);
        })
    };
    called.map_err(json::JsonError::Lua)?;
    filled
}

/// The places of the environment and the metatable of arrays on the stack.
const ENVIRONMENT: c_int = 1;
const ARRAY: c_int = 2;

/// Fills the environment, with one protected call around all of it.
///
/// # Safety
///
/// The call is protected, and the stack has the environment and the metatable of arrays.
unsafe fn fill_raw(lua: &Lua, state: *mut ffi::lua_State, fields: &EventFields) -> Result<(), json::JsonError> {
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
    unsafe { json::push(lua, state, ARRAY, &fields.data)? };
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
