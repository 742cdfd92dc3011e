//! The supervision of one method server: a child process that speaks newline-delimited JSON-RPC 2.0 on its stdin and
//! stdout, and writes its log to stderr.
//!
//! The way of a call, top to bottom: [`MethodServer::call`] puts it in line ([`request_queue`]), one task writes what is in
//! line to the process's stdin and another reads answers from its stdout ([`pipes`], [`lines`], [`answer`]), and the
//! answer finds its call by the id that we gave it. Over all this sits the [`supervisor`], which starts the process
//! ([`child`]), starts it again when it dies, and stops it.
//!
//! What the process does wrong costs its own calls, and nothing else: whatever it writes is bounded, whatever it does
//! not read is bounded, and a call that it never answers ends with its timeout.

mod answer;
pub(in crate::agent) mod child;
mod lines;
mod log_limit;
mod pipes;
mod request_queue;
mod supervisor;
#[cfg(test)]
mod tests;

pub use child::StartError;

use crate::{
    agent::child_env::Surroundings,
    model::{
        agent_protocol::{CallReply, MethodServerHealth},
        jsonrpc::RpcResponse,
        method::ServerDefinition,
        timestamp::Timestamp,
    },
};
use request_queue::{Ticket, Traffic};
use serde_json::value::RawValue;
use std::{path::PathBuf, sync::Arc, time::Duration};
use supervisor::{Order, Supervisor};
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, timeout_at},
};

/// A running method server. Cloning it is cheap; when the last clone is dropped the process is stopped.
#[derive(Clone)]
pub struct MethodServer(Arc<Handle>);

struct Handle {
    traffic: Arc<Traffic>,
    timeout: Duration,
    health: watch::Receiver<Health>,
    orders: watch::Sender<Order>,
}

/// Whether the process takes calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Running,
    /// It died, at `since`, and is started again soon. Its calls fail at once meanwhile.
    Restarting {
        since: Timestamp,
        why: Arc<str>,
    },
    /// It was told to stop and is gone, with all of its process group.
    Stopped,
}

/// Why a call got no answer from the method server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFault {
    /// There is no process that could take it. It was not sent.
    #[error("the method server is not running: {0}")]
    NotRunning(Arc<str>),
    /// It was sent, and may or may not have been carried out.
    #[error("the method server died during the call: {0}")]
    Died(Arc<str>),
    /// Waiting for its turn counts.
    #[error("the method server did not answer within {0:?}")]
    Timeout(Duration),
    #[error("too many calls are waiting for the method server")]
    TooManyWaiting,
    /// The process did answer, but not as JSON-RPC has it.
    #[error("the method server answered badly: {0}")]
    Garbled(String),
}

/// How long everything around the process may take. Tests are less patient.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// For the process to leave by itself once its stdin is closed.
    close: Duration,
    /// For its group to end once it got SIGTERM; then comes SIGKILL.
    terminate: Duration,
    /// Before it is started again the first time; each further time is twice as long.
    first_backoff: Duration,
    longest_backoff: Duration,
    /// Once it has run for so long, it is not held against it that it died before.
    settled: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            close: Duration::from_secs(2),
            terminate: Duration::from_secs(3),
            first_backoff: Duration::from_millis(100),
            longest_backoff: Duration::from_secs(30),
            settled: Duration::from_secs(30),
        }
    }
}

impl MethodServer {
    /// Starts the command in `directory`, among `surroundings`. `space` is the name
    /// under which the log speaks of it.
    ///
    /// A command that names a file by a relative path means one in `directory`.
    ///
    /// # Errors
    ///
    /// Fails if there is no such command or directory, or it cannot be run. A process that starts and then dies is
    /// started again instead.
    pub async fn start(
        definition: ServerDefinition,
        directory: PathBuf,
        surroundings: Surroundings,
        space: impl Into<Arc<str>>,
    ) -> Result<Self, StartError> {
        Self::start_with(Patience::default(), definition, directory, surroundings, space.into()).await
    }

    async fn start_with(
        patience: Patience,
        definition: ServerDefinition,
        directory: PathBuf,
        surroundings: Surroundings,
        space: Arc<str>,
    ) -> Result<Self, StartError> {
        let traffic = Arc::new(Traffic::new(definition.mode));
        let timeout = definition.timeout;
        let (health, watched) = watch::channel(Health::Running);
        let (orders, ordered) = watch::channel(Order::Serve);
        let supervisor =
            Supervisor { patience, definition, directory, surroundings, space, traffic: traffic.clone(), health };
        let process = supervisor.launch().await?;
        tokio::spawn(supervisor.run(process, ordered));
        Ok(Self(Arc::new(Handle { traffic, timeout, health: watched, orders })))
    }

    /// Calls a method. It is in line before this returns: calls made one after the other are sent in that order.
    ///
    /// Dropping the future withdraws a call that was not sent yet, and forgets one that was.
    ///
    /// # Errors
    ///
    /// See [`CallFault`]. An error that the method server answers with is an [`RpcResponse`].
    pub fn call(
        &self,
        local_name: &str,
        params: Option<&RawValue>,
    ) -> impl Future<Output = Result<RpcResponse, CallFault>> + Send + use<> {
        self.within_timeout(Traffic::call(&self.0.traffic, local_name, params))
    }

    /// Sends a notification. The future is done once it was handed to the process, or could not be within the timeout.
    ///
    /// # Errors
    ///
    /// As [`MethodServer::call`].
    pub fn notify(
        &self,
        local_name: &str,
        params: Option<&RawValue>,
    ) -> impl Future<Output = Result<(), CallFault>> + Send + use<> {
        self.within_timeout(Traffic::notify(&self.0.traffic, local_name, params))
    }

    /// Whether it takes calls, now and from now on.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.0.health.clone()
    }

    /// Takes no more calls, lets those in flight end, each within its timeout, and stops the process: its stdin is
    /// closed, then its group gets SIGTERM, then SIGKILL. Returns once all of it is gone.
    ///
    /// Dropping the future does not call it off.
    pub async fn retire(&self) {
        self.end(Order::Retire).await;
    }

    /// The same, but calls in flight fail at once.
    pub async fn stop(&self) {
        self.end(Order::Stop).await;
    }

    async fn end(&self, order: Order) {
        self.0.order(order);
        // An error means that the supervisor is gone, and the process with it.
        let _ = self.0.health.clone().wait_for(|health| *health == Health::Stopped).await;
    }

    fn within_timeout<T: Send + 'static>(
        &self,
        queued: Result<Queued<T>, CallFault>,
    ) -> impl Future<Output = Result<T, CallFault>> + Send + use<T> {
        let limit = self.0.timeout;
        let deadline = Instant::now() + limit;
        async move {
            let (mut ticket, reply) = queued?;
            match timeout_at(deadline, reply).await {
                Ok(Ok(reply)) => {
                    ticket.settled();
                    reply
                }
                Ok(Err(_)) => Err(CallFault::Died("its supervisor ended".into())),
                Err(_) => Err(CallFault::Timeout(limit)),
            }
        }
    }
}

/// A request in line, and where its fate will be told.
type Queued<T> = (Ticket, oneshot::Receiver<Result<T, CallFault>>);

impl Handle {
    /// Orders only ever get sterner.
    fn order(&self, order: Order) {
        self.orders.send_if_modified(|present| {
            let sterner = order > *present;
            *present = order.max(*present);
            sterner
        });
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.order(Order::Stop);
    }
}

impl From<CallFault> for CallReply {
    fn from(fault: CallFault) -> Self {
        match fault {
            // Why may name files of this machine, which are no business of every caller: the log has it, and the health
            // that the owner sees.
            CallFault::NotRunning(_) => Self::Unavailable("the method server is not running".to_owned()),
            CallFault::Died(_) => Self::Unavailable(fault.to_string()),
            CallFault::Timeout(_) => Self::Timeout,
            CallFault::TooManyWaiting => Self::Busy,
            CallFault::Garbled(why) => Self::Garbled(why),
        }
    }
}

impl From<&Health> for MethodServerHealth {
    fn from(health: &Health) -> Self {
        match health {
            Health::Running => Self::Running,
            Health::Restarting { why, .. } => Self::Restarting { reason: why.to_string() },
            Health::Stopped => Self::Restarting { reason: "it was stopped".to_owned() },
        }
    }
}
