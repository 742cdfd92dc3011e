//! `json`: `encode(value)`, `decode(text)`, `array(table)`, `null`.

use super::{arguments::text, boxed_json::BoxedJson, function_builder::FunctionBuilder, library_error::LibraryError};
use crate::scripting::lua::json::{MAX_BYTES, NULL, array_metatable, write};
use mlua::{LuaString, Table, Value};

pub(super) fn library(builder: &FunctionBuilder<'_>) -> mlua::Result<Table> {
    let library = builder.lua.create_table()?;
    library.raw_set(
        "encode",
        builder.function("json.encode", |lua, value: Value| Ok(lua.create_string(write(lua, &value)?)?))?,
    )?;
    library.raw_set(
        "decode",
        builder.function("json.decode", |lua, json: LuaString| {
            Ok(BoxedJson::new(lua, Some(text(&json.as_bytes(), "text", MAX_BYTES)?))?)
        })?,
    )?;
    library.raw_set(
        "array",
        builder.function("json.array", |lua, table: Option<Table>| {
            let table = match table {
                Some(table) if table.is_readonly() => {
                    return Err(LibraryError::Message("the table is read-only".to_owned()));
                }
                Some(table) => table,
                None => lua.create_table()?,
            };
            table.set_metatable(Some(array_metatable(lua)?))?;
            Ok(table)
        })?,
    )?;
    library.raw_set("null", NULL)?;
    Ok(library)
}
