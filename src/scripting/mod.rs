//! Lua: the sandbox and its executor ([`lua`]), scripts stored on the server ([`scripts`]), and the runtime for programs
//! of a space ([`space_runtime`]).

pub mod lua;
pub mod scripts;
pub mod space_runtime;
