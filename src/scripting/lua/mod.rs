//! Lua, for those who write it into sinks: templates that make a body of an event, and scripts that
//! deal with one. And for tools, which are called with arguments and return a result, and for the programs of a
//! space ([`space_program`]), which are its own and so may do more.
//!
//! The way of a run, top to bottom: [`Runtime::run_script`] queues it ([`executor`]), its turn takes a state from
//! the [`pool`] or makes one ([`sandbox`]), fills in what the run is about ([`scope`]), calls the program
//! under its limits ([`limits`]), and reads what it decided ([`verdict`]) or gave ([`json`]).
//!
//! A run that misbehaves fails itself and nothing else.

mod bounded_text;
mod executor;
mod json;
mod libraries;
mod limits;
mod location;
mod pool;
mod program;
mod sandbox;
mod scope;
mod space_program;
mod text_template;
mod verdict;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod space_program_tests;
#[cfg(test)]
mod test_support;
#[cfg(test)]
mod tests;

pub use json::{JsonError, check_size};
pub use libraries::{
    HostServices,
    http::{HttpClient, HttpRequest, HttpResponse, MAX_BODY},
    modules::{ModuleSource, NoModules},
    svc::{EventEmitter, MethodCaller, ToolContext},
};
pub use limits::Limit;
pub use program::{CompileError, MAX_SPACE_FILE, Program};
pub use space_program::{
    AgentReply, Capabilities, MethodHandler, OutputWriter, ProgramContext, ProgramOutput, ProgramRun, SpaceAgent,
    SpaceKv,
};
pub use verdict::Verdict;

use crate::{
    model::{event::Event, id::SpaceId, owner::Owner},
    platform::{config, metrics::Metrics},
};
use bytes::Bytes;
use executor::{Refused, Room, Threads};
use limits::{Limits, Watch, Watchdog};
use pool::Pool;
use sandbox::Sandbox;
use serde_json::value::RawValue;
use std::{
    collections::BTreeMap,
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::sync::oneshot;

/// What a program runs for.
#[derive(Clone, Debug)]
pub struct EventInput {
    pub event: Arc<Event>,
    /// The event's number in its sink, `event.sequence`.
    pub sequence: u64,
    /// The number of this attempt, from 1, `event.attempt`.
    pub attempt: u32,
}

/// A body a template made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedBody {
    pub body: Bytes,
    pub kind: BodyFormat,
    /// What the template printed.
    pub log: Vec<String>,
}

/// What a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFormat {
    /// The template returned a table.
    Json,
    /// The template returned a string, or is text; it may still be JSON.
    Text,
}

/// How a script's run went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptRun {
    pub verdict: Verdict,
    /// What the script printed and logged, bounded.
    pub log: Vec<String>,
    /// The processor time it took.
    pub cpu: Duration,
}

/// What a tool is run with.
#[derive(Clone)]
pub struct ToolCall {
    /// A JSON object: `params` to the tool, and its `...`.
    pub arguments: Box<RawValue>,
    /// As whom it calls methods and raises events, which need not be its owner.
    pub acting: ToolContext,
}

/// How a tool's run went.
#[derive(Debug)]
pub struct ToolRun {
    /// What it returned, `null` if nothing.
    pub result: Result<Box<RawValue>, ScriptError>,
    /// What it printed and logged, bounded.
    pub log: Vec<String>,
    /// The processor time it took.
    pub cpu: Duration,
}

/// The space that a check is about, `space` to it.
#[derive(Clone, Debug)]
pub struct CheckedSpace {
    pub id: SpaceId,
    pub name: String,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckVerdict {
    /// The script returned `true`.
    Healthy,
    /// It returned something else, and maybe why.
    Unhealthy(String),
}

/// Why a program gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The program's own error, with its line.
    #[error("{0}")]
    Raised(String),
    /// The program raised a table: `error { code = …, message = …, data = … }`.
    #[error("{message}")]
    RaisedWith { code: Option<i64>, message: String, data: Option<Box<RawValue>> },
    #[error("it {0}")]
    Limit(Limit),
    /// The same, of a program whose author can be told where it was stopped.
    #[error("{place}: it {limit}")]
    LimitAt { limit: Limit, place: String },
    #[error("the result cannot be sent: {0}")]
    NotJson(JsonError),
    #[error("the result must be a table or a string, not {0}")]
    NoBody(&'static str),
    /// What the program is about does not fit into Lua.
    #[error("the data cannot be read: {0}")]
    Data(JsonError),
    #[error("too many scripts are waiting to run")]
    Busy,
    #[error("the server shuts down")]
    Stopped,
    /// A defect of ours.
    #[error("the script host failed; the server's log has more")]
    Host,
}

/// Runs programs. Cloning it is cheap.
#[derive(Clone)]
pub struct Runtime(Arc<Shared>);

struct Shared {
    limits: Limits,
    libraries: HostServices,
    metrics: Arc<Metrics>,
    pool: Pool,
    threads: Threads,
    watchdog: Watchdog,
}

impl Runtime {
    /// A runtime that has started nothing yet: threads and states come with the first runs.
    pub fn new(config: &config::Script, libraries: HostServices, metrics: Arc<Metrics>) -> Self {
        let threads = match config.threads {
            0 => cores().max(2),
            threads => threads,
        };
        Self::with(config, libraries, metrics, Pool::new(1), Threads::new(Room::shared(threads)))
    }

    /// A runtime for the programs of one space, which need to leave room for nobody else.
    pub fn for_space(config: &config::Script, libraries: HostServices) -> Self {
        let threads = match config.threads {
            0 => cores(),
            threads => threads,
        };
        // More than run at a time, since others wait.
        Self::with(config, libraries, Arc::default(), Pool::new(threads * 4), Threads::new(Room::alone(threads)))
    }

    fn with(
        config: &config::Script,
        libraries: HostServices,
        metrics: Arc<Metrics>,
        pool: Pool,
        threads: Threads,
    ) -> Self {
        let (limits, watchdog) = (Limits::from(config), Watchdog::default());
        Self(Arc::new(Shared { limits, libraries, metrics, pool, threads, watchdog }))
    }

    /// Makes the body that a template gives for an event. Dropping the future ends the run.
    ///
    /// # Errors
    ///
    /// Fails if the template raises an error, goes over a limit or gives what is no body; or if there is no room.
    pub async fn render(
        &self,
        program: &Program,
        owner: Owner,
        input: EventInput,
    ) -> Result<RenderedBody, ScriptError> {
        let (shared, program, watch) = (self.0.clone(), program.clone(), Watch::new(self.0.limits));
        let clock = watch.clone();
        self.perform(owner, watch, async move {
            let sandbox = shared.sandbox(&program, owner)?;
            let rendered = within(&clock, async { sandbox.render(&input, &clock) }).await;
            shared.settle(&program, owner, sandbox, &clock, rendered.as_ref().err());
            rendered
        })
        .await?
    }

    /// Runs a script for an event. Dropping the future ends the run, also while it waits for something.
    ///
    /// Whatever goes wrong is the verdict: an error or a limit is [`Verdict::Failed`], and a lack of room
    /// [`Verdict::NotRun`], since the script is not to blame for it.
    pub async fn run_script(&self, program: &Program, owner: Owner, input: EventInput) -> ScriptRun {
        let (shared, program, watch) = (self.0.clone(), program.clone(), Watch::new(self.0.limits));
        let clock = watch.clone();
        let run = self.perform(owner, watch, async move {
            let sandbox = shared.sandbox(&program, owner)?;
            let verdict = within(&clock, sandbox.run(&input, &clock)).await;
            let verdict = verdict.map_err(|error| sandbox.placed(error));
            let log = sandbox.end();
            shared.settle(&program, owner, sandbox, &clock, verdict.as_ref().err());
            let verdict = verdict.unwrap_or_else(|error| Verdict::Failed(error.to_string()));
            Ok(ScriptRun { verdict, log, cpu: clock.cpu() })
        });
        match run.await {
            Ok(Ok(run)) => run,
            Ok(Err(error)) | Err(error) => {
                ScriptRun { verdict: verdict_of(&error), log: Vec::new(), cpu: Duration::ZERO }
            }
        }
    }

    /// Runs a script that checks something: it returns `true`, or `false` and why. Dropping the future ends the run.
    ///
    /// # Errors
    ///
    /// Fails if the script raises an error or goes over a limit, or if there is no room.
    pub async fn run_check(
        &self,
        program: &Program,
        owner: Owner,
        place: CheckedSpace,
    ) -> Result<CheckVerdict, ScriptError> {
        let (shared, program, watch) = (self.0.clone(), program.clone(), Watch::new(self.0.limits));
        let clock = watch.clone();
        self.perform(owner, watch, async move {
            let sandbox = shared.sandbox(&program, owner)?;
            let finding = within(&clock, sandbox.check(&place, &clock)).await;
            sandbox.end();
            shared.settle(&program, owner, sandbox, &clock, finding.as_ref().err());
            finding
        })
        .await?
    }

    /// Runs a tool. Dropping the future ends the run, also while it waits for something.
    ///
    /// `owner` is whose the tool is, and so are the libraries it requires and what it remembers; its turns are those
    /// of whom it acts as.
    pub async fn run_tool(&self, program: &Program, owner: Owner, input: ToolCall) -> ToolRun {
        let (shared, program, watch) = (self.0.clone(), program.clone(), Watch::new(self.0.limits));
        let clock = watch.clone();
        let run = self.perform(input.acting.owner, watch, async move {
            let sandbox = shared.sandbox(&program, owner)?;
            let result = within(&clock, sandbox.evaluate(&input, &clock)).await;
            let result = result.map_err(|error| sandbox.placed(error));
            let log = sandbox.end();
            shared.settle(&program, owner, sandbox, &clock, result.as_ref().err());
            Ok(ToolRun { result, log, cpu: clock.cpu() })
        });
        match run.await {
            Ok(Ok(evaluated)) => evaluated,
            Ok(Err(error)) | Err(error) => ToolRun { result: Err(error), log: Vec::new(), cpu: Duration::ZERO },
        }
    }

    /// Runs a program of a space ([`Program::for_space`]). Dropping the future ends the run, also while it waits for
    /// something.
    pub async fn run_program(
        &self,
        program: &Program,
        around: Arc<ProgramContext>,
        arguments: Vec<String>,
    ) -> ProgramRun {
        let (shared, program, watch) = (self.0.clone(), program.clone(), Watch::new(self.0.limits));
        let clock = watch.clone();
        let run = self.perform(Owner::Global, watch, async move {
            let sandbox = shared.sandbox(&program, Owner::Global)?;
            let result = within(&clock, sandbox.launch(&around, &arguments, &clock)).await;
            let result = result.map_err(|error| sandbox.placed(error));
            let (log, handlers) = (sandbox.end(), sandbox.handlers());
            shared.settle(&program, Owner::Global, sandbox, &clock, result.as_ref().err());
            Ok(ProgramRun { result, log, cpu: clock.cpu(), handlers })
        });
        match run.await {
            Ok(Ok(launched)) => launched,
            Ok(Err(error)) | Err(error) => {
                ProgramRun { result: Err(error), log: Vec::new(), cpu: Duration::ZERO, handlers: BTreeMap::new() }
            }
        }
    }

    /// Has a handler answer a request, beside the program that named it and apart from every other request. Dropping
    /// the future ends the run.
    ///
    /// # Errors
    ///
    /// Fails if the handler raises an error or goes over a limit, or if what it returns is not JSON; each names the
    /// file and, where there is one, the line.
    pub async fn call_handler(
        &self,
        program: &Program,
        around: Arc<ProgramContext>,
        handler: MethodHandler,
        params: Option<Box<RawValue>>,
    ) -> Result<Box<RawValue>, ScriptError> {
        let (shared, program, watch) = (self.0.clone(), program.clone(), Watch::new(self.0.limits));
        let clock = watch.clone();
        self.perform(Owner::Global, watch, async move {
            let sandbox = shared.sandbox(&program, Owner::Global)?;
            let result = within(&clock, sandbox.handle(&around, &handler, params.as_deref(), &clock)).await;
            let result = result.map_err(|error| sandbox.placed(error));
            sandbox.end();
            shared.settle(&program, Owner::Global, sandbox, &clock, result.as_ref().err());
            result
        })
        .await?
    }

    /// Ends every run and takes no more. Runs under way fail.
    pub fn shut_down(&self) {
        self.0.shut_down();
    }

    /// Has `work` done on the script threads and waits for what it gives.
    async fn perform<T: Send + 'static>(
        &self,
        owner: Owner,
        watch: Arc<Watch>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, ScriptError> {
        let (answer, answered) = oneshot::channel();
        // What a script waits for may need the timers and sockets of the runtime its caller is on.
        let tokio = tokio::runtime::Handle::try_current().ok();
        let shared = Arc::downgrade(&self.0);
        let clock = watch.clone();
        let work = async move {
            let Some(watched) = shared.upgrade().map(|shared| shared.watchdog.watch(clock)) else { return };
            let done = work.await;
            drop(watched);
            let _ = answer.send(done);
        };
        let mut work = Box::pin(work);
        let work = std::future::poll_fn(move |context| {
            let _entered = tokio.as_ref().map(|tokio| tokio.enter());
            work.as_mut().poll(context)
        });
        let _cancel = Cancel(watch.clone());
        self.0.threads.spawn(owner, watch, Box::pin(work)).map_err(|refused| match refused {
            Refused::QueueFull => ScriptError::Busy,
            Refused::Stopped => ScriptError::Stopped,
        })?;
        answered.await.map_err(|_| if self.0.watchdog.is_stopped() { ScriptError::Stopped } else { ScriptError::Host })
    }
}

impl Shared {
    /// A state for this program and owner, used before or new.
    fn sandbox(&self, program: &Program, owner: Owner) -> Result<Sandbox, ScriptError> {
        if let Some(sandbox) = self.pool.take(program, owner) {
            return Ok(sandbox);
        }
        Sandbox::new(program, owner, &self.libraries, self.limits).map_err(|error| match error {
            mlua::Error::MemoryError(_) => ScriptError::Limit(Limit::Memory(self.limits.memory)),
            other => {
                log::error!("cannot make a Lua state: {other}");
                ScriptError::Host
            }
        })
    }

    /// Counts a run that is over, and keeps its state unless it hit a limit.
    fn settle(&self, program: &Program, owner: Owner, sandbox: Sandbox, watch: &Watch, error: Option<&ScriptError>) {
        self.metrics.lua_time.observe(watch.cpu());
        let hit_a_limit = matches!(error, Some(ScriptError::Limit(_) | ScriptError::LimitAt { .. }));
        if !hit_a_limit && sandbox.is_reusable() {
            self.pool.put(program, owner, sandbox);
        }
    }

    fn shut_down(&self) {
        self.watchdog.stop();
        self.threads.stop();
        self.pool.clear();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.shut_down();
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

/// Ends the run whose caller has gone away. One that is over does not mind.
struct Cancel(Arc<Watch>);

impl Drop for Cancel {
    fn drop(&mut self) {
        self.0.end(Limit::Cancelled);
    }
}

/// `run`, given up as soon as it is over a limit, also while it waits.
async fn within<T>(watch: &Watch, run: impl Future<Output = Result<T, ScriptError>>) -> Result<T, ScriptError> {
    let mut run = pin!(run);
    let given = std::future::poll_fn(|context: &mut Context<'_>| match watch.check() {
        Ok(()) => run.as_mut().poll(context),
        Err(limit) => Poll::Ready(Err(ScriptError::Limit(limit))),
    })
    .await;
    match watch.over() {
        Some(limit) => Err(ScriptError::Limit(limit)),
        None => given,
    }
}

/// The verdict on a run that never began.
fn verdict_of(error: &ScriptError) -> Verdict {
    match error {
        ScriptError::Busy | ScriptError::Stopped => Verdict::NotRun(error.to_string()),
        other => Verdict::Failed(other.to_string()),
    }
}
