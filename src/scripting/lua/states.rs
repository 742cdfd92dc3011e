//! The Lua states of a runtime or a worker: takes one for a run, and puts it back unless the run spoilt it.

use super::{
    error::ScriptError,
    host::HostServices,
    limits::{LimitExceeded, RunClock, RunLimits},
    program::Program,
    sandbox::Sandbox,
    state_pool::StatePool,
};
use std::{
    pin::pin,
    task::{Context, Poll},
};

/// Makes Lua states with these limits and services, and keeps them between runs.
pub(in crate::scripting) struct LuaStates {
    pub limits: RunLimits,
    pub services: HostServices,
    pool: StatePool,
}

impl LuaStates {
    pub fn new(limits: RunLimits, services: HostServices, pool: StatePool) -> Self {
        Self { limits, services, pool }
    }

    /// Takes a state of this program from the pool, or makes one.
    pub fn take(&self, program: &Program) -> Result<Sandbox, ScriptError> {
        if let Some(sandbox) = self.pool.take(program) {
            return Ok(sandbox);
        }
        Sandbox::new(program, &self.services, self.limits).map_err(|error| match error {
            mlua::Error::MemoryError(_) => ScriptError::Limit(LimitExceeded::Memory(self.limits.memory)),
            other => {
                log::error!("cannot make a Lua state: {other}");
                ScriptError::Host
            }
        })
    }

    /// Pools the state of a run that is over, unless the run exceeded a limit.
    pub fn put(&self, program: &Program, sandbox: Sandbox, error: Option<&ScriptError>) {
        let exceeded_limit = matches!(error, Some(ScriptError::Limit(_) | ScriptError::LimitAt { .. }));
        if !exceeded_limit && sandbox.is_reusable() {
            self.pool.put(program, sandbox);
        }
    }

    /// Takes a state of this program out of the pool, and returns whether there was one.
    #[cfg(test)]
    pub fn was_kept(&self, program: &Program) -> bool {
        self.pool.take(program).is_some()
    }

    /// Closes every pooled state.
    pub fn clear(&self) {
        self.pool.clear();
    }
}

/// Polls `run` until it is done or over a limit, also while it waits.
pub(in crate::scripting) async fn within<T>(
    clock: &RunClock,
    run: impl Future<Output = Result<T, ScriptError>>,
) -> Result<T, ScriptError> {
    let mut run = pin!(run);
    let result = std::future::poll_fn(|context: &mut Context<'_>| match clock.check() {
        Ok(()) => run.as_mut().poll(context),
        Err(limit) => Poll::Ready(Err(ScriptError::Limit(limit))),
    })
    .await;
    match clock.exceeded() {
        Some(limit) => Err(ScriptError::Limit(limit)),
        None => result,
    }
}
