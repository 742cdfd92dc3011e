//! The calls of one link that are being answered. A call that its caller cancelled is dropped.

use parking_lot::{Mutex, MutexGuard};
use std::{collections::HashMap, sync::Arc};
use tokio::task::AbortHandle;
use tokio_util::task::TaskTracker;

/// Running calls by id. Dropping it aborts all of them: without the link nobody receives their replies.
pub struct InFlightCalls {
    running: Arc<Mutex<HashMap<u64, AbortHandle>>>,
    /// Counts the calls of all links.
    tracker: TaskTracker,
}

impl InFlightCalls {
    /// `tracker` counts the calls of all links.
    pub fn new(tracker: TaskTracker) -> Self {
        Self { running: Arc::default(), tracker }
    }

    /// Runs a call under its id.
    pub fn start(&self, id: u64, call: impl Future<Output = ()> + Send + 'static) {
        let running = self.running.clone();
        // Locked until the call is inserted, or one that ends at once would stay in the map for ever.
        let mut calls = self.running();
        let task = self.tracker.spawn(async move {
            call.await;
            running.lock().remove(&id);
        });
        calls.insert(id, task.abort_handle());
    }

    /// Aborts a call, if it still runs.
    pub fn cancel(&self, id: u64) {
        let task = self.running().remove(&id);
        if let Some(task) = task {
            task.abort();
        }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<u64, AbortHandle>> {
        self.running.lock()
    }
}

impl Drop for InFlightCalls {
    fn drop(&mut self) {
        for (_, task) in self.running().drain() {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    /// A call that never ends by itself, and a receiver that fails once it is dropped.
    fn endless() -> (impl Future<Output = ()> + Send + 'static, oneshot::Receiver<()>) {
        let (alive, gone) = oneshot::channel::<()>();
        let call = async move {
            let _alive = alive;
            std::future::pending::<()>().await;
        };
        (call, gone)
    }

    #[tokio::test]
    async fn a_cancelled_call_is_dropped_and_the_others_go_on() {
        let calls = InFlightCalls::new(TaskTracker::new());
        let ((one, one_gone), (two, mut two_gone)) = (endless(), endless());
        calls.start(1, one);
        calls.start(2, two);
        calls.cancel(1);
        calls.cancel(1);
        assert!(one_gone.await.is_err());
        assert!(two_gone.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Empty));
        drop(calls);
        assert!(two_gone.await.is_err(), "the end of the link is the end of its calls");
    }

    #[tokio::test]
    async fn a_call_that_has_ended_is_forgotten() {
        let calls = InFlightCalls::new(TaskTracker::new());
        let (done, ended) = oneshot::channel();
        calls.start(1, async { done.send(()).unwrap() });
        ended.await.unwrap();
        let forgotten = async {
            while !calls.running().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), forgotten).await.expect("it is forgotten");
    }
}
