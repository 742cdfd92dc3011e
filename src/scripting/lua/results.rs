//! The results of a run, one type for each kind of run.

use super::{error::ScriptError, verdict::Verdict};
use bytes::Bytes;
use serde_json::value::RawValue;
use std::{collections::BTreeMap, time::Duration};

/// The body that a template returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedBody {
    pub body: Bytes,
    pub kind: BodyFormat,
    /// The lines the template printed.
    pub log: Vec<String>,
}

/// The format of a rendered body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFormat {
    /// The template returned a table.
    Json,
    /// The template returned a string, or is a text template. The text may still be JSON.
    Text,
}

/// The outcome of a script's run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptRun {
    pub verdict: Verdict,
    /// The lines the script printed and logged, bounded.
    pub log: Vec<String>,
    pub cpu: Duration,
}

/// The outcome of a tool's run.
#[derive(Debug)]
pub struct ToolRun {
    /// The returned value, `null` if there is none.
    pub result: Result<Box<RawValue>, ScriptError>,
    /// The lines the tool printed and logged, bounded.
    pub log: Vec<String>,
    pub cpu: Duration,
}

/// The outcome of a transform's run.
#[derive(Debug)]
pub struct TransformRun {
    /// The JSON text of the returned value, `null` if there is none.
    pub result: Result<String, ScriptError>,
    /// The lines the transform printed and logged, bounded.
    pub log: Vec<String>,
}

/// The answer of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterVerdict {
    /// The expression is true.
    Match,
    /// The expression is `false`, `nil` or `null`.
    Refuse,
    /// The expression has no value, for this reason.
    Failed(String),
}

/// The answer of a health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckVerdict {
    /// The script returned `true`.
    Healthy,
    /// The script returned something else; the text is its reason.
    Unhealthy(String),
}

/// The outcome of a run of a space's program.
#[derive(Debug)]
pub struct ProgramRun {
    pub result: Result<(), ScriptError>,
    /// The lines the program printed and logged, if its output was captured.
    pub log: Vec<String>,
    pub cpu: Duration,
    /// The handlers given to `runtime.jsonrpc.method`, by local name.
    pub handlers: BTreeMap<String, MethodHandler>,
}

/// The function of a library that handles a JSON-RPC method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodHandler {
    pub library: String,
    pub function: String,
}
