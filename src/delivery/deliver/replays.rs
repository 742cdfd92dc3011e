//! Lets replay jobs make progress: a step of each whenever its queue has room, at the rate that the job asks for.
//!
//! The jobs, their progress and the events that they select are kept by [`crate::routing::queue`]. A job of a sink that
//! is inactive, or of a method whose space is away, waits.

use super::Deliverer;
use crate::{
    model::id::{ReplayId, SinkId},
    platform::token_bucket::TokenBucket,
    routing::queue::RunningReplay,
};
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// The time between two steps of a job that waits for room or for its rate.
const INTERVAL: Duration = Duration::from_millis(200);

/// The wait after a step that failed.
const ERROR_WAIT: Duration = Duration::from_secs(10);

/// The times at which jobs whose last step failed make the next one.
type FailedSteps = HashMap<ReplayId, Instant>;

/// The events that jobs with a rate may still queue.
#[derive(Default)]
struct ReplayRates(HashMap<ReplayId, TokenBucket>);

impl Deliverer {
    /// Makes steps of the jobs, until shutdown.
    pub async fn run_replays(&self) {
        let (engine, shutdown) = (&self.0.engine, &self.0.shutdown);
        let (mut rates, mut failed) = (ReplayRates::default(), FailedSteps::new());
        while !shutdown.is_cancelled() {
            let running = engine.running_replays();
            rates.0.retain(|id, _| running.iter().any(|(_, job)| job.id == *id));
            let now = Instant::now();
            failed.retain(|_, again| *again > now);
            let mut has_more = false;
            for (sink, job) in &running {
                if !failed.contains_key(&job.id) {
                    has_more |= self.make_step(*sink, job, &mut rates, &mut failed).await;
                }
            }
            if has_more {
                tokio::task::yield_now().await;
                continue;
            }
            let interval = async {
                match running.is_empty() {
                    true => std::future::pending().await,
                    false => tokio::time::sleep(INTERVAL).await,
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = engine.wait_for_replay_room() => {}
                () = interval => {}
            }
        }
    }

    /// Makes one step of a job. Returns true if the next need not wait.
    async fn make_step(
        &self,
        sink: SinkId,
        job: &RunningReplay,
        rates: &mut ReplayRates,
        failed: &mut FailedSteps,
    ) -> bool {
        let most = rates.allowed(job, Instant::now());
        if most == 0 || self.0.recipients.find(sink).is_none() {
            return false;
        }
        match self.0.engine.advance_replay(sink, most).await {
            Ok(step) => {
                rates.spend(job.id, step.queued);
                step.has_more
            }
            Err(error) => {
                log::warn!("the replay {} to sink {sink} is continued later: {error}", job.id);
                failed.insert(job.id, Instant::now() + ERROR_WAIT);
                false
            }
        }
    }
}

impl ReplayRates {
    /// Returns the number of events that a job may queue now. After a pause it is that of a second at most.
    fn allowed(&mut self, job: &RunningReplay, now: Instant) -> usize {
        let Some(rate) = job.rate else { return usize::MAX };
        self.0.entry(job.id).or_insert_with(|| TokenBucket::with(1, now)).refill(rate, now) as usize
    }

    fn spend(&mut self, job: ReplayId, events: usize) {
        if let Some(bucket) = self.0.get_mut(&job) {
            bucket.spend(events);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_allows_its_events_a_second_and_none_are_saved_up() {
        let (mut rates, start) = (ReplayRates::default(), Instant::now());
        let job = RunningReplay { id: ReplayId::new(), rate: Some(10) };
        let mut allowed = |after: u64| {
            let events = rates.allowed(&job, start + Duration::from_millis(after));
            rates.spend(job.id, events);
            events
        };
        assert_eq!((allowed(0), allowed(50), allowed(100), allowed(450)), (1, 0, 1, 3));
        assert_eq!(allowed(60_000), 10);
        let unlimited = RunningReplay { rate: None, ..job };
        assert_eq!(rates.allowed(&unlimited, start), usize::MAX);
    }
}
