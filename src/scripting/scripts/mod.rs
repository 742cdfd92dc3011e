//! Scripts stored on the server under a name: scripts that sinks and spaces run, libraries that programs `require`, and
//! tools.
//!
//! [`definition`] makes a [`Script`] of a user's spec, and [`records`] keeps all of them. A program of an owner finds
//! the owner's scripts and the global ones; an owner's library or tool hides the global one of the same name. [`tools`]
//! runs tools, within the [`run_limit`] of each user and after their [`arguments`] were checked, and [`tool_events`]
//! emits their events.

mod arguments;
pub mod definition;
pub mod records;
mod run_limit;
mod script;
#[cfg(test)]
mod tests;
pub mod tool_events;
pub mod tools;

pub use arguments::{ArgumentChecker, ArgumentsError};
pub use definition::ScriptDefinitionError;
pub use records::{ScriptRefusal, Scripts, ScriptsError};
pub use run_limit::{RunLimit, TooManyRuns};
pub use script::{Script, ScriptUnavailable};
pub use tool_events::ToolEventEmitter;
pub use tools::{ToolError, ToolRunner};
