//! A value that many ask for and one computation serves: it is made anew at most once per interval, on a blocking thread.

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};
use tokio::{
    task::{self, AbortHandle},
    time::Instant,
};

/// The latest result of a computation, shared by everyone who asks for it within `max_age`.
pub struct SharedComputation<T> {
    max_age: Duration,
    latest: Mutex<Option<Computation<T>>>,
}

struct Computation<T> {
    started: Instant,
    task: AbortHandle,
    /// `None` if the computation panicked, or the runtime stopped.
    result: Shared<BoxFuture<'static, Option<Arc<T>>>>,
}

impl<T: Send + Sync + 'static> SharedComputation<T> {
    pub fn new(max_age: Duration) -> Self {
        Self { max_age, latest: Mutex::new(None) }
    }

    /// Returns the result of the computation that is under way, or that began less than `max_age` ago; otherwise that of a
    /// new one. A caller that goes away does not stop it.
    pub async fn get(&self, compute: impl FnOnce() -> T + Send + 'static) -> Option<Arc<T>> {
        let result = self.latest_or_new(compute);
        result.await
    }

    /// The lock is held to look and to start, never while a computation runs.
    fn latest_or_new(
        &self,
        compute: impl FnOnce() -> T + Send + 'static,
    ) -> Shared<BoxFuture<'static, Option<Arc<T>>>> {
        let mut latest = self.latest.lock();
        if let Some(latest) = &*latest
            && (latest.started.elapsed() < self.max_age || !latest.task.is_finished())
        {
            return latest.result.clone();
        }
        let started = Instant::now();
        let running = task::spawn_blocking(compute);
        let task = running.abort_handle();
        let result = running.map(|computed| computed.ok().map(Arc::new)).boxed().shared();
        *latest = Some(Computation { started, task, result: result.clone() });
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn all_who_ask_within_the_interval_share_one_computation() {
        let (shared, computed) = (Arc::new(SharedComputation::new(SECOND)), Arc::new(AtomicUsize::new(0)));
        let ask = || {
            let (shared, computed) = (shared.clone(), computed.clone());
            tokio::spawn(async move { *shared.get(move || computed.fetch_add(1, SeqCst)).await.unwrap() })
        };
        let viewers: Vec<_> = (0..100).map(|_| ask()).collect();
        for viewer in viewers {
            assert_eq!(viewer.await.unwrap(), 0);
        }
        tokio::time::advance(SECOND - Duration::from_millis(1)).await;
        assert_eq!(ask().await.unwrap(), 0);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(ask().await.unwrap(), 1);
        assert_eq!(computed.load(SeqCst), 2);
    }

    #[tokio::test]
    async fn a_computation_that_takes_longer_than_the_interval_runs_alone() {
        let shared = SharedComputation::new(Duration::ZERO);
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let first = shared.latest_or_new(move || ended.recv().map_or(0, |()| 1));
        let second = shared.latest_or_new(|| 2);
        end.send(()).unwrap();
        assert_eq!((first.await.as_deref(), second.await.as_deref()), (Some(&1), Some(&1)));
    }

    #[tokio::test]
    async fn a_caller_that_goes_away_and_a_panic_leave_nothing_behind() {
        let shared = SharedComputation::new(Duration::ZERO);
        drop(shared.latest_or_new(|| 1));
        let task = shared.latest.lock().as_ref().unwrap().task.clone();
        while !task.is_finished() {
            tokio::task::yield_now().await;
        }
        assert_eq!(shared.get(|| panic!("on purpose")).await, None);
        assert_eq!(shared.get(|| 3).await.as_deref(), Some(&3));
    }
}
