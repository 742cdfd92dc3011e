//! The part of an event's data that a program can touch, found in its source.
//!
//! A program gets the data as `event.data` and in no other way. If its source names a field each time, as in
//! `event.data.service`, nobody can see that the other fields were not read. Everything else takes the whole data: `event` or
//! `event.data` in a variable, an index in brackets, and `require`, because a library sees the event too.

/// The names after which nothing is known: `_G` has `require` too.
const OPAQUE: [&str; 2] = ["require", "_G"];

/// Texts that occur in a string of several lines, and a line break that is none here. Without them, a line that begins with `--` is a comment.
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

    /// Adds the fields that another source can touch.
    pub fn add(&mut self, source: &str) {
        let has_comments = !MULTI_LINE.iter().any(|text| source.contains(text));
        let is_code = |line: &&str| !has_comments || !line.trim_start().starts_with("--");
        let whole = source.lines().filter(is_code).any(|line| self.add_line(line).is_none());
        match self {
            Self::Fields(fields) if !whole && fields.len() <= MAX_FIELDS => {}
            _ => *self = Self::Whole,
        }
    }

    /// Adds the fields in a line; `None` if it can touch others too.
    fn add_line(&mut self, mut line: &str) -> Option<()> {
        while let Some(start) = line.find(is_name) {
            let name;
            (name, line) = split_name(&line[start..]);
            if OPAQUE.contains(&name) {
                return None;
            }
            if name != "event" {
                continue;
            }
            let field;
            (field, line) = field_of(line)?;
            if field == "data" {
                let name;
                (name, line) = field_of(line)?;
                if let Self::Fields(fields) = self
                    && !fields.iter().any(|known| **known == *name)
                {
                    fields.push(name.into());
                }
            }
        }
        Some(())
    }
}

/// The name that follows as `.name`, and the text behind it.
fn field_of(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = split_name(text.strip_prefix('.')?);
    (!name.is_empty()).then_some((name, rest))
}

/// Splits a text behind the name that it begins with. A number counts as a name, which does no harm.
fn split_name(text: &str) -> (&str, &str) {
    text.split_at(text.find(|byte| !is_name(byte)).unwrap_or(text.len()))
}

fn is_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(names: &[&str]) -> DataUse {
        DataUse::Fields(names.iter().map(|name| (*name).into()).collect())
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
            "return event.data.a -- and event",
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
