//! `re`: regular expressions in time linear in the text, which Lua's own patterns are not.
//!
//! `test(pattern, text)`, `match(pattern, text)`, `find_all(pattern, text)`, `replace(pattern, text, with)`,
//! `split(pattern, text)`, `escape(text)`. The syntax is that of Rust's `regex` crate.

use super::{Maker, Raise, text};
use crate::script::{
    json::{NULL, array_metatable},
    limits,
};
use mlua::{Lua, LuaString, Table, Value};
use regex::{Regex, RegexBuilder};

/// The longest pattern, in bytes.
const MAX_PATTERN: usize = 1024;

/// The longest text searched. One search takes at most the product of this and the size of the compiled
/// pattern, and no clock interrupts it: seconds, for the worst there is.
const MAX_SEARCHED: usize = 128 << 10;

/// The largest a compiled pattern may be, in bytes.
const MAX_COMPILED: usize = 256 << 10;

/// Compiled patterns a state keeps.
const KEPT: usize = 16;

/// Patterns compiled before, the one used last at the end.
#[derive(Default)]
struct Compiled(Vec<Regex>);

pub(super) fn module(maker: &Maker<'_>) -> mlua::Result<Table> {
    maker.lua.set_app_data(Compiled::default());
    let module = maker.lua.create_table()?;
    module.raw_set(
        "test",
        maker.function("re.test", |lua, (pattern, subject): (LuaString, LuaString)| {
            Ok(compiled(lua, &pattern)?.is_match(text(&subject.as_bytes(), "text", MAX_SEARCHED)?))
        })?,
    )?;
    module.raw_set(
        "match",
        maker.function("re.match", |lua, (pattern, subject): (LuaString, LuaString)| {
            let regex = compiled(lua, &pattern)?;
            let subject = subject.as_bytes();
            let captures = regex.captures(text(&subject, "text", MAX_SEARCHED)?);
            captures.map(|captures| found(lua, &regex, &captures)).transpose()
        })?,
    )?;
    module.raw_set(
        "find_all",
        maker.function("re.find_all", |lua, (pattern, subject): (LuaString, LuaString)| {
            let regex = compiled(lua, &pattern)?;
            let subject = subject.as_bytes();
            let all = lua.create_table()?;
            for one in regex.find_iter(text(&subject, "text", MAX_SEARCHED)?) {
                limits::check(lua)?;
                all.raw_push(one.as_str())?;
            }
            all.set_metatable(Some(array_metatable(lua)?))?;
            Ok(all)
        })?,
    )?;
    module.raw_set(
        "replace",
        maker.function("re.replace", |lua, (pattern, subject, with): (LuaString, LuaString, LuaString)| {
            let regex = compiled(lua, &pattern)?;
            let (subject, with) = (subject.as_bytes(), with.as_bytes());
            let (subject, with) = (text(&subject, "text", MAX_SEARCHED)?, text(&with, "replacement", MAX_SEARCHED)?);
            let mut out = String::new();
            let mut copied = 0;
            for captures in regex.captures_iter(subject) {
                limits::check(lua)?;
                let whole = captures.get_match();
                out.push_str(&subject[copied..whole.start()]);
                captures.expand(with, &mut out);
                copied = whole.end();
                super::sized(out.as_bytes(), "result", super::MAX_TEXT)?;
            }
            out.push_str(&subject[copied..]);
            Ok(out)
        })?,
    )?;
    module.raw_set(
        "split",
        maker.function("re.split", |lua, (pattern, subject): (LuaString, LuaString)| {
            let regex = compiled(lua, &pattern)?;
            let subject = subject.as_bytes();
            let parts = lua.create_table()?;
            for part in regex.split(text(&subject, "text", MAX_SEARCHED)?) {
                limits::check(lua)?;
                parts.raw_push(part)?;
            }
            parts.set_metatable(Some(array_metatable(lua)?))?;
            Ok(parts)
        })?,
    )?;
    module.raw_set(
        "escape",
        maker.function("re.escape", |_, plain: LuaString| {
            Ok(regex::escape(text(&plain.as_bytes(), "text", MAX_PATTERN)?))
        })?,
    )?;
    Ok(module)
}

/// The compiled pattern, from before if it was used before.
fn compiled(lua: &Lua, pattern: &LuaString) -> Result<Regex, Raise> {
    let pattern = pattern.as_bytes();
    let pattern = text(&pattern, "pattern", MAX_PATTERN)?;
    let mut kept = lua.app_data_mut::<Compiled>().expect("the library put it there");
    let regex = match kept.0.iter().position(|regex| regex.as_str() == pattern) {
        Some(at) => kept.0.remove(at),
        None => RegexBuilder::new(pattern)
            .size_limit(MAX_COMPILED)
            .dfa_size_limit(1 << 20)
            .build()
            .map_err(|error| error.to_string())?,
    };
    if kept.0.len() == KEPT {
        kept.0.remove(0);
    }
    kept.0.push(regex.clone());
    Ok(regex)
}

/// A match as Lua sees it: `{text, first, last, groups, named}`; a group that took no part is `json.null`.
fn found(lua: &Lua, regex: &Regex, captures: &regex::Captures<'_>) -> Result<Table, Raise> {
    let value = |group: Option<regex::Match<'_>>| match group {
        Some(group) => lua.create_string(group.as_str()).map(Value::String),
        None => Ok(NULL),
    };
    let whole = captures.get_match();
    let groups = lua.create_table()?;
    for group in captures.iter().skip(1) {
        groups.raw_push(value(group)?)?;
    }
    groups.set_metatable(Some(array_metatable(lua)?))?;
    let named = lua.create_table()?;
    for name in regex.capture_names().flatten() {
        named.raw_set(name, value(captures.name(name))?)?;
    }
    let table = lua.create_table()?;
    table.raw_set("text", whole.as_str())?;
    table.raw_set("first", whole.start() + 1)?;
    table.raw_set("last", whole.end())?;
    table.raw_set("groups", groups)?;
    table.raw_set("named", named)?;
    Ok(table)
}
