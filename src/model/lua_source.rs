//! The size limits of Lua sources that users store on the server.

/// The longest Lua source of a sink, script, library, tool or health check, in bytes.
///
/// The compiler itself has no limit on memory or time, so the length of its input is the only bound on its cost.
pub const MAX_SOURCE: usize = 64 << 10;

/// The longest filter of a sink or subscription, in bytes: it is one expression.
pub const MAX_FILTER: usize = 4 << 10;
