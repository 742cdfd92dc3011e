//! The rules that a JSON Schema can break.

/// The largest schema, as compact JSON, in bytes.
pub const MAX_BYTES: usize = 64 << 10;

/// The deepest nesting of a schema's JSON.
pub const MAX_NESTING: usize = 64;

/// The most times that a schema may visit one place of a value. An entry of an `enum` counts as a visit.
pub const MAX_VISITS: u64 = 10_000;

/// The most patterns of a schema: `pattern`s and keys of `patternProperties`.
pub const MAX_PATTERNS: usize = 100;

/// The longest pattern, in bytes.
pub const MAX_PATTERN: usize = 1024;

/// The largest automaton of one pattern, in bytes.
pub const MAX_AUTOMATON: usize = 256 << 10;

/// The largest automata of all patterns of a schema together, in bytes.
pub const MAX_AUTOMATA: usize = 1 << 20;

/// The same for the keys of `patternProperties`.
pub const MAX_KEY_AUTOMATA: usize = 128 << 10;

/// The reason a value is not a usable schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    #[error("a schema is an object, such as {{\"type\": \"object\"}}")]
    NotObject,
    #[error("a schema has at most {MAX_BYTES} bytes; this one has {0}")]
    TooLarge(usize),
    #[error("a schema is nested at most {MAX_NESTING} levels deep: move parts of it to `$defs`")]
    TooNested,
    /// `at` is a JSON pointer into the schema; empty for the whole.
    #[error("{}{reason}", if at.is_empty() { String::new() } else { format!("at `{at}`: ") })]
    Malformed { at: String, reason: String },
    /// `at` is a JSON pointer to the pattern.
    #[error("at `{at}`: the pattern `{}` {fault}", shorten(pattern))]
    Pattern { at: String, pattern: String, fault: PatternFault },
    #[error("at `{at}`: a schema has at most {MAX_PATTERNS} patterns")]
    TooManyPatterns { at: String },
    #[error("the patterns of all schemas here compile to more than {limit} bytes: use fewer or simpler ones")]
    PatternsTogether { limit: usize },
    #[error("a schema must not have a value looked at more than {} times; make it simpler", MAX_VISITS)]
    TooMuch,
    #[error("too many schemas refer to others, one after the other; make it simpler")]
    TooDeep,
    #[error("a schema must not refer to itself for the same value, only for values within it")]
    Circular,
    #[error("`{0}` leads out of the schema: copy what is meant into `$defs`")]
    Outside(String),
}

/// The reason a regular expression of a schema is refused. Each reads as the end of a sentence about the pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternFault {
    #[error("is no regular expression: {0}")]
    Malformed(String),
    #[error(
        "has a look-around or a back-reference; neither is supported, because patterns are matched in time linear in the text"
    )]
    NotRegular,
    #[error("has {0} bytes; at most {MAX_PATTERN} are allowed")]
    TooLong(usize),
    #[error("compiles to more than {limit} bytes: repeat less, use `maxLength`, or name smaller classes of characters")]
    TooLarge { limit: usize },
    #[error("brings the compiled patterns of the schema to more than {limit} bytes: use fewer or simpler ones")]
    TooMuch { limit: usize },
}

/// The beginning of a pattern, for a message.
fn shorten(pattern: &str) -> String {
    const SHOWN: usize = 100;
    match pattern.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &pattern[..end]),
        None => pattern.to_owned(),
    }
}
