//! The replay jobs of all sinks in memory, and their rows. [`super::replays`] makes their steps.

use super::rows::{decode, encode, replay_key, replay_of, undamaged};
use crate::{
    model::{
        id::{ReplayId, SinkId},
        replay::{ReplayJob, ReplayState},
        timestamp::Timestamp,
    },
    platform::store::{Batch, Store, StoreError, keys},
    routing::queue::RunningReplay,
};
use parking_lot::Mutex;
use std::collections::HashMap;
use tokio::sync::Notify;

/// Jobs kept for a sink, the unfinished one included. The oldest are deleted.
const MAX_JOBS: usize = 10;

/// The jobs of all sinks. Only the writer thread changes them.
#[derive(Default)]
pub(super) struct ReplayJobs {
    /// Oldest first. Only the last one may be unfinished.
    jobs: Mutex<HashMap<SinkId, Vec<ReplayJob>>>,
    /// The progress of jobs that count their events.
    counts: Mutex<HashMap<ReplayId, EventCount>>,
    /// Notified when a queue has room again, or a job was started or changed.
    pub room: Notify,
}

/// Events counted up to an accepted time.
#[derive(Clone, Copy)]
pub(super) struct EventCount {
    pub reached: Option<Timestamp>,
    pub events: u64,
}

impl ReplayJobs {
    /// Reads the jobs of all sinks.
    pub fn read(store: &Store) -> Result<Self, StoreError> {
        let mut jobs = HashMap::<SinkId, Vec<ReplayJob>>::new();
        for key in store.keys(vec![keys::REPLAY]..vec![keys::REPLAY + 1]) {
            let key = key?;
            let Some(sink) = replay_of(&key) else { continue };
            let job = store.get(&key).and_then(|row| row.map(|row| decode(&key, &row)).transpose());
            jobs.entry(sink).or_default().extend(undamaged(job)?.flatten());
        }
        Ok(Self { jobs: Mutex::new(jobs), ..Self::default() })
    }

    /// Returns the jobs of a sink, newest first.
    pub fn of(&self, sink: SinkId) -> Vec<ReplayJob> {
        self.jobs.lock().get(&sink).into_iter().flatten().rev().cloned().collect()
    }

    pub fn running(&self) -> Vec<(SinkId, RunningReplay)> {
        let jobs = self.jobs.lock();
        let last = jobs.iter().filter_map(|(sink, jobs)| Some((*sink, jobs.last()?)));
        let running = last.filter(|(_, job)| job.state == ReplayState::Running);
        running.map(|(sink, job)| (sink, RunningReplay { id: job.id, rate: job.rate })).collect()
    }

    /// Returns the running job of a sink.
    pub fn running_of(&self, sink: SinkId) -> Option<ReplayJob> {
        self.unfinished(sink).filter(|job| job.state == ReplayState::Running)
    }

    /// Returns the job of a sink that has not ended.
    pub fn unfinished(&self, sink: SinkId) -> Option<ReplayJob> {
        self.jobs.lock().get(&sink)?.last().filter(|job| !job.state.is_finished()).cloned()
    }

    /// Returns the sinks with a job that has not ended.
    pub fn unfinished_sinks(&self) -> Vec<SinkId> {
        let jobs = self.jobs.lock();
        let is_unfinished = |jobs: &[ReplayJob]| jobs.last().is_some_and(|job| !job.state.is_finished());
        jobs.iter().filter(|(_, jobs)| is_unfinished(jobs)).map(|(sink, _)| *sink).collect()
    }

    /// Stores the last job of a sink, over itself if it is there.
    pub fn put(&self, batch: &mut Batch<'_>, sink: SinkId, job: ReplayJob) {
        batch.put(replay_key(sink, job.id), encode(&job));
        let mut jobs = self.jobs.lock();
        if job.matched.is_some() || job.state.is_finished() {
            self.counts.lock().remove(&job.id);
        }
        let jobs = jobs.entry(sink).or_default();
        if jobs.last().is_some_and(|last| last.id == job.id) {
            jobs.pop();
        }
        jobs.push(job);
        let surplus = jobs.len().saturating_sub(MAX_JOBS);
        for old in jobs.drain(..surplus) {
            batch.delete(replay_key(sink, old.id));
        }
    }

    /// Forgets the jobs of a sink that is deleted.
    pub fn remove(&self, sink: SinkId) {
        let mut jobs = self.jobs.lock();
        for job in jobs.remove(&sink).into_iter().flatten() {
            self.counts.lock().remove(&job.id);
        }
    }

    /// Returns the events of a job that are counted so far.
    pub fn count(&self, job: &ReplayJob) -> EventCount {
        let counted = self.counts.lock().get(&job.id).copied();
        counted.unwrap_or(EventCount { reached: job.reached, events: job.queued })
    }

    /// Keeps the progress of a job that counts, unless the job has ended meanwhile.
    pub fn set_count(&self, sink: SinkId, job: ReplayId, count: EventCount) {
        // Held until the count is there, so that the end of the job comes before or removes it.
        let jobs = self.jobs.lock();
        let last = jobs.get(&sink).and_then(|jobs| jobs.last());
        if last.is_some_and(|last| last.id == job && !last.state.is_finished()) {
            self.counts.lock().insert(job, count);
        }
    }
}
