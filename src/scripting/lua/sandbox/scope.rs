//! The variables of a run's environment: `event`, `space`, `actor` and `custom`, made anew for every run.

use crate::{
    model::event::{ActorKind, EventSpace},
    scripting::lua::{
        inputs::{CheckedSpace, EventInput},
        json,
    },
};
use mlua::{Lua, Table};

/// Fills the environment of a run for an event.
///
/// # Errors
///
/// Fails if the event's data is over a budget or the state runs out of memory.
pub(super) fn fill_event(lua: &Lua, environment: &Table, input: &EventInput) -> Result<(), json::JsonError> {
    let event = table(lua, |event| {
        event.raw_set("id", input.event.id.to_string())?;
        event.raw_set("type", input.event.kind.as_str())?;
        event.raw_set("ts", input.event.ts.to_string())?;
        event.raw_set("sequence", input.sequence)?;
        event.raw_set("attempt", input.attempt)
    })?;
    json::read_into(lua, input.event.data.get(), &event, "data")?;
    let origin = input.event.space.as_ref();
    let space = table(lua, |space| {
        let urls =
            lua.create_sequence_from(origin.map_or(&[][..], |origin| &origin.urls).iter().map(String::as_str))?;
        urls.set_metatable(Some(json::array_metatable(lua)?))?;
        space.raw_set("id", input.event.space_id.to_string())?;
        space.raw_set("name", origin.map_or("", |origin| origin.name.as_str()))?;
        space.raw_set("urls", urls)
    })?;
    let actor = table(lua, |actor| {
        actor.raw_set("id", input.event.actor.id.to_string())?;
        actor.raw_set("username", input.event.actor.username.as_str())?;
        actor.raw_set("kind", actor_kind(input.event.actor.kind))
    })?;
    let custom = table(lua, |custom| custom_fields(custom, origin))?;
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

fn custom_fields(custom: &Table, origin: Option<&EventSpace>) -> mlua::Result<()> {
    for (name, value) in origin.iter().flat_map(|origin| &origin.custom) {
        custom.raw_set(name.as_str(), value.as_str())?;
    }
    Ok(())
}

/// The name of an actor's kind in the event's JSON.
const fn actor_kind(kind: ActorKind) -> &'static str {
    match kind {
        ActorKind::User => "user",
        ActorKind::Agent => "agent",
        ActorKind::System => "system",
    }
}
