//! The methods that a space publishes, and the server process that serves them.
//!
//! [`Registration`] is the definition that a user writes, in a file or by a script. [`Registration::publish`] checks
//! every rule and returns the [`Method`]s that callers see.

mod health;
mod publish;
mod registration;

pub use health::{MethodServerHealth, MethodServerState};
pub use publish::PublishError;
pub use registration::{MethodDefinition, MethodScope, Registration, ServerDefinition, ServerMode, ServerTransport};

use crate::model::{event_filter::EventFilter, id::GroupId, pattern::Patterns};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};

/// A published method of one space.
#[derive(Clone, Debug, PartialEq)]
pub struct Method {
    /// The canonical name, `{{space}}` expanded.
    pub name: Arc<str>,
    /// The name that the method server knows.
    pub local_name: Arc<str>,
    pub definition: MethodInterface,
    /// Decides which of the events that it is called for it gets.
    pub filter: Option<EventFilter>,
    /// The json-rpc sinks that format events for it, in order of preference.
    pub event_sinks: Vec<String>,
}

/// The part of a method that callers see. Spaces of one owner that publish the same name must agree on all of it.
#[derive(Clone, Debug, PartialEq)]
pub struct MethodInterface {
    pub description: String,
    pub keywords: Vec<String>,
    pub scope: MethodScope,
    /// The groups that see a shared method, sorted; every user if empty.
    pub groups: Vec<GroupId>,
    pub mcp_tool: bool,
    pub params_schema: Option<Value>,
    pub result_schema: Option<Value>,
    /// Patterns of the events it is called for.
    pub events: Option<Patterns>,
}

/// The groups that a registration names, by the name or id it uses for them.
pub type GroupIds = BTreeMap<String, GroupId>;

/// The two names of a published method.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MethodNames {
    pub name: String,
    /// The name that the method server knows.
    pub local_name: String,
}

/// The longest name of an MCP tool, in bytes. Common clients accept no longer ones.
pub const MAX_TOOL_NAME: usize = 128;

impl Method {
    /// Its name as an MCP tool.
    pub fn tool_name(&self) -> String {
        Self::tool_named(&self.name)
    }

    /// The tool name of a method that is called by this name.
    pub fn tool_named(name: &str) -> String {
        name.replace('.', "_")
    }
}
