//! A Lua state for one program.
//!
//! The state has the pure standard libraries and those of [`libraries`]. All globals are read-only, so that nothing a
//! run does is there for the next: a run sees the globals through an environment of its own, which is thrown away.
//! There is no way to load code, to reach another function's environment, or to start a coroutine (in which a call that
//! waits would return nonsense).

use super::raised_errors;
use crate::scripting::lua::{
    error::ScriptError,
    host::{HostServices, ToolContext},
    inputs::ProgramContext,
    json::{self, JsonError},
    libraries::{self, RegisteredHandlers, RunLog, registry_keys},
    limits::{LimitExceeded, RunClock, RunLimits},
    location,
    program::{self, DataUse, Program, ProgramCode, TemplatePiece, Variables},
    results::MethodHandler,
};
use mlua::{Function, Lua, LuaOptions, StdLib, Table, Value, VmState};
use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    sync::Arc,
};

/// The growth in bytes up to which a state is reused. The garbage collector frees the rest of a run's memory.
const REUSABLE_GROWTH: usize = 1 << 20;

/// Globals that would let a script out of the sandbox or inspect the host. `coroutine` comes with the functions that
/// wait, which need it underneath.
const REMOVED: [&str; 8] =
    ["coroutine", "loadstring", "getfenv", "setfenv", "newproxy", "collectgarbage", "gcinfo", "_VERSION"];

/// Old names in `table` that run C functions over any number of elements without an interrupt.
const REMOVED_FROM_TABLE: [&str; 4] = ["foreach", "foreachi", "getn", "maxn"];

/// A Lua state, ready to run its program.
pub(in crate::scripting) struct Sandbox {
    pub(super) lua: Lua,
    pub(super) code: LoadedCode,
    /// The prefix of the line number in the program's errors.
    pub(super) name: String,
    /// The fields that the program can touch of the data of the event it runs for.
    pub(super) data_use: DataUse,
    /// The variables that the program can touch of a run for an event.
    pub(super) variables: Variables,
    pub(super) limits: RunLimits,
    /// The metatable of environments: names that are not in one are looked up in the globals.
    pub(super) environment: Table,
    /// `math.randomseed`. A seed is kept in the state and not in an environment, so each run sets a new one.
    reseed: Function,
    /// Memory in use before the first run, in bytes.
    base: usize,
}

/// The program's code, loaded into the state.
pub(super) enum LoadedCode {
    Chunk(Function),
    Text(Vec<LoadedPiece>),
}

/// A [`TemplatePiece`], loaded into the state.
pub(super) enum LoadedPiece {
    Literal(String),
    Expression { function: Function, line: u32 },
}

impl Sandbox {
    /// Makes a state for this program: installs the libraries, loads the program, and sets the memory limit last,
    /// so that it bounds runs and not this set-up.
    ///
    /// # Errors
    ///
    /// Fails if Lua cannot allocate the state or load the program.
    pub fn new(program: &Program, services: &HostServices, limits: RunLimits) -> mlua::Result<Self> {
        let name = &program.0.name;
        let std = StdLib::TABLE
            | StdLib::STRING
            | StdLib::UTF8
            | StdLib::MATH
            | StdLib::BIT
            | StdLib::BUFFER
            | StdLib::INTEGER;
        let lua = Lua::new_with(std, LuaOptions::new().thread_pool_size(1))?;
        let globals = lua.globals();
        json::prepare(&lua)?;
        let environment = lua.create_table()?;
        environment.raw_set("__index", &globals)?;
        environment.set_readonly(true);
        libraries::install(&lua, program, services, &environment)?;
        for name in REMOVED {
            globals.raw_remove(name)?;
        }
        let table: Table = globals.raw_get("table")?;
        for name in REMOVED_FROM_TABLE {
            table.raw_remove(name)?;
        }
        let reseed = globals.raw_get::<Table>("math")?.raw_get("randomseed")?;
        lua.sandbox(true)?;

        let code = match &program.0.code {
            ProgramCode::Chunk(bytecode) => LoadedCode::Chunk(program::load(&lua, name, bytecode)?),
            ProgramCode::Text(pieces) => LoadedCode::Text(
                pieces
                    .iter()
                    .map(|piece| match piece {
                        TemplatePiece::Literal(text) => Ok(LoadedPiece::Literal(text.clone())),
                        TemplatePiece::Expression { bytecode, line } => {
                            let function = program::load(&lua, name, bytecode)?;
                            Ok(LoadedPiece::Expression { function, line: *line })
                        }
                    })
                    .collect::<mlua::Result<_>>()?,
            ),
        };
        limits.limit_memory(&lua)?;
        let base = lua.used_memory();
        Ok(Self {
            lua,
            code,
            name: name.clone(),
            data_use: program.0.data_use.clone(),
            variables: program.0.variables,
            limits,
            environment,
            reseed,
            base,
        })
    }

    /// Begins a run: makes the interpreter check this run's clock, so that it ends the run when its time is over, and
    /// fills a new environment. The memory limit is the state's own, set in [`Sandbox::new`].
    pub(super) fn begin_run(
        &self,
        clock: &Arc<RunClock>,
        log: RunLog,
        fill: impl FnOnce(&Table) -> Result<(), JsonError>,
    ) -> Result<Table, ScriptError> {
        let interrupt_clock = clock.clone();
        self.lua.set_interrupt(move |lua| match interrupt_clock.check() {
            Ok(()) => Ok(VmState::Continue),
            // The message is not shown: the caller asks the clock.
            Err(limit) => {
                location::record(lua);
                Err(mlua::Error::runtime(limit))
            }
        });
        location::take(&self.lua);
        self.lua.set_app_data(clock.clone());
        self.lua.set_app_data(log);
        let make = || {
            let environment = self.lua.create_table_with_capacity(0, 8)?;
            environment.set_metatable(Some(self.environment.clone()))?;
            self.lua.set_named_registry_value(registry_keys::SCOPE, &environment)?;
            self.lua.set_named_registry_value(registry_keys::LOADED, Value::Nil)?;
            // Random, and cheaper than the system's randomness.
            let seed = RandomState::new().build_hasher().finish() as u32;
            self.reseed.call::<()>(seed >> 1)?;
            Ok(environment)
        };
        let environment = make().map_err(|error| self.failed(error, clock, 1))?;
        fill(&environment).map_err(|error| match error {
            JsonError::Lua(error) => self.failed(error, clock, 1),
            other => ScriptError::Data(other),
        })?;
        Ok(environment)
    }

    /// Ends the run and returns the lines it logged.
    pub fn end_run(&self) -> Vec<String> {
        self.lua.remove_app_data::<ToolContext>();
        self.lua.remove_app_data::<Arc<ProgramContext>>();
        self.lua.remove_app_data::<RunLog>().unwrap_or_default().into_lines()
    }

    /// Takes the handlers that the run registered.
    pub fn take_handlers(&self) -> BTreeMap<String, MethodHandler> {
        self.lua.remove_app_data::<RegisteredHandlers>().unwrap_or_default().0
    }

    /// Adds the location at which the run was stopped to an error about a limit.
    pub fn with_location(&self, error: ScriptError) -> ScriptError {
        location::with_location(&self.lua, error)
    }

    /// Returns true if the state has not grown much, so that the next run may use it.
    pub fn is_reusable(&self) -> bool {
        self.lua.used_memory() <= self.base + libraries::loaded_modules_size(&self.lua) + REUSABLE_GROWTH
    }

    /// The error of a run for an error of Lua, raised in a chunk that begins on `line` of its author's source.
    pub(super) fn failed(&self, error: mlua::Error, clock: &RunClock, line: u32) -> ScriptError {
        if let Err(limit) = clock.check_now() {
            return ScriptError::Limit(limit);
        }
        match raised_errors::message(&error) {
            Some(message) => ScriptError::Raised(raised_errors::shift_line(&self.name, message, line)),
            None => ScriptError::Limit(LimitExceeded::Memory(self.limits.memory)),
        }
    }
}
