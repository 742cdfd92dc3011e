//! The Lua sandbox: runs the templates and scripts of sinks, tools, health checks and the programs of spaces.
//!
//! A run of an agent or of `svc run` goes through these files, top to bottom; a worker process of the server
//! ([`super::workers`]) begins with the third:
//!
//! 1. [`runtime`]: the handle that callers use; one method for each kind of run.
//! 2. [`executor`]: the threads that runs take turns on.
//! 3. [`states`] and [`state_pool`]: Lua states kept between runs of one program.
//! 4. [`sandbox`]: one Lua state, its read-only globals, and a run in it.
//! 5. [`libraries`]: the modules a program finds in its state (`http`, `kv`, `json`, …).
//! 6. [`limits`]: the time and memory of a run. The watchdog enforces its time, Lua's allocator its memory.
//!
//! Below them are [`program`] (compiled Lua), [`host`] (the traits through which a run reaches the outside), [`json`]
//! (values between JSON and Lua), and the inputs, results and errors of a run.
//!
//! A run that misbehaves fails itself and nothing else.

mod bounded_text;
mod error;
mod executor;
mod host;
mod inputs;
mod json;
mod libraries;
mod limits;
mod location;
mod program;
mod results;
mod runtime;
mod sandbox;
mod state_pool;
mod states;
mod verdict;

#[cfg(test)]
mod hostile_script_tests;
#[cfg(test)]
mod runtime_tests;
#[cfg(test)]
mod space_program_tests;
#[cfg(test)]
pub(in crate::scripting) mod test_support;

pub(in crate::scripting) use bounded_text::bounded;
pub use error::ScriptError;
pub use host::{
    AgentReply, EventEmitter, HostServices, HttpClient, HttpRequest, HttpResponse, MAX_BODY, MethodCaller,
    ModuleSource, NoModules, OutputWriter, ProgramOutput, SpaceAgent, SpaceKv, ToolContext,
};
pub(in crate::scripting) use inputs::EventFields;
pub use inputs::{CheckedSpace, EventInput, ProgramContext, ToolCall, TransformInput};
#[doc(hidden)]
pub use json::fuzz_json;
pub use json::{JsonError, check_size};
pub(in crate::scripting) use libraries::bounded_log;
pub use limits::LimitExceeded;
pub(in crate::scripting) use limits::{RunClock, RunLimits, Watchdog};
pub use program::{Capabilities, CompileError, MAX_SPACE_FILE, Program, refuse_large_integers};
pub use results::{
    BodyFormat, CheckVerdict, FilterVerdict, MethodHandler, ProgramRun, RenderedBody, ScriptRun, ToolRun, TransformRun,
};
pub use runtime::Runtime;
pub(in crate::scripting) use sandbox::{FILTER_BUDGET, FilterArguments, FilterState};
pub(in crate::scripting) use state_pool::StatePool;
pub(in crate::scripting) use states::{LuaStates, within};
pub use verdict::Verdict;
