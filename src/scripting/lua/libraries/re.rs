//! `re`: regular expressions that match in time linear in the text, unlike Lua's own patterns.
//!
//! `test(pattern, text)`, `match(pattern, text)`, `find_all(pattern, text)`, `replace(pattern, text, with)`,
//! `split(pattern, text)`, `escape(text)`. The syntax is that of Rust's `regex` crate.
//!
//! No interrupt ends a search, so a pattern and a text are refused if the product of their sizes is too large.

use super::{
    arguments::{MAX_TEXT, text},
    function_builder::FunctionBuilder,
    library_error::LibraryError,
};
use crate::scripting::lua::{
    json::{NULL, array_metatable},
    limits,
};
use mlua::{Lua, LuaString, Table, Value};
use regex::{Regex, RegexBuilder};
use regex_automata::{PatternID, nfa::thompson::NFA, util::interpolate};

/// The longest pattern, in bytes.
const MAX_PATTERN: usize = 1024;

/// The most groups of a pattern.
const MAX_GROUPS: usize = 32;

/// The longest text searched, in bytes.
const MAX_SEARCHED: usize = 128 << 10;

/// The largest product of a text's length and a pattern's [`CachedRegex::step`]: less than a second in an
/// unoptimised build, for the worst pattern.
const MAX_WORK: usize = 3 << 30;

/// The largest compiled pattern, in bytes.
const MAX_COMPILED: usize = 256 << 10;

/// The number of compiled patterns that a state keeps.
const MAX_CACHED: usize = 16;

/// The compiled patterns of a state, the one used last at the end.
#[derive(Default)]
struct RegexCache(Vec<CachedRegex>);

#[derive(Clone)]
struct CachedRegex {
    regex: Regex,
    /// The cost of one byte of text at worst: every state of the automaton is entered, and each keeps the bounds of
    /// all groups.
    step: usize,
}

impl CachedRegex {
    fn new(source: &str) -> Result<Self, LibraryError> {
        let regex = RegexBuilder::new(source).size_limit(MAX_COMPILED).dfa_size_limit(1 << 20).build();
        let regex = regex.map_err(|error| error.to_string())?;
        let automaton = NFA::new(source).map_err(|error| error.to_string())?;
        if automaton.group_info().group_len(PatternID::ZERO) > MAX_GROUPS + 1 {
            return Err(LibraryError::Message(format!("the pattern has more than {MAX_GROUPS} groups")));
        }
        // Entering a state takes about as long as keeping eight bounds.
        let step = automaton.states().len() * (8 + automaton.group_info().slot_len());
        Ok(Self { regex, step })
    }

    /// Checks that searching the text for this pattern cannot take long.
    fn searchable<'a>(&self, subject: &'a [u8]) -> Result<&'a str, LibraryError> {
        let subject = text(subject, "text", MAX_SEARCHED)?;
        if subject.len().saturating_mul(self.step) > MAX_WORK {
            return Err(LibraryError::Message("the text and the pattern are too long for each other".to_owned()));
        }
        Ok(subject)
    }
}

pub(super) fn library(builder: &FunctionBuilder<'_>) -> mlua::Result<Table> {
    builder.lua.set_app_data(RegexCache::default());
    let library = builder.lua.create_table()?;
    library.raw_set(
        "test",
        builder.function("re.test", |lua, (pattern, subject): (LuaString, LuaString)| {
            let pattern = compiled(lua, &pattern)?;
            Ok(pattern.regex.is_match(pattern.searchable(&subject.as_bytes())?))
        })?,
    )?;
    library.raw_set(
        "match",
        builder.function("re.match", |lua, (pattern, subject): (LuaString, LuaString)| {
            let pattern = compiled(lua, &pattern)?;
            let subject = subject.as_bytes();
            let captures = pattern.regex.captures(pattern.searchable(&subject)?);
            captures.map(|captures| match_table(lua, &pattern.regex, &captures)).transpose()
        })?,
    )?;
    library.raw_set(
        "find_all",
        builder.function("re.find_all", |lua, (pattern, subject): (LuaString, LuaString)| {
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
    library.raw_set(
        "replace",
        builder.function("re.replace", |lua, (pattern, subject, with): (LuaString, LuaString, LuaString)| {
            let pattern = compiled(lua, &pattern)?;
            let (subject, with) = (subject.as_bytes(), with.as_bytes());
            let (subject, with) = (pattern.searchable(&subject)?, text(&with, "replacement", MAX_SEARCHED)?);
            replace_all(lua, &pattern.regex, subject, with)
        })?,
    )?;
    library.raw_set(
        "split",
        builder.function("re.split", |lua, (pattern, subject): (LuaString, LuaString)| {
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
    library.raw_set(
        "escape",
        builder.function("re.escape", |_, plain: LuaString| {
            Ok(regex::escape(text(&plain.as_bytes(), "text", MAX_PATTERN)?))
        })?,
    )?;
    Ok(library)
}

/// The text with every match replaced, as [`Regex::replace_all`] does it. A result that grows over [`MAX_TEXT`] is not
/// built further: a short replacement can name a long group many times.
fn replace_all(lua: &Lua, regex: &Regex, subject: &str, with: &str) -> Result<String, LibraryError> {
    let mut out = String::new();
    let (mut copied, mut is_over) = (0, false);
    for captures in regex.captures_iter(subject) {
        limits::check(lua)?;
        let whole = captures.get_match();
        out.push_str(&subject[copied..whole.start()]);
        let append = |group: usize, out: &mut String| {
            let group = captures.get(group).map_or("", |group| group.as_str());
            is_over |= out.len() + group.len() > MAX_TEXT;
            if !is_over {
                out.push_str(group);
            }
        };
        let group_of_name = |name: &str| regex.capture_names().position(|found| found == Some(name));
        interpolate::string(with, append, group_of_name, &mut out);
        copied = whole.end();
        is_over |= out.len() > MAX_TEXT;
        if is_over {
            return Err(LibraryError::Message(format!("the result has more than {MAX_TEXT} bytes")));
        }
    }
    out.push_str(&subject[copied..]);
    Ok(out)
}

/// The compiled pattern, from the cache if it is there.
fn compiled(lua: &Lua, source: &LuaString) -> Result<CachedRegex, LibraryError> {
    let source = source.as_bytes();
    let source = text(&source, "pattern", MAX_PATTERN)?;
    let mut cache = lua.app_data_mut::<RegexCache>().expect("the library put it there");
    let pattern = match cache.0.iter().position(|pattern| pattern.regex.as_str() == source) {
        Some(at) => cache.0.remove(at),
        None => CachedRegex::new(source)?,
    };
    if cache.0.len() == MAX_CACHED {
        cache.0.remove(0);
    }
    cache.0.push(pattern.clone());
    Ok(pattern)
}

/// A match as Lua sees it: `{text, first, last, groups, named}`; a group that did not match is `json.null`.
fn match_table(lua: &Lua, regex: &Regex, captures: &regex::Captures<'_>) -> Result<Table, LibraryError> {
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
