//! The rules that a JSON Schema can break.

/// The largest schema, as compact JSON, in bytes.
pub const MAX_BYTES: usize = 64 << 10;

/// The most times that a schema may visit one place of a value.
pub const MAX_VISITS: u64 = 10_000;

/// The reason a value is not a usable schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    #[error("a schema is an object, such as {{\"type\": \"object\"}}")]
    NotObject,
    #[error("a schema has at most {MAX_BYTES} bytes; this one has {0}")]
    TooLarge(usize),
    /// `at` is a JSON pointer into the schema; empty for the whole.
    #[error("{}{reason}", if at.is_empty() { String::new() } else { format!("at `{at}`: ") })]
    Malformed { at: String, reason: String },
    #[error("a schema must not have a value looked at more than {} times; make it simpler", MAX_VISITS)]
    TooMuch,
    #[error("too many schemas refer to others, one after the other; make it simpler")]
    TooDeep,
    #[error("a schema must not refer to itself for the same value, only for values within it")]
    Circular,
    #[error("`{0}` leads out of the schema: copy what is meant into `$defs`")]
    Outside(String),
}
