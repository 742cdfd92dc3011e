//! Running a stored script now, to try it out or to use it: a tool with arguments, a script on a sample event. It runs
//! as the caller.

use super::{scripts, sinks::sample_input};
use crate::{
    model::{
        api::{
            scripts::{RunBody, RunError, RunView},
            sinks::SampleEvent,
        },
        owner::Owner,
        permission::Permission,
        script_spec::ScriptKind,
    },
    scripting::{
        lua::{ScriptError, Verdict},
        scripts::{Script, ToolError},
    },
    server::http::{ApiError, Call, Json},
};
use serde_json::value::RawValue;
use std::{sync::Arc, time::Duration};

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
        ScriptKind::Script => try_out(&call, &script, SampleEvent { kind: body.kind, payload: body.payload }).await,
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
    let _trial = call.app.rations.test_run(user)?;
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
        Err(error) => (None, Some(RunError::from(error.to_string()))),
    };
    let outcome = if error.is_none() { "done" } else { "failed" };
    Ok(RunView { outcome: outcome.to_owned(), result, error, log: run.log, cpu_ms: milliseconds(run.cpu) })
}

async fn try_out(call: &Call, script: &Script, sample: SampleEvent) -> Result<RunView, ApiError> {
    let user = call.caller().user.id;
    let _trial = call.app.rations.test_run(user)?;
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
        Verdict::Failed(why) | Verdict::Retry { why, .. } => ("failed", Some(RunError::from(why))),
        Verdict::Dead(why) => ("dead", Some(RunError::from(why))),
        Verdict::NotRun(why) => return Err(ApiError::Unavailable(format!("{why}: try again"))),
    };
    Ok(RunView { outcome: outcome.to_owned(), result: None, error, log: run.log, cpu_ms: milliseconds(run.cpu) })
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
