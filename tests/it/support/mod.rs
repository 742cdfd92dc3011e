//! Shared by all tests of the whole program: a daemon in a temporary directory on a free port, spaces with their
//! agents, and a receiver that records its requests. Tests wait for conditions, never for a fixed time.

pub mod clients;
mod daemon;
mod files;
mod linked_agent;
mod random;
mod receiver;
mod space;

pub use daemon::{Daemon, Refusal, Reply};
pub use files::files;
pub use linked_agent::LinkedAgent;
pub use random::Random;
pub use receiver::{Answer, Received, Receiver};
pub use space::{Space, registration};

use std::{
    process::Output,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

/// Time that a condition may take before the test fails. Generous, because the machine may be busy.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until `condition` returns a value.
#[track_caller]
pub fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited {TEST_TIMEOUT:?} for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a check for each number below `count`, on several threads at a time.
pub fn in_parallel(threads: usize, count: usize, check: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    check(number);
                }
            });
        }
    });
}

/// The output of a command that must have succeeded.
#[track_caller]
pub fn success(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    stdout(output)
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("output is text")
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns true if a process has ended, even if its parent has not waited for it.
pub fn ended(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.map_or(true, |stat| stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('Z')))
}
