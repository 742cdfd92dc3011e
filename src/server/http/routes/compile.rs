//! Compilation of Lua that callers send. It can take long, so it runs on a thread where no other request waits behind it.

use crate::{
    model::health_check::{HealthCheck, Probe},
    scripting::lua::Program,
    server::http::{error::ApiError, user_limits::UserLimits},
};

/// Runs a compilation once a permit is free. The permit is held until it ends, even if the caller hangs up.
pub async fn compile<T: Send + 'static>(
    limits: &UserLimits,
    compile: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    let permit = limits.compilation().await;
    let compiled = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        compile()
    });
    compiled.await.map_err(|error| ApiError::Internal(error.to_string()))
}

/// Checks that a health check written in Lua compiles.
pub async fn check_health_check(limits: &UserLimits, check: Option<&HealthCheck>) -> Result<(), ApiError> {
    let Some(HealthCheck { probe: Probe::Lua { source }, .. }) = check else { return Ok(()) };
    let source = source.clone();
    let compiled = compile(limits, move || Program::script("script", &source).map(drop)).await?;
    compiled.map_err(|error| ApiError::BadRequest(format!("`health_check.source` does not compile: {error}")))
}
