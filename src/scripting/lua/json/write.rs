//! Writes Lua values as JSON text. No metamethod runs, so that no code of a script runs in here.

use super::{CHECK_EVERY, JsonError, MAX_BYTES, MAX_DEPTH, MAX_NODES, NULL, array_metatable};
use crate::scripting::lua::limits;
use mlua::{Lua, LuaString, Table, Value};
use serde_json::value::RawValue;
use std::{ffi::c_void, fmt::Write as _, io::Write as _};

/// The most bytes kept of the path in an error. The whole message fits into the bound on texts then.
const MAX_PATH: usize = 3 << 10;

/// Writes `value` as JSON. The fields of an object are in order of their names, so that equal tables give equal text.
pub fn write(lua: &Lua, value: &Value) -> Result<Vec<u8>, JsonError> {
    let array = array_metatable(lua).map_err(JsonError::Lua)?;
    let mut writer = JsonWriter {
        lua,
        array: array.to_pointer(),
        out: Vec::with_capacity(512),
        pending_names: 0,
        nodes: 0,
        check_at: CHECK_EVERY,
        open: Vec::new(),
    };
    writer.value(value).map_err(WriteFailure::into_error)?;
    Ok(writer.out)
}

/// Writes `value` as a raw JSON value.
pub fn write_raw(lua: &Lua, value: &Value) -> Result<Box<RawValue>, JsonError> {
    let json = String::from_utf8(write(lua, value)?).expect("JSON is text");
    Ok(RawValue::from_string(json).expect("the writer wrote JSON"))
}

struct JsonWriter<'a> {
    lua: &'a Lua,
    array: *const c_void,
    out: Vec<u8>,
    /// Bytes of names that were copied from the open tables and are not in `out` yet.
    pending_names: usize,
    nodes: usize,
    /// The number of nodes at which the run's clock is checked next.
    check_at: usize,
    /// The tables around the one being written.
    open: Vec<*const c_void>,
}

impl JsonWriter<'_> {
    fn value(&mut self, value: &Value) -> Result<(), WriteFailure> {
        match value {
            Value::Nil => self.put("null"),
            null if *null == NULL => self.put("null"),
            Value::Boolean(true) => self.put("true"),
            Value::Boolean(false) => self.put("false"),
            Value::Integer(integer) => {
                write!(self.out, "{integer}").expect("a vector takes what is written");
            }
            Value::Number(number) if number.is_finite() => {
                serde_json::to_writer(&mut self.out, number).expect("a finite number is JSON");
            }
            Value::Number(_) => return Err(WriteFailure::new(WriteProblem::NotFinite)),
            Value::String(string) => {
                self.room_for(string.as_bytes().len()).map_err(WriteFailure::new)?;
                self.string(&string.to_str().map_err(|_| WriteFailure::new(WriteProblem::NotText))?)?;
            }
            Value::Table(table) => self.table(table)?,
            other => return Err(WriteFailure::new(WriteProblem::NotJson(other.type_name()))),
        }
        self.room_for(0).map_err(WriteFailure::new)
    }

    fn table(&mut self, table: &Table) -> Result<(), WriteFailure> {
        let pointer = table.to_pointer();
        if self.open.contains(&pointer) {
            return Err(WriteFailure::new(WriteProblem::Cycle));
        }
        if self.open.len() == MAX_DEPTH {
            return Err(WriteFailure::new(WriteProblem::TooDeep));
        }
        self.open.push(pointer);
        let length = table.raw_len();
        let is_array = length > 0 || table.metatable().is_some_and(|mark| mark.to_pointer() == self.array);
        if is_array {
            self.list(table, length)?
        } else {
            self.map(table)?
        }
        self.open.pop();
        Ok(())
    }

    fn list(&mut self, table: &Table, length: usize) -> Result<(), WriteFailure> {
        self.count(length)?;
        let mut items = vec![Value::Nil; length];
        let mut problem = None;
        let read = table.for_each(|key: Value, value: Value| {
            match key {
                Value::Integer(index) if index > 0 => {
                    match items.get_mut(usize::try_from(index - 1).unwrap_or(usize::MAX)) {
                        Some(item) => *item = value,
                        None => problem = Some(WriteProblem::Gap),
                    }
                }
                _ => problem = Some(WriteProblem::Mixed),
            }
            match problem {
                // Any error ends the iteration; the problem is already known.
                Some(_) => Err(mlua::Error::external("stopped")),
                None => Ok(()),
            }
        });
        if let Some(problem) = problem {
            return Err(WriteFailure::new(problem));
        }
        read.map_err(WriteFailure::lua)?;
        if items.iter().any(Value::is_nil) {
            return Err(WriteFailure::new(WriteProblem::Gap));
        }
        self.put("[");
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.put(",");
            }
            self.value(item).map_err(|failure| failure.within(|path| write!(path, "[{}]", index + 1)))?;
        }
        self.put("]");
        Ok(())
    }

    fn map(&mut self, table: &Table) -> Result<(), WriteFailure> {
        let mut fields = Vec::new();
        let mut problem = None;
        // A list that has an element 1 is written by `list`.
        let mut items = 0;
        let read = table.for_each(|key: Value, value: Value| {
            match key {
                Value::String(name) => match self.name(&name) {
                    Ok(name) => fields.push((name, value)),
                    Err(failure) => problem = Some(failure),
                },
                Value::Integer(_) => items += 1,
                other => problem = Some(WriteProblem::NotJson(key_kind(&other))),
            }
            match problem.is_some() || fields.len() + items > MAX_NODES {
                true => Err(mlua::Error::external("stopped")),
                false => Ok(()),
            }
        });
        if items > 0 {
            problem.get_or_insert(if fields.is_empty() { WriteProblem::Gap } else { WriteProblem::Mixed });
        }
        if let Some(problem) = problem {
            return Err(WriteFailure::new(problem));
        }
        self.count(fields.len())?;
        read.map_err(WriteFailure::lua)?;
        fields.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        self.put("{");
        for (index, (name, value)) in fields.iter().enumerate() {
            if index > 0 {
                self.put(",");
            }
            self.pending_names -= name.len();
            self.string(name)?;
            self.put(":");
            self.value(value).map_err(|failure| failure.within(|path| name_in_path(path, name)))?;
        }
        self.put("}");
        Ok(())
    }

    /// Copies a field's name, to be written later. It counts from now on: Lua shares one long name between many tables,
    /// and each copy takes memory.
    fn name(&mut self, name: &LuaString) -> Result<String, WriteProblem> {
        self.room_for(name.as_bytes().len())?;
        let name = name.to_str().map_err(|_| WriteProblem::NotText)?.to_owned();
        self.pending_names += name.len();
        Ok(name)
    }

    fn count(&mut self, nodes: usize) -> Result<(), WriteFailure> {
        self.nodes += nodes;
        if self.nodes > MAX_NODES {
            return Err(WriteFailure::new(WriteProblem::TooMany));
        }
        if self.nodes >= self.check_at {
            self.check_at = self.nodes + CHECK_EVERY;
            limits::check(self.lua).map_err(WriteFailure::lua)?;
        }
        Ok(())
    }

    fn room_for(&self, bytes: usize) -> Result<(), WriteProblem> {
        if self.out.len() + self.pending_names + bytes > MAX_BYTES { Err(WriteProblem::TooLarge) } else { Ok(()) }
    }

    fn put(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    /// Writes text that fits the budget; its escapes may still exceed it.
    fn string(&mut self, text: &str) -> Result<(), WriteFailure> {
        serde_json::to_writer(&mut self.out, text).expect("text is JSON");
        self.room_for(0).map_err(WriteFailure::new)
    }
}

fn key_kind(key: &Value) -> &'static str {
    match key {
        Value::Boolean(_) => "table with a boolean key",
        Value::Number(_) => "table with a fractional key",
        _ => "table with a key that is no text",
    }
}

fn name_in_path(path: &mut String, name: &str) -> std::fmt::Result {
    let plain = name.chars().all(|c| c.is_alphanumeric() || c == '_') && !name.is_empty();
    if plain { write!(path, ".{name}") } else { write!(path, "[{name:?}]") }
}

/// A problem, without its path.
enum WriteProblem {
    NotJson(&'static str),
    NotFinite,
    NotText,
    Mixed,
    Gap,
    Cycle,
    TooDeep,
    TooMany,
    TooLarge,
    Lua(mlua::Error),
}

/// A problem and the steps of its path, innermost first. They are collected on the way out, so that a value without a
/// problem costs no path.
struct WriteFailure {
    problem: WriteProblem,
    steps: Vec<String>,
}

impl WriteFailure {
    fn new(problem: WriteProblem) -> Self {
        Self { problem, steps: Vec::new() }
    }

    fn lua(error: mlua::Error) -> Self {
        Self::new(WriteProblem::Lua(error))
    }

    fn within(mut self, step: impl FnOnce(&mut String) -> std::fmt::Result) -> Self {
        let mut text = String::new();
        step(&mut text).expect("text takes what is written");
        self.steps.push(text);
        self
    }

    fn into_error(self) -> JsonError {
        let path: String = std::iter::once("$").chain(self.steps.iter().rev().map(String::as_str)).collect();
        let path = path[..path.floor_char_boundary(MAX_PATH)].to_owned();
        match self.problem {
            WriteProblem::NotJson(kind) => JsonError::NotJson { path, kind },
            WriteProblem::NotFinite => JsonError::NotFinite { path },
            WriteProblem::NotText => JsonError::NotText { path },
            WriteProblem::Mixed => JsonError::Mixed { path },
            WriteProblem::Gap => JsonError::Gap { path },
            WriteProblem::Cycle => JsonError::Cycle { path },
            WriteProblem::TooDeep => JsonError::TooDeep { path },
            WriteProblem::TooMany => JsonError::TooMany,
            WriteProblem::TooLarge => JsonError::TooLarge,
            WriteProblem::Lua(error) => JsonError::Lua(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::state, *};

    fn written(lua: &str) -> String {
        let state = state();
        let value = state.load(lua).eval().unwrap();
        match write(&state, &value) {
            Ok(json) => String::from_utf8(json).unwrap(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn tables_become_objects_and_lists() {
        assert_eq!(written("{b = 1, a = {1, 2.5, 'x'}, c = {}}"), r#"{"a":[1,2.5,"x"],"b":1,"c":{}}"#);
        assert_eq!(written("1e300"), "1e+300");
        assert_eq!(written("-0.0"), "-0.0");
        assert_eq!(written("nil"), "null");
    }

    #[test]
    fn a_list_filled_backwards_is_a_list() {
        assert_eq!(written("(function() local t = {} for i = 3, 1, -1 do t[i] = i end return t end)()"), "[1,2,3]");
    }

    #[test]
    fn a_value_that_is_not_json_is_named_with_its_path() {
        for (lua, error) in [
            ("{items = {1, {x = print}}}", "$.items[2].x is a function, which is not JSON"),
            ("print", "$ is a function, which is not JSON"),
            ("{['a b'] = {0/0}}", "$[\"a b\"][1] is not a finite number, which is not JSON"),
            ("{a = math.huge}", "$.a is not a finite number, which is not JSON"),
            ("{a = '\\xff'}", "$.a is not valid UTF-8"),
            ("{a = {1, 2, x = 3}}", "$.a is a table with both list items and named fields, which is not JSON"),
            ("{[5] = 1, x = 2}", "$ is a table with both list items and named fields, which is not JSON"),
            ("{[5] = 1}", "$ is a list with gaps, which is not JSON"),
            ("{a = {1, 2, [9] = 3}}", "$.a is a list with gaps, which is not JSON"),
            ("{[true] = 1}", "$ is a table with a boolean key, which is not JSON"),
            ("{[1.5] = 1}", "$ is a table with a fractional key, which is not JSON"),
            ("(function() local t = {} t.a = {t} return t end)()", "$.a[1] contains itself, which is not JSON"),
        ] {
            assert_eq!(written(lua), error, "{lua}");
        }
    }

    #[test]
    fn a_value_over_a_budget_is_refused() {
        assert_eq!(written("table.create(100001, 1)"), "there are more than 100000 values");
        assert_eq!(written("string.rep('x', 2^20)"), "there are more than 1048576 bytes of JSON");
        assert_eq!(written("{string.rep('x', 2^22)}"), "there are more than 1048576 bytes of JSON");
        let deep = "(function() local t = {} for i = 1, 64 do t = {t} end return t end)()";
        assert!(written(deep).ends_with("is nested deeper than 64 levels"), "{}", written(deep));
        // One long name in many tables, and one that only grows when it is written.
        let named =
            "(function() local t, name = {}, ('x'):rep(6e5) for i = 1, 20 do t = {[name] = t} end return t end)()";
        assert_eq!(written(named), "there are more than 1048576 bytes of JSON");
        assert_eq!(written("{[('\\1'):rep(2e5)] = 1}"), "there are more than 1048576 bytes of JSON");
        // A table that contains another twice, thirty times over, is a billion values in a few bytes.
        let doubling = "(function() local t = {1} for i = 1, 30 do t = {t, t} end return t end)()";
        assert_eq!(written(doubling), "there are more than 100000 values");
    }

    #[test]
    fn no_metamethod_is_called() {
        assert_eq!(written("setmetatable({a = 1}, {__index = error, __len = error, __iter = error})"), r#"{"a":1}"#);
    }
}
