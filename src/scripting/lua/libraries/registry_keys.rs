//! The keys under which a Lua state keeps values in its registry.

/// The environment of the present run.
pub const SCOPE: &str = "scope";

/// The modules that the present run has required.
pub const LOADED: &str = "loaded";

/// The prelude's function that calls another and separates a structured error from a result.
pub const ATTEMPT: &str = "attempt";

/// The prelude's function that calls another and records the location where memory runs out.
pub const TRACED: &str = "traced";

/// The prelude's function that makes the metatable of a table with a field that cannot be read.
pub const UNREADABLE: &str = "unreadable";

/// `require`.
pub const REQUIRE: &str = "require";

/// The function that calls a handler by its library and name.
pub const HANDLE: &str = "handle";
