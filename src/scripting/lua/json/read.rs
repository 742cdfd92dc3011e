//! Reads JSON text straight into Lua tables, without a tree in between.
//!
//! The values are built on the stack of the Lua state, in one protected call for the whole text: each call of its own
//! would cost more than the value.

use super::{CHECK_EVERY, JsonError, MAX_BYTES, MAX_DEPTH, MAX_EXACT, MAX_NODES, mark_array};
use crate::scripting::lua::limits;
use mlua::{IntoLua, Lua, Table, ffi};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::{
    ffi::{c_char, c_int},
    fmt, ptr,
};

/// Room on the stack for a table, and a name and a value on their way into it.
const STACK_PER_TABLE: c_int = 4;

/// Reads `json` and stores the value in `table` under `key`.
///
/// The value is not returned, because an integer past 2^53 exists only inside the Lua state: on its way through Rust it
/// would become a float.
pub fn read_into(lua: &Lua, json: &str, table: &Table, key: impl IntoLua) -> Result<(), JsonError> {
    let mut read = Ok(());
    // SAFETY: the stack has the table and the key, and nothing is left on it. An error of Lua unwinds through the
    // closure, which owns nothing.
    let called = unsafe {
        lua.exec_raw::<()>((table, key), |state| {
            read = push(lua, state, json, None, Mutability::Writable);
            if read.is_ok() {
                ffi::lua_rawset(state, 1);
            }
            ffi::lua_settop(state, 0);
        })
    };
    called.map_err(JsonError::Lua)?;
    read
}

/// Whether a program may change the tables that are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mutability {
    Writable,
    Frozen,
}

/// Reads `json` and pushes the value onto the stack. If `fields` is given, only these are read of an object, and the
/// others skipped. After an error the stack has values too many.
///
/// # Safety
///
/// The call is protected, as [`Lua::exec_raw`] does it.
pub unsafe fn push(
    lua: &Lua,
    state: *mut ffi::lua_State,
    json: &str,
    fields: Option<&[Box<str>]>,
    mutability: Mutability,
) -> Result<(), JsonError> {
    JsonReader { lua, state, mutability, fields, nodes: 0, depth: 0, failure: None }.read(json)
}

struct JsonReader<'a> {
    lua: &'a Lua,
    /// The stack has room for one more value, and for [`STACK_PER_TABLE`] in each table.
    state: *mut ffi::lua_State,
    mutability: Mutability,
    /// The fields of the outermost object that are read; `None` if all are.
    fields: Option<&'a [Box<str>]>,
    nodes: usize,
    depth: usize,
    /// The reason why the parser was made to stop.
    failure: Option<JsonError>,
}

impl JsonReader<'_> {
    /// Reads a text and pushes its value.
    fn read(mut self, json: &str) -> Result<(), JsonError> {
        if json.len() > MAX_BYTES {
            return Err(JsonError::TooLarge);
        }
        let mut text = serde_json::Deserializer::from_str(json);
        let read = ValueSeed(&mut self).deserialize(&mut text).and_then(|()| text.end());
        match (self.failure.take(), read) {
            (Some(failure), _) => Err(failure),
            (None, read) => read.map_err(JsonError::Syntax),
        }
    }

    fn stop<E: serde::de::Error>(&mut self, failure: JsonError) -> E {
        self.failure = Some(failure);
        E::custom("stopped")
    }

    /// Pushes a new table.
    fn begin_table<E: serde::de::Error>(&mut self) -> Result<(), E> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.stop(JsonError::TooDeep { path: "$".to_owned() }));
        }
        // SAFETY: the call is protected, and the room is made first.
        let has_room = unsafe { ffi::lua_checkstack(self.state, STACK_PER_TABLE) != 0 };
        if !has_room {
            return Err(self.stop(JsonError::Lua(mlua::Error::StackError)));
        }
        // SAFETY: as above.
        unsafe { ffi::lua_createtable(self.state, 0, 0) };
        Ok(())
    }

    /// Ends the table on top of the stack.
    fn end_table(&mut self) {
        self.depth -= 1;
        if self.mutability == Mutability::Frozen {
            // SAFETY: the value is a table.
            unsafe { ffi::lua_setreadonly(self.state, -1, 1) };
        }
    }

    fn push_text(&self, text: &str) {
        // SAFETY: the call is protected, and there is room.
        unsafe { ffi::lua_pushlstring(self.state, text.as_ptr().cast::<c_char>(), text.len()) };
    }
}

/// Pushes one value.
struct ValueSeed<'r, 'a>(&'r mut JsonReader<'a>);

impl<'de> DeserializeSeed<'de> for ValueSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.0.nodes += 1;
        if self.0.nodes > MAX_NODES {
            return Err(self.0.stop(JsonError::TooMany));
        }
        if self.0.nodes.is_multiple_of(CHECK_EVERY)
            && let Err(error) = limits::check(self.0.lua)
        {
            return Err(self.0.stop(JsonError::Lua(error)));
        }
        deserializer.deserialize_any(self)
    }
}

// SAFETY of all calls: they are protected, and there is room for the value that each of them pushes.
impl<'de> Visitor<'de> for ValueSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        unsafe { ffi::lua_pushlightuserdata(self.0.state, ptr::null_mut()) };
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        unsafe { ffi::lua_pushboolean(self.0.state, value.into()) };
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        if value.unsigned_abs() <= MAX_EXACT {
            unsafe { ffi::lua_pushnumber(self.0.state, value as f64) };
        } else {
            unsafe { ffi::lua_pushinteger64(self.0.state, value) };
        }
        Ok(())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            Err(_) => self.visit_f64(value as f64),
        }
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        unsafe { ffi::lua_pushnumber(self.0.state, value) };
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        self.0.push_text(value);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let reader = self.0;
        reader.fields = None;
        reader.begin_table()?;
        let mut index = 0;
        while items.next_element_seed(ValueSeed(reader))?.is_some() {
            index += 1;
            unsafe { ffi::lua_rawseti(reader.state, -2, index) };
        }
        unsafe { mark_array(reader.state) };
        reader.end_table();
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let reader = self.0;
        reader.begin_table()?;
        let wanted = reader.fields.take();
        while let Some(name) = fields.next_key_seed(NameSeed { reader, wanted })? {
            match name {
                FoundName::Pushed => {
                    fields.next_value_seed(ValueSeed(reader))?;
                    unsafe { ffi::lua_rawset(reader.state, -3) };
                }
                FoundName::Unwanted => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        reader.end_table();
        Ok(())
    }
}

/// Pushes the name of a field, if the field is read.
struct NameSeed<'r, 'a> {
    reader: &'r JsonReader<'a>,
    /// The fields that are read; `None` if all are.
    wanted: Option<&'r [Box<str>]>,
}

enum FoundName {
    Pushed,
    Unwanted,
}

impl<'de> DeserializeSeed<'de> for NameSeed<'_, '_> {
    type Value = FoundName;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<FoundName, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NameSeed<'_, '_> {
    type Value = FoundName;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E>(self, name: &str) -> Result<FoundName, E> {
        if self.wanted.is_some_and(|wanted| !wanted.iter().any(|field| **field == *name)) {
            return Ok(FoundName::Unwanted);
        }
        self.reader.push_text(name);
        Ok(FoundName::Pushed)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::state, *};

    fn read(json: &str) -> Result<(), JsonError> {
        let lua = state();
        let holder = lua.create_table().unwrap();
        read_into(&lua, json, &holder, "value")
    }

    #[test]
    fn an_integer_past_2_to_the_53_is_exact_inside_lua() {
        let lua = state();
        read_into(&lua, r#"{"small":9007199254740992,"big":9007199254740993}"#, &lua.globals(), "data").unwrap();
        let seen: String = lua.load("return type(data.small) .. type(data.big) .. tostring(data.big)").eval().unwrap();
        assert_eq!(seen, "numberinteger9007199254740993");
    }

    #[test]
    fn a_document_over_a_budget_is_refused() {
        assert!(matches!(read(&format!("[{}0]", "0,".repeat(MAX_NODES))), Err(JsonError::TooMany)));
        assert!(matches!(read(&format!("\"{}\"", "x".repeat(MAX_BYTES))), Err(JsonError::TooLarge)));
        let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(read(&nested(MAX_DEPTH)).is_ok());
        assert!(matches!(read(&nested(MAX_DEPTH + 1)), Err(JsonError::TooDeep { .. })));
    }

    #[test]
    fn of_an_object_the_named_fields_are_read_and_of_anything_else_all() {
        let lua = state();
        for (json, read) in [
            (r#"{"a":{"a":1,"b":2},"b":3,"\u0061b":4,"c":[5]}"#, r#"{"a":{"a":1,"b":2},"ab":4}"#),
            (r#"[{"a":1,"b":2},{"b":3}]"#, r#"[{"a":1,"b":2},{"b":3}]"#),
            ("{}", "{}"),
            ("\"b\"", "\"b\""),
        ] {
            let holder = lua.create_table().unwrap();
            // SAFETY: the stack has the table, and nothing is left on it.
            let pushed = unsafe {
                lua.exec_raw::<()>(&holder, |state| {
                    push(&lua, state, json, Some(&["a".into(), "ab".into()]), Mutability::Writable).unwrap();
                    ffi::lua_rawsetfield(state, 1, c"value".as_ptr());
                    ffi::lua_settop(state, 0);
                })
            };
            pushed.unwrap();
            let written = crate::scripting::lua::json::write(&lua, &holder.raw_get("value").unwrap()).unwrap();
            assert_eq!(String::from_utf8(written).unwrap(), read);
        }
    }

    #[test]
    fn invalid_json_is_refused() {
        for text in ["", "{", "[1,]", "1 2", "nul", "{a:1}", "1e400"] {
            assert!(matches!(read(text), Err(JsonError::Syntax(_))), "{text}");
        }
    }
}
