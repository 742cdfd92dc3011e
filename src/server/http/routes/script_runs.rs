//! Running a stored script now, to try it out or to use it: a tool with arguments, a script on a sample event. It runs
//! as the caller.

use super::{scripts, sinks::Sample, sinks::sample_input};
use crate::{
    model::{api::schemas, owner::Owner, permission::Permission, script_spec::ScriptKind},
    scripting::{
        lua::{ScriptError, Verdict},
        scripts::{Script, ToolError},
    },
    server::http::{ApiError, Call, Json},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use std::{sync::Arc, time::Duration};

/// What to run a script with.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunBody {
    /// For a tool: its arguments. None if absent.
    #[schemars(with = "Option<schemas::Object>")]
    params: Option<Box<RawValue>>,
    /// For a script: the type of a sample event, `sample` if absent; `custom.` is put in front.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// For a script: what the sample event carries.
    #[schemars(with = "Option<schemas::Object>")]
    payload: Option<Box<RawValue>>,
}

/// How it went. That a script fails is an answer, and no failure of the request.
#[derive(Serialize, JsonSchema)]
pub struct RunView {
    /// Of a tool `done` or `failed`; of a script what a sink would note: `delivered`, `skipped`, `failed` or `dead`.
    outcome: &'static str,
    /// What a tool returned, if it is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<RunError>,
    /// What it printed and logged.
    log: Vec<String>,
    /// The processor time it took.
    cpu_ms: f64,
}

/// Why it failed.
#[derive(Serialize, JsonSchema)]
pub struct RunError {
    message: String,
    /// Set if the tool raised a table with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    data: Option<Box<RawValue>>,
}

pub async fn run(call: Call, body: Option<Json<RunBody>>) -> Result<Json<RunView>, ApiError> {
    let script = scripts::find(&call)?;
    may_run(&call, &script)?;
    let body = body.map(|Json(body)| body).unwrap_or_default();
    match script.kind {
        ScriptKind::Library => {
            Err(ApiError::BadRequest("a library is not run: run something that requires it".to_owned()))
        }
        ScriptKind::Tool if body.kind.is_some() || body.payload.is_some() => {
            Err(ApiError::BadRequest("`type` and `payload` are for scripts: give a tool `params`".to_owned()))
        }
        ScriptKind::Tool => evaluate(&call, &script, body.params).await,
        ScriptKind::Script if body.params.is_some() => {
            Err(ApiError::BadRequest("`params` are for tools: give a script `type` and `payload`".to_owned()))
        }
        ScriptKind::Script => try_out(&call, &script, Sample { kind: body.kind, payload: body.payload }).await,
    }
    .map(Json)
}

/// Whoever sees a tool may call it, as MCP clients do. The rest is for those who write scripts.
fn may_run(call: &Call, script: &Script) -> Result<(), ApiError> {
    let manages = scripts::check_manages(call.caller(), script.owner);
    if !script.active && manages.is_err() {
        return Err(ApiError::Conflict(format!("`{}` is not active", script.name)));
    }
    let writes = [Permission::ManageOwnScripts, Permission::ManageGlobalScripts];
    if script.kind == ScriptKind::Tool || writes.into_iter().any(|permission| call.caller().may(permission)) {
        return Ok(());
    }
    Err(ApiError::Forbidden("trying out a script needs the permission manage_own_scripts".to_owned()))
}

async fn evaluate(call: &Call, tool: &Arc<Script>, params: Option<Box<RawValue>>) -> Result<RunView, ApiError> {
    let user = call.caller().user.id;
    let _trial = call.app.rations.trial(user)?;
    let arguments = params.unwrap_or_else(super::events::empty_object);
    let run = call.app.toolbox.run(tool, user, arguments).await.map_err(|error| match error {
        ToolError::NoObject | ToolError::Unreadable(_) | ToolError::TooMuch(_) | ToolError::Unfit(_) => {
            ApiError::BadRequest(format!("`params`: {error}"))
        }
        ToolError::Compile(_) | ToolError::NoTool => ApiError::Conflict(format!("`{}`: {error}", tool.name)),
        ToolError::Stopped => ApiError::Unavailable(error.to_string()),
    })?;
    let (result, error) = match run.result {
        Ok(result) => (Some(result), None),
        Err(error @ (ScriptError::Busy | ScriptError::Stopped)) => {
            return Err(ApiError::Unavailable(format!("{error}: try again")));
        }
        Err(ScriptError::RaisedWith { code, message, data }) => (None, Some(RunError { message, code, data })),
        Err(error) => (None, Some(RunError::new(error.to_string()))),
    };
    let outcome = if error.is_none() { "done" } else { "failed" };
    Ok(RunView { outcome, result, error, log: run.log, cpu_ms: milliseconds(run.cpu) })
}

async fn try_out(call: &Call, script: &Script, sample: Sample) -> Result<RunView, ApiError> {
    let user = call.caller().user.id;
    let _trial = call.app.rations.trial(user)?;
    let input = sample_input(call, sample)?;
    let program = match script.program() {
        Some(Ok(program)) => program,
        Some(Err(error)) => {
            return Err(ApiError::Conflict(format!("`{}` no longer compiles: {error}", script.name)));
        }
        None => return Err(ApiError::BadRequest("only Lua is run here".to_owned())),
    };
    let mut run = call.app.context.runtime.run_script(program, Owner::User(user), input).await;
    let (outcome, error) = match run.verdict {
        Verdict::Ack => ("delivered", None),
        Verdict::Skip(why) => {
            if !why.is_empty() {
                run.log.push(format!("skipped: {why}"));
            }
            ("skipped", None)
        }
        Verdict::Failed(why) | Verdict::Retry { why, .. } => ("failed", Some(RunError::new(why))),
        Verdict::Dead(why) => ("dead", Some(RunError::new(why))),
        Verdict::NotRun(why) => return Err(ApiError::Unavailable(format!("{why}: try again"))),
    };
    Ok(RunView { outcome, result: None, error, log: run.log, cpu_ms: milliseconds(run.cpu) })
}

impl RunError {
    const fn new(message: String) -> Self {
        Self { message, code: None, data: None }
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
