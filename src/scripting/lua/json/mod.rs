//! JSON into Lua ([`read`]) and Lua into JSON ([`write`]), both within budgets and without silent loss.
//!
//! | JSON | Lua |
//! |---|---|
//! | object | table |
//! | array | table with the array metatable, so that an empty one stays an array |
//! | integer up to 2^53 | number |
//! | integer beyond, up to 64 bits | Luau `integer`, which is exact |
//! | any other number | number |
//! | null | `json.null`, which is truthy and not `nil` |
//!
//! A value that JSON cannot express (a function, a cycle, NaN, a table that is both list and map) is an error that
//! names its path, such as `$.items[2].x`.

mod fuzz;
mod read;
mod write;

#[doc(hidden)]
pub use fuzz::fuzz_json;
pub(super) use read::{Mutability, push, read_into};
pub(super) use write::{write, write_raw};

use crate::model::json_text;
use mlua::{Lua, Table, Value, ffi};
use serde_json::value::RawValue;

/// The most values in one document.
const MAX_NODES: usize = 100_000;

/// The most bytes of one document.
pub(super) const MAX_BYTES: usize = 1 << 20;

/// The deepest nesting of tables.
const MAX_DEPTH: usize = 64;

/// The number of values after which the run's clock is checked.
const CHECK_EVERY: usize = 1000;

/// The largest integer up to which all are exact as a Lua number.
const MAX_EXACT: u64 = 1 << 53;

/// The registry key of the metatable of arrays.
const ARRAY: &str = "json.array";

/// The reason a value cannot be converted.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    #[error("{path} is a {kind}, which is not JSON")]
    NotJson { path: String, kind: &'static str },
    #[error("{path} is not a finite number, which is not JSON")]
    NotFinite { path: String },
    #[error("{path} is not valid UTF-8")]
    NotText { path: String },
    #[error("{path} is a table with both list items and named fields, which is not JSON")]
    Mixed { path: String },
    #[error("{path} is a list with gaps, which is not JSON")]
    Gap { path: String },
    #[error("{path} contains itself, which is not JSON")]
    Cycle { path: String },
    #[error("{path} is nested deeper than {MAX_DEPTH} levels")]
    TooDeep { path: String },
    #[error("there are more than {MAX_NODES} values")]
    TooMany,
    #[error("there are more than {MAX_BYTES} bytes of JSON")]
    TooLarge,
    #[error("this is not JSON: {0}")]
    Syntax(serde_json::Error),
    /// The Lua state failed, most likely for lack of memory.
    #[error(transparent)]
    Lua(mlua::Error),
}

/// Checks that a document is within the budgets, by its text alone.
pub fn check_size(document: &RawValue) -> Result<(), JsonError> {
    let text = document.get();
    if text.len() > MAX_BYTES {
        return Err(JsonError::TooLarge);
    }
    let shape = json_text::measure(text);
    if shape.depth > MAX_DEPTH {
        return Err(JsonError::TooDeep { path: "$".to_owned() });
    }
    if shape.commas >= MAX_NODES {
        return Err(JsonError::TooMany);
    }
    Ok(())
}

/// Makes the metatable that distinguishes arrays from objects.
pub(super) fn prepare(lua: &Lua) -> mlua::Result<()> {
    let metatable = lua.create_table()?;
    // The answer of `getmetatable`, so that a script can recognise an array but not change the metatable.
    metatable.raw_set("__metatable", "array")?;
    metatable.set_readonly(true);
    lua.set_named_registry_value(ARRAY, metatable)
}

/// Sets the metatable of arrays on the table on top of the stack.
///
/// # Safety
///
/// The call is protected, as [`Lua::exec_raw`] does it, and there is room for one more value on the stack.
pub(super) unsafe fn mark_array(state: *mut ffi::lua_State) {
    // SAFETY: the caller keeps the conditions.
    unsafe {
        ffi::lua_pushlstring(state, ARRAY.as_ptr().cast(), ARRAY.len());
        ffi::lua_rawget(state, ffi::LUA_REGISTRYINDEX);
        ffi::lua_setmetatable(state, -2);
    }
}

/// The metatable of arrays.
pub(super) fn array_metatable(lua: &Lua) -> mlua::Result<Table> {
    lua.named_registry_value(ARRAY)
}

/// The Lua value of `null`.
pub(super) const NULL: Value = Value::NULL;

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn state() -> Lua {
        let lua = Lua::new();
        prepare(&lua).unwrap();
        lua
    }

    fn round_trip(json: &str) -> String {
        let lua = state();
        let holder = lua.create_table().unwrap();
        read_into(&lua, json, &holder, "value").unwrap();
        // A large integer would lose its type outside of its table.
        let written = write(&lua, &Value::Table(holder)).unwrap();
        let written = String::from_utf8(written).unwrap();
        written.strip_prefix("{\"value\":").unwrap().strip_suffix('}').unwrap().to_owned()
    }

    #[test]
    fn the_budgets_of_a_document_are_checked_on_its_text() {
        let check = |json: String| check_size(&RawValue::from_string(json).unwrap());
        let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(check(nested(MAX_DEPTH)).is_ok());
        assert!(matches!(check(nested(MAX_DEPTH + 1)), Err(JsonError::TooDeep { .. })));
        assert!(matches!(check(format!("[{}0]", "0,".repeat(MAX_NODES))), Err(JsonError::TooMany)));
        assert!(check(format!("[\"\\\"{}\"]", "[,".repeat(MAX_NODES))).is_ok());
        assert!(matches!(check(format!("\"{}\"", "x".repeat(MAX_BYTES))), Err(JsonError::TooLarge)));
    }

    #[test]
    fn json_survives_a_round_trip_through_lua() {
        for json in [
            "null",
            "true",
            "0",
            "-1",
            "1.5",
            "9007199254740992",
            "9007199254740993",
            "-9007199254740993",
            "9223372036854775807",
            "-9223372036854775808",
            "[]",
            "{}",
            "[[],{}]",
            "[null,null]",
            r#"{"a":[1,2,{"b":null}],"c":"\u0000\"\\é"}"#,
            "[9007199254740993]",
        ] {
            assert_eq!(round_trip(json), json);
        }
    }

    #[test]
    fn a_number_past_64_bits_is_read_as_the_nearest_float() {
        assert_eq!(round_trip("18446744073709551615"), "1.8446744073709552e+19");
    }
}
