//! The main loop of a worker: takes one turn after the other, in the order in which the server sent them.

use super::{filter_runner::FilterRunner, remote_host::RemoteHost, server_socket::ServerSocket};
use crate::{
    model::id_map::IdMap,
    scripting::{
        lua::{LuaStates, Program, RunClock, RunLimits, ScriptError, StatePool, Watchdog, within},
        workers::{
            confinement::{self, NOT_CONFINED, SOCKET},
            messages::{FinishedRun, FromWorker, RunOutput, StartedWork, ToWorker},
        },
    },
};
use std::{
    fs::File,
    io,
    os::{fd::FromRawFd as _, unix::fs::FileTypeExt as _},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    process::ExitCode,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

/// The most idle states of one program. Runs that wait hold further ones.
const STATES_PER_PROGRAM: usize = 4;

/// A run that has begun.
struct BegunRun {
    clock: Arc<RunClock>,
    work: Pin<Box<dyn Future<Output = FinishedRun> + Send>>,
}

/// The worker.
struct ServingWorker {
    host: RemoteHost,
    states: Arc<LuaStates>,
    filter_runner: Arc<FilterRunner>,
    watchdog: Watchdog,
    runs: IdMap<u64, BegunRun>,
}

/// Runs this process as a worker until the server is gone. Its socket is its standard input.
pub fn run_worker() -> ExitCode {
    // SAFETY: nothing else in this process uses the descriptor.
    let socket = unsafe { File::from_raw_fd(SOCKET) };
    if !socket.metadata().is_ok_and(|found| found.file_type().is_socket()) {
        eprintln!("svc: `lua-worker` is started by the server");
        return ExitCode::from(2);
    }
    // Nobody reads a message of a panic; it costs its run.
    std::panic::set_hook(Box::new(|_| ()));
    let mut link = ServerSocket::new(socket);
    let Ok(ToWorker::Limits(limits)) = link.receive() else { return ExitCode::FAILURE };
    match serve(link, limits) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(NOT_CONFINED as u8),
    }
}

fn serve(link: ServerSocket, limits: RunLimits) -> io::Result<()> {
    confinement::confine_process(limits.memory)?;
    let host = RemoteHost::new(link);
    let states = Arc::new(LuaStates::new(limits, host.services(), StatePool::new(STATES_PER_PROGRAM)));
    let mut worker = ServingWorker {
        host,
        states,
        filter_runner: Arc::default(),
        watchdog: Watchdog::default(),
        runs: IdMap::default(),
    };
    worker.prepare();
    confinement::confine_system_calls()?;
    worker.serve();
    Ok(())
}

impl ServingWorker {
    /// Does what needs more than a run may do: starts the watchdog's thread and makes the first state.
    fn prepare(&self) {
        let clock = RunClock::new(self.states.limits);
        let watched = self.watchdog.watch(clock.clone());
        // Its thread has started once it ticks; a thread starts with system calls that are refused later.
        while !clock.was_ticked() {
            std::thread::sleep(Duration::from_micros(50));
        }
        drop(watched);
        let first = Program::script("script", "return");
        drop(first.map(|program| self.states.take(&program)));
    }

    fn serve(&mut self) {
        while let Ok(message) = self.host.receive() {
            match message {
                ToWorker::Limits(_) => {}
                ToWorker::Program { id, content } => self.host.learn(id, content),
                ToWorker::Forget { id } => self.host.forget(id),
                ToWorker::Start { run, program, work } => {
                    self.host.begin_turn(run, None);
                    let begun = self.begin(program, work);
                    self.runs.insert(run, begun);
                    self.take_turn(run);
                }
                ToWorker::Reply { run, result } => {
                    self.host.begin_turn(run, Some(result));
                    self.take_turn(run);
                }
                ToWorker::End { run, why } => {
                    self.host.begin_turn(run, None);
                    if let Some(begun) = self.runs.get(&run) {
                        begun.clock.end(why);
                    }
                    self.take_turn(run);
                }
            }
        }
    }

    fn begin(&self, program: u64, work: StartedWork) -> BegunRun {
        let clock = RunClock::new(self.states.limits);
        let (host, states, run_clock) = (self.host.clone(), self.states.clone(), clock.clone());
        let filter_runner = self.filter_runner.clone();
        let work = Box::pin(async move {
            let (log, outcome) = match (work, host.program(program)) {
                (StartedWork::Filter { filters, fields }, _) => {
                    let verdicts = filter_runner.run(&host, &states, &filters, &fields, &run_clock);
                    (Vec::new(), Ok(RunOutput::Filtered(verdicts)))
                }
                (work, Some(Ok(program))) => run_program(&host, &states, &program, work, &run_clock).await,
                (_, Some(Err(error))) => (Vec::new(), Err(ScriptError::Compile(error))),
                (_, None) => (Vec::new(), Err(ScriptError::Host)),
            };
            FinishedRun { cpu: run_clock.cpu(), log, outcome }
        });
        BegunRun { clock, work }
    }

    /// Polls a run once, and tells the server how the turn ended.
    fn take_turn(&mut self, run: u64) {
        let Some(begun) = self.runs.get_mut(&run) else { return };
        let watched = self.watchdog.watch(begun.clock.clone());
        begun.clock.begin_turn(Waker::noop());
        // A panic is a defect of the host, not of the script; it costs this run and not the worker.
        let polled =
            catch_unwind(AssertUnwindSafe(|| begun.work.as_mut().poll(&mut Context::from_waker(Waker::noop()))));
        if matches!(polled, Ok(Poll::Pending)) {
            begun.clock.end_turn();
        }
        drop(watched);
        let request = self.host.end_turn();
        let message = match (polled, request) {
            (Ok(Poll::Pending), Some(request)) => FromWorker::YieldingRequest { run, request },
            (Ok(Poll::Ready(finished)), _) => {
                self.runs.remove(&run);
                FromWorker::Done { run, finished }
            }
            (Ok(Poll::Pending), None) | (Err(_), _) => {
                self.runs.remove(&run);
                let outcome = Err(ScriptError::Host);
                FromWorker::Done { run, finished: FinishedRun { cpu: Duration::ZERO, log: Vec::new(), outcome } }
            }
        };
        if self.host.send(&message).is_err() {
            std::process::exit(0);
        }
    }
}

/// Runs a program in a state, and returns the lines it logged and its result.
async fn run_program(
    host: &RemoteHost,
    states: &LuaStates,
    program: &Program,
    work: StartedWork,
    clock: &Arc<RunClock>,
) -> (Vec<String>, Result<RunOutput, ScriptError>) {
    if matches!(work, StartedWork::Compile) {
        return (Vec::new(), Ok(RunOutput::Compiled));
    }
    let sandbox = match states.take(program) {
        Ok(sandbox) => sandbox,
        Err(error) => return (Vec::new(), Err(error)),
    };
    let (mut rendered_log, mut failed_ahead) = (None, None);
    let result = match &work {
        StartedWork::Render(fields) => within(clock, async { sandbox.render(fields, clock) }).await.map(|rendered| {
            rendered_log = Some(rendered.log);
            RunOutput::Rendered { kind: rendered.kind, body: rendered.body }
        }),
        StartedWork::RenderBatch(batch) => {
            within(clock, async { sandbox.render_batch(batch, clock) }).await.map(|rendered| {
                rendered_log = Some(rendered.log);
                RunOutput::Rendered { kind: rendered.kind, body: rendered.body }
            })
        }
        StartedWork::RenderEach(inputs) => {
            let (bodies, error) = sandbox.render_each(inputs, clock);
            rendered_log = Some(Vec::new());
            let failed = error.is_some();
            failed_ahead = error;
            Ok(RunOutput::RenderedEach { bodies, failed })
        }
        StartedWork::Script(fields) => within(clock, sandbox.run_script(fields, clock)).await.map(RunOutput::Verdict),
        StartedWork::Tool { arguments } => {
            let run = sandbox.run_tool(arguments, host.tool_context(), clock);
            within(clock, run).await.map(|json| RunOutput::Json(String::from_utf8(json).expect("JSON is text")))
        }
        StartedWork::Transform(input) => {
            let run = async { sandbox.run_transform(input, clock) };
            within(clock, run).await.map(|json| RunOutput::Json(String::from_utf8(json).expect("JSON is text")))
        }
        StartedWork::Filter { .. } => unreachable!("filters have a state of their own"),
        StartedWork::Compile => unreachable!("it is returned above"),
    };
    let result = match work {
        StartedWork::Render(_) | StartedWork::RenderBatch(_) | StartedWork::RenderEach(_) => result,
        _ => result.map_err(|error| sandbox.with_location(error)),
    };
    let log = rendered_log.unwrap_or_else(|| sandbox.end_run());
    states.put(program, sandbox, result.as_ref().err().or(failed_ahead.as_ref()));
    (log, result)
}
