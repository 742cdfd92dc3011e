//! `re`: regular expressions in time linear in the text, which Lua's own patterns are not.
//!
//! `test(pattern, text)`, `match(pattern, text)`, `find_all(pattern, text)`, `replace(pattern, text, with)`,
//! `split(pattern, text)`, `escape(text)`. The syntax is that of Rust's `regex` crate.
//!
//! No clock interrupts a search, so that a pattern and a text are refused if they are too much for each other.

use super::{Maker, Raise, text};
use crate::scripting::lua::{
    json::{NULL, array_metatable},
    limits,
};
use mlua::{Lua, LuaString, Table, Value};
use regex::{Regex, RegexBuilder};
use regex_automata::{PatternID, nfa::thompson::NFA};

/// The longest pattern, in bytes.
const MAX_PATTERN: usize = 1024;

/// The most groups of a pattern.
const MAX_GROUPS: usize = 32;

/// The longest text searched.
const MAX_SEARCHED: usize = 128 << 10;

/// The largest product of a text's length and a pattern's [`Pattern::step`]: less than a second of an
/// unoptimised build, for the worst there is.
const MAX_WORK: usize = 3 << 30;

/// The largest a compiled pattern may be, in bytes.
const MAX_COMPILED: usize = 256 << 10;

/// Compiled patterns a state keeps.
const KEPT: usize = 16;

/// Patterns compiled before, the one used last at the end.
#[derive(Default)]
struct Compiled(Vec<Pattern>);

#[derive(Clone)]
struct Pattern {
    regex: Regex,
    /// What one byte of text costs at worst: every state of the automaton is entered, and each keeps the bounds
    /// of all groups.
    step: usize,
}

impl Pattern {
    /// # Errors
    ///
    /// Fails if this is no pattern or too large a one.
    fn new(source: &str) -> Result<Self, Raise> {
        let regex = RegexBuilder::new(source).size_limit(MAX_COMPILED).dfa_size_limit(1 << 20).build();
        let regex = regex.map_err(|error| error.to_string())?;
        let automaton = NFA::new(source).map_err(|error| error.to_string())?;
        if automaton.group_info().group_len(PatternID::ZERO) > MAX_GROUPS + 1 {
            return Err(Raise::Message(format!("the pattern has more than {MAX_GROUPS} groups")));
        }
        // Entering a state takes about as long as keeping eight bounds.
        let step = automaton.states().len() * (8 + automaton.group_info().slot_len());
        Ok(Self { regex, step })
    }

    /// The text, if searching it for this pattern cannot take long.
    fn searchable<'a>(&self, subject: &'a [u8]) -> Result<&'a str, Raise> {
        let subject = text(subject, "text", MAX_SEARCHED)?;
        if subject.len().saturating_mul(self.step) > MAX_WORK {
            return Err(Raise::Message("the text and the pattern are too long for each other".to_owned()));
        }
        Ok(subject)
    }
}

pub(super) fn module(maker: &Maker<'_>) -> mlua::Result<Table> {
    maker.lua.set_app_data(Compiled::default());
    let module = maker.lua.create_table()?;
    module.raw_set(
        "test",
        maker.function("re.test", |lua, (pattern, subject): (LuaString, LuaString)| {
            let pattern = compiled(lua, &pattern)?;
            Ok(pattern.regex.is_match(pattern.searchable(&subject.as_bytes())?))
        })?,
    )?;
    module.raw_set(
        "match",
        maker.function("re.match", |lua, (pattern, subject): (LuaString, LuaString)| {
            let pattern = compiled(lua, &pattern)?;
            let subject = subject.as_bytes();
            let captures = pattern.regex.captures(pattern.searchable(&subject)?);
            captures.map(|captures| found(lua, &pattern.regex, &captures)).transpose()
        })?,
    )?;
    module.raw_set(
        "find_all",
        maker.function("re.find_all", |lua, (pattern, subject): (LuaString, LuaString)| {
            let pattern = compiled(lua, &pattern)?;
            let subject = subject.as_bytes();
            let all = lua.create_table()?;
            for one in pattern.regex.find_iter(pattern.searchable(&subject)?) {
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
            let pattern = compiled(lua, &pattern)?;
            let (subject, with) = (subject.as_bytes(), with.as_bytes());
            let (subject, with) = (pattern.searchable(&subject)?, text(&with, "replacement", MAX_SEARCHED)?);
            let mut out = String::new();
            let mut copied = 0;
            for captures in pattern.regex.captures_iter(subject) {
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
            let pattern = compiled(lua, &pattern)?;
            let subject = subject.as_bytes();
            let parts = lua.create_table()?;
            for part in pattern.regex.split(pattern.searchable(&subject)?) {
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
fn compiled(lua: &Lua, source: &LuaString) -> Result<Pattern, Raise> {
    let source = source.as_bytes();
    let source = text(&source, "pattern", MAX_PATTERN)?;
    let mut kept = lua.app_data_mut::<Compiled>().expect("the library put it there");
    let pattern = match kept.0.iter().position(|pattern| pattern.regex.as_str() == source) {
        Some(at) => kept.0.remove(at),
        None => Pattern::new(source)?,
    };
    if kept.0.len() == KEPT {
        kept.0.remove(0);
    }
    kept.0.push(pattern.clone());
    Ok(pattern)
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
