//! A server under test: a child process with a temporary directory, and the operations that the works need.

use crate::work::Body;
use std::{
    collections::HashMap,
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

pub trait Server: Sync {
    fn process(&self) -> &Process;

    /// A connection of its own.
    fn emitter(&self) -> Box<dyn Emitter>;

    /// Creates a sink that matches every event and delivers none.
    fn create_inactive_sink(&self);

    /// Creates webhooks that all match the events of emitters.
    fn create_webhooks(&self, sinks: usize, url: &str, body: Body);
}

pub trait Emitter {
    /// Emits one event and waits until the server confirms it.
    fn emit(&mut self);
}

/// A running child process. Dropping it kills the process with its descendants and removes the directory.
pub struct Process {
    child: Child,
    _directory: TempDir,
}

impl Process {
    /// Starts a binary in a temporary directory without the variables of this benchmark; `configure` gets the path of
    /// the directory.
    pub fn start(binary: &Path, configure: impl FnOnce(&mut Command, &Path)) -> Self {
        let directory = tempfile::Builder::new().prefix("svc-peers-").tempdir();
        let directory = directory.expect("the temporary directory is writable");
        let mut command = Command::new(binary);
        for variable in ["SVC_PEER_SVC", "SVC_PEER_KNOT", "SVC_PEER_NATS", "SVC_PEER_OUTPOST"] {
            command.env_remove(variable);
        }
        command.current_dir(&directory).env("HOME", directory.path()).stdout(Stdio::null()).stderr(Stdio::null());
        configure(&mut command, directory.path());
        let child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", binary.display()));
        Self { child, _directory: directory }
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub fn signal(&self, signal: i32) {
        send(self.child.id(), signal);
    }

    /// Waits until the process listens.
    pub fn await_listener(&mut self, address: SocketAddr) {
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "nothing listens on {address}");
            let exited = self.child.try_wait().expect("the child can be waited for");
            assert!(exited.is_none(), "the server that was to listen on {address} ended: {exited:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Processor time of the process and its descendants so far, in microseconds.
    pub fn cpu_micros(&self) -> f64 {
        // The kernel counts in hundredths of a second.
        self.family().iter().map(|(_, ticks)| ticks).sum::<f64>() * 1e4
    }

    /// The ids of the process and its descendants, each with its clock ticks.
    fn family(&self) -> Vec<(u32, f64)> {
        let entries = fs::read_dir("/proc").expect("/proc is mounted").filter_map(Result::ok);
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let processes: HashMap<u32, (u32, f64)> = pids.filter_map(|pid| Some((pid, stat(pid)?))).collect();
        let root = self.child.id();
        let is_descendant = |mut pid: u32| {
            while pid != root {
                match processes.get(&pid) {
                    Some((parent, _)) => pid = *parent,
                    None => return false,
                }
            }
            true
        };
        let family = processes.iter().filter(|(pid, _)| is_descendant(**pid));
        family.map(|(pid, (_, ticks))| (*pid, *ticks)).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The id of a process that has been waited for may belong to another.
        if self.child.try_wait().is_ok_and(|exited| exited.is_none()) {
            for (pid, _) in self.family() {
                send(pid, libc::SIGKILL);
            }
            let _ = self.child.wait();
        }
    }
}

/// Sends a signal to a process, if it still runs.
fn send(pid: u32, signal: i32) {
    let pid = pid.try_into().expect("the kernel's ids are positive");
    // SAFETY: the call takes two numbers and touches no memory of this process.
    unsafe { libc::kill(pid, signal) };
}

/// The parent of a process, and the clock ticks that it and its ended children took.
fn stat(pid: u32) -> Option<(u32, f64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program may contain spaces and parentheses.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ticks: Option<f64> = (11..15).map(|index| fields.get(index)?.parse::<f64>().ok()).sum();
    Some((fields.get(1)?.parse().ok()?, ticks?))
}

/// An address on loopback that is free now, for servers that cannot choose a port themselves.
pub fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    listener.local_addr().expect("the listener is bound")
}

/// The first line that `--version` prints.
pub fn version(binary: &Path) -> String {
    let output = Command::new(binary).arg("--version").output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", binary.display()));
    String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or("unknown version").to_owned()
}
