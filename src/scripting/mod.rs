//! Lua: the sandbox that runs it ([`lua`]), the processes in which the server runs that of its users ([`workers`]), the
//! scripts stored on the server ([`scripts`]), and the runtime for the programs of a space ([`space_runtime`]).

pub mod lua;
pub mod scripts;
pub mod space_runtime;
pub mod workers;
