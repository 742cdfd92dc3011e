//! The handle through which an agent and `svc run` run Lua in their own process.
//!
//! Each kind of run has a method: it queues the run on the [`Executor`], takes a sandbox from the [`LuaStates`], calls
//! the program under a [`RunClock`], and puts the sandbox back. The server runs nothing here: what its users write runs
//! in worker processes.

use super::{
    error::ScriptError,
    executor::{Capacity, Executor, ExecutorError},
    host::HostServices,
    inputs::{CheckedSpace, ProgramContext},
    limits::{LimitExceeded, RunClock, RunLimits, Watchdog},
    program::Program,
    results::{CheckVerdict, MethodHandler, ProgramRun},
    state_pool::StatePool,
    states::{LuaStates, within},
};
use crate::platform::config;
use serde_json::value::RawValue;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// Runs programs. Cloning it is cheap.
#[derive(Clone)]
pub struct Runtime(pub(super) Arc<RuntimeShared>);

pub(super) struct RuntimeShared {
    pub states: LuaStates,
    executor: Executor,
    watchdog: Watchdog,
}

impl Runtime {
    /// Makes a runtime for the programs and the health check of one space. Threads and Lua states come with the first
    /// runs. 0 threads mean one per core.
    pub fn new(config: &config::ScriptConfig, threads: usize, services: HostServices) -> Self {
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(2, usize::from),
            threads => threads,
        };
        // More states than threads: a run that waits keeps its state and frees its thread.
        let states = LuaStates::new(RunLimits::from(config), services, StatePool::new(threads * 4));
        let executor = Executor::new(Capacity::new(threads));
        Self(Arc::new(RuntimeShared { states, executor, watchdog: Watchdog::default() }))
    }

    /// Runs a health check: a script that returns `true`, or `false` and the reason. Dropping the future ends the run.
    pub async fn run_check(&self, program: &Program, space: CheckedSpace) -> Result<CheckVerdict, ScriptError> {
        let (shared, program, clock) = (self.0.clone(), program.clone(), RunClock::new(self.0.states.limits));
        let run_clock = clock.clone();
        self.execute(clock, async move {
            let sandbox = shared.states.take(&program)?;
            let verdict = within(&run_clock, sandbox.run_check(&space, &run_clock)).await;
            sandbox.end_run();
            shared.states.put(&program, sandbox, verdict.as_ref().err());
            verdict
        })
        .await?
    }

    /// Runs a program of a space ([`Program::for_space`]). Dropping the future ends the run, also while it waits.
    pub async fn run_program(
        &self,
        program: &Program,
        context: Arc<ProgramContext>,
        arguments: Vec<String>,
    ) -> ProgramRun {
        let (shared, program, clock) = (self.0.clone(), program.clone(), RunClock::new(self.0.states.limits));
        let run_clock = clock.clone();
        let run = self.execute(clock, async move {
            let sandbox = shared.states.take(&program)?;
            let result = within(&run_clock, sandbox.run_program(&context, &arguments, &run_clock)).await;
            let result = result.map_err(|error| sandbox.with_location(error));
            let (log, handlers) = (sandbox.end_run(), sandbox.take_handlers());
            shared.states.put(&program, sandbox, result.as_ref().err());
            Ok(ProgramRun { result, log, cpu: run_clock.cpu(), handlers })
        });
        match run.await {
            Ok(Ok(run)) => run,
            Ok(Err(error)) | Err(error) => {
                ProgramRun { result: Err(error), log: Vec::new(), cpu: Duration::ZERO, handlers: BTreeMap::new() }
            }
        }
    }

    /// Calls a handler that a program of a space named, isolated from every other request. Dropping the future ends
    /// the run.
    ///
    /// # Errors
    ///
    /// An error names the file and, where it is known, the line.
    pub async fn call_handler(
        &self,
        program: &Program,
        context: Arc<ProgramContext>,
        handler: MethodHandler,
        params: Option<Box<RawValue>>,
    ) -> Result<Box<RawValue>, ScriptError> {
        let (shared, program, clock) = (self.0.clone(), program.clone(), RunClock::new(self.0.states.limits));
        let run_clock = clock.clone();
        self.execute(clock, async move {
            let sandbox = shared.states.take(&program)?;
            let call = sandbox.call_handler(&context, &handler, params.as_deref(), &run_clock);
            let result = within(&run_clock, call).await.map_err(|error| sandbox.with_location(error));
            sandbox.end_run();
            shared.states.put(&program, sandbox, result.as_ref().err());
            result
        })
        .await?
    }

    /// Ends every run and accepts no more. Runs in progress fail.
    pub fn shut_down(&self) {
        self.0.shut_down();
    }

    /// Executes `work` on the script threads and waits for its result.
    async fn execute<T: Send + 'static>(
        &self,
        clock: Arc<RunClock>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, ScriptError> {
        let (sender, receiver) = oneshot::channel();
        // A library function may need the timers and sockets of the tokio runtime that the caller is on.
        let tokio = tokio::runtime::Handle::try_current().ok();
        let shared = Arc::downgrade(&self.0);
        let watched_clock = clock.clone();
        let work = async move {
            let Some(guard) = shared.upgrade().map(|shared| shared.watchdog.watch(watched_clock)) else { return };
            let done = work.await;
            drop(guard);
            let _ = sender.send(done);
        };
        let mut work = Box::pin(work);
        let work = std::future::poll_fn(move |context| {
            let _entered = tokio.as_ref().map(|tokio| tokio.enter());
            work.as_mut().poll(context)
        });
        let _cancel = CancelOnDrop(clock.clone());
        self.0.executor.spawn(clock, Box::pin(work)).map_err(|error| match error {
            ExecutorError::QueueFull => ScriptError::Busy,
            ExecutorError::Stopped => ScriptError::Stopped,
        })?;
        receiver.await.map_err(|_| if self.0.watchdog.is_stopped() { ScriptError::Stopped } else { ScriptError::Host })
    }
}

impl RuntimeShared {
    fn shut_down(&self) {
        self.watchdog.stop();
        self.executor.stop();
        self.states.clear();
    }
}

impl Drop for RuntimeShared {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// Ends a run whose caller is gone. A run that is over is not affected.
struct CancelOnDrop(Arc<RunClock>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.end(LimitExceeded::Cancelled);
    }
}
