//! The services that a runtime gives to its programs.

use super::{http::HttpClient, modules::ModuleSource, space_agent::SpaceKv, tool_context::MethodCaller};
use std::sync::Arc;

/// The services behind the libraries of a runtime's programs.
#[derive(Clone)]
pub struct HostServices {
    pub http: Arc<dyn HttpClient>,
    /// The store behind `kv`, if there is one, whose `get` never waits. Programs of a space use their agent's instead.
    pub kv: Option<Arc<dyn SpaceKv>>,
    pub caller: Arc<dyn MethodCaller>,
    /// Modules that `require` finds besides the built-in ones.
    pub modules: Arc<dyn ModuleSource>,
}
