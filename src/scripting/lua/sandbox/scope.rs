//! The variables of a run's environment: `event`, `space`, `actor` and `custom`, made anew for every run.

use crate::scripting::lua::{
    inputs::{CheckedSpace, EventFields},
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
    let space = table(lua, |space| {
        let urls = lua.create_sequence_from(fields.space_urls.iter().map(String::as_str))?;
        urls.set_metatable(Some(json::array_metatable(lua)?))?;
        space.raw_set("id", fields.space_id.as_str())?;
        space.raw_set("name", fields.space_name.as_str())?;
        space.raw_set("urls", urls)
    })?;
    let actor = table(lua, |actor| {
        actor.raw_set("id", fields.actor_id.as_str())?;
        actor.raw_set("username", fields.actor_username.as_str())?;
        actor.raw_set("kind", fields.actor_kind.as_str())
    })?;
    let custom = table(lua, |custom| {
        fields.custom.iter().try_for_each(|(name, value)| custom.raw_set(name.as_str(), value.as_str()))
    })?;
    let put = |name, table| environment.raw_set(name, table).map_err(json::JsonError::Lua);
    put("event", event)?;
    put("space", space)?;
    put("actor", actor)?;
    put("custom", custom)
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
