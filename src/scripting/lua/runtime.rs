//! The handle through which everything runs Lua.
//!
//! Each kind of run has a method: it queues the run on the [`Executor`], takes a [`Sandbox`] from the [`StatePool`] or
//! makes one, calls the program under a [`RunClock`], and puts the sandbox back.

use super::{
    error::ScriptError,
    executor::{Capacity, Executor, ExecutorError},
    host::HostServices,
    inputs::{CheckedSpace, EventInput, ProgramContext, ToolCall},
    limits::{LimitExceeded, RunClock, RunLimits, Watchdog},
    program::Program,
    results::{CheckVerdict, MethodHandler, ProgramRun, RenderedBody, ScriptRun, ToolRun},
    sandbox::Sandbox,
    state_pool::StatePool,
    verdict::Verdict,
};
use crate::{
    model::owner::Owner,
    platform::{config, metrics::Metrics},
};
use serde_json::value::RawValue;
use std::{
    collections::BTreeMap,
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::sync::oneshot;

/// Runs programs. Cloning it is cheap.
#[derive(Clone)]
pub struct Runtime(pub(super) Arc<RuntimeShared>);

pub(super) struct RuntimeShared {
    pub limits: RunLimits,
    pub services: HostServices,
    metrics: Arc<Metrics>,
    pub pool: StatePool,
    executor: Executor,
    watchdog: Watchdog,
}

impl Runtime {
    /// Makes a runtime for many owners. Threads and Lua states come with the first runs.
    pub fn new(config: &config::ScriptConfig, services: HostServices, metrics: Arc<Metrics>) -> Self {
        let threads = match config.threads {
            0 => cores().max(2),
            threads => threads,
        };
        Self::with(config, services, metrics, StatePool::new(1), Capacity::for_many_owners(threads))
    }

    /// Makes a runtime for the programs of one space, which may use all of it.
    pub fn for_space(config: &config::ScriptConfig, services: HostServices) -> Self {
        let threads = match config.threads {
            0 => cores(),
            threads => threads,
        };
        // More states than threads: a run that waits keeps its state and frees its thread.
        let pool = StatePool::new(threads * 4);
        Self::with(config, services, Arc::default(), pool, Capacity::for_one_owner(threads))
    }

    fn with(
        config: &config::ScriptConfig,
        services: HostServices,
        metrics: Arc<Metrics>,
        pool: StatePool,
        capacity: Capacity,
    ) -> Self {
        let (limits, executor, watchdog) = (RunLimits::from(config), Executor::new(capacity), Watchdog::default());
        Self(Arc::new(RuntimeShared { limits, services, metrics, pool, executor, watchdog }))
    }

    /// Renders the body that a template returns for an event. Dropping the future ends the run.
    pub async fn render(
        &self,
        program: &Program,
        owner: Owner,
        input: EventInput,
    ) -> Result<RenderedBody, ScriptError> {
        let (shared, program, clock) = (self.0.clone(), program.clone(), RunClock::new(self.0.limits));
        let run_clock = clock.clone();
        self.execute(owner, clock, async move {
            let sandbox = shared.sandbox(&program, owner)?;
            let rendered = within(&run_clock, async { sandbox.render(&input, &run_clock) }).await;
            shared.finish(&program, owner, sandbox, &run_clock, rendered.as_ref().err());
            rendered
        })
        .await?
    }

    /// Runs a script for an event. Dropping the future ends the run, also while it waits.
    ///
    /// Every failure is a verdict: an error or a limit is [`Verdict::Failed`], and a full executor
    /// [`Verdict::NotRun`], since the script is not to blame for it.
    pub async fn run_script(&self, program: &Program, owner: Owner, input: EventInput) -> ScriptRun {
        let (shared, program, clock) = (self.0.clone(), program.clone(), RunClock::new(self.0.limits));
        let run_clock = clock.clone();
        let run = self.execute(owner, clock, async move {
            let sandbox = shared.sandbox(&program, owner)?;
            let verdict = within(&run_clock, sandbox.run_script(&input, &run_clock)).await;
            let verdict = verdict.map_err(|error| sandbox.with_location(error));
            let log = sandbox.end_run();
            shared.finish(&program, owner, sandbox, &run_clock, verdict.as_ref().err());
            let verdict = verdict.unwrap_or_else(|error| Verdict::Failed(error.to_string()));
            Ok(ScriptRun { verdict, log, cpu: run_clock.cpu() })
        });
        match run.await {
            Ok(Ok(run)) => run,
            Ok(Err(error)) | Err(error) => {
                ScriptRun { verdict: verdict_not_begun(&error), log: Vec::new(), cpu: Duration::ZERO }
            }
        }
    }

    /// Runs a health check: a script that returns `true`, or `false` and the reason. Dropping the future ends the run.
    pub async fn run_check(
        &self,
        program: &Program,
        owner: Owner,
        space: CheckedSpace,
    ) -> Result<CheckVerdict, ScriptError> {
        let (shared, program, clock) = (self.0.clone(), program.clone(), RunClock::new(self.0.limits));
        let run_clock = clock.clone();
        self.execute(owner, clock, async move {
            let sandbox = shared.sandbox(&program, owner)?;
            let verdict = within(&run_clock, sandbox.run_check(&space, &run_clock)).await;
            sandbox.end_run();
            shared.finish(&program, owner, sandbox, &run_clock, verdict.as_ref().err());
            verdict
        })
        .await?
    }

    /// Runs a tool. Dropping the future ends the run, also while it waits.
    ///
    /// The libraries that the tool requires and its `kv` are those of `owner`; its turns on the executor are those of
    /// the user it acts as.
    pub async fn run_tool(&self, program: &Program, owner: Owner, call: ToolCall) -> ToolRun {
        let (shared, program, clock) = (self.0.clone(), program.clone(), RunClock::new(self.0.limits));
        let run_clock = clock.clone();
        let run = self.execute(call.context.owner, clock, async move {
            let sandbox = shared.sandbox(&program, owner)?;
            let result = within(&run_clock, sandbox.run_tool(&call, &run_clock)).await;
            let result = result.map_err(|error| sandbox.with_location(error));
            let log = sandbox.end_run();
            shared.finish(&program, owner, sandbox, &run_clock, result.as_ref().err());
            Ok(ToolRun { result, log, cpu: run_clock.cpu() })
        });
        match run.await {
            Ok(Ok(run)) => run,
            Ok(Err(error)) | Err(error) => ToolRun { result: Err(error), log: Vec::new(), cpu: Duration::ZERO },
        }
    }

    /// Runs a program of a space ([`Program::for_space`]). Dropping the future ends the run, also while it waits.
    pub async fn run_program(
        &self,
        program: &Program,
        context: Arc<ProgramContext>,
        arguments: Vec<String>,
    ) -> ProgramRun {
        let (shared, program, clock) = (self.0.clone(), program.clone(), RunClock::new(self.0.limits));
        let run_clock = clock.clone();
        let run = self.execute(Owner::Global, clock, async move {
            let sandbox = shared.sandbox(&program, Owner::Global)?;
            let result = within(&run_clock, sandbox.run_program(&context, &arguments, &run_clock)).await;
            let result = result.map_err(|error| sandbox.with_location(error));
            let (log, handlers) = (sandbox.end_run(), sandbox.take_handlers());
            shared.finish(&program, Owner::Global, sandbox, &run_clock, result.as_ref().err());
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
        let (shared, program, clock) = (self.0.clone(), program.clone(), RunClock::new(self.0.limits));
        let run_clock = clock.clone();
        self.execute(Owner::Global, clock, async move {
            let sandbox = shared.sandbox(&program, Owner::Global)?;
            let call = sandbox.call_handler(&context, &handler, params.as_deref(), &run_clock);
            let result = within(&run_clock, call).await.map_err(|error| sandbox.with_location(error));
            sandbox.end_run();
            shared.finish(&program, Owner::Global, sandbox, &run_clock, result.as_ref().err());
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
        owner: Owner,
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
        self.0.executor.spawn(owner, clock, Box::pin(work)).map_err(|error| match error {
            ExecutorError::QueueFull => ScriptError::Busy,
            ExecutorError::Stopped => ScriptError::Stopped,
        })?;
        receiver.await.map_err(|_| if self.0.watchdog.is_stopped() { ScriptError::Stopped } else { ScriptError::Host })
    }
}

impl RuntimeShared {
    /// Takes a sandbox of this program and owner from the pool, or makes one.
    fn sandbox(&self, program: &Program, owner: Owner) -> Result<Sandbox, ScriptError> {
        if let Some(sandbox) = self.pool.take(program, owner) {
            return Ok(sandbox);
        }
        Sandbox::new(program, owner, &self.services, self.limits).map_err(|error| match error {
            mlua::Error::MemoryError(_) => ScriptError::Limit(LimitExceeded::Memory(self.limits.memory)),
            other => {
                log::error!("cannot make a Lua state: {other}");
                ScriptError::Host
            }
        })
    }

    /// Counts a run that is over, and pools its sandbox unless the run exceeded a limit.
    fn finish(&self, program: &Program, owner: Owner, sandbox: Sandbox, clock: &RunClock, error: Option<&ScriptError>) {
        self.metrics.lua_time.observe(clock.cpu());
        let exceeded_limit = matches!(error, Some(ScriptError::Limit(_) | ScriptError::LimitAt { .. }));
        if !exceeded_limit && sandbox.is_reusable() {
            self.pool.put(program, owner, sandbox);
        }
    }

    fn shut_down(&self) {
        self.watchdog.stop();
        self.executor.stop();
        self.pool.clear();
    }
}

impl Drop for RuntimeShared {
    fn drop(&mut self) {
        self.shut_down();
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

/// Ends a run whose caller is gone. A run that is over is not affected.
struct CancelOnDrop(Arc<RunClock>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.end(LimitExceeded::Cancelled);
    }
}

/// Polls `run` until it is done or over a limit, also while it waits.
async fn within<T>(clock: &RunClock, run: impl Future<Output = Result<T, ScriptError>>) -> Result<T, ScriptError> {
    let mut run = pin!(run);
    let result = std::future::poll_fn(|context: &mut Context<'_>| match clock.check() {
        Ok(()) => run.as_mut().poll(context),
        Err(limit) => Poll::Ready(Err(ScriptError::Limit(limit))),
    })
    .await;
    match clock.exceeded() {
        Some(limit) => Err(ScriptError::Limit(limit)),
        None => result,
    }
}

/// The verdict on a run that never began.
fn verdict_not_begun(error: &ScriptError) -> Verdict {
    match error {
        ScriptError::Busy | ScriptError::Stopped => Verdict::NotRun(error.to_string()),
        other => Verdict::Failed(other.to_string()),
    }
}
