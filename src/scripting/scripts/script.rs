//! One stored script.

use crate::{
    model::{
        id::ScriptId,
        library::{Language, Library, LibraryName},
        owner::Owner,
        script_spec::ScriptKind,
        timestamp::Timestamp,
    },
    scripting::workers::ProgramText,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::{fmt, sync::OnceLock};

/// One script, checked. The store keeps it as this JSON.
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
    /// An inactive script is not run, and an inactive library or tool is not found.
    pub active: bool,
    /// The JSON Schema of a tool's arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params_schema: Option<Value>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    #[serde(skip)]
    pub(super) derived: DerivedParts,
}

/// Values derived from this version of a script, each made when it is first needed.
#[derive(Default)]
pub(super) struct DerivedParts {
    pub program: OnceLock<ProgramText>,
    digest: OnceLock<[u8; 32]>,
}

/// The reason the script that a sink or a space names cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScriptUnavailable {
    /// Deleted, or not visible to the owner of the sink or space.
    #[error("the stored script {0} is not there any more: name another one")]
    Missing(ScriptId),
    #[error("the stored script `{0}` is not active: activate it, or name another one")]
    Inactive(String),
    #[error("`{name}` is no script but a {kind}: name a script")]
    OtherKind { name: String, kind: ScriptKind },
}

impl Script {
    /// Tells if a change from `other` to this version changes nothing.
    pub fn is_same_as(&self, other: &Self) -> bool {
        let key = |script: &Self| (script.id, script.kind, script.language, script.owner, script.active);
        key(self) == key(other)
            && self.name == other.name
            && self.description == other.description
            && self.content == other.content
            && self.params_schema == other.params_schema
    }

    /// The program; `None` if the script is not Lua.
    pub fn program(&self) -> Option<&ProgramText> {
        if self.language != Language::Lua {
            return None;
        }
        Some(self.derived.program.get_or_init(|| match self.kind {
            ScriptKind::Script => ProgramText::script(&self.name, &self.content),
            ScriptKind::Library => ProgramText::library(&self.name, &self.content),
            ScriptKind::Tool => ProgramText::tool(&self.name, &self.content),
        }))
    }

    /// The library for spaces, if the script is a library.
    pub fn library(&self) -> Option<Library> {
        if self.kind != ScriptKind::Library {
            return None;
        }
        // The name was valid when it was saved; a later version may reserve more names.
        let name = LibraryName::parse(&self.name).ok()?;
        Some(Library { name, language: self.language, source: self.content.clone() })
    }

    /// The SHA-256 digest of the content.
    pub fn digest(&self) -> [u8; 32] {
        *self.derived.digest.get_or_init(|| Sha256::digest(&self.content).into())
    }

    /// The name of a tool in MCP.
    pub fn mcp_name(&self) -> String {
        self.name.replace('.', "_")
    }
}

impl fmt::Debug for DerivedParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DerivedParts")
    }
}
