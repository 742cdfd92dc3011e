//! A child process with all of its descendants: started as a process group of its own, signalled and killed as one.
//!
//! A [`ProcessGroup`] that is dropped is killed, unless it is known to be gone or was
//! [released](ProcessGroup::release). If this process is killed itself, the kernel kills a child that was started with
//! [`OnParentDeath::Kill`] (on Linux), but not the child's descendants; a command that ends kills them too, by
//! [`kill_all`]. The child's stdin ends in any case. A process that is to outlive this one is started by
//! [`spawn_detached`] instead.

use super::file_mode;
use parking_lot::Mutex;
use std::{
    collections::BTreeSet,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitStatus,
    sync::{OnceLock, mpsc},
    time::Duration,
};
use tokio::{
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    runtime,
    sync::oneshot,
    time::{Instant, sleep, timeout},
};

/// Interval at which a group that is expected to end is polled; nothing reports the end of its last member.
const POLL: Duration = Duration::from_millis(10);

/// Time in which a killed group must be gone. One that takes longer hangs in the kernel.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// A process, and the group that it leads.
#[derive(Debug)]
pub struct ProcessGroup {
    /// Before `child`, because fields are dropped in this order and dropping the child may reap it: the group is killed
    /// while the id of its leader cannot be reused.
    group: GroupId,
    child: Child,
}

/// Fate of the child if this process dies without ending it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnParentDeath {
    /// The kernel kills it (on Linux), and [`kill_all`] its whole group.
    Kill,
    /// It finds its stdin closed, and ends by itself.
    LeaveRunning,
}

/// The end of a process group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupEnd {
    /// Its leader exited by itself or by SIGTERM.
    Exited,
    /// Its leader ignored SIGTERM, and was killed.
    Killed,
}

/// A process group, named by its leader. Killed when dropped, unless it is known to be gone.
#[derive(Debug)]
struct GroupId {
    id: libc::pid_t,
    gone: bool,
}

/// The groups for [`kill_all`]: those started with [`OnParentDeath::Kill`] that are not known to be gone.
static GROUPS_TO_KILL: Mutex<BTreeSet<libc::pid_t>> = Mutex::new(BTreeSet::new());

impl ProcessGroup {
    /// Starts a command as the leader of a new group.
    ///
    /// # Errors
    ///
    /// Fails if the command cannot be run.
    pub async fn spawn(mut command: Command, on_parent_death: OnParentDeath) -> io::Result<Self> {
        command.process_group(0);
        file_mode::restore_in(&mut command);
        match on_parent_death {
            OnParentDeath::Kill => {
                #[cfg(target_os = "linux")]
                kill_on_parent_death(&mut command);
                spawn_on_lasting_thread(command).await
            }
            OnParentDeath::LeaveRunning => Self::start(&mut command),
        }
    }

    fn start(command: &mut Command) -> io::Result<Self> {
        let child = command.spawn()?;
        let id = child.id().expect("it was not waited for yet");
        let group = GroupId { id: id.try_into().expect("process ids are positive"), gone: false };
        Ok(Self { group, child })
    }

    /// The process id of the leader, which is also the id of the group.
    pub fn id(&self) -> libc::pid_t {
        self.group.id
    }

    /// The write end of the leader's stdin, if it was piped and not taken yet.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// The read end of the leader's stdout, if it was piped and not taken yet.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// The read end of the leader's stderr, if it was piped and not taken yet.
    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Waits until the leader has exited. Its descendants may still run.
    pub async fn exited(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Kills the whole group now.
    pub fn kill(&mut self) {
        self.group.signal(libc::SIGKILL);
    }

    /// Ends the whole group, whose stdin was closed: waits `close` for the leader to exit, sends SIGTERM, waits
    /// `terminate`, and sends SIGKILL. Returns once all of the group is gone.
    pub async fn end(mut self, close: Duration, terminate: Duration) -> GroupEnd {
        let mut exited = timeout(close, self.child.wait()).await.is_ok();
        // SIGTERM also reaches descendants that an exited leader left behind.
        if !(exited && self.group.is_gone()) {
            let deadline = Instant::now() + terminate;
            self.group.signal(libc::SIGTERM);
            exited = timeout(terminate, self.child.wait()).await.is_ok();
            while exited && !self.group.is_gone() && Instant::now() < deadline {
                sleep(POLL).await;
            }
        }
        let end = if exited { GroupEnd::Exited } else { GroupEnd::Killed };
        self.kill_and_wait(exited).await;
        end
    }

    /// Kills the rest of a group whose leader has exited.
    pub async fn sweep(mut self) {
        self.kill_and_wait(true).await;
    }

    /// Leaves descendants of a leader that has exited running.
    pub fn release(mut self) {
        self.group.mark_gone();
    }

    async fn kill_and_wait(&mut self, mut exited: bool) {
        let deadline = Instant::now() + KILL_TIMEOUT;
        self.group.signal(libc::SIGKILL);
        if !exited {
            exited = timeout(KILL_TIMEOUT, self.child.wait()).await.is_ok();
        }
        while exited && !self.group.is_gone() && Instant::now() < deadline {
            sleep(POLL).await;
        }
        if !(exited && self.group.is_gone()) {
            log::error!("process group {} does not end although it was killed", self.group.id);
        }
        // The id may be reused once the leader was waited for.
        if exited {
            self.group.mark_gone();
        }
    }
}

impl GroupId {
    /// Sends a signal to the members that are left.
    fn signal(&self, signal: libc::c_int) {
        if !self.gone {
            // SAFETY: the call takes two numbers. The id is not reused while the leader was not waited for or the group
            // has a member, and the group is polled often enough for the ids not to wrap around in between.
            unsafe { libc::kill(-self.id, signal) };
        }
    }

    /// Returns whether no member is left. Valid only once the leader was waited for.
    fn is_gone(&mut self) -> bool {
        if !self.gone {
            // SAFETY: as above; signal 0 only checks. In a container this process may be the one that adopts orphans,
            // and then has to reap those of the group.
            let there = unsafe {
                while libc::waitpid(-self.id, std::ptr::null_mut(), libc::WNOHANG) > 0 {}
                libc::kill(-self.id, 0) == 0
            };
            if !there && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) {
                self.mark_gone();
            }
        }
        self.gone
    }

    /// Sends no more signals to this id, which may be reused.
    fn mark_gone(&mut self) {
        self.gone = true;
        GROUPS_TO_KILL.lock().remove(&self.id);
    }
}

impl Drop for GroupId {
    fn drop(&mut self) {
        self.signal(libc::SIGKILL);
        self.mark_gone();
    }
}

/// Kills every group that was started with [`OnParentDeath::Kill`], and starts no more. For the end of this process:
/// whoever holds a group on another thread may not come to drop it.
pub fn kill_all() {
    if let Some(spawner) = SPAWNER.get() {
        let (closed, answer) = mpsc::channel();
        if spawner.send(SpawnerRequest::Close(closed)).is_ok() {
            // A process that is just being started is among the groups after the answer.
            let _ = answer.recv_timeout(KILL_TIMEOUT);
        }
    }
    for id in &*GROUPS_TO_KILL.lock() {
        // SAFETY: the call takes two numbers. An id is reused at the earliest after its group was polled, and removed
        // then.
        unsafe { libc::kill(-id, libc::SIGKILL) };
    }
}

/// Starts a command in a session of its own and leaves it running. Returns its process id.
///
/// It outlives this process, and no signal to this process's group or terminal reaches it.
///
/// # Errors
///
/// Fails if the command cannot be run.
pub fn spawn_detached(mut command: Command) -> io::Result<u32> {
    let start_session = || {
        // SAFETY: it only makes a system call, which is allowed between fork and exec.
        match unsafe { libc::setsid() } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // SAFETY: `start_session` allocates nothing and takes no lock.
    unsafe { command.pre_exec(start_session) };
    file_mode::restore_in(&mut command);
    // tokio waits for a child that was dropped, so that it does not stay behind as a zombie.
    let child = command.spawn()?;
    Ok(child.id().expect("it was not waited for yet"))
}

/// Describes an exit in a sentence that begins with "it".
pub fn describe_exit(status: &io::Result<ExitStatus>) -> String {
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

/// Makes the kernel kill the process when the thread that started it ends.
#[cfg(target_os = "linux")]
fn kill_on_parent_death(command: &mut Command) {
    let parent = std::process::id();
    let prepare = move || {
        // SAFETY: both only make a system call, which is all that is allowed between fork and exec.
        let (asked, parent_now) = unsafe { (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL), libc::getppid()) };
        match asked {
            -1 => Err(io::Error::last_os_error()),
            // The parent died before the call.
            _ if u32::try_from(parent_now) != Ok(parent) => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            _ => Ok(()),
        }
    };
    // SAFETY: `prepare` allocates nothing and takes no lock.
    unsafe { command.pre_exec(prepare) };
}

/// The thread that starts processes, once there is one.
static SPAWNER: OnceLock<mpsc::Sender<SpawnerRequest>> = OnceLock::new();

/// A request to the thread that starts processes.
enum SpawnerRequest {
    Start(Box<SpawnRequest>),
    /// Refuse all further requests, and answer.
    Close(mpsc::Sender<()>),
}

/// A command to start on behalf of a runtime.
struct SpawnRequest {
    command: Command,
    runtime: runtime::Handle,
    started: oneshot::Sender<io::Result<ProcessGroup>>,
}

/// Starts a command from a thread that lasts as long as this process: the kernel takes the end of the thread that
/// forked for the death of the parent, and the threads of a runtime come and go.
async fn spawn_on_lasting_thread(command: Command) -> io::Result<ProcessGroup> {
    let gone = || io::Error::other("the thread that starts processes is gone");
    let spawner = match SPAWNER.get() {
        Some(spawner) => spawner,
        None => {
            let (sender, requests) = mpsc::channel();
            std::thread::Builder::new().name("svc-spawner".to_owned()).spawn(move || run_spawner(&requests))?;
            // If another thread was quicker, this one ends with its sender, before it has started anything.
            SPAWNER.get_or_init(|| sender)
        }
    };
    let (started, answer) = oneshot::channel();
    let request = SpawnRequest { command, runtime: runtime::Handle::current(), started };
    spawner.send(SpawnerRequest::Start(Box::new(request))).map_err(|_| gone())?;
    answer.await.map_err(|_| gone())?
}

fn run_spawner(requests: &mpsc::Receiver<SpawnerRequest>) {
    let mut is_open = true;
    while let Ok(request) = requests.recv() {
        match request {
            SpawnerRequest::Start(request) if is_open => perform(*request),
            SpawnerRequest::Start(request) => {
                let _ = request.started.send(Err(io::Error::other("this process is ending")));
            }
            SpawnerRequest::Close(closed) => {
                is_open = false;
                let _ = closed.send(());
            }
        }
    }
}

fn perform(SpawnRequest { mut command, runtime, started }: SpawnRequest) {
    if started.is_closed() {
        return;
    }
    let _entered = runtime.enter();
    // A panic fails this request alone. The thread must not end: its end would kill every child it has started.
    let group = catch_unwind(AssertUnwindSafe(|| ProcessGroup::start(&mut command)))
        .unwrap_or_else(|_| Err(io::Error::other("starting the process panicked")));
    if let Ok(group) = &group {
        GROUPS_TO_KILL.lock().insert(group.id());
    }
    // If the caller no longer waits, the group is dropped here, which kills it.
    let _ = started.send(group);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;
    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

    /// The variable that turns a test into a process that ends.
    const ENDING: &str = "SVC_TEST_ENDING";

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }

    /// Waits until every process that holds the pipe's write end is gone.
    async fn wait_for_end(mut pipe: impl tokio::io::AsyncRead + Unpin) {
        timeout(Duration::from_secs(30), pipe.read_to_end(&mut Vec::new())).await.expect("it ends").unwrap();
    }

    #[tokio::test]
    async fn a_dropped_group_is_killed_with_the_descendants_of_a_leader_that_has_exited() {
        for on_parent_death in [OnParentDeath::Kill, OnParentDeath::LeaveRunning] {
            // The leader exits at once; the rest of its group holds the pipe.
            let mut group = ProcessGroup::spawn(shell("sleep 1000 & echo started"), on_parent_death).await.unwrap();
            let mut output = BufReader::new(group.take_stdout().unwrap());
            output.read_line(&mut String::new()).await.unwrap();
            assert!(group.exited().await.unwrap().success());
            drop(group);
            wait_for_end(output).await;
        }
    }

    /// Does nothing by itself. The next test starts this program again for it: `kill_all` is the end of a process.
    #[tokio::test]
    async fn groups_of_a_process_that_is_ending() {
        if std::env::var_os(ENDING).is_none() {
            return;
        }
        let start = || ProcessGroup::spawn(shell("sleep 1000 & echo started; wait"), OnParentDeath::Kill);
        let mut group = start().await.unwrap();
        BufReader::new(group.take_stdout().unwrap()).read_line(&mut String::new()).await.unwrap();
        // As a thread that never comes to drop it.
        std::mem::forget(group);
        kill_all();
        assert_eq!(start().await.unwrap_err().to_string(), "this process is ending");
    }

    #[tokio::test]
    async fn a_process_that_ends_kills_the_groups_that_it_did_not_come_to_drop_and_starts_no_more() {
        let mut ending = Command::new(std::env::current_exe().unwrap());
        let job = "platform::process_group::tests::groups_of_a_process_that_is_ending";
        // The group inherits stderr: the output ends when all of the group is gone.
        let ended = ending.args([job, "--exact"]).env(ENDING, "1").output();
        let ended = timeout(Duration::from_secs(30), ended).await.expect("all of the group is killed").unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
    }

    #[tokio::test]
    async fn a_detached_process_leads_a_session_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let done = directory.path().join("done");
        let mut command = shell("read line < fifo; touch done");
        command.current_dir(directory.path()).stdout(Stdio::null());
        let made = Command::new("mkfifo").arg(directory.path().join("fifo")).status().await.unwrap();
        assert!(made.success());
        let id: libc::pid_t = spawn_detached(command).unwrap().try_into().unwrap();
        // SAFETY: both calls take and return numbers.
        let (session, own) = unsafe { (libc::getsid(id), libc::getsid(0)) };
        assert_eq!(session, id);
        assert_ne!(session, own);
        // It runs until it can read a line, although nothing here holds it.
        tokio::fs::write(directory.path().join("fifo"), "\n").await.unwrap();
        let ended = async {
            while !done.exists() {
                sleep(POLL).await;
            }
        };
        timeout(Duration::from_secs(30), ended).await.expect("it runs to its end");
    }

    #[test]
    fn a_panic_while_a_process_is_started_fails_that_one_alone() {
        // tokio panics where a process is started in a runtime without I/O.
        let without_io = runtime::Builder::new_current_thread().build().unwrap();
        let refused = without_io.block_on(ProcessGroup::spawn(Command::new("true"), OnParentDeath::Kill));
        assert!(refused.unwrap_err().to_string().contains("panicked"));
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let exited = runtime.block_on(async {
            let mut group = ProcessGroup::spawn(Command::new("true"), OnParentDeath::Kill).await?;
            group.exited().await
        });
        assert!(exited.unwrap().success());
    }
}
