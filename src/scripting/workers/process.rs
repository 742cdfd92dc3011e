//! Starts and ends worker processes, on a thread of its own.
//!
//! A worker asks the kernel to be killed with its parent, which to the kernel is the thread that started it; so that
//! thread lives as long as the workers. It also calls `tick` at short intervals while there are any.

use super::confinement::{ABORTED, NOT_CONFINED, OUT_OF_MEMORY};
use std::{
    ffi::OsString,
    io,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::ExitStatusExt as _},
    },
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// The interval at which workers are checked.
const TICK: Duration = Duration::from_millis(50);

/// The argument that makes the program a worker.
pub const WORKER_COMMAND: &str = "lua-worker";

/// The command that starts a worker.
#[derive(Clone, Debug)]
pub struct WorkerCommand {
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

/// A process that has just started, and the server's end of its socket.
pub(super) struct StartedProcess {
    pub child: Child,
    pub socket: UnixStream,
}

/// A handle to the thread.
pub(super) struct ProcessThread(mpsc::Sender<ProcessJob>);

enum ProcessJob {
    Start(WorkerCommand, oneshot::Sender<io::Result<StartedProcess>>),
    /// Kills a process, if it still runs, and waits for its end.
    End(Child, oneshot::Sender<io::Result<ExitStatus>>),
}

impl WorkerCommand {
    /// Starts workers from the program that this process runs, also after its file was replaced.
    #[cfg(not(test))]
    pub fn this_program() -> Self {
        Self::of_program("/proc/self/exe".into())
    }

    /// Starts workers from the test program, by a test that is one.
    #[cfg(test)]
    pub fn this_program() -> Self {
        let arguments = ["--exact", "scripting::workers::tests::a_worker_of_the_tests", "--ignored", "--nocapture"];
        Self {
            program: std::env::current_exe().expect("the test program has a path"),
            arguments: arguments.map(OsString::from).into(),
            environment: vec![("SVC_TEST_LUA_WORKER".into(), "1".into())],
        }
    }

    /// Starts workers from this program, which must be `svc`.
    pub fn of_program(program: PathBuf) -> Self {
        Self { program, arguments: vec![WORKER_COMMAND.into()], environment: Vec::new() }
    }

    fn start(&self) -> io::Result<StartedProcess> {
        let (socket, theirs) = UnixStream::pair()?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).stderr(Stdio::null());
        command.current_dir("/");
        let child = command.spawn()?;
        socket.set_nonblocking(true)?;
        Ok(StartedProcess { child, socket })
    }
}

impl ProcessThread {
    /// Starts the thread. It ends with this handle.
    pub fn start(tick: impl Fn() + Send + 'static) -> io::Result<Self> {
        let (sender, jobs) = mpsc::channel();
        std::thread::Builder::new().name("lua-processes".to_owned()).spawn(move || run(&jobs, &tick))?;
        Ok(Self(sender))
    }

    pub async fn start_worker(&self, command: WorkerCommand) -> io::Result<StartedProcess> {
        let (sender, receiver) = oneshot::channel();
        let _ = self.0.send(ProcessJob::Start(command, sender));
        receiver.await.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
    }

    pub async fn end_worker(&self, child: Child) -> io::Result<ExitStatus> {
        let (sender, receiver) = oneshot::channel();
        let _ = self.0.send(ProcessJob::End(child, sender));
        receiver.await.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
    }
}

fn run(jobs: &mpsc::Receiver<ProcessJob>, tick: &impl Fn()) {
    let mut processes = 0_usize;
    let mut last_tick = Instant::now();
    loop {
        // Due also while one job follows the other: the tick holds every worker to its limits.
        if processes > 0 && last_tick.elapsed() >= TICK {
            tick();
            last_tick = Instant::now();
        }
        let wait = if processes == 0 { Duration::from_secs(3600) } else { TICK.saturating_sub(last_tick.elapsed()) };
        match jobs.recv_timeout(wait) {
            Ok(ProcessJob::Start(command, sender)) => {
                let started = command.start();
                processes += usize::from(started.is_ok());
                if let Err(Ok(mut unwanted)) = sender.send(started) {
                    let _ = unwanted.child.kill();
                    let _ = unwanted.child.wait();
                    processes -= 1;
                }
            }
            Ok(ProcessJob::End(mut child, sender)) => {
                let _ = child.kill();
                let _ = sender.send(child.wait());
                processes = processes.saturating_sub(1);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// The cause of a process's own end, if the process is to blame: `None` if somebody killed it.
pub(super) fn own_fault(status: ExitStatus) -> Option<String> {
    match (status.code(), status.signal()) {
        (_, Some(libc::SIGKILL)) => None,
        (Some(OUT_OF_MEMORY), _) => Some("it ran out of memory".to_owned()),
        (Some(ABORTED), _) => Some("it was aborted".to_owned()),
        (Some(NOT_CONFINED), _) => Some("it could not confine itself".to_owned()),
        (_, Some(signal)) => Some(format!("it crashed with signal {signal}")),
        (code, None) => Some(format!("it exited with code {}", code.unwrap_or_default())),
    }
}

/// The processor time that a process has used, unless it is gone.
pub(super) fn process_cpu(pid: u32) -> Option<Duration> {
    let mut clock: libc::clockid_t = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both pointers are valid for writing.
    let read = unsafe {
        libc::clock_getcpuclockid(pid.cast_signed(), &mut clock) == 0 && libc::clock_gettime(clock, &mut time) == 0
    };
    read.then(|| Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32))
}
