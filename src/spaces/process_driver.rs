//! The driver `process`: the server runs agents as child processes, each in a process group, and restarts them when
//! they end.
//!
//! A child gets its token through its environment, a new one at each launch. Its stdin is a pipe that the server holds
//! open and never writes to: however the server ends, the pipe closes, and the agent ends with it.
//!
//! [`Space::launched`] decides which agents run; this module follows it.

use super::{agent_process::AgentProcess, error::SpaceError, records::Spaces, row::SpaceChange, space::Space};
use crate::{
    model::{id::SpaceId, space_settings::Driver},
    platform::{
        backoff::Backoff,
        process_group::{GroupEnd, OnParentDeath, ProcessGroup},
        task,
    },
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::HashMap,
    io,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader},
    process::Command,
    task::JoinHandle,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// The longest output line of a child that is logged as one, in bytes.
const MAX_LINE: u64 = 8 << 10;

/// Runs agents. Cloning the handle is cheap; dropping the last one ends the following of changes.
#[derive(Clone)]
pub struct ProcessDriver(Arc<DriverShared>);

struct DriverShared {
    spaces: Spaces,
    launch: AgentLaunch,
    children: Mutex<AgentTasks>,
}

/// The command line, directory and environment of launched agents.
#[derive(Clone, Debug)]
pub struct AgentLaunch {
    /// The program to run with `agent start` and its flags: this executable.
    pub program: PathBuf,
    /// The URL at which agents reach the server.
    pub server: String,
    /// The parent directory of the spaces' directories.
    pub directory: PathBuf,
    /// Additional environment variables of agents.
    pub environment: Vec<(&'static str, String)>,
    pub restart_policy: AgentRestartPolicy,
}

/// Delays between restarts, and the grace period of a stop.
#[derive(Clone, Copy, Debug)]
pub struct AgentRestartPolicy {
    /// The delay before the first restart; doubled each time, up to `longest`.
    pub first: Duration,
    pub longest: Duration,
    /// An agent that ran this long restarts with the first delay again.
    pub steady: Duration,
    /// From SIGTERM to SIGKILL.
    pub grace: Duration,
}

#[derive(Default)]
struct AgentTasks {
    by_space: HashMap<SpaceId, AgentTask>,
    /// Set when the server stops: no agent is launched afterwards.
    closed: bool,
}

/// The task that supervises the agent of one space, or cleans up after it.
struct AgentTask {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// The reason an agent was not launched.
#[derive(Debug, thiserror::Error)]
enum AgentLaunchError {
    #[error(transparent)]
    Space(#[from] SpaceError),
    #[error("cannot use {}: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("cannot run {}: {source}", path.display())]
    Program { path: PathBuf, source: io::Error },
}

impl ProcessDriver {
    pub fn new(spaces: Spaces, launch: AgentLaunch) -> Self {
        Self(Arc::new(DriverShared { spaces, launch, children: Mutex::default() }))
    }

    /// Launches the agents of all launched spaces and follows every later change.
    pub fn follow(&self) {
        let weak = Arc::downgrade(&self.0);
        self.0.spaces.listen(move |change| {
            let space = change.space();
            if let Some(shared) = weak.upgrade().filter(|_| space.driver == Driver::Process) {
                match change {
                    SpaceChange::Deleted(space) => shared.remove_agent_of(space.id),
                    _ => shared.reconcile(space),
                }
            }
        });
        for space in self.0.spaces.all() {
            if space.driver == Driver::Process {
                self.0.reconcile(&space);
            }
        }
    }

    /// Ends all agents and waits for them. No agent is launched afterwards; the spaces keep their state.
    pub async fn shut_down(&self) {
        let agents: Vec<AgentTask> = {
            let mut children = self.0.children();
            children.closed = true;
            children.by_space.drain().map(|(_, agent)| agent).collect()
        };
        agents.iter().for_each(|agent| agent.stop.cancel());
        for agent in agents {
            // A task that panicked has ended too.
            let _ = agent.task.await;
        }
    }
}

impl AgentLaunch {
    /// The launch parameters for a server that listens at `address` and keeps its data in `data`.
    pub fn of_server(address: std::net::SocketAddr, data: &std::path::Path) -> io::Result<Self> {
        let mut reached = address;
        if address.ip().is_unspecified() {
            reached.set_ip(match address {
                std::net::SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                std::net::SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        Ok(Self {
            program: std::env::current_exe()?,
            server: format!("http://{reached}"),
            directory: std::path::absolute(data)?.join("spaces"),
            environment: Vec::new(),
            restart_policy: AgentRestartPolicy::default(),
        })
    }

    /// The directory of a space, the default working directory of its agent.
    fn space_directory(&self, id: SpaceId) -> PathBuf {
        self.directory.join(id.to_string())
    }

    /// The agent's own data directory.
    fn agent_data(&self, id: SpaceId) -> PathBuf {
        self.space_directory(id).join("agent")
    }

    async fn start(&self, spaces: &Spaces, space: &Space) -> Result<ProcessGroup, AgentLaunchError> {
        let data = self.agent_data(space.id);
        std::fs::create_dir_all(&data).map_err(|source| AgentLaunchError::Directory { path: data.clone(), source })?;
        let directory = space.settings.directory.clone().unwrap_or_else(|| self.space_directory(space.id));
        if !directory.is_dir() {
            let source = io::Error::from(io::ErrorKind::NotADirectory);
            return Err(AgentLaunchError::Directory { path: directory, source });
        }
        let mut command = Command::new(&self.program);
        command.args(["agent", "start", "--server", &self.server, "--listen", "127.0.0.1:0", "--data"]).arg(data);
        if let Some(file) = &space.settings.methods_file {
            command.arg("--methods-file").arg(file);
        }
        // The server's own variables, perhaps an admin token, are not passed to agents; the log settings are.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("SVC_") && !text.starts_with("SVC_LOG_") {
                command.env_remove(name);
            }
        }
        let token = spaces.launch_token(space.id)?;
        command
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("SVC_AGENT_TOKEN", token.reveal())
            .env("SVC_AGENT_SUPERVISED", "1")
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let started = ProcessGroup::spawn(command, OnParentDeath::LeaveRunning).await;
        started.map_err(|source| AgentLaunchError::Program { path: self.program.clone(), source })
    }
}

impl DriverShared {
    /// Launches or stops the space's agent according to [`Space::launched`].
    fn reconcile(self: &Arc<Self>, space: &Space) {
        let mut children = self.children();
        if children.closed {
            return;
        }
        let id = space.id;
        children.by_space.retain(|_, agent| !agent.task.is_finished());
        let kept = children.by_space.get(&id).filter(|agent| !agent.stop.is_cancelled());
        match (space.launched, kept) {
            (true, None) => {
                // A previous agent that is still ending uses the directory.
                let previous = children.by_space.remove(&id);
                let (shared, stop) = (self.clone(), CancellationToken::new());
                let stopped = stop.clone();
                let task = task::spawn(async move {
                    ended(previous).await;
                    shared.supervise(id, &stopped).await;
                });
                children.by_space.insert(id, AgentTask { stop, task });
            }
            (false, Some(agent)) => agent.stop.cancel(),
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Ends the agent of a deleted space and removes its data. Other files in the space's directory stay.
    fn remove_agent_of(self: &Arc<Self>, id: SpaceId) {
        let mut children = self.children();
        let previous = children.by_space.remove(&id);
        if let Some(agent) = &previous {
            agent.stop.cancel();
        }
        let (home, data) = (self.launch.space_directory(id), self.launch.agent_data(id));
        let task = task::spawn(async move {
            ended(previous).await;
            let removed = tokio::fs::remove_dir_all(&data).await;
            if let Err(error) = removed
                && error.kind() != io::ErrorKind::NotFound
            {
                log::warn!("{} of a deleted space stays: {error}", data.display());
            }
            // A directory that is not empty stays.
            let _ = tokio::fs::remove_dir(home).await;
        });
        if !children.closed {
            children.by_space.insert(id, AgentTask { stop: CancellationToken::new(), task });
        }
    }

    /// Runs the agent of a space and restarts it, until `stop` is cancelled or the space is no longer launched.
    async fn supervise(&self, id: SpaceId, stop: &CancellationToken) {
        let restart_policy = self.launch.restart_policy;
        let mut backoff = Backoff::new(restart_policy.first, restart_policy.longest);
        let mut running = AgentProcess { pid: None, launches: 0, trouble: None };
        while let Some(space) = self.spaces.get(id).filter(|space| space.launched && !stop.is_cancelled()) {
            running.launches += 1;
            let began = Instant::now();
            let trouble = match self.launch.start(&self.spaces, &space).await {
                Ok(mut process) => {
                    log::info!("space `{}`: its agent runs as process {}", space.name, process.id());
                    self.spaces
                        .note_running(id, Some(AgentProcess { pid: process.id().try_into().ok(), ..running.clone() }));
                    relay(&space, process.take_stdout());
                    relay(&space, process.take_stderr());
                    // Waiting for the process would close a stdin that is still attached.
                    let stdin = process.take_stdin();
                    tokio::select! {
                        status = process.exited() => {
                            process.sweep().await;
                            describe(status)
                        }
                        () = stop.cancelled() => {
                            drop(stdin);
                            end(&space, process, restart_policy.grace).await;
                            break;
                        }
                    }
                }
                Err(error) => error.to_string(),
            };
            if began.elapsed() >= restart_policy.steady {
                backoff.reset();
            }
            let wait = backoff.next_wait();
            log::warn!("space `{}`: its agent does not run: {trouble}; next try in {wait:?}", space.name);
            running.trouble = Some(trouble);
            self.spaces.note_running(id, Some(running.clone()));
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.cancelled() => break,
            }
        }
        self.spaces.note_running(id, None);
    }

    fn children(&self) -> MutexGuard<'_, AgentTasks> {
        self.children.lock()
    }
}

async fn ended(agent: Option<AgentTask>) {
    if let Some(agent) = agent {
        // A task that panicked has ended too.
        let _ = agent.task.await;
    }
}

/// Ends an agent, whose stdin is closed already, and all of its process group: SIGTERM, and SIGKILL after `grace`.
async fn end(space: &Space, process: ProcessGroup, grace: Duration) {
    if process.end(Duration::ZERO, grace).await == GroupEnd::Killed {
        log::warn!("space `{}`: its agent did not end within {grace:?}, and was killed", space.name);
    }
}

/// Copies the output of a child to the log, line by line.
fn relay(space: &Space, source: Option<impl AsyncRead + Send + Unpin + 'static>) {
    let Some(source) = source else { return };
    let name = space.name.clone();
    task::spawn(async move {
        let (mut source, mut line) = (BufReader::new(source), Vec::new());
        loop {
            line.clear();
            match (&mut source).take(MAX_LINE).read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => return,
                Ok(_) => log::info!("space `{name}`: {}", String::from_utf8_lossy(line.trim_ascii_end())),
            }
        }
    });
}

fn describe(status: io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => format!("it ended with {status}"),
        Err(error) => format!("it cannot be waited for: {error}"),
    }
}

impl Default for AgentRestartPolicy {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            longest: Duration::from_secs(60),
            steady: Duration::from_secs(60),
            // The agent's calls, its last events, and a method server that has to be killed.
            grace: Duration::from_secs(20),
        }
    }
}
