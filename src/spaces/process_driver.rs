//! The driver `process`: the server runs the agents of some spaces as children of its own, each in a process group, and
//! starts them again when they end. A child knows its token from its environment alone, and a new one at each launch.
//! Its stdin is a pipe that we hold open and write nothing to: however the server ends, the pipe closes, and the agent
//! ends with it.
//!
//! Whether a space's agent is to run is the space's record to say ([`Space::launched`]); this only follows.

use super::{Space, SpaceError, Spaces};
use crate::{
    model::{id::SpaceId, space_settings::Driver},
    platform::process_group::{GroupEnd, OnParentDeath, ProcessGroup},
};
use parking_lot::{Mutex, MutexGuard};
use schemars::JsonSchema;
use serde::Serialize;
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

/// The longest line of a child that is logged as one, in bytes.
const LONGEST_LINE: u64 = 8 << 10;

/// Runs agents. Cloning the handle is cheap; when the last is dropped, nothing is followed any more.
#[derive(Clone)]
pub struct Supervisor(Arc<Shared>);

struct Shared {
    spaces: Spaces,
    launch: Launch,
    children: Mutex<Children>,
}

/// How agents are run.
#[derive(Clone, Debug)]
pub struct Launch {
    /// What is run, with `agent start` and its flags: this program itself.
    pub program: PathBuf,
    /// The URL at which agents reach the server.
    pub server: String,
    /// Where each space gets a directory.
    pub directory: PathBuf,
    /// What agents are told by their environment besides.
    pub environment: Vec<(&'static str, String)>,
    pub patience: Patience,
}

/// How long what may take.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Until an agent that ended is started again; doubled each time, up to `longest`.
    pub first: Duration,
    pub longest: Duration,
    /// After which an agent has run well, and its next end is a first one again.
    pub steady: Duration,
    /// From SIGTERM to SIGKILL.
    pub grace: Duration,
}

/// How it stands with an agent that the server runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Running {
    /// `None` while it is waited with the next launch.
    pub pid: Option<u32>,
    /// How often it was launched since it was started, or since the server was.
    pub launches: u32,
    /// How the last one ended.
    pub trouble: Option<String>,
}

#[derive(Default)]
struct Children {
    by_space: HashMap<SpaceId, Keeper>,
    /// Set when the server stops: nothing is launched from then on.
    closed: bool,
}

/// Whoever keeps the agent of one space running, and cleans up after it.
struct Keeper {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Why an agent was not launched.
#[derive(Debug, thiserror::Error)]
enum LaunchError {
    #[error(transparent)]
    Space(#[from] SpaceError),
    #[error("cannot use {}: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("cannot run {}: {source}", path.display())]
    Program { path: PathBuf, source: io::Error },
}

impl Supervisor {
    pub fn new(spaces: Spaces, launch: Launch) -> Self {
        Self(Arc::new(Shared { spaces, launch, children: Mutex::default() }))
    }

    /// Launches the agents of all spaces that are to run, and from now on follows every change.
    pub fn follow(&self) {
        let weak = Arc::downgrade(&self.0);
        self.0.spaces.listen(move |change| {
            let space = change.space();
            if let Some(shared) = weak.upgrade().filter(|_| space.driver == Driver::Process) {
                match change {
                    super::Change::Deleted(space) => shared.tidy_up_after(space.id),
                    _ => shared.attend(space),
                }
            }
        });
        for space in self.0.spaces.all() {
            if space.driver == Driver::Process {
                self.0.attend(&space);
            }
        }
    }

    /// Ends all agents and waits until they have ended. None is launched from then on; the spaces stay as they are.
    pub async fn shut_down(&self) {
        let keepers: Vec<Keeper> = {
            let mut children = self.0.children();
            children.closed = true;
            children.by_space.drain().map(|(_, keeper)| keeper).collect()
        };
        keepers.iter().for_each(|keeper| keeper.stop.cancel());
        for keeper in keepers {
            // One that panicked has ended too.
            let _ = keeper.task.await;
        }
    }
}

impl Launch {
    /// This program, for a server that listens at `address` and keeps its data in `data`.
    ///
    /// # Errors
    ///
    /// Fails if the system does not say where this program is.
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
            patience: Patience::default(),
        })
    }

    /// The directory of a space, where its agent runs unless told otherwise.
    fn home(&self, id: SpaceId) -> PathBuf {
        self.directory.join(id.to_string())
    }

    /// What only the agent puts something into.
    fn agent_data(&self, id: SpaceId) -> PathBuf {
        self.home(id).join("agent")
    }

    async fn start(&self, spaces: &Spaces, space: &Space) -> Result<ProcessGroup, LaunchError> {
        let data = self.agent_data(space.id);
        std::fs::create_dir_all(&data).map_err(|source| LaunchError::Directory { path: data.clone(), source })?;
        let directory = space.settings.directory.clone().unwrap_or_else(|| self.home(space.id));
        if !directory.is_dir() {
            let source = io::Error::from(io::ErrorKind::NotADirectory);
            return Err(LaunchError::Directory { path: directory, source });
        }
        let mut command = Command::new(&self.program);
        command.args(["agent", "start", "--server", &self.server, "--listen", "127.0.0.1:0", "--data"]).arg(data);
        if let Some(file) = &space.settings.methods_file {
            command.arg("--methods-file").arg(file);
        }
        // What the server is told by its environment, an admin's token perhaps, is not meant for an agent; how to log is.
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
        started.map_err(|source| LaunchError::Program { path: self.program.clone(), source })
    }
}

impl Shared {
    /// Sees to it that the space's agent runs, or does not, as its record says.
    fn attend(self: &Arc<Self>, space: &Space) {
        let mut children = self.children();
        if children.closed {
            return;
        }
        let id = space.id;
        children.by_space.retain(|_, keeper| !keeper.task.is_finished());
        let kept = children.by_space.get(&id).filter(|keeper| !keeper.stop.is_cancelled());
        match (space.launched, kept) {
            (true, None) => {
                // An agent that is still ending has the directory.
                let previous = children.by_space.remove(&id);
                let (shared, stop) = (self.clone(), CancellationToken::new());
                let stopped = stop.clone();
                let task = tokio::spawn(async move {
                    ended(previous).await;
                    shared.keep(id, &stopped).await;
                });
                children.by_space.insert(id, Keeper { stop, task });
            }
            (false, Some(keeper)) => keeper.stop.cancel(),
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Ends the agent of a deleted space and removes what it kept. What others put into the space's directory stays.
    fn tidy_up_after(self: &Arc<Self>, id: SpaceId) {
        let mut children = self.children();
        let previous = children.by_space.remove(&id);
        if let Some(keeper) = &previous {
            keeper.stop.cancel();
        }
        let (home, data) = (self.launch.home(id), self.launch.agent_data(id));
        let task = tokio::spawn(async move {
            ended(previous).await;
            let removed = tokio::fs::remove_dir_all(&data).await;
            if let Err(error) = removed
                && error.kind() != io::ErrorKind::NotFound
            {
                log::warn!("{} of a deleted space stays: {error}", data.display());
            }
            // It is not removed if there is something in it.
            let _ = tokio::fs::remove_dir(home).await;
        });
        if !children.closed {
            children.by_space.insert(id, Keeper { stop: CancellationToken::new(), task });
        }
    }

    /// Runs the agent of a space again and again, until it is to stop.
    async fn keep(&self, id: SpaceId, stop: &CancellationToken) {
        let patience = self.launch.patience;
        let (mut wait, mut running) = (patience.first, Running { pid: None, launches: 0, trouble: None });
        while let Some(space) = self.spaces.get(id).filter(|space| space.launched && !stop.is_cancelled()) {
            running.launches += 1;
            let began = Instant::now();
            let trouble = match self.launch.start(&self.spaces, &space).await {
                Ok(mut process) => {
                    log::info!("space `{}`: its agent runs as process {}", space.name, process.id());
                    self.spaces
                        .note_running(id, Some(Running { pid: process.id().try_into().ok(), ..running.clone() }));
                    relay(&space, process.take_stdout());
                    relay(&space, process.take_stderr());
                    // Taken, because waiting for the process would close it.
                    let stdin = process.take_stdin();
                    tokio::select! {
                        status = process.exited() => {
                            process.sweep().await;
                            describe(status)
                        }
                        () = stop.cancelled() => {
                            drop(stdin);
                            end(&space, process, patience.grace).await;
                            break;
                        }
                    }
                }
                Err(error) => error.to_string(),
            };
            if began.elapsed() >= patience.steady {
                wait = patience.first;
            }
            log::warn!("space `{}`: its agent does not run: {trouble}; next try in {wait:?}", space.name);
            running.trouble = Some(trouble);
            self.spaces.note_running(id, Some(running.clone()));
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.cancelled() => break,
            }
            wait = (wait * 2).min(patience.longest);
        }
        self.spaces.note_running(id, None);
    }

    fn children(&self) -> MutexGuard<'_, Children> {
        self.children.lock()
    }
}

async fn ended(keeper: Option<Keeper>) {
    if let Some(keeper) = keeper {
        // One that panicked has ended too.
        let _ = keeper.task.await;
    }
}

/// Ends an agent, whose stdin is closed already, and all of its process group: SIGTERM, and SIGKILL after `grace`.
async fn end(space: &Space, process: ProcessGroup, grace: Duration) {
    if process.end(Duration::ZERO, grace).await == GroupEnd::Killed {
        log::warn!("space `{}`: its agent did not end within {grace:?}, and was killed", space.name);
    }
}

/// Passes what a child prints on to the log, line by line.
fn relay(space: &Space, source: Option<impl AsyncRead + Send + Unpin + 'static>) {
    let Some(source) = source else { return };
    let name = space.name.clone();
    tokio::spawn(async move {
        let (mut source, mut line) = (BufReader::new(source), Vec::new());
        loop {
            line.clear();
            match (&mut source).take(LONGEST_LINE).read_until(b'\n', &mut line).await {
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

impl Default for Patience {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            longest: Duration::from_secs(60),
            steady: Duration::from_secs(60),
            // The agent's calls, its last events, and a method server that has to be killed: 7.5 s at worst.
            grace: Duration::from_secs(8),
        }
    }
}
