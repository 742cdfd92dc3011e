//! A Lua state that can do nothing but compute, for one program and one owner.
//!
//! The state has the pure standard libraries and ours. Everything global is read-only, so that nothing a
//! run does is there for the next: a run sees the globals through an environment of its own, which is
//! thrown away. There is no way to load code, to reach another function's environment, or to start a
//! coroutine (in which a call that waits would return nonsense).

use super::{
    BodyFormat, CheckVerdict, CheckedSpace, EventInput, RenderedBody, ScriptError, ToolCall, ToolContext,
    bounded_text::bounded,
    json::{self, JsonError},
    libraries::{self, HostServices, log::Log, modules, space::Handlers},
    limits::{Limits, Watch},
    location,
    program::{Code, Program},
    scope,
    space_program::{MethodHandler, ProgramContext},
    text_template::Piece,
    verdict::Verdict,
};
use crate::model::owner::Owner;
use mlua::{Function, Lua, LuaOptions, StdLib, Table, Value, Variadic, VmState, chunk::ChunkMode};
use serde_json::value::RawValue;
use std::{collections::BTreeMap, sync::Arc};

/// What a state may have grown by and still be kept; the rest of a run's memory is garbage for the collector.
const KEPT_GROWTH: usize = 1 << 20;

/// Globals that would let a script out, or see what is none of its business. Coroutines come in with the
/// functions that wait, which need them underneath.
const REMOVED: [&str; 8] =
    ["coroutine", "loadstring", "getfenv", "setfenv", "newproxy", "collectgarbage", "gcinfo", "_VERSION"];

/// Old names in `table` that run C functions over any number of elements without a look at the clock.
const REMOVED_FROM_TABLE: [&str; 4] = ["foreach", "foreachi", "getn", "maxn"];

/// A state, ready to run its program.
pub(super) struct Sandbox {
    lua: Lua,
    entry: Entry,
    /// What stands before the line number in the program's errors.
    name: String,
    limits: Limits,
    /// The metatable of environments: what is not in one is looked up in the globals.
    environment: Table,
    /// `math.randomseed`, for what it set is kept in the state and not in an environment.
    reseed: Function,
    /// SpaceKv in use before the first run.
    base: usize,
}

/// What `attempt` gives: whether the call worked, and its result; or `code`, `message` and `data` of the error, and where
/// it was raised.
type Attempted = (bool, Value, Value, Value, Option<String>);

enum Entry {
    Chunk(Function),
    Text(Vec<Part>),
}

/// A [`Piece`], loaded.
enum Part {
    Literal(String),
    Expression { function: Function, line: u32 },
}

impl Sandbox {
    /// Makes a state for this program and owner.
    ///
    /// # Errors
    ///
    /// Fails if the memory limit is too low for even an idle state.
    pub fn new(program: &Program, owner: Owner, libraries: &HostServices, limits: Limits) -> mlua::Result<Self> {
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
        libraries::install(&lua, program, owner, libraries, &environment)?;
        for name in REMOVED {
            globals.raw_remove(name)?;
        }
        let table: Table = globals.raw_get("table")?;
        for name in REMOVED_FROM_TABLE {
            table.raw_remove(name)?;
        }
        let reseed = globals.raw_get::<Table>("math")?.raw_get("randomseed")?;
        lua.sandbox(true)?;

        let entry = match &program.0.code {
            Code::Chunk(bytecode) => Entry::Chunk(load(&lua, name, bytecode)?),
            Code::Text(pieces) => Entry::Text(
                pieces
                    .iter()
                    .map(|piece| match piece {
                        Piece::Literal(text) => Ok(Part::Literal(text.clone())),
                        Piece::Expression { bytecode, line } => {
                            Ok(Part::Expression { function: load(&lua, name, bytecode)?, line: *line })
                        }
                    })
                    .collect::<mlua::Result<_>>()?,
            ),
        };
        lua.set_memory_limit(limits.memory)?;
        let base = lua.used_memory();
        Ok(Self { lua, entry, name: name.clone(), limits, environment, reseed, base })
    }

    /// Runs a template.
    ///
    /// # Errors
    ///
    /// Fails if the program raises an error, goes over a limit, or gives what is no body.
    pub fn render(&self, input: &EventInput, watch: &Arc<Watch>) -> Result<RenderedBody, ScriptError> {
        let environment =
            self.begin(watch, Log::default(), |environment| scope::fill(&self.lua, environment, input))?;
        let (body, kind) = match &self.entry {
            Entry::Chunk(function) => {
                let value = self.call(function, &environment, watch, 1)?;
                match value {
                    Value::String(text) => (text.as_bytes().to_vec(), BodyFormat::Text),
                    Value::Table(_) => {
                        let body = json::write(&self.lua, &value).map_err(|error| self.not_json(error, watch))?;
                        (body, BodyFormat::Json)
                    }
                    other => return Err(ScriptError::NoBody(other.type_name())),
                }
            }
            Entry::Text(parts) => (self.fill_in(parts, &environment, watch)?, BodyFormat::Text),
        };
        if body.len() > json::MAX_BYTES {
            return Err(ScriptError::NotJson(JsonError::TooLarge));
        }
        Ok(RenderedBody { body: body.into(), kind, log: self.end() })
    }

    /// Runs a script.
    ///
    /// # Errors
    ///
    /// Fails if the script raises an error or goes over a limit.
    pub async fn run(&self, input: &EventInput, watch: &Arc<Watch>) -> Result<Verdict, ScriptError> {
        let environment =
            self.begin(watch, Log::default(), |environment| scope::fill(&self.lua, environment, input))?;
        let (returned, _) = self.call_script(environment, watch).await?;
        Ok(Verdict::of(&returned))
    }

    /// Runs a script that checks something.
    ///
    /// # Errors
    ///
    /// As [`Sandbox::run`].
    pub async fn check(&self, place: &CheckedSpace, watch: &Arc<Watch>) -> Result<CheckVerdict, ScriptError> {
        let environment =
            self.begin(watch, Log::default(), |environment| scope::fill_place(&self.lua, environment, place))?;
        Ok(match self.call_script(environment, watch).await? {
            (Value::Boolean(true), _) => CheckVerdict::Healthy,
            (_, Value::String(why)) => CheckVerdict::Unhealthy(bounded(&why.to_string_lossy()).to_owned()),
            _ => CheckVerdict::Unhealthy("it did not return true".to_owned()),
        })
    }

    /// Runs a tool.
    ///
    /// # Errors
    ///
    /// Fails if the tool raises an error or goes over a limit, or if what it returns is not JSON.
    pub async fn evaluate(&self, input: &ToolCall, watch: &Arc<Watch>) -> Result<Box<RawValue>, ScriptError> {
        self.lua.set_app_data(input.acting.clone());
        let environment = self.begin(watch, Log::default(), |environment| {
            json::read_into(&self.lua, input.arguments.get(), environment, "params")
        })?;
        let Entry::Chunk(function) = &self.entry else { unreachable!("a tool is one chunk") };
        let call = async {
            function.set_environment(environment.clone())?;
            let attempt: Function = self.lua.named_registry_value(libraries::ATTEMPT)?;
            attempt.call_async::<Attempted>((function, environment.raw_get::<Value>("params")?)).await
        };
        let result = self.concluded(call.await, watch)?;
        match json::write(&self.lua, &result).map_err(|error| self.not_json(error, watch)) {
            Ok(json) => Ok(raw(json)),
            // On which line it returned, nobody knows any more.
            Err(error @ ScriptError::NotJson(_)) => Err(ScriptError::Raised(format!("{}: {error}", self.name))),
            Err(other) => Err(other),
        }
    }

    /// Runs a program of a space, with `arguments` as `arg` and `...`.
    ///
    /// # Errors
    ///
    /// Fails if the program raises an error or goes over a limit.
    pub async fn launch(
        &self,
        around: &Arc<ProgramContext>,
        arguments: &[String],
        watch: &Arc<Watch>,
    ) -> Result<(), ScriptError> {
        self.lua.set_app_data(around.clone());
        self.lua.set_app_data(Handlers::default());
        let environment = self.begin(watch, Log::of_voice(&around.output), |environment| {
            let fill = || {
                let words = self.lua.create_sequence_from(arguments.iter().map(String::as_str))?;
                words.raw_set(0, self.name.as_str())?;
                environment.raw_set("arg", words)
            };
            fill().map_err(JsonError::Lua)
        })?;
        let Entry::Chunk(function) = &self.entry else { unreachable!("a program is one chunk") };
        let call = async {
            function.set_environment(environment)?;
            let attempt: Function = self.lua.named_registry_value(libraries::ATTEMPT)?;
            let words = arguments.iter().map(|word| self.lua.create_string(word).map(Value::String));
            let words = words.collect::<mlua::Result<Variadic<Value>>>()?;
            attempt.call_async::<Attempted>((function, words)).await
        };
        self.concluded(call.await, watch).map(drop)
    }

    /// Has a function of a library handle something, in an environment in which nothing was run before.
    ///
    /// # Errors
    ///
    /// Fails if the function raises an error or goes over a limit, or if what it returns is not JSON.
    pub async fn handle(
        &self,
        around: &Arc<ProgramContext>,
        handler: &MethodHandler,
        params: Option<&RawValue>,
        watch: &Arc<Watch>,
    ) -> Result<Box<RawValue>, ScriptError> {
        self.lua.set_app_data(around.clone());
        let environment = self.begin(watch, Log::of_voice(&around.output), |environment| {
            json::read_into(&self.lua, params.map_or("{}", RawValue::get), environment, "params")
        })?;
        let (library, function) = (handler.library.as_str(), handler.function.as_str());
        let call = async {
            let attempt: Function = self.lua.named_registry_value(libraries::ATTEMPT)?;
            let handle: Function = self.lua.named_registry_value(libraries::HANDLE)?;
            let params = environment.raw_get::<Value>("params")?;
            attempt.call_async::<Attempted>((handle, library, function, params)).await
        };
        let result = self.concluded(call.await, watch)?;
        match json::write(&self.lua, &result).map_err(|error| self.not_json(error, watch)) {
            Ok(json) => Ok(raw(json)),
            Err(ScriptError::NotJson(error)) => {
                let place = self.definition(handler).unwrap_or_else(|| self.name.clone());
                let message = format!("{place}: the result of `{library}.{function}` cannot be sent: {error}");
                Err(ScriptError::Raised(message))
            }
            Err(other) => Err(other),
        }
    }

    /// The handlers that the run has named.
    pub fn handlers(&self) -> BTreeMap<String, MethodHandler> {
        self.lua.remove_app_data::<Handlers>().unwrap_or_default().0
    }

    /// The error of a run, with where it was stopped if it was.
    pub fn placed(&self, error: ScriptError) -> ScriptError {
        location::placed(&self.lua, error)
    }

    /// What the run has said, which is thereby over.
    pub fn end(&self) -> Vec<String> {
        self.lua.remove_app_data::<ToolContext>();
        self.lua.remove_app_data::<Arc<ProgramContext>>();
        self.lua.remove_app_data::<Log>().unwrap_or_default().into_lines()
    }

    /// Whether the state is as good as new, a little garbage aside.
    pub fn is_reusable(&self) -> bool {
        self.lua.used_memory() <= self.base + modules::size(&self.lua) + KEPT_GROWTH
    }

    /// Puts the state under this run's limits and makes its environment.
    fn begin(
        &self,
        watch: &Arc<Watch>,
        log: Log,
        fill: impl FnOnce(&Table) -> Result<(), JsonError>,
    ) -> Result<Table, ScriptError> {
        let clock = watch.clone();
        self.lua.set_interrupt(move |lua| match clock.check() {
            Ok(()) => Ok(VmState::Continue),
            // Whoever asks the watch will know better than this message.
            Err(limit) => {
                location::note(lua);
                Err(mlua::Error::runtime(limit))
            }
        });
        location::forget(&self.lua);
        self.lua.set_app_data(watch.clone());
        self.lua.set_app_data(log);
        let make = || {
            let environment = self.lua.create_table_with_capacity(0, 8)?;
            environment.set_metatable(Some(self.environment.clone()))?;
            self.lua.set_named_registry_value(libraries::SCOPE, &environment)?;
            self.lua.set_named_registry_value(libraries::LOADED, Value::Nil)?;
            self.reseed.call::<()>(getrandom::u32().unwrap_or_default() >> 1)?;
            Ok(environment)
        };
        let environment = make().map_err(|error| self.failed(error, watch, 1))?;
        fill(&environment).map_err(|error| match error {
            JsonError::Lua(error) => self.failed(error, watch, 1),
            other => ScriptError::Data(other),
        })?;
        Ok(environment)
    }

    /// Calls a script for the first two values it returns.
    async fn call_script(&self, environment: Table, watch: &Watch) -> Result<(Value, Value), ScriptError> {
        let Entry::Chunk(function) = &self.entry else { unreachable!("a script is one chunk") };
        let call = async {
            function.set_environment(environment)?;
            self.lua.named_registry_value::<Function>(libraries::TRACED)?.call_async(function).await
        };
        call.await.map_err(|error| self.failed(error, watch, 1))
    }

    fn fill_in(&self, parts: &[Part], environment: &Table, watch: &Watch) -> Result<Vec<u8>, ScriptError> {
        let mut body = Vec::new();
        for part in parts {
            match part {
                Part::Literal(text) => body.extend_from_slice(text.as_bytes()),
                Part::Expression { function, line } => match self.call(function, environment, watch, *line)? {
                    Value::String(text) => body.extend_from_slice(&text.as_bytes()),
                    other => {
                        let json =
                            json::write(&self.lua, &other).map_err(|error| match self.not_json(error, watch) {
                                ScriptError::NotJson(error) => {
                                    ScriptError::Raised(format!("{}:{line}: {error}", self.name))
                                }
                                other => other,
                            })?;
                        body.extend_from_slice(&json);
                    }
                },
            }
            if body.len() > json::MAX_BYTES {
                return Err(ScriptError::NotJson(JsonError::TooLarge));
            }
        }
        Ok(body)
    }

    fn call(&self, function: &Function, environment: &Table, watch: &Watch, line: u32) -> Result<Value, ScriptError> {
        let call = || {
            function.set_environment(environment.clone())?;
            function.call(())
        };
        call().map_err(|error| self.failed(error, watch, line))
    }

    fn not_json(&self, error: JsonError, watch: &Watch) -> ScriptError {
        match error {
            JsonError::Lua(error) => self.failed(error, watch, 1),
            other => ScriptError::NotJson(other),
        }
    }

    /// What came of a call through `attempt`.
    fn concluded(&self, called: mlua::Result<Attempted>, watch: &Watch) -> Result<Value, ScriptError> {
        match called.map_err(|error| self.failed(error, watch, 1))? {
            (true, result, ..) => Ok(result),
            (false, code, message, data, place) => Err(self.raised(&code, &message, &data, place, watch)),
        }
    }

    /// Where a handler is defined. It was required in this run, so that its library is there.
    fn definition(&self, handler: &MethodHandler) -> Option<String> {
        let require: Function = self.lua.named_registry_value(libraries::REQUIRE).ok()?;
        let library: Table = require.call(handler.library.as_str()).ok()?;
        let info = library.raw_get::<Function>(handler.function.as_str()).ok()?.info();
        Some(format!("{}:{}", info.short_src?, info.line_defined?))
    }

    /// What a program raised as a table with a `code`, a `message` or both.
    fn raised(&self, code: &Value, message: &Value, data: &Value, place: Option<String>, watch: &Watch) -> ScriptError {
        let wrong = |what: String| ScriptError::Raised(place.map_or(what.clone(), |place| format!("{place}: {what}")));
        let code = match code {
            Value::Nil => None,
            Value::Integer(code) => Some(*code),
            other => {
                let kind = other.type_name();
                return wrong(format!("the `code` of an error must be an integer, not a {kind}"));
            }
        };
        let message = match message {
            Value::Nil => "the script raised an error without a message".to_owned(),
            Value::String(message) => bounded(&message.to_string_lossy()).to_owned(),
            other => {
                let kind = other.type_name();
                return wrong(format!("the `message` of an error must be a string, not a {kind}"));
            }
        };
        let data = match data {
            Value::Nil => None,
            data => match json::write(&self.lua, data).map_err(|error| self.not_json(error, watch)) {
                Ok(data) => Some(raw(data)),
                Err(ScriptError::NotJson(error)) => {
                    return wrong(format!("{message} (and its `data` cannot be sent: {error})"));
                }
                Err(other) => return other,
            },
        };
        ScriptError::RaisedWith { code, message, data }
    }

    /// What to say of an error in a chunk that begins on `line` of its author's source.
    fn failed(&self, error: mlua::Error, watch: &Watch, line: u32) -> ScriptError {
        if let Err(limit) = watch.look() {
            return ScriptError::Limit(limit);
        }
        match message(&error) {
            Some(message) => ScriptError::Raised(at_line(&self.name, message, line)),
            None => ScriptError::Limit(super::Limit::Memory(self.limits.memory)),
        }
    }
}

/// Loads a chunk of ours, compiled when the program was saved.
pub(super) fn load(lua: &Lua, name: &str, bytecode: &[u8]) -> mlua::Result<Function> {
    lua.load(bytecode).set_name(format!("={name}")).set_mode(ChunkMode::Binary).into_function()
}

/// What [`json::write`] wrote.
fn raw(json: Vec<u8>) -> Box<RawValue> {
    let json = String::from_utf8(json).expect("JSON is text");
    RawValue::from_string(json).expect("what was written is JSON")
}

/// The message an error was raised with, without what mlua adds to it; `None` if memory ran out.
fn message(error: &mlua::Error) -> Option<String> {
    match error {
        mlua::Error::MemoryError(_) => None,
        mlua::Error::CallbackError { cause, .. } => message(cause),
        mlua::Error::RuntimeError(text) => {
            let text = text.split_once("\nstack traceback:").map_or(text.as_str(), |(text, _)| text);
            if text == libraries::NO_MEMORY {
                return None;
            }
            Some(bounded(text).to_owned())
        }
        other => Some(bounded(&other.to_string()).to_owned()),
    }
}

/// Counts a message's line number from where its chunk begins.
fn at_line(name: &str, message: String, line: u32) -> String {
    let prefix = format!("{name}:");
    let number = message.strip_prefix(&prefix).and_then(|rest| rest.split_once(':'));
    match number.and_then(|(number, rest)| Some((number.parse::<u32>().ok()?, rest))) {
        Some((number, rest)) => format!("{prefix}{}:{rest}", number + line - 1),
        None => message,
    }
}
