//! Reads JSON text straight into Lua tables, without a tree in between.

use super::{CHECK_EVERY, JsonError, MAX_BYTES, MAX_DEPTH, MAX_EXACT, MAX_NODES, NULL, array_metatable};
use crate::scripting::lua::limits;
use mlua::{IntoLua, Lua, Table, Value, ffi};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Reads `json` and stores the value in `table` under `key`.
///
/// The value is not returned, because an integer past 2^53 exists only inside the Lua state: on its way through Rust it
/// would become a float.
pub fn read_into(lua: &Lua, json: &str, table: &Table, key: impl IntoLua) -> Result<(), JsonError> {
    read(lua, json, table, key, Mutability::Writable)
}

/// Reads `json` as [`read_into`] does, into tables that no program can change.
pub fn read_frozen_into(lua: &Lua, json: &str, table: &Table, key: impl IntoLua) -> Result<(), JsonError> {
    read(lua, json, table, key, Mutability::Frozen)
}

/// Whether a program may change the tables that were read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mutability {
    Writable,
    Frozen,
}

fn read(lua: &Lua, json: &str, table: &Table, key: impl IntoLua, mutability: Mutability) -> Result<(), JsonError> {
    if json.len() > MAX_BYTES {
        return Err(JsonError::TooLarge);
    }
    let array = array_metatable(lua).map_err(JsonError::Lua)?;
    let mut reader = JsonReader { lua, array, mutability, nodes: 0, depth: 0, failure: None };
    let mut text = serde_json::Deserializer::from_str(json);
    let read = ValueSeed(&mut reader).deserialize(&mut text).and_then(|value| text.end().map(|()| value));
    match (reader.failure.take(), read) {
        (Some(failure), _) => Err(failure),
        (None, Err(error)) => Err(JsonError::Syntax(error)),
        (None, Ok(value)) => value.put(lua, table, key).map_err(JsonError::Lua),
    }
}

struct JsonReader<'a> {
    lua: &'a Lua,
    array: Table,
    mutability: Mutability,
    nodes: usize,
    depth: usize,
    /// The reason why the parser was made to stop.
    failure: Option<JsonError>,
}

impl JsonReader<'_> {
    fn stop<E: serde::de::Error>(&mut self, failure: JsonError) -> E {
        self.failure = Some(failure);
        E::custom("stopped")
    }

    fn lua<T, E: serde::de::Error>(&mut self, result: mlua::Result<T>) -> Result<T, E> {
        result.map_err(|error| self.stop(JsonError::Lua(error)))
    }

    /// A table that was read to its end.
    fn finished(&mut self, table: Table) -> ReadValue {
        self.depth -= 1;
        if self.mutability == Mutability::Frozen {
            table.set_readonly(true);
        }
        ReadValue::Value(Value::Table(table))
    }

    fn descend<E: serde::de::Error>(&mut self) -> Result<(), E> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.stop(JsonError::TooDeep { path: "$".to_owned() }));
        }
        Ok(())
    }
}

/// A value on its way into a table.
enum ReadValue {
    Value(Value),
    /// An integer that no Lua number can hold.
    Integer(i64),
}

impl ReadValue {
    fn put(self, lua: &Lua, table: &Table, key: impl IntoLua) -> mlua::Result<()> {
        match self {
            Self::Value(value) => table.raw_set(key, value),
            Self::Integer(integer) => {
                // SAFETY: the table and the key are on the stack, which has room for three more values; the closure leaves
                // it as `lua_rawset` does, with the table.
                unsafe {
                    lua.exec_raw::<()>((table, key), |state| {
                        ffi::lua_pushinteger64(state, integer);
                        ffi::lua_rawset(state, -3);
                    })
                }
            }
        }
    }
}

/// Reads one value.
struct ValueSeed<'r, 'a>(&'r mut JsonReader<'a>);

impl<'de> DeserializeSeed<'de> for ValueSeed<'_, '_> {
    type Value = ReadValue;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ReadValue, D::Error> {
        self.0.nodes += 1;
        if self.0.nodes > MAX_NODES {
            return Err(self.0.stop(JsonError::TooMany));
        }
        if self.0.nodes.is_multiple_of(CHECK_EVERY) {
            let checked = limits::check(self.0.lua);
            self.0.lua(checked)?;
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_, '_> {
    type Value = ReadValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<ReadValue, E> {
        Ok(ReadValue::Value(NULL))
    }

    fn visit_bool<E>(self, value: bool) -> Result<ReadValue, E> {
        Ok(ReadValue::Value(Value::Boolean(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<ReadValue, E> {
        Ok(if value.unsigned_abs() <= MAX_EXACT {
            ReadValue::Value(Value::Number(value as f64))
        } else {
            ReadValue::Integer(value)
        })
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<ReadValue, E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            Err(_) => Ok(ReadValue::Value(Value::Number(value as f64))),
        }
    }

    fn visit_f64<E>(self, value: f64) -> Result<ReadValue, E> {
        Ok(ReadValue::Value(Value::Number(value)))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<ReadValue, E> {
        let string = self.0.lua.create_string(value);
        Ok(ReadValue::Value(Value::String(self.0.lua(string)?)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<ReadValue, A::Error> {
        let reader = self.0;
        reader.descend()?;
        let table = reader.lua.create_table();
        let table = reader.lua(table)?;
        let mut index = 0;
        while let Some(item) = items.next_element_seed(ValueSeed(reader))? {
            index += 1;
            let put = item.put(reader.lua, &table, index);
            reader.lua(put)?;
        }
        let marked = table.set_metatable(Some(reader.array.clone()));
        reader.lua(marked)?;
        Ok(reader.finished(table))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<ReadValue, A::Error> {
        let reader = self.0;
        reader.descend()?;
        let table = reader.lua.create_table();
        let table = reader.lua(table)?;
        while let Some(name) = fields.next_key::<std::borrow::Cow<'_, str>>()? {
            let value = fields.next_value_seed(ValueSeed(reader))?;
            let put = value.put(reader.lua, &table, &*name);
            reader.lua(put)?;
        }
        Ok(reader.finished(table))
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
    fn invalid_json_is_refused() {
        for text in ["", "{", "[1,]", "1 2", "nul", "{a:1}", "1e400"] {
            assert!(matches!(read(text), Err(JsonError::Syntax(_))), "{text}");
        }
    }
}
