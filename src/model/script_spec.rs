//! The definition of a stored script, as users write it, and every check that needs no Lua compiler.
//!
//! Each error names the field and the way out. `scripting::scripts` compiles the Lua and makes the stored script.

use super::{
    library::{Language, LibraryName, LibraryNameError},
    lua_source::MAX_SOURCE,
    owner::OwnerSpec,
    schema::{self, SchemaError},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// The longest name, in bytes.
pub const MAX_NAME: usize = 100;

/// The longest description, in characters.
pub const MAX_DESCRIPTION: usize = 1024;

/// A script as users write it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "StoredSpec")]
pub struct ScriptSpec {
    /// Unique among its owner's scripts. Programs load a library by its name, such as `acme.text`.
    pub name: String,
    /// The purpose of the script. It cannot change.
    #[serde(default)]
    pub kind: ScriptKind,
    /// `python` is for libraries that Python in spaces imports. The language cannot change.
    #[serde(default)]
    pub language: Language,
    #[serde(default)]
    pub owner: OwnerSpec,
    #[serde(default)]
    pub description: String,
    /// The source.
    pub content: String,
    /// Absent: true for a new script, unchanged for an existing one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<bool>,
    /// For a tool: the JSON Schema of its arguments, which are an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params_schema: Option<Value>,
}

/// The purpose of a script. It never changes, because everything that names the script relies on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Kind")]
pub enum ScriptKind {
    /// Run by sinks that name it, or by agents at the start of a space.
    #[default]
    Script,
    /// Loaded by other programs.
    Library,
    /// Called with arguments, for a result.
    Tool,
}

/// The rule that a spec breaks.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScriptSpecError {
    #[error("`name` must be 1 to {MAX_NAME} characters: a letter, digit or `_`, then any of those, `.` and `-`")]
    Name,
    #[error("`name`: {0}")]
    LibraryName(#[from] LibraryNameError),
    #[error("`description` has more than {MAX_DESCRIPTION} characters: shorten it")]
    Description,
    #[error("`language`: only a library can be in Python; write a {0} in Lua")]
    NotPython(ScriptKind),
    #[error("`params_schema` belongs to tools: remove it, or change `kind`")]
    MisplacedSchema,
    #[error("`params_schema`: {0}")]
    Schema(#[from] SchemaError),
    #[error("`params_schema`: a tool's arguments are an object, and this schema takes none: set its `type` to object")]
    NoObject,
    #[error("`content` has {0} bytes; at most {MAX_SOURCE} are allowed")]
    TooLong(usize),
}

impl ScriptKind {
    pub const ALL: [Self; 3] = [Self::Script, Self::Library, Self::Tool];

    /// The name used in JSON and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Script => "script",
            Self::Library => "library",
            Self::Tool => "tool",
        }
    }
}

impl ScriptSpec {
    /// Checks every field and reports the first that breaks a rule.
    pub fn check(&self) -> Result<(), ScriptSpecError> {
        check_name(self.kind, self.language, &self.name)?;
        if self.description.chars().count() > MAX_DESCRIPTION {
            return Err(ScriptSpecError::Description);
        }
        self.check_schema()?;
        if self.content.len() > MAX_SOURCE {
            return Err(ScriptSpecError::TooLong(self.content.len()));
        }
        match (self.language, self.kind) {
            (Language::Lua, _) | (Language::Python, ScriptKind::Library) => Ok(()),
            (Language::Python, kind) => Err(ScriptSpecError::NotPython(kind)),
        }
    }

    fn check_schema(&self) -> Result<(), ScriptSpecError> {
        let Some(schema) = &self.params_schema else { return Ok(()) };
        if self.kind != ScriptKind::Tool {
            return Err(ScriptSpecError::MisplacedSchema);
        }
        schema::SchemaValidator::new(schema)?;
        let takes_objects = match schema.get("type") {
            None => true,
            Some(Value::Array(types)) => types.iter().any(|kind| kind == "object"),
            Some(kind) => kind == "object",
        };
        if takes_objects { Ok(()) } else { Err(ScriptSpecError::NoObject) }
    }
}

fn check_name(kind: ScriptKind, language: Language, name: &str) -> Result<(), ScriptSpecError> {
    if kind == ScriptKind::Library {
        LibraryName::parse(name)?.check_for(language)?;
        return Ok(());
    }
    let begins = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let good = name.len() <= MAX_NAME
        && name.bytes().next().is_some_and(begins)
        && name.bytes().all(|byte| begins(byte) || b".-".contains(&byte));
    if good { Ok(()) } else { Err(ScriptSpecError::Name) }
}

impl fmt::Display for ScriptKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for ScriptKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|known| known.to_string() == text);
        known.ok_or_else(|| "expected script, library or tool".to_owned())
    }
}
