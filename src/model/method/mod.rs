//! What a space publishes: methods, and the server process that answers them (SPEC 2.1).
//!
//! [`Registration`] is what a user wrote, in a file or built by a script. [`Registration::publish`] checks it against
//! every rule and gives the [`Method`]s that callers see.

mod health;
mod publish;
mod registration;

pub use health::MethodServerHealth;
pub use publish::PublishError;
pub use registration::{MethodDefinition, MethodScope, Registration, ServerDefinition, ServerMode, ServerTransport};

use crate::model::{id::GroupId, pattern::Patterns};
use serde_json::Value;
use std::sync::Arc;

/// A published method of one space.
#[derive(Clone, Debug, PartialEq)]
pub struct Method {
    /// The canonical name, `{{space}}` expanded.
    pub name: Arc<str>,
    /// What the method server knows it by.
    pub local_name: Arc<str>,
    pub definition: MethodInterface,
    /// The json-rpc sinks that may shape events for it, in the order to ask them.
    pub event_sinks: Vec<String>,
}

/// What a caller sees of a method. Spaces of one owner that publish the same name must agree on all of it (SPEC D1).
#[derive(Clone, Debug, PartialEq)]
pub struct MethodInterface {
    pub description: String,
    pub keywords: Vec<String>,
    pub scope: MethodScope,
    /// Who may see it, if it is shared; everybody if empty. Sorted.
    pub groups: Vec<GroupId>,
    pub mcp_tool: bool,
    pub params_schema: Option<Value>,
    pub result_schema: Option<Value>,
    /// What it is called for besides.
    pub events: Option<Patterns>,
}

/// The longest name of an MCP tool, in bytes. Common clients take no longer one.
pub const MAX_TOOL_NAME: usize = 128;

impl Method {
    /// Its name among MCP tools (SPEC 4.1).
    pub fn tool_name(&self) -> String {
        Self::tool_named(&self.name)
    }

    /// The tool name of a method that is called by this name.
    pub fn tool_named(name: &str) -> String {
        name.replace('.', "_")
    }
}
