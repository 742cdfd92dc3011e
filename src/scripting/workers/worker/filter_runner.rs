//! Runs the filters of an event, one after the other, in the state that all filters of this worker share.

use super::remote_host::RemoteHost;
use crate::scripting::lua::{
    CompileError, EventFields, FilterArguments, FilterState, FilterVerdict, LuaStates, Program, RunClock, ScriptError,
};
use parking_lot::Mutex;
use std::{iter, sync::Arc};

/// The state between two events, if there is one that can be used again.
#[derive(Default)]
pub(super) struct FilterRunner(Mutex<Option<FilterState>>);

/// The arguments of all filters of an event.
enum SharedArguments {
    NotMade,
    Made(FilterArguments),
    /// The fields that all of them name together are over a budget, for this reason. Each gets only what it names
    /// itself.
    OverBudget(String),
}

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
        let failed = |error: ScriptError| FilterVerdict::Failed(error.to_string());
        let mut state = self.0.lock().take();
        let mut shared = SharedArguments::NotMade;
        let run_one = |program: &Option<Result<Program, CompileError>>| {
            let program = match program {
                Some(Ok(program)) => program,
                Some(Err(error)) => return Err(ScriptError::Compile(error.clone())),
                None => return Err(ScriptError::Host),
            };
            clock.check().map_err(ScriptError::Limit)?;
            let mut used = match state.take() {
                Some(state) => state,
                None => FilterState::new(&states.services, states.limits).map_err(|_| ScriptError::Host)?,
            };
            if matches!(shared, SharedArguments::NotMade) {
                shared = match used.arguments(programs.iter().flatten().flatten(), fields, clock) {
                    Ok(arguments) => SharedArguments::Made(arguments),
                    Err(error @ ScriptError::Data(_)) => SharedArguments::OverBudget(error.to_string()),
                    Err(error) => return Err(error),
                };
            }
            let verdict = match &shared {
                SharedArguments::Made(arguments) => used.run(program, arguments, clock),
                SharedArguments::OverBudget(why) if program.takes_whole_data() => {
                    Ok(FilterVerdict::Failed(why.clone()))
                }
                _ => match used.arguments(iter::once(program), fields, clock) {
                    Ok(arguments) => used.run(program, &arguments, clock),
                    Err(error @ ScriptError::Data(_)) => Ok(failed(error)),
                    Err(error) => return Err(error),
                },
            };
            match verdict {
                Ok(verdict) => {
                    state = Some(used);
                    Ok(verdict)
                }
                Err(limit) => {
                    // The arguments belong to the state, which is not used again.
                    if matches!(shared, SharedArguments::Made(_)) {
                        shared = SharedArguments::NotMade;
                    }
                    Err(ScriptError::Limit(limit))
                }
            }
        };
        let verdicts = programs.iter().map(run_one).map(|verdict| verdict.unwrap_or_else(failed)).collect();
        drop(shared);
        *self.0.lock() = state.filter(FilterState::is_reusable);
        verdicts
    }
}
