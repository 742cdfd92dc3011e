//! `svc run`: the script runtime of a space. It runs a Lua file once, or serves its methods over stdin and stdout.

use super::{failure::Failure, shell::Shell};
use crate::{
    platform::{
        config::{Size, Span},
        process_group,
    },
    scripting::{
        lua::{Capabilities, ProgramOutput},
        space_runtime::{
            AgentClient, LoadedProgram, ProgramLimits, ProgramSettings, ServeError, StandardStreams, StderrOnly, serve,
        },
    },
};
use std::{
    io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The default limits of a request.
const REQUEST_TIME: Duration = Duration::from_secs(30);
const REQUEST_MEMORY: u64 = 64 << 20;

/// The time runs get to end after a signal.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// Run a Lua file of a space, once or as a method server.
#[derive(argh::FromArgs, argh::ArgsInfo, Clone, Debug, PartialEq)]
#[argh(
    subcommand,
    name = "run",
    help_triggers("-h", "--help"),
    example = "{command_name} report.lua 2026-01\n{command_name} --json-rpc setup.lua",
    note = "Words after FILE are its arguments, `arg` and `...` in Lua. `require` looks beside FILE, then among the libraries \
            of the space's owner. With --json-rpc the file names a handler for each method, by \
            runtime.jsonrpc.method(\"search\", \"handlers.search\"), and each request that comes in on stdin, one a \
            line, is handled by that function in an evaluator of its own."
)]
pub struct RunCommand {
    /// serve the methods that the file names, over stdin and stdout
    #[argh(switch)]
    json_rpc: bool,

    /// without files, processes, environment and registering methods, and with HTTP to public addresses only
    #[argh(switch)]
    sandbox: bool,

    /// the number of requests that run at the same time (otherwise the number of cores)
    #[argh(option, arg_name = "n")]
    threads: Option<NonZeroUsize>,

    /// the longest a run or a request may take (otherwise 30s for a request, and no limit for a run)
    #[argh(option, arg_name = "span")]
    timeout: Option<Span>,

    /// the most memory one may take (otherwise 64MiB for a request, and no limit for a run)
    #[argh(option, arg_name = "size")]
    memory: Option<Size>,

    /// the Lua file
    #[argh(positional)]
    file: PathBuf,

    /// its arguments
    #[argh(positional, greedy)]
    arguments: Vec<String>,
}

impl RunCommand {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let agent = Arc::new(AgentClient::new((shell.environment)("SVC_AGENT_URL").as_deref()));
        let unable = |source: io::Error| Failure::File { path: PathBuf::from("."), source };
        let streams = Arc::new(StandardStreams::default());
        let settings = ProgramSettings {
            capabilities: if self.sandbox { Capabilities::Sandboxed } else { Capabilities::Full },
            limits: self.limits(),
            directory: std::env::current_dir().map_err(unable)?,
            environment: std::env::vars_os().collect(),
            agent,
            output: ProgramOutput::Streamed(if self.json_rpc { Arc::new(StderrOnly) } else { streams.clone() }),
        };
        let program = LoadedProgram::read(&self.file, settings).map_err(|error| Failure::Bad(error.to_string()))?;
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(unable)?;
        let result = tokio.block_on(self.perform(Arc::new(program), &streams));
        // A thread that waits on a pipe for ever must not delay the end, nor keep processes of its run alive.
        process_group::kill_all();
        tokio.shutdown_background();
        result
    }

    async fn perform(self, program: Arc<LoadedProgram>, streams: &StandardStreams) -> Result<(), Failure> {
        let closing = CancellationToken::new();
        let stopped = stop_on_signal(program.clone(), closing.clone())?;
        let stopped_by_signal = || Failure::Bad("stopped by a signal".to_owned());
        let work = async {
            match self.json_rpc {
                true => serve_methods(&program, &self.file, self.arguments, closing.clone()).await,
                false => run_once(&program, self.arguments, streams).await,
            }
        };
        tokio::select! {
            result = work => result.map_err(|failure| if closing.is_cancelled() { stopped_by_signal() } else { failure }),
            () = stopped => Err(stopped_by_signal()),
        }
    }

    fn limits(&self) -> ProgramLimits {
        let (time, memory) = match self.json_rpc {
            true => (Some(REQUEST_TIME), Some(REQUEST_MEMORY)),
            false => (None, None),
        };
        ProgramLimits {
            wall: self.timeout.map(|Span(span)| span).or(time),
            memory: self.memory.map(|Size(size)| size).or(memory),
            threads: self.threads.map_or(0, NonZeroUsize::get),
        }
    }
}

/// Runs the file once, until it ends or the reader of stdout closes it.
async fn run_once(program: &LoadedProgram, arguments: Vec<String>, streams: &StandardStreams) -> Result<(), Failure> {
    let mut run = pin!(program.run_once(arguments));
    let run = tokio::select! {
        run = &mut run => Some(run),
        () = streams.stdout_closed() => {
            program.shut_down();
            tokio::time::timeout(SHUTDOWN_GRACE, run).await.ok()
        }
    };
    match (streams.take_error(), run) {
        (Some(error), _) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::ClosedDuringRun),
        (Some(error), _) => Err(Failure::Output(error)),
        (None, Some(run)) => run.result.map_err(|error| Failure::Bad(error.to_string())),
        (None, None) => Ok(()),
    }
}

async fn serve_methods(
    program: &Arc<LoadedProgram>,
    file: &Path,
    arguments: Vec<String>,
    closing: CancellationToken,
) -> Result<(), Failure> {
    let name = file.display().to_string();
    match serve(program.clone(), &name, arguments, io::stdin(), io::stdout(), closing).await {
        Ok(()) => Ok(()),
        Err(ServeError::Output(error)) => Err(Failure::of_output(error)),
        Err(other) => Err(Failure::Bad(other.to_string())),
    }
}

/// Ends every run on the first SIGTERM or SIGINT, and with it the processes that runs wait for. The returned future
/// completes after the grace period.
fn stop_on_signal(
    program: Arc<LoadedProgram>,
    closing: CancellationToken,
) -> Result<impl Future<Output = ()>, Failure> {
    let unable = |error: io::Error| Failure::Bad(format!("cannot listen for signals: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(unable)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(unable)?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        program.shut_down();
        closing.cancel();
        tokio::time::sleep(SHUTDOWN_GRACE).await;
    })
}
