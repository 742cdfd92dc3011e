//! A JSON value on its way into a Lua state.

use crate::scripting::lua::json::{self, JsonError};
use mlua::{IntoLuaMulti, Lua, MultiValue, Table};

/// A Lua value read from JSON, or nothing, in a table of one field that the prelude opens.
///
/// The box keeps the value inside the Lua state: on its way through Rust, a large integer would lose its type.
pub(super) struct BoxedJson(pub Table);

impl BoxedJson {
    pub fn new(lua: &Lua, json: Option<&str>) -> Result<Self, JsonError> {
        let holder = lua.create_table().map_err(JsonError::Lua)?;
        if let Some(json) = json {
            json::read_into(lua, json, &holder, 1)?;
        }
        Ok(Self(holder))
    }
}

impl IntoLuaMulti for BoxedJson {
    fn into_lua_multi(self, lua: &Lua) -> mlua::Result<MultiValue> {
        (self.0, true).into_lua_multi(lua)
    }
}
