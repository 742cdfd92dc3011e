//! Event patterns: `*`, a dotted prefix ending in `.*`, or an exact type; several separated by commas.
//! They are checked once, when a sink is saved. Only the text is kept, because there may be very many sinks; the
//! matcher's trie is made of the patterns read from it.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{collections::HashSet, fmt, str::FromStr};

/// The longest list of patterns, in bytes.
pub const MAX_LIST_BYTES: usize = 4096;

/// One pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pattern<'a> {
    /// `*`: every event.
    All,
    /// `a.b.*`: every type that starts with `a.b.`, however many segments follow. Holds `a.b`.
    Prefix(&'a str),
    /// `a.b`: that type only.
    Exact(&'a str),
}

/// One or more patterns of a sink, as the user wrote them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patterns(Box<str>);

/// A fault in a pattern list. The position counts characters from 1 over the whole list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason} at position {position}")]
pub struct PatternError {
    pub position: usize,
    pub reason: PatternErrorKind,
}

/// The rule that a pattern breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternErrorKind {
    #[error("an empty pattern (write `*` for every event)")]
    Empty,
    #[error("an empty segment")]
    EmptySegment,
    #[error("a wildcard in the wrong place (only `*` alone or a final `.*` is a wildcard)")]
    Wildcard,
    #[error("the character `{0}` (segments are [A-Za-z0-9_-])")]
    BadCharacter(char),
    #[error("a list of more than {MAX_LIST_BYTES} bytes")]
    TooLong,
}

impl<'a> Pattern<'a> {
    /// Reads an entry of a list, which is correct.
    fn of(entry: &'a str) -> Self {
        let entry = entry.trim();
        match entry.strip_suffix(".*") {
            Some(prefix) => Self::Prefix(prefix),
            None if entry == "*" => Self::All,
            None => Self::Exact(entry),
        }
    }

    /// Returns true if an event of this type matches. The matcher's trie gives the same result for all sinks at once;
    /// this is for explanations, filters, and tests of the trie.
    pub fn matches(&self, kind: &str) -> bool {
        match self {
            Self::All => true,
            Self::Exact(exact) => *exact == kind,
            Self::Prefix(prefix) => {
                kind.strip_prefix(prefix).is_some_and(|rest| rest.len() > 1 && rest.starts_with('.'))
            }
        }
    }
}

impl Patterns {
    /// Returns true if any of the patterns matches.
    pub fn matches(&self, kind: &str) -> bool {
        self.entries().any(|pattern| pattern.matches(kind))
    }

    /// The patterns, each once.
    pub fn iter(&self) -> impl Iterator<Item = Pattern<'_>> {
        let mut seen = HashSet::new();
        self.entries().filter(move |pattern| seen.insert(*pattern))
    }

    /// The list as the user wrote it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn entries(&self) -> impl Iterator<Item = Pattern<'_>> {
        self.0.split(',').map(Pattern::of)
    }
}

impl fmt::Display for Pattern<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::Prefix(prefix) => write!(f, "{prefix}.*"),
            Self::Exact(exact) => f.write_str(exact),
        }
    }
}

impl FromStr for Patterns {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if text.len() > MAX_LIST_BYTES {
            return Err(PatternError { position: MAX_LIST_BYTES + 1, reason: PatternErrorKind::TooLong });
        }
        let mut start = 0;
        for entry in text.split(',') {
            let indent = entry.chars().take_while(|c| c.is_whitespace()).count();
            check_one(entry.trim())
                .map_err(|(offset, reason)| PatternError { position: start + indent + offset + 1, reason })?;
            start += entry.chars().count() + 1;
        }
        Ok(Self(text.into()))
    }
}

/// Checks one trimmed entry; a fault carries its character offset within the entry.
fn check_one(entry: &str) -> Result<(), (usize, PatternErrorKind)> {
    if entry.is_empty() {
        return Err((0, PatternErrorKind::Empty));
    }
    if entry == "*" {
        return Ok(());
    }
    let body = entry.strip_suffix(".*").unwrap_or(entry);
    let mut after_dot = true;
    for (offset, found) in body.chars().enumerate() {
        match found {
            '.' if after_dot => return Err((offset, PatternErrorKind::EmptySegment)),
            '.' => after_dot = true,
            'A'..='Z' | 'a'..='z' | '0'..='9' | '_' | '-' => after_dot = false,
            '*' => return Err((offset, PatternErrorKind::Wildcard)),
            other => return Err((offset, PatternErrorKind::BadCharacter(other))),
        }
    }
    if after_dot {
        return Err((body.chars().count(), PatternErrorKind::EmptySegment));
    }
    Ok(())
}

impl Serialize for Patterns {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Patterns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> (usize, PatternErrorKind) {
        let error = text.parse::<Patterns>().expect_err(text);
        (error.position, error.reason)
    }

    #[test]
    fn a_prefix_is_greedy_but_needs_something_after_its_dot() {
        let app: Patterns = "custom.app.*".parse().unwrap();
        assert!(app.matches("custom.app.a"));
        assert!(app.matches("custom.app.a.b"));
        assert!(!app.matches("custom.app"));
        assert!(!app.matches("custom.apple.a"));
    }

    #[test]
    fn an_exact_pattern_matches_that_type_only() {
        let exact: Patterns = "space.created".parse().unwrap();
        assert!(exact.matches("space.created"));
        assert!(!exact.matches("space.created.x"));
        assert!(!exact.matches("custom.space.created"));
    }

    #[test]
    fn a_star_matches_every_event() {
        assert!("*".parse::<Patterns>().unwrap().matches("anything.at.all"));
    }

    #[test]
    fn entries_are_trimmed_and_any_of_them_may_match() {
        let both: Patterns = " space.* ,\tcustom.done ".parse().unwrap();
        assert!(both.matches("space.created") && both.matches("custom.done"));
        assert!(!both.matches("custom.other"));
        let again: Patterns = "a.*, *,a , a.*,*".parse().unwrap();
        assert!(again.iter().eq([Pattern::Prefix("a"), Pattern::All, Pattern::Exact("a")]), "each is listed once");
    }

    #[test]
    fn leading_and_middle_wildcards_are_refused_with_their_position() {
        assert_eq!(fault("a.*.b"), (3, PatternErrorKind::Wildcard));
        assert_eq!(fault("*.x"), (1, PatternErrorKind::Wildcard));
        assert_eq!(fault("foo*"), (4, PatternErrorKind::Wildcard));
        assert_eq!(fault("ok, bad*"), (8, PatternErrorKind::Wildcard));
        assert_eq!(fault("**"), (1, PatternErrorKind::Wildcard));
    }

    #[test]
    fn empty_entries_and_segments_are_refused() {
        assert_eq!(fault(""), (1, PatternErrorKind::Empty));
        assert_eq!(fault("a,,b"), (3, PatternErrorKind::Empty));
        assert_eq!(fault("a..b"), (3, PatternErrorKind::EmptySegment));
        assert_eq!(fault(".*"), (1, PatternErrorKind::EmptySegment));
        assert_eq!(fault("a b"), (2, PatternErrorKind::BadCharacter(' ')));
    }
}
