//! `json`: `encode(value)`, `decode(text)`, `array(table)`, `null`.

use super::{Boxed, Maker, Raise, text};
use crate::scripting::lua::json::{MAX_BYTES, NULL, array_metatable, write};
use mlua::{LuaString, Table, Value};

pub(super) fn module(maker: &Maker<'_>) -> mlua::Result<Table> {
    let module = maker.lua.create_table()?;
    module.raw_set(
        "encode",
        maker.function("json.encode", |lua, value: Value| Ok(lua.create_string(write(lua, &value)?)?))?,
    )?;
    module.raw_set(
        "decode",
        maker.function("json.decode", |lua, json: LuaString| {
            Boxed::new(lua, Some(text(&json.as_bytes(), "text", MAX_BYTES)?))
        })?,
    )?;
    module.raw_set(
        "array",
        maker.function("json.array", |lua, table: Option<Table>| {
            let table = match table {
                Some(table) if table.is_readonly() => return Err(Raise::Message("the table is read-only".to_owned())),
                Some(table) => table,
                None => lua.create_table()?,
            };
            table.set_metatable(Some(array_metatable(lua)?))?;
            Ok(table)
        })?,
    )?;
    module.raw_set("null", NULL)?;
    Ok(module)
}
