//! Runs the filters of an event, one after the other, in the state that all filters of this worker share.

use super::remote_host::RemoteHost;
use crate::scripting::lua::{
    CompileError, EventFields, FilterState, FilterVerdict, LuaStates, Program, RunClock, ScriptError,
};
use parking_lot::Mutex;
use std::sync::Arc;

/// The state between two events, if there is one that can be used again.
#[derive(Default)]
pub(super) struct FilterRunner(Mutex<Option<FilterState>>);

impl FilterRunner {
    /// Runs these filters and returns the answer of each.
    pub fn run(
        &self,
        host: &RemoteHost,
        states: &LuaStates,
        filters: &[u64],
        fields: &EventFields,
        clock: &Arc<RunClock>,
    ) -> Vec<FilterVerdict> {
        let programs: Vec<_> = filters.iter().map(|id| host.program(*id)).collect();
        let mut ready = None;
        let run_one = |program: &Option<Result<Program, CompileError>>| {
            let program = match program {
                Some(Ok(program)) => program,
                Some(Err(error)) => return Err(ScriptError::Compile(error.clone())),
                None => return Err(ScriptError::Host),
            };
            clock.check().map_err(ScriptError::Limit)?;
            let (mut state, arguments) = match ready.take() {
                Some(ready) => ready,
                None => {
                    let state = match self.0.lock().take() {
                        Some(state) => state,
                        None => FilterState::new(&states.services, states.limits).map_err(|_| ScriptError::Host)?,
                    };
                    let arguments = state.arguments(programs.iter().flatten().flatten(), fields, clock)?;
                    (state, arguments)
                }
            };
            let verdict = state.run(program, &arguments).map_err(ScriptError::Limit)?;
            ready = Some((state, arguments));
            Ok(verdict)
        };
        let failed = |error: ScriptError| FilterVerdict::Failed(error.to_string());
        let verdicts = programs.iter().map(run_one).map(|verdict| verdict.unwrap_or_else(failed)).collect();
        if let Some((state, arguments)) = ready {
            drop(arguments);
            if state.is_reusable() {
                *self.0.lock() = Some(state);
            }
        }
        verdicts
    }
}
