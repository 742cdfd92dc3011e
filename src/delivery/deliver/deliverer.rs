//! The deliverer: starts a worker for each sink that has something to deliver, and wakes it.
//!
//! A worker exists only while its queue is not empty: the engine wakes a sink, the worker drains its queue and ends.
//! Ten thousand idle sinks cost no task at all. [`super::worker`] is the life of one worker.

use super::{
    bodies_ahead::AheadShared,
    recipient::Recipients,
    retry_policy::RetryPolicy,
    running_attempts::RunningAttempts,
    sink_pools::SinkPools,
    sink_worker::{DelivererState, SinkWorkerHandle, WakeState},
};
use crate::{
    delivery::{
        SinkFailures,
        filters::EventFilters,
        sinks::{SinkContext, Sinks},
        subscriptions::{MethodContext, MethodGateway, Subscriptions},
    },
    model::id::{SinkId, SpaceId},
    platform::{config, keyed_semaphore::KeyedSemaphore, metrics::Metrics, runtime_load::RuntimeLoad},
    routing::{feed::Feed, queue::Engine},
};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Delivers queued events. Cloning the handle is cheap.
#[derive(Clone)]
pub struct Deliverer(pub(super) Arc<DelivererState>);

/// The services that a deliverer uses.
pub struct DelivererDeps {
    pub engine: Arc<dyn Engine>,
    pub running_attempts: RunningAttempts,
    pub sinks: Sinks,
    pub subscriptions: Subscriptions,
    pub filters: EventFilters,
    pub methods: Arc<dyn MethodGateway>,
    pub sink_context: SinkContext,
    pub failures: SinkFailures,
    pub feed: Feed,
    pub metrics: Arc<Metrics>,
}

impl Deliverer {
    /// Makes a deliverer that starts no new attempt once `shutdown` is cancelled.
    pub fn new(settings: &config::DeliveryConfig, deps: DelivererDeps, shutdown: CancellationToken) -> Self {
        let DelivererDeps {
            engine,
            running_attempts,
            sinks,
            subscriptions,
            filters,
            methods,
            sink_context,
            failures,
            feed,
            metrics,
        } = deps;
        let workers = sink_context.workers.clone();
        let method_context = MethodContext { sinks: sinks.clone(), filters, workers, methods };
        Self(Arc::new(DelivererState {
            engine,
            running_attempts,
            recipients: Recipients { sinks, subscriptions, sink_context, method_context },
            retry_policy: RetryPolicy::new(settings),
            failures,
            queue_limit: settings.queue,
            ahead: AheadShared::new(),
            sink_pools: SinkPools::new(settings.concurrency, RuntimeLoad::of_this_runtime()),
            method_permits: KeyedSemaphore::new(settings.concurrency.div_ceil(2), usize::MAX),
            feed,
            metrics,
            sink_workers: Mutex::default(),
            tasks: TaskTracker::new(),
            shutdown,
        }))
    }

    /// Gives every sink that is woken a worker, until shutdown.
    pub async fn run(&self, mut ready: mpsc::UnboundedReceiver<SinkId>) {
        loop {
            tokio::select! {
                () = self.0.shutdown.cancelled() => {
                    self.0.running_attempts.clear();
                    return;
                }
                sink = ready.recv() => match sink {
                    Some(sink) => self.wake(sink),
                    None => return,
                },
            }
        }
    }

    /// Makes sure that the sink has a worker that looks at its queue after this moment.
    pub fn wake(&self, sink: SinkId) {
        let mut workers = self.0.sink_workers.lock();
        if let Some(worker) = workers.get_mut(&sink) {
            worker.wake_state = WakeState::Woken;
            return;
        }
        let retry_now = Arc::new(Notify::new());
        workers.insert(sink, SinkWorkerHandle { wake_state: WakeState::Woken, retry_now: retry_now.clone() });
        let state = self.0.clone();
        self.0.tasks.spawn(async move { state.supervise_sink_worker(sink, &retry_now).await });
    }

    /// Wakes the sink and makes a scheduled retry due at once. For a sink that was changed or activated.
    pub fn retry_now(&self, sink: SinkId) {
        self.wake(sink);
        if let Some(worker) = self.0.sink_workers.lock().get(&sink) {
            worker.retry_now.notify_one();
        }
    }

    /// Wakes the queues of a space's methods: their registration is published, or their method server runs again. A
    /// failed event keeps its backoff: a method server that crashes at every call would use up all attempts at once.
    pub fn resume_space(&self, space: SpaceId) {
        for subscription in self.0.recipients.subscriptions.of_space(space) {
            self.wake(subscription.id);
        }
    }

    /// Waits for the attempts that are under way to end. Only for use after shutdown was requested.
    pub async fn finished(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}
