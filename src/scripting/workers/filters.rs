//! Filters on the server's side: all filters of one owner for one event go to a worker in one message.
//!
//! An emit waits for its filters, so the wait is bounded: whatever goes wrong, after [`PATIENCE`] the answer is that
//! the filter failed. While an answer is overdue, further events of the same owner do not wait at all, so that a filter
//! that hangs costs its owner one such wait and others none.

use super::{
    lua_workers::{LuaWorkers, MAX_KILLS, MAX_REPEATS},
    messages::{FinishedRun, RunOutput, RunWork},
    places::{MAX_FILTERS, WorkerClass, WorkerKey, WorkerPlace},
    program_text::ProgramText,
    worker_link::{LostRun, RunEvent},
};
use crate::{
    model::{event::Event, owner::Owner},
    scripting::lua::{EventInput, FilterVerdict, LimitExceeded, ScriptError},
};
use futures_util::future::BoxFuture;
use std::{sync::Arc, time::Duration};

/// The time that an emit waits for its filters. A filter has 5 ms of processor time; this leaves room for starting a
/// worker process and for a busy machine.
const PATIENCE: Duration = Duration::from_millis(250);

const OVERDUE: &str = "its process is busy with an earlier event";

impl LuaWorkers {
    /// Runs the filters of one owner for an event, and returns the answer of each. A filter that has none in time
    /// failed.
    pub async fn run_filters(&self, owner: Owner, filters: &[ProgramText], event: &Arc<Event>) -> Vec<FilterVerdict> {
        self.run_filters_within(PATIENCE, owner, filters, event).await
    }

    /// The same with another wait than [`PATIENCE`].
    pub(super) async fn run_filters_within(
        &self,
        patience: Duration,
        owner: Owner,
        filters: &[ProgramText],
        event: &Arc<Event>,
    ) -> Vec<FilterVerdict> {
        let key = WorkerKey::of_owner(owner);
        let mut verdicts = Vec::with_capacity(filters.len());
        let mut runnable = Vec::with_capacity(filters.len());
        for (index, filter) in filters.iter().enumerate() {
            match self.0.quarantine.find(key, filter) {
                Some(quarantined) => verdicts.push(failed(&quarantined.into())),
                None => {
                    verdicts.push(FilterVerdict::Failed(OVERDUE.to_owned()));
                    runnable.push(index);
                }
            }
        }
        if runnable.is_empty() || self.0.filter_runs.is_overdue(key) {
            return verdicts;
        }
        let programs: Vec<ProgramText> = runnable.iter().map(|index| filters[*index].clone()).collect();
        let run = self.run_in_time(patience, key, programs, event.clone());
        for (index, verdict) in runnable.into_iter().zip(run.await) {
            verdicts[index] = verdict;
        }
        verdicts
    }

    /// Runs filters, and lets them go on without the caller if they take too long.
    async fn run_in_time(
        &self,
        patience: Duration,
        key: WorkerKey,
        programs: Vec<ProgramText>,
        event: Arc<Event>,
    ) -> Vec<FilterVerdict> {
        let count = programs.len();
        let workers = self.clone();
        let mut run: BoxFuture<'static, Vec<FilterVerdict>> = Box::pin(async move {
            let Some(_turn) = workers.0.filter_runs.turns.acquire(key).await else {
                return vec![failed(&ScriptError::Busy); count];
            };
            let mut verdicts = Vec::with_capacity(count);
            for batch in programs.chunks(MAX_FILTERS) {
                verdicts.extend(workers.run_batch(key, batch, &event).await);
            }
            verdicts
        });
        match tokio::time::timeout(patience, &mut run).await {
            Ok(verdicts) => verdicts,
            Err(_) => {
                let overdue = self.0.filter_runs.begin_overdue(key);
                tokio::spawn(async move {
                    run.await;
                    drop(overdue);
                });
                let why = format!("there was no answer within {} ms", patience.as_millis());
                vec![FilterVerdict::Failed(why); count]
            }
        }
    }

    /// Runs filters in one message. If their worker ends, each runs alone, so that only the one to blame fails.
    async fn run_batch(&self, key: WorkerKey, programs: &[ProgramText], event: &Arc<Event>) -> Vec<FilterVerdict> {
        match self.run_message(key, programs, event).await {
            Ok(verdicts) => verdicts,
            Err(ScriptError::Killed(_) | ScriptError::Crashed(_)) if programs.len() > 1 => {
                let mut verdicts = Vec::with_capacity(programs.len());
                for program in programs {
                    let alone = self.run_message(key, std::slice::from_ref(program), event).await;
                    verdicts.extend(alone.unwrap_or_else(|error| vec![failed(&error)]));
                }
                verdicts
            }
            Err(error) => vec![failed(&error); programs.len()],
        }
    }

    async fn run_message(
        &self,
        key: WorkerKey,
        programs: &[ProgramText],
        event: &Arc<Event>,
    ) -> Result<Vec<FilterVerdict>, ScriptError> {
        let place = WorkerPlace::new(key, WorkerClass::Filter);
        let work = RunWork::Filter(EventInput { attempt: 0, ..EventInput::sample(event.clone()) });
        let mut kills = 0;
        for _ in 0..MAX_REPEATS {
            let slot = self.0.pool.slot(place).await?;
            let Some(mut handle) = slot.begin(programs, &work) else { continue };
            match handle.next().await {
                RunEvent::Done(FinishedRun { cpu, outcome, .. }) => {
                    self.0.metrics.lua_time.observe(cpu);
                    return match outcome? {
                        RunOutput::Filtered(verdicts) if verdicts.len() == programs.len() => Ok(verdicts),
                        _ => Err(ScriptError::Host),
                    };
                }
                // A filter has nothing to ask for, unless somebody has taken the worker over.
                RunEvent::BlockingRequest(_) | RunEvent::YieldingRequest(_) => {
                    handle.kill(LimitExceeded::Cancelled);
                    return Err(ScriptError::Host);
                }
                RunEvent::Lost(LostRun::Failed(error)) => return Err(error),
                RunEvent::Lost(LostRun::Stopped) => return Err(ScriptError::Stopped),
                RunEvent::Lost(LostRun::Repeat) => {}
                RunEvent::Lost(LostRun::Unexplained) => {
                    kills += 1;
                    if kills == MAX_KILLS {
                        return Err(ScriptError::Crashed(format!("it was killed from outside {kills} times")));
                    }
                }
            }
        }
        Err(ScriptError::Busy)
    }
}

fn failed(error: &ScriptError) -> FilterVerdict {
    FilterVerdict::Failed(error.to_string())
}
