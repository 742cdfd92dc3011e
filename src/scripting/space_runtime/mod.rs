//! The runtime for the Lua programs of a space: runs a file once ([`LoadedProgram::run_once`]) or as a JSON-RPC method
//! server ([`serve()`]).
//!
//! It is built on [`crate::scripting::lua`] and its threads, limits and isolation of runs. It adds the source of
//! modules ([`modules`], [`owner_libraries`]), the client of the space's agent ([`agent_client`]), and the output of a
//! program ([`output`]). The agent runs set-up scripts with the same modules.

mod agent_client;
mod loaded_program;
mod modules;
mod output;
mod owner_libraries;
mod serve;
mod source_file;

pub use agent_client::AgentClient;
pub use loaded_program::{LoadError, LoadedProgram, MethodsViaAgent, ProgramLimits, ProgramSettings};
pub use modules::SpaceModules;
pub use output::{StandardStreams, StderrOnly};
pub use owner_libraries::{FetchedLibraries, LibrarySource};
pub use serve::{ServeError, serve};
