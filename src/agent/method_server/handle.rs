//! The handle on a running method server: calls it, follows its health, and stops it.

use super::{
    fault::CallFault,
    request_queue::{PendingReply, RequestQueue},
    supervisor::{DesiredState, ServerSupervisor, SupervisionPolicy},
};
use crate::{
    agent::{child_env::ChildEnv, child_process::ChildSpawnError},
    model::{
        jsonrpc::RpcResponse,
        method::{MethodServerHealth, ServerDefinition},
    },
    platform::task,
};
use serde_json::value::RawValue;
use std::{path::PathBuf, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, timeout, timeout_at},
};

/// A running method server. Cloning it is cheap; when the last clone is dropped, the process is stopped.
#[derive(Clone)]
pub struct MethodServer(pub(super) Arc<ServerControl>);

/// The ends that clones of a [`MethodServer`] share.
pub(super) struct ServerControl {
    pub queue: Arc<RequestQueue>,
    timeout: Duration,
    health: watch::Receiver<MethodServerHealth>,
    desired: watch::Sender<DesiredState>,
}

impl MethodServer {
    /// Starts the command in `directory`, with `child_env`. `space` is its name in the log.
    ///
    /// A command with a relative path is relative to `directory`.
    ///
    /// # Errors
    ///
    /// Fails if the command or the directory does not exist, or it cannot be run. A process that starts and then dies is
    /// restarted instead.
    pub async fn start(
        definition: ServerDefinition,
        directory: PathBuf,
        child_env: ChildEnv,
        space: impl Into<Arc<str>>,
    ) -> Result<Self, ChildSpawnError> {
        Self::start_with(SupervisionPolicy::default(), definition, directory, child_env, space.into()).await
    }

    pub(super) async fn start_with(
        policy: SupervisionPolicy,
        definition: ServerDefinition,
        directory: PathBuf,
        child_env: ChildEnv,
        space: Arc<str>,
    ) -> Result<Self, ChildSpawnError> {
        let queue = Arc::new(RequestQueue::new(definition.mode));
        let timeout = definition.timeout;
        let (health, followed) = watch::channel(MethodServerHealth::Running);
        let (desired, desires) = watch::channel(DesiredState::Serving);
        let supervisor =
            ServerSupervisor { policy, definition, directory, child_env, space, queue: queue.clone(), health };
        let process = supervisor.launch().await?;
        task::spawn(supervisor.run(process, desires));
        Ok(Self(Arc::new(ServerControl { queue, timeout, health: followed, desired })))
    }

    /// Calls a method. It is queued before this returns, so that calls made one after the other are sent in that order.
    ///
    /// Dropping the future withdraws a call that was not sent yet, and ignores the answer to one that was.
    ///
    /// # Errors
    ///
    /// See [`CallFault`]. An error that the method server answers with is an [`RpcResponse`].
    pub fn call(
        &self,
        local_name: &str,
        params: Option<&RawValue>,
    ) -> impl Future<Output = Result<RpcResponse, CallFault>> + Send + use<> {
        self.within_timeout(RequestQueue::call(&self.0.queue, local_name, params))
    }

    /// Sends a notification. The future resolves once it was written to the process, or could not be within the timeout.
    ///
    /// # Errors
    ///
    /// Fails as [`MethodServer::call`] does.
    pub fn notify(
        &self,
        local_name: &str,
        params: Option<&RawValue>,
    ) -> impl Future<Output = Result<(), CallFault>> + Send + use<> {
        self.within_timeout(RequestQueue::notify(&self.0.queue, local_name, params))
    }

    /// Follows its health.
    pub fn health(&self) -> watch::Receiver<MethodServerHealth> {
        self.0.health.clone()
    }

    /// Takes no more calls, lets those in flight end, each within its timeout, and stops the process: its stdin is
    /// closed, then its group gets SIGTERM, then SIGKILL. Returns once all of the group is gone.
    ///
    /// Dropping the future does not cancel this.
    pub async fn retire(&self) {
        self.end(DesiredState::Drained).await;
    }

    /// Stops the process as [`MethodServer::retire`] does, but fails calls in flight at once.
    pub async fn stop(&self) {
        self.end(DesiredState::Stopped).await;
    }

    async fn end(&self, desired: DesiredState) {
        self.0.demand(desired);
        // An error means that the supervisor is gone, and the process with it.
        let _ = self.0.health.clone().wait_for(|health| *health == MethodServerHealth::Stopped).await;
    }

    fn within_timeout<T: Send + 'static>(
        &self,
        queued: Result<PendingReply<T>, CallFault>,
    ) -> impl Future<Output = Result<T, CallFault>> + Send + use<T> {
        let limit = self.0.timeout;
        let deadline = Instant::now() + limit;
        async move {
            let PendingReply { mut request, turn, mut reply } = queued?;
            let answered = match turn {
                None => timeout_at(deadline, reply).await,
                // The wait for a turn does not count. It ends with a reply if there is no process any more.
                Some(turn) => tokio::select! {
                    biased;
                    reply = &mut reply => Ok(reply),
                    Ok(()) = turn => timeout(limit, reply).await,
                },
            };
            match answered {
                Ok(Ok(reply)) => {
                    request.settled();
                    reply
                }
                Ok(Err(_)) => Err(CallFault::Died("its supervisor ended".into())),
                Err(_) => Err(CallFault::Timeout(limit)),
            }
        }
    }
}

impl ServerControl {
    /// Demands a state. A later demand never takes an earlier one back.
    fn demand(&self, desired: DesiredState) {
        self.desired.send_if_modified(|current| {
            let further = desired > *current;
            *current = desired.max(*current);
            further
        });
    }
}

impl Drop for ServerControl {
    fn drop(&mut self) {
        self.demand(DesiredState::Stopped);
    }
}
