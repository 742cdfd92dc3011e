//! Scripts kept on the server, by name: Lua that sinks and spaces run, libraries that others load, tools.
//!
//! [`definition`] makes a [`Script`] of what its user writes, [`records`] all of them. Whoever runs as
//! an owner finds that owner's scripts and everybody's; of two libraries or tools of one name the owner's own counts.
//! [`tools`] runs tools, and [`tool_events`] is how those raise events.

pub mod definition;
pub mod records;
#[cfg(test)]
mod tests;
pub mod tool_events;
pub mod tools;

pub use definition::ScriptDefinitionError;
pub use records::{Scripts, ScriptsError};
pub use tool_events::ToolEventEmitter;
pub use tools::{ToolError, ToolRunner};

use crate::{
    model::{
        id::ScriptId,
        library::{Language, Library, LibraryName},
        owner::Owner,
        schema,
        script_spec::ScriptKind,
        timestamp::Timestamp,
    },
    scripting::lua::{CompileError, Program},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::{fmt, sync::OnceLock};

/// One script, checked. It is stored as this JSON.
#[derive(Debug, Serialize, Deserialize)]
pub struct Script {
    pub id: ScriptId,
    /// Unique among its owner's scripts of every kind.
    pub name: String,
    pub kind: ScriptKind,
    #[serde(default)]
    pub language: Language,
    pub owner: Owner,
    #[serde(default)]
    pub description: String,
    pub content: String,
    /// An inactive script is kept and not run, and an inactive library or tool is not found.
    pub active: bool,
    /// Of a tool: what its arguments are checked against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params_schema: Option<Value>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    #[serde(skip)]
    made: Made,
}

/// What is made of a script when first needed, and then kept for as long as this version of it.
#[derive(Default)]
struct Made {
    program: OnceLock<Result<Program, CompileError>>,
    checker: OnceLock<Result<schema::SchemaValidator, schema::SchemaError>>,
    digest: OnceLock<[u8; 32]>,
}

/// Why a script cannot be run by whoever names it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScriptUnavailable {
    /// Gone, or not for them.
    #[error("the stored script {0} is not there any more: name another one")]
    Missing(ScriptId),
    #[error("the stored script `{0}` is not active: activate it, or name another one")]
    Inactive(String),
    #[error("`{name}` is no script but a {kind}: name a script")]
    OtherKind { name: String, kind: ScriptKind },
    #[error("the stored script `{name}` does not compile: {error}")]
    Compile { name: String, error: CompileError },
}

impl Script {
    /// What it compiles to; `None` for what is not Lua.
    ///
    /// # Errors
    ///
    /// What was saved by an older version may no longer compile.
    pub fn program(&self) -> Option<Result<&Program, &CompileError>> {
        if self.language != Language::Lua {
            return None;
        }
        Some(self.made.program.get_or_init(|| compile(self.kind, &self.name, &self.content)).as_ref())
    }

    /// It as a library for spaces, if it is one.
    pub fn library(&self) -> Option<Library> {
        if self.kind != ScriptKind::Library {
            return None;
        }
        // What was saved had a proper name; a later version may reserve more.
        let name = LibraryName::parse(&self.name).ok()?;
        Some(Library { name, language: self.language, source: self.content.clone() })
    }

    /// Tells its content from every other.
    pub fn digest(&self) -> [u8; 32] {
        *self.made.digest.get_or_init(|| Sha256::digest(&self.content).into())
    }

    /// The name under which MCP clients see a tool.
    pub fn mcp_name(&self) -> String {
        self.name.replace('.', "_")
    }

    /// Checks arguments against the tool's schema, if it has one.
    ///
    /// # Errors
    ///
    /// Says what does not fit, and where.
    pub fn check_arguments(&self, arguments: &Value) -> Result<(), schema::ValidationError> {
        let Some(schema) = &self.params_schema else { return Ok(()) };
        match self.made.checker.get_or_init(|| schema::SchemaValidator::new(schema)) {
            Ok(checker) => checker.check(arguments),
            // What was saved by an older version may no longer be taken.
            Err(error) => {
                let reason = format!("nothing fits the tool's `params_schema`: {error}");
                Err(schema::ValidationError { at: String::new(), reason })
            }
        }
    }
}

/// Compiles Lua as what it is for.
fn compile(kind: ScriptKind, name: &str, source: &str) -> Result<Program, CompileError> {
    match kind {
        ScriptKind::Script => Program::script(name, source),
        ScriptKind::Library => Program::library(name, source),
        ScriptKind::Tool => Program::tool(name, source),
    }
}

impl fmt::Debug for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Made")
    }
}
