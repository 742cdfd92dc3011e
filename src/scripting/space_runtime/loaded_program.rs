//! A Lua file of a space, compiled and ready to run.

use super::{agent_client::AgentClient, modules::SpaceModules, source_file};
use crate::{
    model::{
        owner::Owner,
        units::{Size, Span},
    },
    platform::{
        config::{self, EgressConfig},
        egress::Egress,
    },
    scripting::lua::{
        Capabilities, CompileError, HostServices, HttpClient, MethodCaller, MethodHandler, Program, ProgramContext,
        ProgramOutput, ProgramRun, Runtime, ScriptError,
    },
};
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use std::{
    collections::BTreeMap,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// The limits of one run or request.
#[derive(Clone, Copy, Debug)]
pub struct ProgramLimits {
    /// Wall-clock time, waiting included; `None` for no limit.
    pub wall: Option<Duration>,
    /// Bytes; `None` for no limit.
    pub memory: Option<u64>,
    /// 0 for the number of cores.
    pub threads: usize,
}

/// The settings of a program.
pub struct ProgramSettings {
    pub capabilities: Capabilities,
    pub limits: ProgramLimits,
    /// The start of relative paths, and the working directory of processes.
    pub directory: PathBuf,
    /// The whole environment of the program and its processes.
    pub environment: BTreeMap<OsString, OsString>,
    pub agent: Arc<AgentClient>,
    pub output: ProgramOutput,
}

/// A compiled file, with its runtime.
pub struct LoadedProgram {
    runtime: Runtime,
    program: Program,
    context: Arc<ProgramContext>,
}

/// The reason a file cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{name}:{}: {}", error.line, error.message)]
    Compile { name: String, error: CompileError },
}

impl LoadedProgram {
    /// Reads a file and compiles it.
    pub fn read(path: &Path, settings: ProgramSettings) -> Result<Self, LoadError> {
        let source = source_file::read(path).map_err(|source| LoadError::Read { path: path.to_owned(), source })?;
        Self::new(path, &source, settings)
    }

    /// Compiles the source of a file. Its modules are looked for beside it.
    pub fn new(path: &Path, source: &str, settings: ProgramSettings) -> Result<Self, LoadError> {
        let name = path.display().to_string();
        let program = Program::for_space(&name, source, settings.capabilities);
        let program = program.map_err(|error| LoadError::Compile { name, error })?;
        let directory = path.parent().unwrap_or(Path::new("")).to_owned();
        let services = HostServices {
            http: http_client(settings.capabilities),
            kv: None,
            caller: Arc::new(MethodsViaAgent),
            modules: Arc::new(SpaceModules::new(directory, settings.agent.clone())),
        };
        let limits = settings.limits;
        let wall = Span(limits.wall.unwrap_or(Duration::MAX));
        let memory = Size(limits.memory.unwrap_or(0));
        // Processor time is not limited by itself: the wall-clock limit is the only one.
        let cpu = Span(Duration::MAX);
        let config = config::ScriptConfig { wall, cpu, memory, ..config::ScriptConfig::default() };
        let context = ProgramContext {
            directory: settings.directory,
            environment: settings.environment,
            agent: settings.agent,
            output: settings.output,
        };
        let runtime = Runtime::new(&config, limits.threads, services);
        Ok(Self { runtime, program, context: Arc::new(context) })
    }

    /// Runs the file from its beginning to its end, with `arguments` as `arg` and `...`. Dropping the future ends it.
    pub async fn run_once(&self, arguments: Vec<String>) -> ProgramRun {
        self.runtime.run_program(&self.program, self.context.clone(), arguments).await
    }

    /// Calls a handler that the file registered, isolated from every other request.
    pub(super) async fn call_handler(
        &self,
        handler: &MethodHandler,
        params: Option<Box<RawValue>>,
    ) -> Result<Box<RawValue>, ScriptError> {
        self.runtime.call_handler(&self.program, self.context.clone(), handler.clone(), params).await
    }

    /// Ends every run, and the processes that runs wait for.
    pub fn shut_down(&self) {
        self.runtime.shut_down();
    }
}

/// The HTTP client of a program with these capabilities.
fn http_client(capabilities: Capabilities) -> Arc<dyn HttpClient> {
    match capabilities {
        Capabilities::Full => Arc::new(Egress::new(&EgressConfig::default())),
        Capabilities::Sandboxed => Arc::new(Egress::for_sandbox()),
    }
}

/// Refuses method calls through the host: programs of a space call methods through their agent.
pub struct MethodsViaAgent;

impl MethodCaller for MethodsViaAgent {
    fn call(&self, _: Owner, _: &str, _: Box<RawValue>) -> BoxFuture<'static, Result<Box<RawValue>, String>> {
        Box::pin(async { Err("methods are called through the agent".to_owned()) })
    }
}
