//! The variables of a run's environment: `event`, `space`, `actor` and `custom`, made anew for every run.

use crate::scripting::lua::{
    inputs::{CheckedSpace, EventFields, TransformInput},
    json::{self, Mutability},
    libraries::registry_keys,
    program::{DataUse, Variables},
};
use mlua::{Function, Lua, Table, ffi};
use serde::de::IgnoredAny;
use std::ffi::{CStr, c_int};

/// The arguments of filters: `event`, `space` and `actor`. One that no filter touches is absent.
pub(in crate::scripting) type FilterArguments = [Option<Table>; 3];

/// Fills the environment of a run for an event, with what the program can touch.
///
/// # Errors
///
/// Fails if the event's data is over a budget or the state runs out of memory.
pub(super) fn fill_event(
    lua: &Lua,
    environment: &Table,
    fields: &EventFields,
    data_use: &DataUse,
    variables: Variables,
) -> Result<(), json::JsonError> {
    let mut filled = Ok(());
    // SAFETY: the stack has the environment, and nothing is left on it. An error of Lua unwinds through the closure,
    // which owns nothing.
    let called = unsafe {
        lua.exec_raw::<()>(environment, |state| {
            let tables = StackTables::new(lua, state, Mutability::Writable);
            filled = tables.fill_environment(1, fields, data_use, variables);
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
        fill_event(lua, &scope, fields, &DataUse::Whole, Variables::ALL)?;
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

/// The arguments of filters, with what the filters can touch. All filters of one event get the same tables, so none may
/// change them.
///
/// # Errors
///
/// Fails if the event's data is over a budget or the state runs out of memory.
pub(super) fn filter_arguments(
    lua: &Lua,
    fields: &EventFields,
    data_use: &DataUse,
    variables: Variables,
) -> Result<FilterArguments, json::JsonError> {
    let mut pushed = Ok(());
    // SAFETY: the three arguments are left on the stack. An error of Lua unwinds through the closure, which owns
    // nothing.
    let called = unsafe {
        lua.exec_raw::<(Option<Table>, Option<Table>, Option<Table>)>((), |state| {
            let tables = StackTables::new(lua, state, Mutability::Frozen);
            pushed = tables.push_filter_arguments(fields, data_use, variables);
            if pushed.is_err() {
                ffi::lua_settop(state, 0);
            }
        })
    };
    let (event, space, actor) = called.map_err(json::JsonError::Lua)?;
    pushed?;
    Ok([event, space, actor])
}

/// Makes tables on the stack of a Lua state, in one protected call for all of them: a call for each value would cost
/// more than the value. The stack has room for the few values of a table on its way into another.
struct StackTables<'a> {
    lua: &'a Lua,
    state: *mut ffi::lua_State,
    /// Whether a program may change the tables.
    mutability: Mutability,
}

// SAFETY of all calls: they are protected, and there is room for the value that each of them pushes.
impl<'a> StackTables<'a> {
    /// # Safety
    ///
    /// The tables are made inside a protected call, as [`Lua::exec_raw`] makes it.
    unsafe fn new(lua: &'a Lua, state: *mut ffi::lua_State, mutability: Mutability) -> Self {
        Self { lua, state, mutability }
    }

    /// Puts `event`, and those of `space`, `actor` and `custom` that are touched, into the table at this place.
    fn fill_environment(
        &self,
        environment: c_int,
        fields: &EventFields,
        data_use: &DataUse,
        variables: Variables,
    ) -> Result<(), json::JsonError> {
        let put_in_environment = |name: &CStr| unsafe { ffi::lua_rawsetfield(self.state, environment, name.as_ptr()) };
        self.begin();
        if variables.event_fields {
            self.put_identity(fields);
            self.put_delivery(fields);
        }
        self.put_data(fields, data_use)?;
        self.end();
        put_in_environment(c"event");
        if variables.space {
            self.push_space(fields);
            put_in_environment(c"space");
        }
        if variables.actor {
            self.push_actor(fields);
            put_in_environment(c"actor");
        }
        if variables.custom {
            self.push_custom(fields);
            put_in_environment(c"custom");
        }
        Ok(())
    }

    /// Pushes `event`, `space` and `actor`, and nil for a variable that is not touched.
    fn push_filter_arguments(
        &self,
        fields: &EventFields,
        data_use: &DataUse,
        variables: Variables,
    ) -> Result<(), json::JsonError> {
        self.begin();
        if variables.event_fields {
            self.put_identity(fields);
        }
        self.put_data(fields, data_use)?;
        self.end();
        let push_nil = || unsafe { ffi::lua_pushnil(self.state) };
        if variables.space {
            self.push_space(fields)
        } else {
            push_nil()
        }
        if variables.actor {
            self.push_actor(fields)
        } else {
            push_nil()
        }
        Ok(())
    }

    fn put_identity(&self, fields: &EventFields) {
        self.put_text(c"id", &fields.id);
        self.put_text(c"type", &fields.kind);
        self.put_text(c"ts", &fields.ts);
    }

    /// Puts what an event has only on its way to a sink.
    fn put_delivery(&self, fields: &EventFields) {
        self.put_number(c"sequence", fields.sequence as f64);
        self.put_number(c"attempt", fields.attempt.into());
        if !fields.replay.is_empty() {
            self.put_text(c"replay", &fields.replay);
        }
        if !fields.missed.is_empty() {
            self.begin();
            for (index, (from, to, reason)) in (1..).zip(&fields.missed) {
                self.begin();
                self.put_number(c"from", *from as f64);
                self.put_number(c"to", *to as f64);
                self.put_text(c"reason", reason);
                self.end();
                unsafe { ffi::lua_rawseti(self.state, -2, index) };
            }
            self.end_array();
            self.put(c"missed");
        }
    }

    fn put_data(&self, fields: &EventFields, data_use: &DataUse) -> Result<(), json::JsonError> {
        let names = match data_use {
            DataUse::Whole => None,
            DataUse::Fields(names) => Some(&names[..]),
        };
        unsafe { json::push(self.lua, self.state, &fields.data, names, self.mutability)? };
        self.put(c"data");
        Ok(())
    }

    fn push_space(&self, fields: &EventFields) {
        self.begin();
        self.put_text(c"id", &fields.space_id);
        self.put_text(c"name", &fields.space_name);
        self.begin();
        for (index, url) in (1..).zip(&fields.space_urls) {
            self.push_text(url);
            unsafe { ffi::lua_rawseti(self.state, -2, index) };
        }
        self.end_array();
        self.put(c"urls");
        self.end();
    }

    fn push_actor(&self, fields: &EventFields) {
        self.begin();
        self.put_text(c"id", &fields.actor_id);
        self.put_text(c"username", &fields.actor_username);
        self.put_text(c"kind", &fields.actor_kind);
        self.end();
    }

    fn push_custom(&self, fields: &EventFields) {
        self.begin();
        for (name, value) in &fields.custom {
            self.push_text(name);
            self.push_text(value);
            unsafe { ffi::lua_rawset(self.state, -3) };
        }
        self.end();
    }

    /// Pushes a new table.
    fn begin(&self) {
        unsafe { ffi::lua_createtable(self.state, 0, 8) };
    }

    /// Ends the table on top of the stack, which is an array.
    fn end_array(&self) {
        unsafe { json::mark_array(self.state) };
        self.end();
    }

    /// Ends the table on top of the stack, where it stays.
    fn end(&self) {
        if self.mutability == Mutability::Frozen {
            unsafe { ffi::lua_setreadonly(self.state, -1, 1) };
        }
    }

    fn put_text(&self, name: &CStr, value: &str) {
        self.push_text(value);
        self.put(name);
    }

    fn put_number(&self, name: &CStr, value: f64) {
        unsafe { ffi::lua_pushnumber(self.state, value) };
        self.put(name);
    }

    /// Puts the value on top of the stack into the table below it.
    fn put(&self, name: &CStr) {
        unsafe { ffi::lua_rawsetfield(self.state, -2, name.as_ptr()) };
    }

    fn push_text(&self, text: &str) {
        unsafe { ffi::lua_pushlstring(self.state, text.as_ptr().cast(), text.len()) };
    }
}

/// Fills the environment of a transform: `request`, and the slug of its `source`.
///
/// `json` is the body if it is JSON, `form` if its content type says that it is a form; otherwise they are nil. The use
/// of `json` is an error if the body is JSON that is over a budget of [`json`] or has a value that Lua does not have.
///
/// # Errors
///
/// Fails if the state runs out of memory.
pub(super) fn fill_request(lua: &Lua, environment: &Table, input: &TransformInput) -> Result<(), json::JsonError> {
    let pairs = |pairs: &[(String, String)]| {
        table(lua, |table| pairs.iter().try_for_each(|(name, value)| table.raw_set(name.as_str(), value.as_str())))
    };
    let (headers, query) = (pairs(&input.headers)?, pairs(&input.query)?);
    let content_type = input.headers.iter().find(|(name, _)| name == "content-type").map_or("", |(_, value)| value);
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    let is_form = media_type.eq_ignore_ascii_case("application/x-www-form-urlencoded");
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
            Ok(()) => {}
            Err(error @ json::JsonError::Lua(_)) => return Err(error),
            Err(error) => refuse_json(lua, &request, text, &error)?,
        }
    }
    let source = table(lua, |source| source.raw_set("slug", input.slug.as_str()))?;
    environment.raw_set("source", source).map_err(json::JsonError::Lua)?;
    environment.raw_set("request", request).map_err(json::JsonError::Lua)
}

/// Makes the use of `request.json` an error on the script's line if the body is JSON, and leaves it nil if it is not.
fn refuse_json(lua: &Lua, request: &Table, body: &str, error: &json::JsonError) -> Result<(), json::JsonError> {
    if serde_json::from_str::<IgnoredAny>(body).is_err() {
        return Ok(());
    }
    let problem = match error {
        json::JsonError::Syntax(problem) => format!("request.json: the body cannot be read: {problem}"),
        other => format!("request.json: {other}"),
    };
    let refuse = || {
        let unreadable: Function = lua.named_registry_value(registry_keys::UNREADABLE)?;
        request.set_metatable(Some(unreadable.call(("json", problem))?))
    };
    refuse().map_err(json::JsonError::Lua)
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
