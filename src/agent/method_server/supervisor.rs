//! The life of a method server: started, served, started again when it dies, and stopped for good.

use super::{
    Health, Patience, StartError,
    child::{Launch, Pipes, Process, told},
    pipes,
    request_queue::Traffic,
};
use crate::{
    agent::{backoff::Backoff, child_env::Surroundings},
    model::{
        method::{ServerDefinition, ServerMode},
        timestamp::Timestamp,
    },
    platform::config::Span,
};
use std::{path::PathBuf, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::task::AbortOnDropHandle;

/// How long an exit may take to follow the end of the process's output; it is what people want to know.
const EXIT_FOLLOWS: Duration = Duration::from_millis(200);

/// How long the output of a process that is gone may take to be read: only a descendant that left its group can
/// hold the pipe open.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What the supervisor is to do, from mild to stern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    Serve,
    /// Stop once no call is left.
    Retire,
    Stop,
}

/// One per method server.
pub struct Supervisor {
    pub patience: Patience,
    pub definition: ServerDefinition,
    pub directory: PathBuf,
    pub surroundings: Surroundings,
    pub space: Arc<str>,
    pub traffic: Arc<Traffic>,
    pub health: watch::Sender<Health>,
}

/// Why a process no longer serves.
enum Ending {
    /// It has exited.
    Exited(String),
    /// It runs, but is of no use any more.
    Useless(String),
    Ordered,
}

impl Supervisor {
    /// Starts the process.
    ///
    /// # Errors
    ///
    /// Fails if the command cannot be run.
    pub async fn launch(&self) -> Result<(Process, Pipes), StartError> {
        let launch = Launch {
            command: &self.definition.command,
            args: &self.definition.args,
            directory: &self.directory,
            environment: &self.surroundings.variables(),
        };
        let started = launch.with_pipes().await?;
        log::info!("the method server of space {} runs as process {}", self.space, started.0.id());
        Ok(started)
    }

    /// Looks after the process, and those that follow it, until it is ordered to stop.
    pub async fn run(self, first: (Process, Pipes), mut orders: watch::Receiver<Order>) {
        let mut present = first;
        let mut backoff = Backoff::new(self.patience.first_backoff, self.patience.longest_backoff);
        loop {
            let started = Instant::now();
            let Some(mut why) = self.serve(present, &mut orders).await else { break };
            if started.elapsed() >= self.patience.settled {
                backoff.reset();
            }
            let since = Timestamp::now();
            let next = loop {
                let wait = backoff.next();
                log::warn!("the method server of space {} is down: {why}; next try in {}", self.space, Span(wait));
                self.tell(Health::Restarting { since, why: why.clone() });
                tokio::select! {
                    () = sleep(wait) => {}
                    _ = orders.wait_for(|order| *order > Order::Serve) => break None,
                }
                match self.launch().await {
                    Ok(next) => break Some(next),
                    Err(error) => {
                        why = error.to_string().into();
                        self.traffic.shut(&why);
                    }
                }
            };
            let Some(next) = next else { break };
            present = next;
            self.traffic.open();
            self.tell(Health::Running);
        }
        self.traffic.shut(&"it was stopped".into());
        self.tell(Health::Stopped);
        log::info!("the method server of space {} is stopped", self.space);
    }

    /// Serves calls with this process until it ends. Says why it died, or nothing if it was ordered to stop; the
    /// process is gone then, with all of its group, and nothing of it is left in the traffic.
    async fn serve(
        &self,
        (mut process, pipes): (Process, Pipes),
        orders: &mut watch::Receiver<Order>,
    ) -> Option<Arc<str>> {
        let Pipes { stdin, stdout, stderr } = pipes;
        let mut writer = owned(tokio::spawn(pipes::write_requests(self.traffic.clone(), stdin)));
        let mut reader = owned(tokio::spawn(pipes::read_answers(self.traffic.clone(), stdout, self.space.clone())));
        let mut log = owned(tokio::spawn(pipes::read_log(stderr, self.space.clone())));

        let mut order = Order::Serve;
        let ending = loop {
            tokio::select! {
                status = process.exited() => break Ending::Exited(told(&status)),
                _ = &mut reader => break self.after_silence(&mut process, "it closed its standard output").await,
                _ = &mut writer => break self.after_silence(&mut process, "it closed its standard input").await,
                why = self.stuck() => break Ending::Useless(why),
                () = self.traffic.idle(), if order == Order::Retire => break Ending::Ordered,
                sterner = next_order(orders, order) => match sterner {
                    Order::Stop => break Ending::Ordered,
                    _ => {
                        order = sterner;
                        self.traffic.retire();
                    }
                }
            }
        };

        let why: Option<Arc<str>> = match ending {
            Ending::Exited(why) => {
                // First all that it said, for which those that may still hold its pipes have to be gone.
                process.kill();
                let _ = timeout(LAST_WORDS, finished(&mut reader)).await;
                let why = why.into();
                self.traffic.shut(&why);
                process.sweep().await;
                Some(why)
            }
            Ending::Useless(why) => {
                let why = why.into();
                self.traffic.shut(&why);
                self.tell(Health::Restarting { since: Timestamp::now(), why: Arc::clone(&why) });
                process.end(self.patience.close, self.patience.terminate).await;
                Some(why)
            }
            Ending::Ordered => {
                // The writer closes the process's stdin when it finds nothing more to come.
                self.traffic.shut(&"it is being stopped".into());
                process.end(self.patience.close, self.patience.terminate).await;
                None
            }
        };
        let _ = timeout(LAST_WORDS, finished(&mut log)).await;
        // A writer that lingers would take what is meant for the next process.
        writer.abort();
        finished(&mut writer).await;
        why.filter(|_| order == Order::Serve)
    }

    /// The end of a process that closed one of its pipes, most likely because it exits.
    async fn after_silence(&self, process: &mut Process, why: &str) -> Ending {
        match timeout(EXIT_FOLLOWS, process.exited()).await {
            Ok(status) => Ending::Exited(told(&status)),
            Err(_) => Ending::Useless(why.to_owned()),
        }
    }

    /// Returns if a serial process has not answered its present call for twice the timeout. Nothing else could be
    /// asked of it any more, since only an answer makes room for the next call.
    async fn stuck(&self) -> String {
        if self.definition.mode == ServerMode::Concurrent {
            return std::future::pending().await;
        }
        let limit = self.definition.timeout * 2;
        loop {
            let now = Instant::now();
            // A call that is sent later cannot be overdue before this long from now.
            let due = self.traffic.busy_since().map_or(now, |since| since) + limit;
            if due <= now {
                return format!("it has not answered a call for {}", Span(limit));
            }
            sleep_until(due).await;
        }
    }

    fn tell(&self, health: Health) {
        self.health.send_replace(health);
    }
}

/// The next order that is sterner than `present`. Nobody being left to give any is the sternest.
async fn next_order(orders: &mut watch::Receiver<Order>, present: Order) -> Order {
    orders.wait_for(|order| *order > present).await.map_or(Order::Stop, |order| *order)
}

fn owned<T>(task: JoinHandle<T>) -> AbortOnDropHandle<T> {
    AbortOnDropHandle::new(task)
}

/// Waits for a task, also one that is over and was seen to be.
async fn finished<T>(task: &mut AbortOnDropHandle<T>) {
    if !task.is_finished() {
        let _ = task.await;
    }
}
