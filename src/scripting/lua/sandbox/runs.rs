//! The runs in a sandbox, one method for each kind.

use super::{
    scope,
    state::{LoadedCode, LoadedPiece, Sandbox},
};
use crate::scripting::lua::{
    bounded_text::bounded,
    error::ScriptError,
    host::ToolContext,
    inputs::{CheckedSpace, EventFields, ProgramContext, TransformInput},
    json::{self, JsonError},
    libraries::{RegisteredHandlers, RunLog, registry_keys},
    limits::RunClock,
    results::{BodyFormat, CheckVerdict, MethodHandler, RenderedBody},
    verdict::{FirstVerdict, Verdict, returned_failure},
};
use mlua::{Function, Table, Value, Variadic};
use serde_json::value::RawValue;
use std::{sync::Arc, time::Duration};

/// Bytes of bodies, and the processor time, after which no further event is rendered in the same run.
const MAX_EACH_BYTES: usize = 64 << 10;
const MAX_EACH_TIME: Duration = Duration::from_millis(5);

/// The values that `attempt` in the prelude returns: `true` and the result, or `false`, then `code`, `message` and
/// `data` of a structured error, and the location where it was raised.
type AttemptValues = (bool, Value, Value, Value, Option<String>);

impl Sandbox {
    /// Runs a template.
    pub fn render(&self, input: &EventFields, clock: &Arc<RunClock>) -> Result<RenderedBody, ScriptError> {
        let environment = self.begin_run(clock, RunLog::default(), |environment| {
            scope::fill_event(&self.lua, environment, input, &self.data_use, self.variables)
        })?;
        self.render_in(&environment, clock)
    }

    /// Runs a template for a batch.
    pub fn render_batch(&self, batch: &[EventFields], clock: &Arc<RunClock>) -> Result<RenderedBody, ScriptError> {
        let environment =
            self.begin_run(clock, RunLog::default(), |environment| scope::fill_batch(&self.lua, environment, batch))?;
        self.render_in(&environment, clock)
    }

    /// Runs a template for each of these events, until one fails, whose error comes along, or the results have taken
    /// enough time or room.
    pub fn render_each(
        &self,
        inputs: &[EventFields],
        clock: &Arc<RunClock>,
    ) -> (Vec<RenderedBody>, Option<ScriptError>) {
        let (before, mut bytes) = (clock.cpu(), 0);
        let mut bodies = Vec::with_capacity(inputs.len());
        for input in inputs {
            match self.render(input, clock) {
                // A template that caught the error of a limit is over it all the same.
                Ok(_) if let Some(limit) = clock.exceeded() => return (bodies, Some(ScriptError::Limit(limit))),
                Ok(rendered) => {
                    bytes += rendered.body.len();
                    bodies.push(rendered);
                }
                Err(error) => {
                    self.end_run();
                    return (bodies, Some(error));
                }
            }
            if bytes > MAX_EACH_BYTES || clock.cpu() - before > MAX_EACH_TIME {
                break;
            }
        }
        (bodies, None)
    }

    fn render_in(&self, environment: &Table, clock: &Arc<RunClock>) -> Result<RenderedBody, ScriptError> {
        let (body, kind) = match &self.code {
            LoadedCode::Chunk(function) => {
                let (value, why) = self.call(function, environment, clock, 1)?;
                match value {
                    other if let Some(why) = returned_failure(&other, &why) => return Err(ScriptError::Raised(why)),
                    Value::String(text) => (text.as_bytes().to_vec(), BodyFormat::Text),
                    Value::Table(_) => {
                        let body = json::write(&self.lua, &value).map_err(|error| self.not_json(error, clock))?;
                        (body, BodyFormat::Json)
                    }
                    other => return Err(ScriptError::NoBody(other.type_name())),
                }
            }
            LoadedCode::Text(pieces) => (self.render_text(pieces, environment, clock)?, BodyFormat::Text),
        };
        if body.len() > json::MAX_BYTES {
            return Err(ScriptError::NotJson(JsonError::TooLarge));
        }
        Ok(RenderedBody { body: body.into(), kind, log: self.end_run() })
    }

    /// Runs a transform and returns its result as JSON.
    pub fn run_transform(&self, input: &TransformInput, clock: &Arc<RunClock>) -> Result<Vec<u8>, ScriptError> {
        let environment =
            self.begin_run(clock, RunLog::default(), |environment| scope::fill_request(&self.lua, environment, input))?;
        let LoadedCode::Chunk(function) = &self.code else { unreachable!("a transform is one chunk") };
        let (value, why) = self.call(function, &environment, clock, 1)?;
        if let Some(why) = returned_failure(&value, &why) {
            return Err(ScriptError::Raised(why));
        }
        match json::write(&self.lua, &value).map_err(|error| self.not_json(error, clock)) {
            // The line of the `return` is no longer known.
            Err(error @ ScriptError::NotJson(_)) => Err(ScriptError::Raised(format!("{}: {error}", self.name))),
            other => other,
        }
    }

    /// Runs a script.
    pub async fn run_script(&self, input: &EventFields, clock: &Arc<RunClock>) -> Result<Verdict, ScriptError> {
        let environment = self.begin_run(clock, RunLog::default(), |environment| {
            scope::fill_event(&self.lua, environment, input, &self.data_use, self.variables)
        })?;
        self.lua.set_app_data(FirstVerdict::default());
        let (returned, why) = self.call_script(environment, clock).await?;
        Ok(Verdict::returned(&returned, &why).unwrap_or_else(|| self.unreturned_verdict()))
    }

    /// The verdict of a script that returned none: the first that it made, or an ack. Never an ack for a script that
    /// called `svc.retry` and went on.
    fn unreturned_verdict(&self) -> Verdict {
        let Some((name, verdict)) = self.lua.remove_app_data::<FirstVerdict>().and_then(|verdicts| verdicts.first)
        else {
            return Verdict::Ack;
        };
        if let Some(mut log) = self.lua.app_data_mut::<RunLog>() {
            log.add(format!("warn: {name} was called without `return`: write `return {name}(…)`").as_bytes());
        }
        verdict
    }

    /// Runs a health check.
    pub async fn run_check(&self, space: &CheckedSpace, clock: &Arc<RunClock>) -> Result<CheckVerdict, ScriptError> {
        let environment =
            self.begin_run(clock, RunLog::default(), |environment| scope::fill_space(&self.lua, environment, space))?;
        Ok(match self.call_script(environment, clock).await? {
            (Value::Boolean(true), _) => CheckVerdict::Healthy,
            (_, Value::String(why)) => CheckVerdict::Unhealthy(bounded(&why.to_string_lossy()).to_owned()),
            _ => CheckVerdict::Unhealthy("it did not return true".to_owned()),
        })
    }

    /// Runs a tool with these arguments, a JSON object, and returns its result as JSON.
    pub async fn run_tool(
        &self,
        arguments: &str,
        context: ToolContext,
        clock: &Arc<RunClock>,
    ) -> Result<Vec<u8>, ScriptError> {
        self.lua.set_app_data(context);
        let environment = self.begin_run(clock, RunLog::default(), |environment| {
            json::read_into(&self.lua, arguments, environment, "params")
        })?;
        let LoadedCode::Chunk(function) = &self.code else { unreachable!("a tool is one chunk") };
        let call = async {
            function.set_environment(environment.clone())?;
            let attempt: Function = self.lua.named_registry_value(registry_keys::ATTEMPT)?;
            attempt.call_async::<AttemptValues>((function, environment.raw_get::<Value>("params")?)).await
        };
        let result = self.attempted(call.await, clock)?;
        match json::write(&self.lua, &result).map_err(|error| self.not_json(error, clock)) {
            // The line of the `return` is no longer known.
            Err(error @ ScriptError::NotJson(_)) => Err(ScriptError::Raised(format!("{}: {error}", self.name))),
            other => other,
        }
    }

    /// Runs a program of a space, with `arguments` as `arg` and `...`.
    pub async fn run_program(
        &self,
        context: &Arc<ProgramContext>,
        arguments: &[String],
        clock: &Arc<RunClock>,
    ) -> Result<(), ScriptError> {
        self.lua.set_app_data(context.clone());
        self.lua.set_app_data(RegisteredHandlers::default());
        let environment = self.begin_run(clock, RunLog::new(&context.output), |environment| {
            let fill = || {
                let words = self.lua.create_sequence_from(arguments.iter().map(String::as_str))?;
                words.raw_set(0, self.name.as_str())?;
                environment.raw_set("arg", words)
            };
            fill().map_err(JsonError::Lua)
        })?;
        let LoadedCode::Chunk(function) = &self.code else { unreachable!("a program is one chunk") };
        let call = async {
            function.set_environment(environment)?;
            let attempt: Function = self.lua.named_registry_value(registry_keys::ATTEMPT)?;
            let words = arguments.iter().map(|word| self.lua.create_string(word).map(Value::String));
            let words = words.collect::<mlua::Result<Variadic<Value>>>()?;
            attempt.call_async::<AttemptValues>((function, words)).await
        };
        self.attempted(call.await, clock).map(drop)
    }

    /// Calls a handler in a fresh environment and returns its result as JSON.
    pub async fn call_handler(
        &self,
        context: &Arc<ProgramContext>,
        handler: &MethodHandler,
        params: Option<&RawValue>,
        clock: &Arc<RunClock>,
    ) -> Result<Box<RawValue>, ScriptError> {
        self.lua.set_app_data(context.clone());
        let environment = self.begin_run(clock, RunLog::new(&context.output), |environment| {
            json::read_into(&self.lua, params.map_or("{}", RawValue::get), environment, "params")
        })?;
        let (library, function) = (handler.library.as_str(), handler.function.as_str());
        let call = async {
            let attempt: Function = self.lua.named_registry_value(registry_keys::ATTEMPT)?;
            let handle: Function = self.lua.named_registry_value(registry_keys::HANDLE)?;
            let params = environment.raw_get::<Value>("params")?;
            attempt.call_async::<AttemptValues>((handle, library, function, params)).await
        };
        let result = self.attempted(call.await, clock)?;
        match json::write_raw(&self.lua, &result).map_err(|error| self.not_json(error, clock)) {
            Err(ScriptError::NotJson(error)) => {
                let location = self.definition_of(handler).unwrap_or_else(|| self.name.clone());
                let message = format!("{location}: the result of `{library}.{function}` cannot be sent: {error}");
                Err(ScriptError::Raised(message))
            }
            other => other,
        }
    }

    /// Calls a script and returns its first two values.
    async fn call_script(&self, environment: Table, clock: &RunClock) -> Result<(Value, Value), ScriptError> {
        let LoadedCode::Chunk(function) = &self.code else { unreachable!("a script is one chunk") };
        let call = async {
            function.set_environment(environment)?;
            self.lua.named_registry_value::<Function>(registry_keys::TRACED)?.call_async(function).await
        };
        call.await.map_err(|error| self.failed(error, clock, 1))
    }

    fn render_text(
        &self,
        pieces: &[LoadedPiece],
        environment: &Table,
        clock: &RunClock,
    ) -> Result<Vec<u8>, ScriptError> {
        let mut body = Vec::new();
        for piece in pieces {
            match piece {
                LoadedPiece::Literal(text) => body.extend_from_slice(text.as_bytes()),
                LoadedPiece::Expression { function, line } => match self.call(function, environment, clock, *line)?.0 {
                    Value::String(text) => body.extend_from_slice(&text.as_bytes()),
                    other => {
                        let json =
                            json::write(&self.lua, &other).map_err(|error| match self.not_json(error, clock) {
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

    /// Calls a function of a template and returns its first two values.
    fn call(
        &self,
        function: &Function,
        environment: &Table,
        clock: &RunClock,
        line: u32,
    ) -> Result<(Value, Value), ScriptError> {
        let call = || {
            function.set_environment(environment.clone())?;
            function.call(())
        };
        call().map_err(|error| self.failed(error, clock, line))
    }

    fn not_json(&self, error: JsonError, clock: &RunClock) -> ScriptError {
        match error {
            JsonError::Lua(error) => self.failed(error, clock, 1),
            other => ScriptError::NotJson(other),
        }
    }

    /// The result of a call through `attempt`.
    fn attempted(&self, called: mlua::Result<AttemptValues>, clock: &RunClock) -> Result<Value, ScriptError> {
        match called.map_err(|error| self.failed(error, clock, 1))? {
            (true, result, ..) => Ok(result),
            (false, code, message, data, location) => {
                Err(self.structured_error(&code, &message, &data, location, clock))
            }
        }
    }

    /// The location of a handler's definition. The run has required its library, so the library is loaded.
    fn definition_of(&self, handler: &MethodHandler) -> Option<String> {
        let require: Function = self.lua.named_registry_value(registry_keys::REQUIRE).ok()?;
        let library: Table = require.call(handler.library.as_str()).ok()?;
        let info = library.raw_get::<Function>(handler.function.as_str()).ok()?.info();
        Some(format!("{}:{}", info.short_src?, info.line_defined?))
    }

    /// The error for a table with a `code`, a `message` or both that the program raised.
    fn structured_error(
        &self,
        code: &Value,
        message: &Value,
        data: &Value,
        location: Option<String>,
        clock: &RunClock,
    ) -> ScriptError {
        let invalid =
            |what: String| ScriptError::Raised(location.map_or(what.clone(), |location| format!("{location}: {what}")));
        let code = match code {
            Value::Nil => None,
            Value::Integer(code) => Some(*code),
            other => {
                let kind = other.type_name();
                return invalid(format!("the `code` of an error must be an integer, not a {kind}"));
            }
        };
        let message = match message {
            Value::Nil => "the script raised an error without a message".to_owned(),
            Value::String(message) => bounded(&message.to_string_lossy()).to_owned(),
            other => {
                let kind = other.type_name();
                return invalid(format!("the `message` of an error must be a string, not a {kind}"));
            }
        };
        let data = match data {
            Value::Nil => None,
            data => match json::write_raw(&self.lua, data).map_err(|error| self.not_json(error, clock)) {
                Ok(data) => Some(data),
                Err(ScriptError::NotJson(error)) => {
                    return invalid(format!("{message} (and its `data` cannot be sent: {error})"));
                }
                Err(other) => return other,
            },
        };
        ScriptError::RaisedWith { code, message, data }
    }
}
