//! Supervises a method server: starts the process, restarts it with backoff when it dies, and stops it for good.
//!
//! [`ServerSupervisor::run`] alternates between [`ServerSupervisor::serve`], which ends when the process does, and
//! [`ServerSupervisor::restart`], until the server is to stop.

use super::{pipes, request_queue::RequestQueue};
use crate::{
    agent::{
        child_env::ChildEnv,
        child_process::{ChildCommand, ChildPipes, ChildSpawnError},
    },
    model::method::{MethodServerHealth, ServerDefinition, ServerMode},
    platform::{
        backoff::Backoff,
        config::Span,
        process_group::{ProcessGroup, describe_exit},
        task,
    },
};
use std::{path::PathBuf, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::task::AbortOnDropHandle;

/// Time in which an exit must follow the end of the process's output, to be named as the reason.
const EXIT_AFTER_CLOSE: Duration = Duration::from_millis(200);

/// Time for the rest of the output of a process that is gone: only a descendant that left its group can hold the pipe
/// open.
const LAST_OUTPUT: Duration = Duration::from_millis(500);

/// The state that the supervisor works towards. A later variant overrides an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DesiredState {
    Serving,
    /// Stopped once no call is left.
    Drained,
    Stopped,
}

/// Timeouts and backoff of a supervised process. Tests use shorter ones.
#[derive(Clone, Copy, Debug)]
pub struct SupervisionPolicy {
    /// Time for the process to exit by itself once its stdin is closed.
    pub close: Duration,
    /// Time for its group to end after SIGTERM; then it gets SIGKILL.
    pub terminate: Duration,
    /// Wait before the first restart; each further one is twice as long.
    pub first_backoff: Duration,
    pub longest_backoff: Duration,
    /// A process that has run for this long resets the backoff.
    pub stable_after: Duration,
}

/// The supervisor of one method server.
pub struct ServerSupervisor {
    pub policy: SupervisionPolicy,
    pub definition: ServerDefinition,
    pub directory: PathBuf,
    pub child_env: ChildEnv,
    pub space: Arc<str>,
    pub queue: Arc<RequestQueue>,
    pub health: watch::Sender<MethodServerHealth>,
}

/// End of a process's service.
enum ServiceEnd {
    Exited(String),
    /// The process runs, but cannot serve any more.
    Broken(String),
    /// The process, a serial one, hangs. Calls that wait for their turn go to the next process.
    Hung(String),
    /// The supervisor was asked to stop it.
    Demanded,
}

impl Default for SupervisionPolicy {
    fn default() -> Self {
        Self {
            close: Duration::from_secs(2),
            terminate: Duration::from_secs(3),
            first_backoff: Duration::from_millis(100),
            longest_backoff: Duration::from_secs(30),
            stable_after: Duration::from_secs(30),
        }
    }
}

impl ServerSupervisor {
    /// Starts the process.
    ///
    /// # Errors
    ///
    /// Fails if the command cannot be run.
    pub async fn launch(&self) -> Result<(ProcessGroup, ChildPipes), ChildSpawnError> {
        let command = ChildCommand {
            command: &self.definition.command,
            args: &self.definition.args,
            directory: &self.directory,
            environment: &self.child_env.variables(),
        };
        let started = command.spawn_with_pipes().await?;
        log::info!("the method server of space {} runs as process {}", self.space, started.0.id());
        Ok(started)
    }

    /// Serves with the first process and those that replace it, until the server is to stop.
    pub async fn run(self, first: (ProcessGroup, ChildPipes), mut desires: watch::Receiver<DesiredState>) {
        let mut process = first;
        let mut backoff = Backoff::new(self.policy.first_backoff, self.policy.longest_backoff);
        loop {
            let started = Instant::now();
            let Some(reason) = self.serve(process, &mut desires).await else { break };
            if started.elapsed() >= self.policy.stable_after {
                backoff.reset();
            }
            let Some(next) = self.restart(reason, &mut backoff, &mut desires).await else { break };
            process = next;
            self.queue.open();
            self.set_health(MethodServerHealth::Running);
        }
        self.queue.close(&"it was stopped".into());
        self.set_health(MethodServerHealth::Stopped);
        log::info!("the method server of space {} is stopped", self.space);
    }

    /// Restarts the process that died for this reason, with backoff until it starts; `None` if the server is to stop
    /// meanwhile.
    async fn restart(
        &self,
        mut reason: Arc<str>,
        backoff: &mut Backoff,
        desires: &mut watch::Receiver<DesiredState>,
    ) -> Option<(ProcessGroup, ChildPipes)> {
        loop {
            let wait = backoff.next_wait();
            log::warn!("the method server of space {} is down: {reason}; next try in {}", self.space, Span(wait));
            self.set_health(MethodServerHealth::Restarting { reason: reason.to_string() });
            tokio::select! {
                () = sleep(wait) => {}
                _ = desires.wait_for(|desired| *desired > DesiredState::Serving) => return None,
            }
            match self.launch().await {
                Ok(process) => return Some(process),
                Err(error) => {
                    reason = error.to_string().into();
                    self.queue.close(&reason);
                }
            }
        }
    }

    /// Serves calls with this process until it ends. Returns the reason why it died, or `None` if it was to stop. The
    /// whole process group is gone then, and the queue holds none of its requests.
    async fn serve(
        &self,
        (mut process, pipes): (ProcessGroup, ChildPipes),
        desires: &mut watch::Receiver<DesiredState>,
    ) -> Option<Arc<str>> {
        let ChildPipes { stdin, stdout, stderr } = pipes;
        let mut writer = abort_on_drop(pipes::write_requests(self.queue.clone(), stdin));
        let mut reader = abort_on_drop(pipes::read_answers(self.queue.clone(), stdout, self.space.clone()));
        let mut log = abort_on_drop(pipes::read_log(stderr, self.space.clone()));

        let mut state = DesiredState::Serving;
        let end = loop {
            tokio::select! {
                status = process.exited() => break ServiceEnd::Exited(describe_exit(&status)),
                _ = &mut reader => break after_close(&mut process, "it closed its standard output").await,
                _ = &mut writer => break after_close(&mut process, "it closed its standard input").await,
                reason = self.unresponsive() => break ServiceEnd::Hung(reason),
                () = self.queue.idle(), if state == DesiredState::Drained => break ServiceEnd::Demanded,
                desired = next_desired(desires, state) => match desired {
                    DesiredState::Stopped => break ServiceEnd::Demanded,
                    _ => {
                        state = desired;
                        self.queue.drain();
                    }
                }
            }
        };

        let reason: Option<Arc<str>> = match end {
            ServiceEnd::Exited(reason) => {
                // All of its answers count, for which descendants that may still hold its pipes have to be gone.
                process.kill();
                let _ = timeout(LAST_OUTPUT, finished(&mut reader)).await;
                let reason = reason.into();
                self.queue.close(&reason);
                process.sweep().await;
                Some(reason)
            }
            ServiceEnd::Broken(ref text) | ServiceEnd::Hung(ref text) => {
                let reason: Arc<str> = text.as_str().into();
                match end {
                    ServiceEnd::Hung(_) if state == DesiredState::Serving => self.queue.pause(&reason),
                    _ => self.queue.close(&reason),
                }
                self.set_health(MethodServerHealth::Restarting { reason: reason.to_string() });
                process.end(self.policy.close, self.policy.terminate).await;
                Some(reason)
            }
            ServiceEnd::Demanded => {
                // The writer closes the process's stdin once the queue is closed.
                self.queue.close(&"it is being stopped".into());
                process.end(self.policy.close, self.policy.terminate).await;
                None
            }
        };
        let _ = timeout(LAST_OUTPUT, finished(&mut log)).await;
        // A writer that lingers would take requests meant for the next process.
        writer.abort();
        finished(&mut writer).await;
        reason.filter(|_| state == DesiredState::Serving)
    }

    /// Resolves if a serial process has not answered its current call for twice the timeout. It could not be sent
    /// anything else, since only an answer frees it for the next call. The call itself has failed after the timeout; a
    /// process that is only late keeps running.
    async fn unresponsive(&self) -> String {
        if self.definition.mode == ServerMode::Concurrent {
            return std::future::pending().await;
        }
        let limit = self.definition.timeout * 2;
        loop {
            let now = Instant::now();
            // A call that is sent later cannot be overdue before this long from now.
            let due = self.queue.busy_since().map_or(now, |since| since) + limit;
            if due <= now {
                return format!("it has not answered a call for {}", Span(limit));
            }
            sleep_until(due).await;
        }
    }

    fn set_health(&self, health: MethodServerHealth) {
        self.health.send_replace(health);
    }
}

/// The end of a process that closed one of its pipes, most likely because it exits.
async fn after_close(process: &mut ProcessGroup, reason: &str) -> ServiceEnd {
    match timeout(EXIT_AFTER_CLOSE, process.exited()).await {
        Ok(status) => ServiceEnd::Exited(describe_exit(&status)),
        Err(_) => ServiceEnd::Broken(reason.to_owned()),
    }
}

/// The next desired state beyond `current`. Without a handle left it is to stop.
async fn next_desired(desires: &mut watch::Receiver<DesiredState>, current: DesiredState) -> DesiredState {
    desires.wait_for(|desired| *desired > current).await.map_or(DesiredState::Stopped, |desired| *desired)
}

fn abort_on_drop<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> AbortOnDropHandle<T> {
    AbortOnDropHandle::new(task::spawn(task))
}

/// Waits for a task, unless its end was observed already.
async fn finished<T>(task: &mut AbortOnDropHandle<T>) {
    if !task.is_finished() {
        let _ = task.await;
    }
}
