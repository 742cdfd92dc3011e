//! Running a stored script now, as the caller: a tool with arguments, a script on a sample event.

use super::{
    ownership::{check_manages_scripts_of, manages_scripts, sees_scripts_of},
    sample_event::{empty_object, sample_input},
};
use crate::{
    identity::Caller,
    model::{
        api::{
            scripts::{RunBody, RunError, RunOutcome, RunView, ToolOutcome},
            sinks::SampleEvent,
        },
        delivery::AttemptOutcome,
        owner::Owner,
        script_spec::ScriptKind,
    },
    scripting::{
        lua::{ScriptError, Verdict},
        scripts::{ArgumentsError, Script, ToolError},
    },
    server::http::{ApiError, ApiRequest, Json, services::ScriptRunServices},
};
use serde_json::value::RawValue;
use std::{sync::Arc, time::Duration};

pub async fn run(
    services: Arc<ScriptRunServices>,
    request: ApiRequest,
    body: Option<Json<RunBody>>,
) -> Result<Json<RunView>, ApiError> {
    let caller = request.caller();
    let script = services.scripts.get(request.id()?).filter(|script| sees_scripts_of(caller, script.owner));
    let script = script.ok_or_else(|| ApiError::missing("script"))?;
    check_may_run(caller, &script)?;
    let body = body.map(|Json(body)| body).unwrap_or_default();
    match script.kind {
        ScriptKind::Library => {
            Err(ApiError::BadRequest("a library is not run: run something that requires it".to_owned()))
        }
        ScriptKind::Tool if body.kind.is_some() || body.payload.is_some() || body.event_id.is_some() => Err(
            ApiError::BadRequest("`type`, `payload` and `event_id` are for scripts: give a tool `params`".to_owned()),
        ),
        ScriptKind::Tool => run_tool(&services, caller, &script, body.params).await,
        ScriptKind::Script if body.params.is_some() => {
            Err(ApiError::BadRequest("`params` are for tools: give a script `type` and `payload`".to_owned()))
        }
        ScriptKind::Script => {
            let sample = SampleEvent { kind: body.kind, payload: body.payload, event_id: body.event_id };
            run_script(&services, caller, &script, sample).await
        }
    }
    .map(Json)
}

/// Lets every caller who sees a tool run it, as MCP clients do. Other scripts are run by callers who manage scripts.
fn check_may_run(caller: &Caller, script: &Script) -> Result<(), ApiError> {
    if !script.active && check_manages_scripts_of(caller, script.owner).is_err() {
        return Err(ApiError::Conflict(format!("`{}` is not active", script.name)));
    }
    if script.kind == ScriptKind::Tool || manages_scripts(caller) {
        return Ok(());
    }
    Err(ApiError::Forbidden("trying out a script needs the permission manage_own_scripts".to_owned()))
}

async fn run_tool(
    services: &ScriptRunServices,
    caller: &Caller,
    tool: &Arc<Script>,
    params: Option<Box<RawValue>>,
) -> Result<RunView, ApiError> {
    let user = caller.user.id;
    let arguments = params.unwrap_or_else(empty_object);
    let run = services.tools.run(tool, user, arguments).await.map_err(|error| match error {
        error @ (ToolError::TooManyRuns(_) | ToolError::Arguments(ArgumentsError::Busy)) => {
            ApiError::TooManyRequests { message: error.to_string(), wait: Duration::from_secs(1) }
        }
        ToolError::Arguments(error @ ArgumentsError::Stopped) => ApiError::Unavailable(error.to_string()),
        ToolError::Arguments(error) => ApiError::BadRequest(format!("`params`: {error}")),
        ToolError::NotATool => ApiError::Conflict(format!("`{}`: {error}", tool.name)),
    })?;
    let (result, error) = match run.result {
        Ok(result) => (Some(result), None),
        Err(error @ (ScriptError::Busy | ScriptError::Stopped)) => {
            return Err(ApiError::Unavailable(format!("{error}: try again")));
        }
        Err(ScriptError::RaisedWith { code, message, data }) => (None, Some(RunError { message, code, data })),
        Err(error) => (None, Some(RunError::from(error.to_string()))),
    };
    let outcome = RunOutcome::Tool(if error.is_none() { ToolOutcome::Done } else { ToolOutcome::Failed });
    Ok(RunView { outcome: outcome.into(), result, error, log: run.log, cpu_ms: milliseconds(run.cpu) })
}

async fn run_script(
    services: &ScriptRunServices,
    caller: &Caller,
    script: &Script,
    sample: SampleEvent,
) -> Result<RunView, ApiError> {
    let user = caller.user.id;
    let _permit = services.user_limits.test_run(user)?;
    let input = sample_input(caller, &services.zone, &*services.engine, sample)?;
    let program = script.program().ok_or_else(|| ApiError::BadRequest("only Lua is run here".to_owned()))?;
    let mut run = services.workers.run_script(program, Owner::User(user), input).await;
    let (outcome, error) = match run.verdict {
        Verdict::Ack => (AttemptOutcome::Delivered, None),
        Verdict::Skip(why) => {
            if !why.is_empty() {
                run.log.push(format!("skipped: {why}"));
            }
            (AttemptOutcome::Skipped, None)
        }
        Verdict::Failed(why) | Verdict::Retry { why, .. } => (AttemptOutcome::Failed, Some(RunError::from(why))),
        Verdict::Dead(why) => (AttemptOutcome::Dead, Some(RunError::from(why))),
        Verdict::NotRun(why) => return Err(ApiError::Unavailable(format!("{why}: try again"))),
    };
    let outcome = RunOutcome::Script(outcome).into();
    Ok(RunView { outcome, result: None, error, log: run.log, cpu_ms: milliseconds(run.cpu) })
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
