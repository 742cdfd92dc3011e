//! Checks of what callers send that can take long: Lua compiles in a worker of the caller, a schema on a
//! thread where no other request waits behind it.

use crate::{
    model::{
        health_check::{HealthCheck, Probe},
        id::UserId,
        owner::Owner,
    },
    scripting::{
        lua::ScriptError,
        workers::{LuaWorkers, ProgramText},
    },
    server::http::{error::ApiError, user_limits::UserLimits},
};
use tokio_util::task::AbortOnDropHandle;

/// Runs a check of a schema on a thread, once the user has a permit. A check that has not begun when the caller hangs up
/// does not begin; one that has is short, because schemas are small.
pub async fn check_schema<T: Send + 'static>(
    limits: &UserLimits,
    user: UserId,
    check: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    let permit = limits.schema_check(user).await?;
    let checked = AbortOnDropHandle::new(tokio::task::spawn_blocking(move || {
        let _permit = permit;
        check()
    }));
    checked.await.map_err(|error| ApiError::Internal(error.to_string()))
}

/// Checks that a health check written in Lua compiles.
pub async fn check_health_check(
    workers: &LuaWorkers,
    owner: Owner,
    check: Option<&HealthCheck>,
) -> Result<(), ApiError> {
    let Some(HealthCheck { probe: Probe::Lua { source }, .. }) = check else { return Ok(()) };
    let compiled = workers.compile(&ProgramText::script("script", source), owner).await;
    compiled.map_err(|error| not_compiled("health_check.source", error))
}

/// The answer to a caller whose Lua does not compile.
pub fn not_compiled(field: &str, error: ScriptError) -> ApiError {
    match error {
        ScriptError::Compile(error) => ApiError::BadRequest(format!("`{field}` does not compile: {error}")),
        ScriptError::Busy | ScriptError::Stopped | ScriptError::Host => ApiError::Unavailable(error.to_string()),
        other => ApiError::BadRequest(format!("`{field}`: {other}")),
    }
}
