//! Filters: expressions that decide, while an event is routed, whether a sink gets it.
//!
//! All filters of an owner run in one Lua state, and those of one event get the same tables, so that the event is read
//! once for all of them. Nothing of a filter is there for the next: the globals, its environment and its arguments are
//! read-only. A state in which a filter exceeded a limit is thrown away.

use super::{
    scope::{self, FilterArguments},
    state::Sandbox,
};
use crate::{
    model::id_map::IdMap,
    scripting::lua::{
        bounded_text::bounded,
        error::ScriptError,
        host::HostServices,
        inputs::EventFields,
        json::JsonError,
        limits::{LimitExceeded, RunClock, RunLimits},
        location,
        program::{self, DataUse, Program, ProgramCode, Variables},
        results::FilterVerdict,
    },
};
use mlua::{Function, Table, Value, VmState};
use std::{sync::Arc, time::Duration};

/// The processor time of one filter.
pub const FILTER_BUDGET: Duration = Duration::from_millis(5);

/// The wall-clock time of one filter, for a machine that has no processor free for it.
const FILTER_WALL: Duration = Duration::from_millis(50);

/// The loaded filters after which a state begins anew. A server names fewer at a time.
const MAX_LOADED: usize = 256;

/// The Lua state of the filters of one owner.
pub(in crate::scripting) struct FilterState {
    sandbox: Sandbox,
    /// The environment of every filter, empty and read-only over the globals.
    environment: Table,
    /// The loaded filters, by the id of their program.
    functions: IdMap<u64, Function>,
}

impl FilterState {
    /// Makes a state for any number of filters.
    ///
    /// # Errors
    ///
    /// Fails if Lua cannot allocate the state.
    pub fn new(services: &HostServices, limits: RunLimits) -> mlua::Result<Self> {
        let first = Program::filter("true").expect("a constant is an expression");
        let sandbox = Sandbox::new(&first, services, limits)?;
        let environment = sandbox.lua.create_table()?;
        environment.set_metatable(Some(sandbox.environment.clone()))?;
        environment.set_readonly(true);
        Ok(Self { sandbox, environment, functions: IdMap::default() })
    }

    /// Makes the arguments of these filters for one event.
    ///
    /// # Errors
    ///
    /// Fails if the event's data is over a budget.
    pub fn arguments<'a>(
        &self,
        filters: impl Iterator<Item = &'a Program> + Clone,
        fields: &EventFields,
        clock: &Arc<RunClock>,
    ) -> Result<FilterArguments, ScriptError> {
        self.sandbox.lua.remove_interrupt();
        self.sandbox.lua.set_app_data(clock.clone());
        let data_use = DataUse::of_any(filters.clone().map(|filter| &filter.0.data_use));
        let variables = filters.map(|filter| filter.0.variables).reduce(Variables::or).unwrap_or(Variables::ALL);
        scope::filter_arguments(&self.sandbox.lua, fields, &data_use, variables).map_err(|error| match error {
            JsonError::Lua(error) => self.sandbox.failed(error, clock, 1),
            other => ScriptError::Data(other),
        })
    }

    /// Runs a filter, as part of this run.
    ///
    /// # Errors
    ///
    /// Fails with a limit that the filter exceeded, after which this state is not to be used again.
    pub fn run(
        &mut self,
        program: &Program,
        arguments: &FilterArguments,
        run: &RunClock,
    ) -> Result<FilterVerdict, LimitExceeded> {
        let limits = RunLimits { cpu: FILTER_BUDGET, wall: FILTER_WALL, memory: self.sandbox.limits.memory };
        let clock = RunClock::new(limits);
        clock.begin_within(run);
        self.interrupt_after_budget(&clock);
        let [event, space, actor] = arguments.each_ref().map(Option::as_ref);
        let call = |function: Function| function.call::<Value>((event, space, actor));
        let returned = self.function(program).and_then(call);
        let returned = returned.map_err(|error| self.sandbox.failed(error, &clock, 1));
        // A filter that caught the error and returned is still over its limit.
        if let Some(limit) = clock.exceeded() {
            return Err(limit);
        }
        match returned {
            Ok(Value::Nil | Value::Boolean(false)) => Ok(FilterVerdict::Refuse),
            Ok(value) if value.is_null() => Ok(FilterVerdict::Refuse),
            Ok(_) => Ok(FilterVerdict::Match),
            Err(ScriptError::Limit(limit)) => Err(limit),
            Err(error) => Ok(FilterVerdict::Failed(bounded(&error.to_string()).to_owned())),
        }
    }

    /// Returns true if the next event may use this state.
    pub fn is_reusable(&self) -> bool {
        self.sandbox.is_reusable() && self.functions.len() <= MAX_LOADED
    }

    /// Makes the interpreter look at the clock of the present filter once its budget may be used up. The watchdog of
    /// other runs ticks too seldom for that.
    fn interrupt_after_budget(&self, clock: &Arc<RunClock>) {
        let clock = clock.clone();
        self.sandbox.lua.set_interrupt(move |lua| {
            if clock.wall() < FILTER_BUDGET {
                return Ok(VmState::Continue);
            }
            match clock.check_now() {
                Ok(()) => Ok(VmState::Continue),
                Err(limit) => {
                    location::record(lua);
                    Err(mlua::Error::runtime(limit))
                }
            }
        });
    }

    /// The function of a filter, loaded when it is first used.
    fn function(&mut self, program: &Program) -> mlua::Result<Function> {
        if let Some(function) = self.functions.get(&program.0.id) {
            return Ok(function.clone());
        }
        let ProgramCode::Chunk(bytecode) = &program.0.code else { unreachable!("a filter is one chunk") };
        let function = program::load(&self.sandbox.lua, &program.0.name, bytecode)?;
        function.set_environment(self.environment.clone())?;
        self.functions.insert(program.0.id, function.clone());
        Ok(function)
    }
}
