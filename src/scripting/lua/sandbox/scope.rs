//! The variables of a run's environment: `event`, `space`, `actor` and `custom`, made anew for every run.

use crate::scripting::lua::{
    inputs::{CheckedSpace, EventFields, TransformInput},
    json,
};
use mlua::{Lua, Table};

/// Fills the environment of a run for an event.
///
/// # Errors
///
/// Fails if the event's data is over a budget or the state runs out of memory.
pub(super) fn fill_event(lua: &Lua, environment: &Table, fields: &EventFields) -> Result<(), json::JsonError> {
    let event = table(lua, |event| {
        event.raw_set("id", fields.id.as_str())?;
        event.raw_set("type", fields.kind.as_str())?;
        event.raw_set("ts", fields.ts.as_str())?;
        event.raw_set("sequence", fields.sequence)?;
        event.raw_set("attempt", fields.attempt)
    })?;
    json::read_into(lua, &fields.data, &event, "data")?;
    let (space, actor) = (space_of(lua, fields)?, actor_of(lua, fields)?);
    let custom = table(lua, |custom| {
        fields.custom.iter().try_for_each(|(name, value)| custom.raw_set(name.as_str(), value.as_str()))
    })?;
    let put = |name, table| environment.raw_set(name, table).map_err(json::JsonError::Lua);
    put("event", event)?;
    put("space", space)?;
    put("actor", actor)?;
    put("custom", custom)
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
