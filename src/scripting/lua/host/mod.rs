//! The traits through which a run reaches the outside, and the values that go through them.
//!
//! The server, the agent and `svc run` implement them; [`super::libraries`] calls them. The message of a failure is
//! shown to the script.

mod http;
mod modules;
mod output;
mod services;
mod space_agent;
mod tool_context;

pub use http::{HttpClient, HttpRequest, HttpResponse, MAX_BODY};
pub use modules::{ModuleSource, NoModules};
pub use output::{OutputWriter, ProgramOutput};
pub use services::HostServices;
pub use space_agent::{AgentReply, SpaceAgent, SpaceKv};
pub use tool_context::{EventEmitter, MethodCaller, ToolContext};
