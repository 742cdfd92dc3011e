//! Running tools: with arguments that fit, on the server, as whoever calls them. Everything that calls a tool, over HTTP or
//! MCP, comes through [`ToolRunner::run`].

use super::Script;
use crate::{
    model::{id::UserId, owner::Owner, schema::ValidationError, script_spec::ScriptKind},
    scripting::lua::{
        self, CompileError, EventEmitter, JsonError, MethodCaller, Runtime, ToolCall, ToolContext, ToolRun,
    },
};
use serde_json::{Value, value::RawValue};
use std::sync::Arc;

/// What tools run with. Cloning it is cheap.
#[derive(Clone)]
pub struct ToolRunner {
    pub runtime: Runtime,
    /// How they call methods.
    pub caller: Arc<dyn MethodCaller>,
    /// How they raise events.
    pub emitter: Arc<dyn EventEmitter>,
}

/// Why a tool was not run.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error("must be an object")]
    NoObject,
    #[error("{0}")]
    Unreadable(#[from] serde_json::Error),
    /// No tool takes as much.
    #[error("{0}")]
    TooMuch(#[from] JsonError),
    #[error("{0}")]
    Unfit(#[from] ValidationError),
    /// What was saved by an older version may no longer compile.
    #[error("it no longer compiles: {0}")]
    Compile(CompileError),
    #[error("it is no tool")]
    NoTool,
    #[error("the server shuts down")]
    Stopped,
}

impl ToolRunner {
    /// Runs a tool with these arguments, as this user. Its libraries and what it remembers are its owner's. What goes
    /// wrong in the tool itself is in what it gives. Dropping the future ends the run.
    ///
    /// # Errors
    ///
    /// Fails if the arguments do not fit, or there is nothing to run.
    pub async fn run(&self, tool: &Arc<Script>, user: UserId, arguments: Box<RawValue>) -> Result<ToolRun, ToolError> {
        check(tool, &arguments).await?;
        let program = match tool.program().filter(|_| tool.kind == ScriptKind::Tool) {
            Some(Ok(program)) => program,
            Some(Err(error)) => return Err(ToolError::Compile(error.clone())),
            None => return Err(ToolError::NoTool),
        };
        let (caller, emitter) = (self.caller.clone(), self.emitter.clone());
        let context = ToolContext { owner: Owner::User(user), caller, emitter };
        Ok(self.runtime.run_tool(program, tool.owner, ToolCall { arguments, context }).await)
    }
}

/// Whether arguments fit the tool's schema. Both can be large, so it is done where nobody waits behind it.
async fn check(tool: &Arc<Script>, arguments: &RawValue) -> Result<(), ToolError> {
    if !arguments.get().trim_start().starts_with('{') {
        return Err(ToolError::NoObject);
    }
    if tool.params_schema.is_none() {
        return Ok(());
    }
    let (tool, arguments) = (tool.clone(), arguments.to_owned());
    let checked = tokio::task::spawn_blocking(move || -> Result<(), ToolError> {
        lua::check_size(&arguments)?;
        let value: Value = serde_json::from_str(arguments.get())?;
        Ok(tool.check_arguments(&value)?)
    });
    match checked.await {
        Ok(fits) => fits,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(ToolError::Stopped),
        },
    }
}
