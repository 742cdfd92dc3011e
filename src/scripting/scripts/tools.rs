//! Runs tools: checks the arguments and runs the tool as the user who calls it. Every call of a tool, over HTTP or MCP,
//! goes through [`ToolRunner::run`].

use super::{
    arguments::{ArgumentChecker, ArgumentsError},
    run_limit::{RunLimit, TooManyRuns},
    script::Script,
};
use crate::{
    model::{id::UserId, owner::Owner, script_spec::ScriptKind},
    scripting::{
        lua::{EventEmitter, MethodCaller, ToolCall, ToolContext, ToolRun},
        workers::LuaWorkers,
    },
};
use serde_json::value::RawValue;
use std::sync::Arc;

/// Runs tools. Cloning it is cheap.
#[derive(Clone)]
pub struct ToolRunner {
    pub workers: LuaWorkers,
    pub caller: Arc<dyn MethodCaller>,
    pub emitter: Arc<dyn EventEmitter>,
    pub arguments: ArgumentChecker,
    pub run_limit: RunLimit,
}

/// The reason a tool was not run.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error(transparent)]
    Arguments(#[from] ArgumentsError),
    #[error(transparent)]
    TooManyRuns(#[from] TooManyRuns),
    #[error("it is no tool")]
    NotATool,
}

impl ToolRunner {
    /// Runs a tool with these arguments, as this user. Its libraries and its `kv` are those of its owner. Dropping the
    /// future ends the run.
    ///
    /// # Errors
    ///
    /// Fails if the user has too many runs under way, the arguments do not fit the schema or there is nothing to run. A
    /// failure of the tool itself is in the [`ToolRun`].
    pub async fn run(&self, tool: &Arc<Script>, user: UserId, arguments: Box<RawValue>) -> Result<ToolRun, ToolError> {
        let _permit = self.run_limit.take(user)?;
        self.arguments.check(tool, user, &arguments).await?;
        let program = tool.program().filter(|_| tool.kind == ScriptKind::Tool).ok_or(ToolError::NotATool)?;
        let (caller, emitter) = (self.caller.clone(), self.emitter.clone());
        let context = ToolContext { owner: Owner::User(user), caller, emitter };
        Ok(self.workers.run_tool(program, tool.owner, ToolCall { arguments, context }).await)
    }
}
