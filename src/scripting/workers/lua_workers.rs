//! The handle through which the server runs the Lua of its users, in worker processes.
//!
//! A run takes a slot in a worker ([`super::pool`]), is begun there ([`super::worker_link`]), and has its requests
//! answered ([`super::host_requests`]) in the caller's own task until it is done. A run whose worker was lost through
//! no fault of its own is repeated.

use super::{
    confinement::memory_limit,
    filter_runs::FilterRuns,
    host_requests::{Answer, RunEffects, RunRights, WorkerServices},
    messages::{FinishedRun, RunOutput, RunWork},
    places::{PoolBounds, WorkerClass, WorkerKey, WorkerPlace},
    pool::WorkerPool,
    process::WorkerCommand,
    program_text::ProgramText,
    quarantine::{Quarantine, Quarantined},
    worker_link::{LostRun, RunEvent, RunHandle},
};
use crate::{
    model::owner::Owner,
    platform::{config, metrics::Metrics},
    scripting::lua::{
        EventInput, LimitExceeded, RenderedBody, RunLimits, ScriptError, ScriptRun, ToolCall, ToolRun, TransformInput,
        TransformRun, Verdict,
    },
};
use serde_json::value::RawValue;
use std::{io, slice, sync::Arc, time::Duration};

/// The number of times that a run is repeated because its worker was lost.
pub(super) const MAX_REPEATS: usize = 10;

/// The times that a worker may be killed from outside while it executes a run. The system kills processes when memory
/// is short, and a run that uses much of it would otherwise be repeated without end.
pub(super) const MAX_KILLS: usize = 3;

/// The requests that a run may send after its time is over, until its worker is killed.
const MAX_LATE_REQUESTS: usize = 3;

/// The reason that a tool is not repeated.
const NOT_REPEATED: &str = "another run ended it after this one had sent requests, which are not repeated: call the tool again if that is safe";

/// Runs the templates, scripts and tools of users. Cloning it is cheap.
#[derive(Clone)]
pub struct LuaWorkers(pub(super) Arc<WorkersShared>);

pub(super) struct WorkersShared {
    pub pool: Arc<WorkerPool>,
    limits: RunLimits,
    services: WorkerServices,
    pub quarantine: Arc<Quarantine>,
    pub metrics: Arc<Metrics>,
    pub filter_runs: Arc<FilterRuns>,
}

impl LuaWorkers {
    /// Makes the handle. The first worker starts with the first run.
    ///
    /// # Errors
    ///
    /// Fails if no thread can be started.
    pub fn new(
        config: &config::ScriptConfig,
        command: WorkerCommand,
        services: WorkerServices,
        metrics: Arc<Metrics>,
    ) -> io::Result<Self> {
        let limits = RunLimits::from(config);
        let bounds = PoolBounds::new(config.workers, memory_limit(limits.memory));
        let quarantine = Arc::<Quarantine>::default();
        let pool = WorkerPool::new(bounds, limits, command, quarantine.clone(), metrics.clone())?;
        let filter_runs = Arc::<FilterRuns>::default();
        Ok(Self(Arc::new(WorkersShared { pool, limits, services, quarantine, metrics, filter_runs })))
    }

    /// Renders the body that a template returns for an event. Dropping the future ends the run.
    pub async fn render(
        &self,
        program: &ProgramText,
        owner: Owner,
        input: EventInput,
    ) -> Result<RenderedBody, ScriptError> {
        self.render_work(program, owner, &RunWork::Render(input)).await
    }

    /// Renders the body that a template returns for the `events` of a batch, as [`LuaWorkers::render`] does for one.
    pub async fn render_batch(
        &self,
        program: &ProgramText,
        owner: Owner,
        inputs: Vec<EventInput>,
    ) -> Result<RenderedBody, ScriptError> {
        self.render_work(program, owner, &RunWork::RenderBatch(inputs)).await
    }

    /// Renders the bodies of the first of these events, each as [`LuaWorkers::render`] does, and tells if the next one
    /// failed. It is not repeated, since the turn of each event comes, and leaves room to the runs that must be made.
    ///
    /// # Errors
    ///
    /// Fails if too many runs wait, or as every run does.
    pub async fn render_each(
        &self,
        program: &ProgramText,
        owner: Owner,
        inputs: Vec<EventInput>,
    ) -> Result<(Vec<RenderedBody>, bool), ScriptError> {
        let place = WorkerPlace::new(WorkerKey::of_owner(owner), WorkerClass::Template);
        if let Some(quarantined) = self.0.quarantine.find(place.key, program) {
            return Err(quarantined.into());
        }
        let most = inputs.len();
        let slot = self.0.pool.spare_slot(place).await?;
        let handle = slot.begin(slice::from_ref(program), &RunWork::RenderEach(inputs)).ok_or(ScriptError::Busy)?;
        let rights = RunRights { key: place.key, effects: RunEffects::None };
        match self.attend(handle, &rights, &mut false).await {
            Ok(finished) => {
                self.0.metrics.lua_time.observe(finished.cpu);
                match finished.outcome? {
                    RunOutput::RenderedEach { mut bodies, failed } => {
                        bodies.truncate(most);
                        Ok((bodies, failed))
                    }
                    _ => Err(ScriptError::Host),
                }
            }
            Err(LostRun::Failed(error)) => Err(error),
            Err(LostRun::Stopped) => Err(ScriptError::Stopped),
            Err(LostRun::Repeat | LostRun::Unexplained) => Err(ScriptError::Busy),
        }
    }

    async fn render_work(
        &self,
        program: &ProgramText,
        owner: Owner,
        work: &RunWork,
    ) -> Result<RenderedBody, ScriptError> {
        let place = WorkerPlace::new(WorkerKey::of_owner(owner), WorkerClass::Template);
        let finished = self.run(program, place, RunEffects::None, work).await?;
        match finished.outcome? {
            RunOutput::Rendered { kind, body } => Ok(RenderedBody { body, kind, log: finished.log }),
            _ => Err(ScriptError::Host),
        }
    }

    /// Runs a script for an event. Dropping the future ends the run, also while it waits.
    ///
    /// Every failure is a verdict: an error or a limit is [`Verdict::Failed`], and a lack of room
    /// [`Verdict::NotRun`], since the script is not to blame for it.
    pub async fn run_script(&self, program: &ProgramText, owner: Owner, input: EventInput) -> ScriptRun {
        let place = WorkerPlace::new(WorkerKey::of_owner(owner), WorkerClass::Script);
        let run = self.run(program, place, RunEffects::Script, &RunWork::Script(input)).await;
        let (log, cpu, outcome) = match run {
            Ok(finished) => (finished.log, finished.cpu, finished.outcome),
            Err(error) => (Vec::new(), Duration::ZERO, Err(error)),
        };
        let verdict = match outcome {
            Ok(RunOutput::Verdict(verdict)) => verdict,
            Ok(_) => Verdict::Failed(ScriptError::Host.to_string()),
            Err(error @ (ScriptError::Busy | ScriptError::Stopped)) => Verdict::NotRun(error.to_string()),
            Err(error) => Verdict::Failed(error.to_string()),
        };
        ScriptRun { verdict, log, cpu }
    }

    /// Runs a tool. Dropping the future ends the run, also while it waits.
    ///
    /// The libraries that the tool requires and its `kv` are those of `owner`; its other rights and its places are
    /// those of the user it acts as.
    pub async fn run_tool(&self, program: &ProgramText, owner: Owner, call: ToolCall) -> ToolRun {
        let ToolCall { arguments, context } = call;
        let key = WorkerKey { code_owner: owner, acts_for: context.owner };
        let place = WorkerPlace::new(key, WorkerClass::Script);
        match self.run(program, place, RunEffects::Tool(context), &RunWork::Tool { arguments }).await {
            Ok(FinishedRun { cpu, log, outcome }) => {
                let result = outcome.and_then(|output| match output {
                    RunOutput::Json(json) => RawValue::from_string(json).map_err(|_| ScriptError::Host),
                    _ => Err(ScriptError::Host),
                });
                ToolRun { result, log, cpu }
            }
            Err(error) => ToolRun { result: Err(error), log: Vec::new(), cpu: Duration::ZERO },
        }
    }

    /// Runs a transform on a request. Dropping the future ends the run. It takes the places of templates, since it
    /// never waits.
    pub async fn run_transform(&self, program: &ProgramText, owner: Owner, input: TransformInput) -> TransformRun {
        let place = WorkerPlace::new(WorkerKey::of_owner(owner), WorkerClass::Template);
        match self.run(program, place, RunEffects::None, &RunWork::Transform(input)).await {
            Ok(FinishedRun { log, outcome, .. }) => {
                let result = outcome.and_then(|output| match output {
                    RunOutput::Json(json) => Ok(json),
                    _ => Err(ScriptError::Host),
                });
                TransformRun { result, log }
            }
            Err(error) => TransformRun { result: Err(error), log: Vec::new() },
        }
    }

    /// Checks that a program compiles. Nothing of it runs, so that one in quarantine is compiled too: its owner can
    /// change all else about it.
    ///
    /// # Errors
    ///
    /// Fails with [`ScriptError::Compile`] if it does not, or as every run does.
    pub async fn compile(&self, program: &ProgramText, owner: Owner) -> Result<(), ScriptError> {
        let place = WorkerPlace::new(WorkerKey::of_owner(owner), WorkerClass::Template);
        self.run(program, place, RunEffects::None, &RunWork::Compile).await?.outcome.map(drop)
    }

    /// The quarantine of a program that its owner runs, if it is in one.
    pub fn quarantined(&self, program: &ProgramText, owner: Owner) -> Option<Quarantined> {
        self.0.quarantine.find(WorkerKey::of_owner(owner), program)
    }

    /// Returns true if any program is in quarantine.
    pub fn any_quarantined(&self) -> bool {
        self.0.quarantine.len() > 0
    }

    /// The number of worker processes, and of programs in quarantine.
    pub fn counts(&self) -> (usize, usize) {
        (self.0.pool.workers(), self.0.quarantine.len())
    }

    /// The process ids of the workers.
    #[cfg(test)]
    pub(super) fn pids(&self) -> Vec<u32> {
        self.0.pool.pids()
    }

    /// Ends every worker and accepts no more runs. Runs in progress are lost.
    pub fn shut_down(&self) {
        self.0.pool.stop();
    }

    /// Runs a program until it is done, again if its worker is lost.
    async fn run(
        &self,
        program: &ProgramText,
        place: WorkerPlace,
        effects: RunEffects,
        work: &RunWork,
    ) -> Result<FinishedRun, ScriptError> {
        let rights = RunRights { key: place.key, effects };
        let (mut kills, mut acted) = (0, false);
        for _ in 0..MAX_REPEATS {
            if !matches!(work, RunWork::Compile)
                && let Some(quarantined) = self.0.quarantine.find(place.key, program)
            {
                return Err(quarantined.into());
            }
            let slot = self.0.pool.slot(place).await?;
            let Some(handle) = slot.begin(slice::from_ref(program), work) else { continue };
            match self.attend(handle, &rights, &mut acted).await {
                Ok(finished) => {
                    self.0.metrics.lua_time.observe(finished.cpu);
                    return Ok(finished);
                }
                Err(LostRun::Failed(error)) => return Err(error),
                Err(LostRun::Stopped) => return Err(ScriptError::Stopped),
                // An event is delivered at least once, but a tool is called once.
                Err(LostRun::Repeat | LostRun::Unexplained)
                    if acted && matches!(rights.effects, RunEffects::Tool(_)) =>
                {
                    return Err(ScriptError::Crashed(NOT_REPEATED.to_owned()));
                }
                Err(LostRun::Repeat) => {}
                Err(LostRun::Unexplained) => {
                    kills += 1;
                    if kills == MAX_KILLS {
                        let error = ScriptError::Crashed(format!("it was killed from outside {kills} times"));
                        self.0.quarantine.record_fault(place.key, program, error.to_string());
                        return Err(error);
                    }
                }
            }
        }
        // The worker was lost again and again through no fault of this run.
        Err(ScriptError::Busy)
    }

    /// Answers the requests of a run until it is over. Sets `acted` if a request may have changed something.
    async fn attend(
        &self,
        mut handle: RunHandle,
        rights: &RunRights,
        acted: &mut bool,
    ) -> Result<FinishedRun, LostRun> {
        let mut late_requests = 0;
        loop {
            let event = handle.next().await;
            if let RunEvent::BlockingRequest(request) | RunEvent::YieldingRequest(request) = &event {
                *acted |= request.may_change_something();
            }
            match event {
                RunEvent::Done(finished) => return Ok(finished),
                RunEvent::Lost(lost) => return Err(lost),
                RunEvent::BlockingRequest(request) => {
                    let answer = self.0.services.answer(rights, request);
                    match tokio::time::timeout(handle.time_left(), answer).await {
                        Ok(Answer { result, library }) => handle.reply(&result, library.as_ref()),
                        Err(_) => handle.kill(LimitExceeded::Wall(self.0.limits.wall)),
                    }
                }
                RunEvent::YieldingRequest(_) if handle.time_left().is_zero() => {
                    late_requests += 1;
                    if late_requests > MAX_LATE_REQUESTS {
                        handle.kill(LimitExceeded::Wall(self.0.limits.wall));
                    } else {
                        handle.end(LimitExceeded::Wall(self.0.limits.wall));
                    }
                }
                RunEvent::YieldingRequest(request) => {
                    let answer = self.0.services.answer(rights, request);
                    let answered = tokio::time::timeout(handle.time_left(), answer);
                    tokio::select! {
                        answered = answered => match answered {
                            Ok(Answer { result, library }) => handle.reply(&result, library.as_ref()),
                            Err(_) => handle.end(LimitExceeded::Wall(self.0.limits.wall)),
                        },
                        // Nothing else can happen to a run that waits than the loss of its worker.
                        event = handle.next() => match event {
                            RunEvent::Lost(lost) => return Err(lost),
                            _ => return Err(LostRun::Repeat),
                        },
                    }
                }
            }
        }
    }
}

impl Drop for WorkersShared {
    fn drop(&mut self) {
        self.pool.stop();
    }
}
