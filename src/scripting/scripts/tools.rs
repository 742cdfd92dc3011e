//! Runs tools: checks the arguments and runs the tool as the user who calls it. Every call of a tool, over HTTP or MCP,
//! goes through [`ToolRunner::run`].

use super::script::Script;
use crate::{
    model::{id::UserId, owner::Owner, schema::ValidationError, script_spec::ScriptKind},
    scripting::lua::{
        self, CompileError, EventEmitter, JsonError, MethodCaller, Runtime, ToolCall, ToolContext, ToolRun,
    },
};
use serde_json::{Value, value::RawValue};
use std::sync::Arc;

/// Runs tools. Cloning it is cheap.
#[derive(Clone)]
pub struct ToolRunner {
    pub runtime: Runtime,
    pub caller: Arc<dyn MethodCaller>,
    pub emitter: Arc<dyn EventEmitter>,
}

/// The reason a tool was not run.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error("must be an object")]
    NotAnObject,
    #[error("{0}")]
    Unreadable(#[from] serde_json::Error),
    /// Over the budgets of every tool.
    #[error("{0}")]
    TooLarge(#[from] JsonError),
    #[error("{0}")]
    SchemaMismatch(#[from] ValidationError),
    /// A tool saved by an older version may no longer compile.
    #[error("it no longer compiles: {0}")]
    Compile(CompileError),
    #[error("it is no tool")]
    NotATool,
    #[error("the server shuts down")]
    Stopped,
}

impl ToolRunner {
    /// Runs a tool with these arguments, as this user. Its libraries and its `kv` are those of its owner. Dropping the
    /// future ends the run.
    ///
    /// # Errors
    ///
    /// Fails if the arguments do not fit the schema or there is nothing to run. A failure of the tool itself is in the
    /// [`ToolRun`].
    pub async fn run(&self, tool: &Arc<Script>, user: UserId, arguments: Box<RawValue>) -> Result<ToolRun, ToolError> {
        check_arguments(tool, &arguments).await?;
        let program = match tool.program().filter(|_| tool.kind == ScriptKind::Tool) {
            Some(Ok(program)) => program,
            Some(Err(error)) => return Err(ToolError::Compile(error.clone())),
            None => return Err(ToolError::NotATool),
        };
        let (caller, emitter) = (self.caller.clone(), self.emitter.clone());
        let context = ToolContext { owner: Owner::User(user), caller, emitter };
        Ok(self.runtime.run_tool(program, tool.owner, ToolCall { arguments, context }).await)
    }
}

/// Checks arguments against the tool's schema, on a blocking thread because both can be large.
async fn check_arguments(tool: &Arc<Script>, arguments: &RawValue) -> Result<(), ToolError> {
    if !arguments.get().trim_start().starts_with('{') {
        return Err(ToolError::NotAnObject);
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
