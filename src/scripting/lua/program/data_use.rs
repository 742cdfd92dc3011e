//! The part of an event's data that a program can touch, found in its source.
//!
//! A template, script or filter reaches the data as `event.data`, or through a library that it requires; a filter also
//! as `...`, which is looked for where it is compiled. If its source has the name `event` only in the forms
//! `event.NAME` and `event.data.NAME`, the program cannot see that the other fields of the data were not read. Every
//! other form takes the whole data: `event` or `event.data` in a variable or a call, an index in brackets, and
//! `require`.

use super::strings::string_length;
use std::borrow::Cow;

/// The names that lead to the library `svc.event`.
const OPAQUE: [&str; 2] = ["require", "_G"];

/// The texts by which a string or a comment can span lines, and the line break that ends a comment in Luau but no line
/// of Rust's.
const MULTI_LINE: [&str; 6] = ["[[", "[=", "`", "\\z", "\\\n", "\r"];

/// The most fields that are told apart.
const MAX_FIELDS: usize = 32;

/// The fields of an event's data that a program can touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataUse {
    Whole,
    Fields(Vec<Box<str>>),
}

impl DataUse {
    /// The fields that a source can touch.
    pub fn of(source: &str) -> Self {
        let mut found = Self::Fields(Vec::new());
        found.add(source);
        found
    }

    /// The fields that any of several programs can touch.
    pub fn of_any<'a>(mut uses: impl Iterator<Item = &'a Self>) -> Cow<'a, Self> {
        let mut found = Cow::Borrowed(uses.next().unwrap_or(&Self::Whole));
        for other in uses {
            match (&*found, other) {
                (Self::Whole, _) => break,
                (_, Self::Whole) => return Cow::Borrowed(other),
                (Self::Fields(known), Self::Fields(names)) => {
                    let new: Vec<_> = names.iter().filter(|name| !known.contains(name)).cloned().collect();
                    if known.len() + new.len() > MAX_FIELDS {
                        return Cow::Owned(Self::Whole);
                    }
                    if !new.is_empty()
                        && let Self::Fields(known) = found.to_mut()
                    {
                        known.extend(new);
                    }
                }
            }
        }
        found
    }

    /// Adds the fields that another source can touch.
    pub fn add(&mut self, source: &str) {
        let Self::Fields(fields) = self else { return };
        let source = source.replace("\r\n", "\n");
        // Then a line is enough to tell strings and comments from code. Otherwise all of it counts as code.
        let line_by_line = !MULTI_LINE.iter().any(|text| source.contains(text));
        if source.lines().any(|line| add_line(fields, line, line_by_line).is_none()) {
            *self = Self::Whole;
        }
    }
}

/// Adds the fields in a line; `None` if it can touch others too.
fn add_line(fields: &mut Vec<Box<str>>, line: &str, skip_texts: bool) -> Option<()> {
    let begins = |character| is_name_character(character) || skip_texts && matches!(character, '"' | '\'' | '-');
    let mut rest = line;
    while let Some(start) = rest.find(begins) {
        rest = &rest[start..];
        if skip_texts && rest.starts_with("--") {
            return Some(());
        }
        let length = match rest.as_bytes()[0] {
            quote @ (b'"' | b'\'') => string_length(rest.as_bytes(), quote),
            b'-' => 1,
            _ => 0,
        };
        if length > 0 {
            rest = &rest[length..];
            continue;
        }
        let (word, after) = split_name(rest);
        rest = after;
        if OPAQUE.contains(&word) {
            return None;
        }
        if word != "event" || is_assigned(rest) {
            continue;
        }
        let (field, after) = field_of(rest)?;
        rest = after;
        if field == "data" {
            let (name, after) = field_of(rest)?;
            rest = after;
            if !fields.iter().any(|known| **known == *name) {
                fields.push(name.into());
            }
            if fields.len() > MAX_FIELDS {
                return None;
            }
        }
    }
    Some(())
}

/// Returns true if a name before this text is that of a field in a table, or of a variable that gets another value.
fn is_assigned(text: &str) -> bool {
    text.trim_start().strip_prefix('=').is_some_and(|rest| !rest.starts_with('='))
}

/// The name that follows as `.name`, and the text behind it.
fn field_of(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = split_name(text.strip_prefix('.')?);
    (!name.is_empty()).then_some((name, rest))
}

/// Splits a text behind the name that it begins with. A number counts as a name, which does no harm.
fn split_name(text: &str) -> (&str, &str) {
    text.split_at(text.find(|character| !is_name_character(character)).unwrap_or(text.len()))
}

fn is_name_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(names: &[&str]) -> DataUse {
        DataUse::Fields(names.iter().map(|name| (*name).into()).collect())
    }

    #[test]
    fn several_programs_touch_what_any_of_them_does() {
        let any = |sources: &[&str]| {
            let uses: Vec<_> = sources.iter().map(|source| DataUse::of(source)).collect();
            DataUse::of_any(uses.iter()).into_owned()
        };
        assert_eq!(any(&["event.data.a"]), fields(&["a"]));
        assert_eq!(any(&["event.data.a", "space.name", "event.data.b and event.data.a"]), fields(&["a", "b"]));
        assert_eq!(any(&["event.data.a", "event.data", "event.data.b"]), DataUse::Whole);
        assert_eq!(any(&["event.data", "event.data.a"]), DataUse::Whole);
        assert_eq!(any(&[]), DataUse::Whole);
        let many: Vec<_> = (0..=MAX_FIELDS).map(|number| format!("event.data.a{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(any(&many), DataUse::Whole);
        assert_eq!(any(&many[1..]), fields(&many[1..].iter().map(|source| &source[11..]).collect::<Vec<_>>()));
    }

    #[test]
    fn a_source_that_names_every_field_touches_these_alone() {
        for (source, names) in [
            ("return {v = event.data.version, w = event.data.version}", &["version"][..]),
            ("return event.data.a.b[event.data.c] .. event.data.d..event.data.e", &["a", "c", "d", "e"]),
            ("event.data.x = 1 return event.data.x", &["x"]),
            ("return event.id .. event.type .. space.name .. my_event .. events", &[]),
            ("return `{event.data.n} of {event.data.m}`", &["n", "m"]),
            ("-- one line for the event\nreturn event.data.n", &["n"]),
            ("return if event.data.on then 'a' else nil", &["on"]),
            (
                "return { event = event.type, text = 'an event\\'s \"event\" ' .. event.data.n - event.data.m } -- of the event",
                &["n", "m"],
            ),
            ("-- for each event\r\nevent = {} return event.data.x", &["x"]),
            ("function event.data.f() end return event.data.f:g()", &["f"]),
            ("", &[]),
        ] {
            assert_eq!(DataUse::of(source), fields(names), "{source}");
        }
        let mut pieces = DataUse::of("event.data.a");
        pieces.add("event.data.b");
        assert_eq!(pieces, fields(&["a", "b"]));
    }

    #[test]
    fn a_source_that_may_touch_more_touches_the_whole() {
        for source in [
            "return event.data",
            "return event",
            "local d = event.data return d.x",
            "local e = event\nreturn e.data.x",
            "return event['data'].x",
            "return event.data['x']",
            "return event.data[k]",
            "return #event.data",
            "return event .data.x",
            "return event.data .x",
            "return event.data\n.x",
            "return event\n.data.x",
            "return event.data..''",
            "return json.encode(event)",
            "for k in pairs(event.data) do end",
            "local event = require 'svc.event' return event.get('x')",
            "return _G['re' .. 'quire']('svc.event').get('x')",
            "return `{event.data}`",
            "return [[\n-- ]] .. json.encode(event)",
            "return 'a\\z\n-- ' .. json.encode(event)",
            "return 'a\\\n-- ' .. json.encode(event)",
            "return event.data.a, `-- {event}`",
            "event:f()",
            "event.data:f()",
            "event.data = {}",
            "function event.data:f() end",
            "return typeof(event)",
            "return event :: any",
            "return event--[[]].data.x",
            "return event == nil",
            "for k in event.data do end",
            "return '\\\\' .. json.encode(event) .. ''",
            "-- a\r return event",
        ] {
            assert_eq!(DataUse::of(source), DataUse::Whole, "{source}");
        }
        let many: String = (0..=MAX_FIELDS).map(|n| format!("f(event.data.n{n}) ")).collect();
        assert_eq!(DataUse::of(&many), DataUse::Whole);
        let mut pieces = DataUse::Whole;
        pieces.add("event.data.b");
        assert_eq!(pieces, DataUse::Whole);
    }
}
