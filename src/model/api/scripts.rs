//! Stored scripts and their runs. A [`ScriptSpec`] makes a script.

use super::{lenient::Lenient, list::Limit, schemas};
use crate::model::{
    delivery::AttemptOutcome,
    id::{EventId, ScriptId},
    json_input::{self, JsonFields},
    library::Language,
    owner::OwnerSpec,
    script_spec::{ScriptKind, ScriptSpec},
    timestamp::Timestamp,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use std::{borrow::Cow, fmt};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptQuery {
    /// The script of this name; two if the caller has one and there is a global one.
    pub name: Option<String>,
    pub kind: Option<ScriptKind>,
    pub owner: Option<OwnerSpec>,
    #[serde(default)]
    pub limit: Limit,
    pub cursor: Option<String>,
}

/// A whole script, field by field, so that an absent field differs from one set to its default.
#[derive(Deserialize)]
#[serde(transparent)]
pub struct ScriptFields(pub JsonFields);

/// The fields of a script that are to change; null removes one.
#[derive(Deserialize)]
#[serde(transparent)]
pub struct ScriptPatch(pub JsonFields);

/// A script without its content.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct ScriptSummary {
    pub id: ScriptId,
    pub name: String,
    pub kind: ScriptKind,
    pub language: Language,
    pub owner: OwnerSpec,
    pub description: String,
    /// An inactive script is kept and not run, and an inactive library or tool is not found.
    pub active: bool,
    /// The length of its content, in bytes.
    pub size: usize,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Script")]
pub struct ScriptView {
    #[serde(flatten)]
    pub summary: ScriptSummary,
    pub content: String,
    /// The JSON Schema of a tool's arguments.
    pub params_schema: Option<Value>,
}

/// The input of a run.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunBody {
    /// For a tool: its arguments; none if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schemas::AnyObject>")]
    pub params: Option<Box<RawValue>>,
    /// For a script: the type of a sample event, `sample` if absent; `custom.` is put in front.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// For a script: the payload of the sample event.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "json_input::payload")]
    #[schemars(with = "schemas::AnyObject")]
    pub payload: Option<Box<RawValue>>,
    /// For a script: a recorded event that the caller may see, in place of `type` and `payload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<EventId>,
}

/// A program to compile, and not to run.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckScriptBody {
    /// Lua.
    pub content: String,
}

/// The result of compiling a program.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ScriptCheck")]
pub struct ScriptCheckView {
    /// Absent if it compiles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CompileErrorView>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "CompileError")]
pub struct CompileErrorView {
    /// Counted from 1; absent if the error has no place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    pub message: String,
}

/// The records that name a script.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ScriptReferences")]
pub struct ScriptReferencesView {
    /// Those that the caller may see.
    pub records: Vec<ScriptReferenceView>,
    /// The number of the others, for a caller who manages the script; otherwise 0.
    pub hidden: usize,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ScriptReference")]
pub struct ScriptReferenceView {
    /// `sink`, `space` or `template`.
    pub kind: String,
    pub id: String,
    pub name: String,
}

/// The outcome of a run. The request succeeds even if the script fails.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct RunView {
    /// A tool is `done` or `failed`; a script has the outcome of a sink's attempt: `delivered`, `skipped`, `failed` or
    /// `dead`.
    pub outcome: Lenient<RunOutcome>,
    /// The result of a tool that is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    pub result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
    /// Lines that it printed and logged.
    pub log: Vec<String>,
    /// The processor time it took.
    pub cpu_ms: f64,
}

/// The outcome of a run. Both kinds have the word `failed`, which is read as a script's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RunOutcome {
    Script(AttemptOutcome),
    Tool(ToolOutcome),
}

/// The outcome of a tool's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolOutcome {
    Done,
    Failed,
}

/// The error of a failed run.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct RunError {
    pub message: String,
    /// The code of the table that the tool raised, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    pub data: Option<Box<RawValue>>,
}

impl fmt::Display for RunOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Script(outcome) => outcome.fmt(f),
            Self::Tool(ToolOutcome::Done) => f.write_str("done"),
            Self::Tool(ToolOutcome::Failed) => f.write_str("failed"),
        }
    }
}

impl JsonSchema for RunOutcome {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "RunOutcome".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "enum": [
            ToolOutcome::Done, ToolOutcome::Failed,
            AttemptOutcome::Delivered, AttemptOutcome::Skipped, AttemptOutcome::Dead,
        ]})
    }
}

impl From<String> for RunError {
    fn from(message: String) -> Self {
        Self { message, code: None, data: None }
    }
}

schemas::described_by!(ScriptSpec: ScriptFields, ScriptPatch);
