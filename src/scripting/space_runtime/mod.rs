//! The script runtime of a space: runs its Lua files, once ([`LoadedProgram::once`]) or as a method server ([`serve`]).
//!
//! It stands on [`script`](crate::scripting::lua), with its threads, its limits and its way of keeping runs apart; what it adds
//! is where modules come from ([`modules`]) and how the space's agent is reached ([`agent_client`]). The agent runs set-up
//! scripts on the same [`LoadedProgram`].

mod agent_client;
mod modules;
mod packages;
mod serve;

pub use agent_client::AgentClient;
pub use modules::SpaceModules;
pub use packages::{FetchedLibraries, LibrarySource};
pub use serve::{ServeError, serve};

use crate::{
    model::{id::UserId, owner::Owner},
    platform::{
        config::{self, Egress as EgressSettings, Size, Span},
        egress::Egress,
    },
    scripting::lua::{
        Capabilities, CompileError, HostServices, HttpClient, HttpRequest, HttpResponse, MAX_SPACE_FILE, MethodCaller,
        MethodHandler, OutputWriter, Program, ProgramContext, ProgramOutput, ProgramRun, Runtime, ScriptError,
    },
};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// What one run may use.
#[derive(Clone, Copy, Debug)]
pub struct ProgramLimits {
    /// Waiting included; `None` for as long as it takes.
    pub wall: Option<Duration>,
    /// In bytes; `None` for as much as there is.
    pub memory: Option<u64>,
    /// 0 for as many as there are cores.
    pub threads: usize,
}

/// What a file is run with.
pub struct ProgramSettings {
    pub capabilities: Capabilities,
    pub limits: ProgramLimits,
    /// Where relative paths start, and processes run.
    pub directory: PathBuf,
    /// The environment of the program and its processes, all of it.
    pub environment: BTreeMap<OsString, OsString>,
    pub agent: Arc<AgentClient>,
    pub output: ProgramOutput,
}

/// A file, compiled, with everything it runs on.
pub struct LoadedProgram {
    runtime: Runtime,
    program: Program,
    around: Arc<ProgramContext>,
}

/// Why a file cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{name}:{}: {}", error.line, error.message)]
    Compile { name: String, error: CompileError },
}

impl LoadedProgram {
    /// Reads a file and compiles it.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be read, or with its line if it is no Lua.
    pub fn read(path: &Path, settings: ProgramSettings) -> Result<Self, LoadError> {
        let source = read(path).map_err(|source| LoadError::Read { path: path.to_owned(), source })?;
        Self::new(path, &source, settings)
    }

    /// Compiles what is in a file. Its modules are looked for beside it.
    ///
    /// # Errors
    ///
    /// Fails with its line if it is no Lua.
    pub fn new(path: &Path, source: &str, settings: ProgramSettings) -> Result<Self, LoadError> {
        let name = path.display().to_string();
        let program = Program::for_space(&name, source, settings.capabilities);
        let program = program.map_err(|error| LoadError::Compile { name, error })?;
        let beside = path.parent().unwrap_or(Path::new("")).to_owned();
        let libraries = HostServices {
            http: way_out(settings.capabilities),
            kv: None,
            caller: Arc::new(MethodsViaAgent),
            modules: Arc::new(SpaceModules::new(beside, settings.agent.clone())),
        };
        let limits = settings.limits;
        let wall = Span(limits.wall.unwrap_or(Duration::MAX));
        let memory = Size(limits.memory.unwrap_or(0));
        // Computing is not held against it: it has the time it has.
        let cpu = Span(Duration::MAX);
        let config = config::Script { wall, cpu, memory, threads: limits.threads };
        let around = ProgramContext {
            directory: settings.directory,
            environment: settings.environment,
            agent: settings.agent,
            output: settings.output,
        };
        Ok(Self { runtime: Runtime::for_space(&config, libraries), program, around: Arc::new(around) })
    }

    /// Runs the file from its beginning to its end, with `arguments` as `arg` and `...`. Dropping the future ends it.
    pub async fn run_once(&self, arguments: Vec<String>) -> ProgramRun {
        self.runtime.run_program(&self.program, self.around.clone(), arguments).await
    }

    /// Has a handler that the file named answer a request, apart from every other.
    async fn handle(
        &self,
        handler: &MethodHandler,
        params: Option<Box<RawValue>>,
    ) -> Result<Box<RawValue>, ScriptError> {
        self.runtime.call_handler(&self.program, self.around.clone(), handler.clone(), params).await
    }

    /// Ends every run, and the processes that runs wait for.
    pub fn shut_down(&self) {
        self.runtime.shut_down();
    }
}

/// How a program reaches others over HTTP.
fn way_out(capabilities: Capabilities) -> Arc<dyn HttpClient> {
    let egress = Egress::new(&EgressSettings::default());
    match capabilities {
        Capabilities::Full => Arc::new(egress),
        Capabilities::Sandboxed => Arc::new(Outwards { egress, stranger: Owner::User(UserId::new()) }),
    }
}

/// Only to public addresses. Near by is the agent, which runs what it is told to, and asks nobody who they are.
struct Outwards {
    egress: Egress,
    /// Somebody who has no more rights than any user of a server.
    stranger: Owner,
}

impl HttpClient for Outwards {
    fn send(&self, _: Owner, request: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, String>> {
        HttpClient::send(&self.egress, self.stranger, request)
    }
}

/// Programs of a space call methods through its agent, and not through the host as scripts of a server do.
pub struct MethodsViaAgent;

impl MethodCaller for MethodsViaAgent {
    fn call(&self, _: Owner, _: &str, _: Box<RawValue>) -> BoxFuture<'static, Result<Box<RawValue>, String>> {
        Box::pin(async { Err("methods are called through the agent".to_owned()) })
    }
}

/// A file of a space as text, unless it is longer than any that is compiled.
fn read(path: &Path) -> io::Result<String> {
    let mut source = String::new();
    std::fs::File::open(path)?.take(MAX_SPACE_FILE as u64 + 1).read_to_string(&mut source)?;
    Ok(source)
}

/// What is printed to stdout, what is logged to stderr: the output of a program that is run once.
#[derive(Default)]
pub struct StandardStreams {
    /// Why stdout takes no more.
    fault: Mutex<Option<io::Error>>,
    deaf: CancellationToken,
}

impl StandardStreams {
    /// Done once stdout takes no more.
    pub async fn stdout_closed(&self) {
        self.deaf.cancelled().await;
    }

    /// Why stdout takes no more, if it does not. It is told once.
    pub fn take_error(&self) -> Option<io::Error> {
        self.fault.lock().take()
    }
}

/// Everything to stderr, for stdout belongs to the answers.
pub struct StderrOnly;

impl OutputWriter for StandardStreams {
    fn printed(&self, line: &[u8]) {
        if self.deaf.is_cancelled() {
            return;
        }
        if let Err(error) = say(&mut io::stdout().lock(), line) {
            *self.fault.lock() = Some(error);
            self.deaf.cancel();
        }
    }

    fn logged(&self, line: &[u8]) {
        complain(line);
    }
}

impl OutputWriter for StderrOnly {
    fn printed(&self, line: &[u8]) {
        complain(line);
    }

    fn logged(&self, line: &[u8]) {
        complain(line);
    }
}

fn say(out: &mut dyn io::Write, line: &[u8]) -> io::Result<()> {
    out.write_all(line).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush())
}

/// Whoever closed stderr does not want to know.
fn complain(line: &[u8]) {
    let _ = say(&mut io::stderr().lock(), line);
}
