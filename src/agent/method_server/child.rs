//! A process of ours with all of its descendants: started as a group of its own, signalled and killed as one.
//!
//! Nothing here outlives us. A [`Group`] that is dropped is killed. If we are killed ourselves, the kernel kills the
//! process (on Linux), and its stdin ends, which is what tells its descendants, and it on other systems.

use std::{
    io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{OnceLock, mpsc},
    time::Duration,
};
use tokio::{
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    runtime,
    sync::oneshot,
    time::{Instant, sleep, timeout},
};

/// What a child must not learn: they speak for the space, and for the user.
pub const SECRETS: [&str; 2] = ["SVC_AGENT_TOKEN", "SVC_TOKEN"];

/// How often a group is looked at that is expected to end; nothing tells us when its last member does.
const LOOK: Duration = Duration::from_millis(10);

/// How long a killed process may take to be gone. One that takes longer hangs in the kernel.
const KILLED: Duration = Duration::from_secs(5);

/// A process that may be waited for, signalled and killed.
pub struct Process {
    child: Child,
    group: Group,
}

/// What is attached to a process's pipes.
pub struct Pipes {
    pub stdin: ChildStdin,
    pub stdout: ChildStdout,
    pub stderr: ChildStderr,
}

/// A process group, named by the process that leads it. Killed when dropped, unless it is known to be gone.
struct Group {
    id: libc::pid_t,
    gone: bool,
}

/// Why a command could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot start `{command}`: there is no directory {}", directory.display())]
    Directory { command: String, directory: PathBuf },
    #[error("cannot start `{command}`: {source}")]
    Command { command: String, source: io::Error },
}

/// What to start.
pub struct Launch<'a> {
    pub command: &'a str,
    pub args: &'a [String],
    /// Where it runs, and where a relative path to it starts.
    pub directory: &'a Path,
    pub environment: &'a [(String, String)],
}

impl Launch<'_> {
    /// Starts it with a pipe for each of its streams.
    ///
    /// # Errors
    ///
    /// Fails if the directory is not there or the command cannot be run.
    pub async fn with_pipes(&self) -> Result<(Process, Pipes), StartError> {
        let mut process = self.start(Stdio::piped(), Stdio::piped(), Stdio::piped()).await?;
        let pipes = Pipes {
            stdin: process.child.stdin.take().expect("it was asked for"),
            stdout: process.child.stdout.take().expect("it was asked for"),
            stderr: process.child.stderr.take().expect("it was asked for"),
        };
        Ok((process, pipes))
    }

    /// Starts it with nothing to read, and nobody listening but to its complaints.
    ///
    /// # Errors
    ///
    /// As [`Launch::with_pipes`].
    pub async fn with_complaints(&self) -> Result<(Process, ChildStderr), StartError> {
        let mut process = self.start(Stdio::null(), Stdio::null(), Stdio::piped()).await?;
        let stderr = process.child.stderr.take().expect("it was asked for");
        Ok((process, stderr))
    }

    async fn start(&self, stdin: Stdio, stdout: Stdio, stderr: Stdio) -> Result<Process, StartError> {
        let failed = |source| StartError::Command { command: self.command.to_owned(), source };
        let directory = std::path::absolute(self.directory).map_err(failed)?;
        if !directory.is_dir() {
            return Err(StartError::Directory { command: self.command.to_owned(), directory });
        }
        let mut command = match self.command.contains('/') {
            true => Command::new(directory.join(self.command)),
            false => Command::new(self.command),
        };
        command.args(self.args).current_dir(directory).stdin(stdin).stdout(stdout).stderr(stderr).process_group(0);
        for secret in SECRETS {
            command.env_remove(secret);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        #[cfg(target_os = "linux")]
        die_with_us(&mut command);
        spawn(command).await.map_err(failed)
    }
}

impl Process {
    /// Waits until the process has exited. Its descendants may still run.
    pub async fn exited(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    pub fn id(&self) -> libc::pid_t {
        self.group.id
    }

    /// Kills the whole group now.
    pub fn kill(&mut self) {
        self.group.signal(libc::SIGKILL);
    }

    /// Ends the whole group, whose stdin was closed: waits for it to leave by itself, then has SIGTERM sent, then
    /// SIGKILL. Returns once all of it is gone.
    pub async fn end(mut self, close: Duration, terminate: Duration) {
        let mut ended = timeout(close, self.child.wait()).await.is_ok();
        // Also to what its leader left behind; who is not there is not hurt.
        if !(ended && self.group.is_gone()) {
            let deadline = Instant::now() + terminate;
            self.group.signal(libc::SIGTERM);
            ended = timeout(terminate, self.child.wait()).await.is_ok();
            while ended && !self.group.is_gone() && Instant::now() < deadline {
                sleep(LOOK).await;
            }
        }
        self.kill_and_wait(ended).await;
    }

    /// Kills what is left of the group whose leader has exited.
    pub async fn sweep(mut self) {
        self.kill_and_wait(true).await;
    }

    async fn kill_and_wait(&mut self, mut ended: bool) {
        let deadline = Instant::now() + KILLED;
        self.group.signal(libc::SIGKILL);
        if !ended {
            ended = timeout(KILLED, self.child.wait()).await.is_ok();
        }
        while ended && !self.group.is_gone() && Instant::now() < deadline {
            sleep(LOOK).await;
        }
        if !(ended && self.group.is_gone()) {
            log::error!("process group {} does not end although it was killed", self.group.id);
        }
        // Once its leader was waited for, the number may become another's.
        self.group.gone |= ended;
    }
}

impl Group {
    /// Sends a signal to all of the group that is left.
    fn signal(&self, signal: libc::c_int) {
        if !self.gone {
            // SAFETY: it takes two numbers. The group's is not another's while its leader was not waited for, or while
            // it has a member, and that it has neither is looked at often enough for the number not to come round.
            unsafe { libc::kill(-self.id, signal) };
        }
    }

    /// Whether nothing is left of the group. To be asked only once its leader was waited for.
    fn is_gone(&mut self) -> bool {
        if !self.gone {
            // SAFETY: as above; signal 0 only asks. In a container we may be the one that orphans fall to, and then
            // have to bury those of the group.
            let there = unsafe {
                while libc::waitpid(-self.id, std::ptr::null_mut(), libc::WNOHANG) > 0 {}
                libc::kill(-self.id, 0) == 0
            };
            self.gone = !there && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
        }
        self.gone
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(libc::SIGKILL);
    }
}

/// What an exit says to people.
pub fn told(status: &io::Result<ExitStatus>) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("it exited with status {code}"),
            (None, Some(signal)) => format!("it was killed by signal {signal}"),
            (None, None) => "it ended".to_owned(),
        },
        Err(error) => format!("it cannot be waited for: {error}"),
    }
}

/// Has the kernel kill the process when the thread that started it ends.
#[cfg(target_os = "linux")]
fn die_with_us(command: &mut Command) {
    let parent = std::process::id();
    let prepare = move || {
        // SAFETY: both only make a system call, which is all that is allowed between fork and exec.
        let (asked, parent_now) = unsafe { (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL), libc::getppid()) };
        match asked {
            -1 => Err(io::Error::last_os_error()),
            // We were gone before it could ask.
            _ if u32::try_from(parent_now) != Ok(parent) => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            _ => Ok(()),
        }
    };
    // SAFETY: `prepare` allocates nothing and takes no lock.
    unsafe { command.pre_exec(prepare) };
}

/// A command to start, on behalf of a runtime.
struct Errand {
    command: Command,
    runtime: runtime::Handle,
    done: oneshot::Sender<io::Result<Process>>,
}

/// Starts a command from the one thread that lasts as long as we do: the kernel takes the end of the thread that
/// forked for that of the parent, and those of a runtime come and go.
async fn spawn(command: Command) -> io::Result<Process> {
    static SPAWNER: OnceLock<mpsc::Sender<Errand>> = OnceLock::new();
    let gone = || io::Error::other("the thread that starts processes is gone");
    let spawner = match SPAWNER.get() {
        Some(spawner) => spawner,
        None => {
            let (sender, errands) = mpsc::channel::<Errand>();
            std::thread::Builder::new().name("svc-spawner".to_owned()).spawn(move || run_errands(&errands))?;
            // If another was quicker, this thread ends with its sender, before it has started anything.
            SPAWNER.get_or_init(|| sender)
        }
    };
    let (done, started) = oneshot::channel();
    let errand = Errand { command, runtime: runtime::Handle::current(), done };
    spawner.send(errand).map_err(|_| gone())?;
    started.await.map_err(|_| gone())?
}

fn run_errands(errands: &mpsc::Receiver<Errand>) {
    while let Ok(Errand { mut command, runtime, done }) = errands.recv() {
        let _entered = runtime.enter();
        let started = command.spawn().map(|child| {
            let id = child.id().expect("it was not waited for yet");
            let group = Group { id: id.try_into().expect("process ids are positive"), gone: false };
            Process { child, group }
        });
        // Whoever no longer waits for it drops it, which kills it.
        let _ = done.send(started);
    }
}
