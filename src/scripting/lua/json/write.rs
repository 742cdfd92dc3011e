//! Writes Lua values as JSON text. No metamethod runs, so that no code of a script runs in here.
//!
//! The values are read from the stack of the Lua state, in one protected call for the whole text.

use super::{CHECK_EVERY, JsonError, MAX_BYTES, MAX_DEPTH, MAX_NODES, array_metatable};
use crate::scripting::lua::limits;
use mlua::{Lua, Value, ffi};
use serde_json::value::RawValue;
use std::{
    ffi::{c_int, c_void},
    fmt::Write as _,
    io::Write as _,
    ptr, slice,
};

/// The most bytes kept of the path in an error. The whole message fits into the bound on texts then.
const MAX_PATH: usize = 3 << 10;

/// Room on the stack for the name and the value of a field, and a metatable.
const STACK_PER_TABLE: c_int = 4;

/// One more than the largest 64-bit integer.
const TWO_TO_THE_63: f64 = 9_223_372_036_854_775_808.0;

/// Writes `value` as JSON. The fields of an object are in order of their names, so that equal tables give equal text.
pub fn write(lua: &Lua, value: &Value) -> Result<Vec<u8>, JsonError> {
    // On its way back into the state an integer would become a float.
    if let Value::Integer(integer) = value {
        return Ok(integer.to_string().into_bytes());
    }
    let array = array_metatable(lua).map_err(JsonError::Lua)?.to_pointer();
    let mut out = Vec::with_capacity(512);
    let mut written = Ok(());
    // SAFETY: the stack has the value, and nothing is left on it. An error of Lua unwinds through the closure, which
    // owns nothing.
    let called = unsafe {
        lua.exec_raw::<()>(value, |state| {
            let mut writer = JsonWriter {
                lua,
                state,
                array,
                out: &mut out,
                pending_names: 0,
                nodes: 0,
                check_at: CHECK_EVERY,
                open: Vec::new(),
            };
            written = writer.value();
            ffi::lua_settop(state, 0);
        })
    };
    called.map_err(JsonError::Lua)?;
    written.map_err(WriteFailure::into_error)?;
    Ok(out)
}

/// Writes `value` as a raw JSON value.
pub fn write_raw(lua: &Lua, value: &Value) -> Result<Box<RawValue>, JsonError> {
    let json = String::from_utf8(write(lua, value)?).expect("JSON is text");
    Ok(RawValue::from_string(json).expect("the writer wrote JSON"))
}

/// Writes the value on top of the stack. All calls of Lua are protected, and no table is changed while it is open.
struct JsonWriter<'a> {
    lua: &'a Lua,
    state: *mut ffi::lua_State,
    array: *const c_void,
    out: &'a mut Vec<u8>,
    /// Bytes of names of the open tables that are not in `out` yet.
    pending_names: usize,
    nodes: usize,
    /// The number of nodes at which the run's clock is checked next.
    check_at: usize,
    /// The tables around the one being written.
    open: Vec<*const c_void>,
}

/// A field of a table: its name, and its place in the table.
struct Field<'a> {
    name: &'a str,
    place: c_int,
}

/// A key or a number, as JSON tells integers from others.
enum LuaNumber {
    Integer(i64),
    Float(f64),
}

// SAFETY of all calls: see `JsonWriter`.
impl<'a> JsonWriter<'a> {
    /// Writes the value on top of the stack, and leaves it there.
    fn value(&mut self) -> Result<(), WriteFailure> {
        match unsafe { ffi::lua_type(self.state, -1) } {
            ffi::LUA_TNIL => self.put("null"),
            ffi::LUA_TLIGHTUSERDATA if unsafe { ffi::lua_touserdata(self.state, -1) }.is_null() => self.put("null"),
            ffi::LUA_TBOOLEAN if unsafe { ffi::lua_toboolean(self.state, -1) } != 0 => self.put("true"),
            ffi::LUA_TBOOLEAN => self.put("false"),
            ffi::LUA_TNUMBER | ffi::LUA_TINTEGER => match self.number(-1) {
                LuaNumber::Integer(integer) => write!(self.out, "{integer}").expect("a vector takes what is written"),
                LuaNumber::Float(number) if number.is_finite() => {
                    serde_json::to_writer(&mut *self.out, &number).expect("a finite number is JSON");
                }
                LuaNumber::Float(_) => return Err(WriteFailure::new(WriteProblem::NotFinite)),
            },
            ffi::LUA_TSTRING => {
                let bytes = self.bytes(-1);
                self.room_for(bytes.len()).map_err(WriteFailure::new)?;
                self.string(std::str::from_utf8(bytes).map_err(|_| WriteFailure::new(WriteProblem::NotText))?)?;
            }
            ffi::LUA_TTABLE => self.table()?,
            other => return Err(WriteFailure::new(WriteProblem::NotJson(type_name(other)))),
        }
        self.room_for(0).map_err(WriteFailure::new)
    }

    /// Writes the table on top of the stack.
    fn table(&mut self) -> Result<(), WriteFailure> {
        let pointer = unsafe { ffi::lua_topointer(self.state, -1) };
        if self.open.contains(&pointer) {
            return Err(WriteFailure::new(WriteProblem::Cycle));
        }
        if self.open.len() == MAX_DEPTH {
            return Err(WriteFailure::new(WriteProblem::TooDeep));
        }
        if unsafe { ffi::lua_checkstack(self.state, STACK_PER_TABLE) } == 0 {
            return Err(WriteFailure::lua(mlua::Error::StackError));
        }
        // A table can be large and have few fields, or none.
        limits::check(self.lua).map_err(WriteFailure::lua)?;
        self.open.push(pointer);
        let length = unsafe { ffi::lua_objlen(self.state, -1) };
        if length > 0 || self.has_array_metatable() {
            self.list(length)?
        } else {
            self.map()?
        }
        self.open.pop();
        Ok(())
    }

    fn has_array_metatable(&self) -> bool {
        unsafe {
            if ffi::lua_getmetatable(self.state, -1) == 0 {
                return false;
            }
            let metatable = ffi::lua_topointer(self.state, -1);
            ffi::lua_pop(self.state, 1);
            metatable == self.array
        }
    }

    fn list(&mut self, length: usize) -> Result<(), WriteFailure> {
        self.count(length)?;
        let mut items = 0;
        self.each_key(|writer, _| {
            match writer.integer_key() {
                Some(index) if index > 0 && index.unsigned_abs() as usize <= length => items += 1,
                Some(index) if index > 0 => return Err(WriteProblem::Gap),
                _ => return Err(WriteProblem::Mixed),
            }
            Ok(true)
        })?;
        if items < length {
            return Err(WriteFailure::new(WriteProblem::Gap));
        }
        self.put("[");
        for index in 1..=length {
            if index > 1 {
                self.put(",");
            }
            unsafe { ffi::lua_rawgeti(self.state, -1, index as _) };
            self.value().map_err(|failure| failure.within(|path| write!(path, "[{index}]")))?;
            unsafe { ffi::lua_pop(self.state, 1) };
        }
        self.put("]");
        Ok(())
    }

    fn map(&mut self) -> Result<(), WriteFailure> {
        let mut fields = Vec::<Field<'a>>::new();
        // A list that has an element 1 is written by `list`.
        let mut items = 0;
        self.each_key(|writer, place| {
            if unsafe { ffi::lua_type(writer.state, -2) } == ffi::LUA_TSTRING {
                let name = writer.name()?;
                fields.push(Field { name, place });
            } else if writer.integer_key().is_some() {
                items += 1;
            } else {
                return Err(WriteProblem::NotJson(key_kind(unsafe { ffi::lua_type(writer.state, -2) })));
            }
            Ok(fields.len() + items <= MAX_NODES)
        })?;
        if items > 0 {
            return Err(WriteFailure::new(if fields.is_empty() { WriteProblem::Gap } else { WriteProblem::Mixed }));
        }
        self.count(fields.len())?;
        fields.sort_unstable_by_key(|field| field.name);
        self.put("{");
        for (index, Field { name, place }) in fields.into_iter().enumerate() {
            if index > 0 {
                self.put(",");
            }
            self.pending_names -= name.len();
            self.string(name)?;
            self.put(":");
            unsafe { ffi::lua_rawiter(self.state, -1, place) };
            self.value().map_err(|failure| failure.within(|path| name_in_path(path, name)))?;
            unsafe { ffi::lua_pop(self.state, 2) };
        }
        self.put("}");
        Ok(())
    }

    /// Calls `visit` with the place of every field of the table on top of the stack, and the field's key and value
    /// above it, until it returns false.
    fn each_key(
        &mut self,
        mut visit: impl FnMut(&mut Self, c_int) -> Result<bool, WriteProblem>,
    ) -> Result<(), WriteFailure> {
        let mut place = 0;
        loop {
            place = unsafe { ffi::lua_rawiter(self.state, -1, place) };
            if place < 0 {
                return Ok(());
            }
            let visited = visit(self, place - 1);
            unsafe { ffi::lua_pop(self.state, 2) };
            if !visited.map_err(WriteFailure::new)? {
                return Ok(());
            }
        }
    }

    /// The key of a visited field, if it is an integer.
    fn integer_key(&self) -> Option<i64> {
        match unsafe { ffi::lua_type(self.state, -2) } {
            ffi::LUA_TNUMBER | ffi::LUA_TINTEGER => match self.number(-2) {
                LuaNumber::Integer(integer) => Some(integer),
                LuaNumber::Float(_) => None,
            },
            _ => None,
        }
    }

    /// The name of a visited field, to be written later. It counts from now on.
    fn name(&mut self) -> Result<&'a str, WriteProblem> {
        let bytes = self.bytes(-2);
        self.room_for(bytes.len())?;
        let name = std::str::from_utf8(bytes).map_err(|_| WriteProblem::NotText)?;
        self.pending_names += name.len();
        Ok(name)
    }

    /// The number at an index of the stack.
    fn number(&self, index: c_int) -> LuaNumber {
        if unsafe { ffi::lua_type(self.state, index) } == ffi::LUA_TINTEGER {
            return LuaNumber::Integer(unsafe { ffi::lua_tointeger64(self.state, index, ptr::null_mut()) });
        }
        let number = unsafe { ffi::lua_tonumber(self.state, index) };
        let integer = number as i64;
        // Bit by bit, because the integer has no negative zero.
        let is_exact = (integer as f64).to_bits() == number.to_bits() && number < TWO_TO_THE_63;
        if is_exact { LuaNumber::Integer(integer) } else { LuaNumber::Float(number) }
    }

    /// The bytes of the string at an index of the stack. They live as long as the string, which a table on the stack
    /// holds.
    fn bytes(&self, index: c_int) -> &'a [u8] {
        let mut length = 0;
        unsafe {
            let bytes = ffi::lua_tolstring(self.state, index, &mut length);
            slice::from_raw_parts(bytes.cast::<u8>(), length)
        }
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
        serde_json::to_writer(&mut *self.out, text).expect("text is JSON");
        self.room_for(0).map_err(WriteFailure::new)
    }
}

fn type_name(kind: c_int) -> &'static str {
    match kind {
        ffi::LUA_TLIGHTUSERDATA => "lightuserdata",
        ffi::LUA_TVECTOR => "vector",
        ffi::LUA_TFUNCTION => "function",
        ffi::LUA_TTHREAD => "thread",
        ffi::LUA_TBUFFER => "buffer",
        _ => "userdata",
    }
}

fn key_kind(kind: c_int) -> &'static str {
    match kind {
        ffi::LUA_TBOOLEAN => "table with a boolean key",
        ffi::LUA_TNUMBER => "table with a fractional key",
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
