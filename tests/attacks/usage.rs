//! Memory, processor time, threads and disk of the daemon and of all its worker processes.

use crate::support::Daemon;
use std::{
    os::unix::fs::MetadataExt as _,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// Memory at one moment.
#[derive(Clone, Copy)]
pub struct Usage {
    pub daemon_kib: u64,
    /// The memory of the workers that is not part of the program's file, which they share with the daemon.
    pub workers_kib: u64,
}

/// A measurement of processor time that has begun.
pub struct ProcessorShare {
    since: Instant,
    daemon: Duration,
    workers: Duration,
}

/// Shares of one core, in percent.
pub struct Shares {
    pub daemon: u32,
    pub workers: u32,
}

impl Usage {
    pub fn of(daemon: &Daemon) -> Self {
        Self { daemon_kib: daemon.memory(), workers_kib: daemon.workers().into_iter().map(own_memory).sum() }
    }

    /// The larger of each.
    pub fn max(self, other: Self) -> Self {
        Self { daemon_kib: self.daemon_kib.max(other.daemon_kib), workers_kib: self.workers_kib.max(other.workers_kib) }
    }
}

impl ProcessorShare {
    pub fn start(daemon: &Daemon) -> Self {
        let running: Duration = daemon.workers().into_iter().filter_map(times).map(|(own, _)| own).sum();
        let (own, ended) = times(u64::from(daemon.pid())).expect("the daemon runs");
        Self { since: Instant::now(), daemon: own, workers: running + ended }
    }

    pub fn end(self, daemon: &Daemon) -> Shares {
        let now = Self::start(daemon);
        let elapsed = self.since.elapsed();
        // A worker that has just ended counts again once the daemon has waited for it, so that the sum may fall for a
        // moment.
        let percent = |used: Duration| (100.0 * used.as_secs_f64() / elapsed.as_secs_f64()) as u32;
        Shares {
            daemon: percent(now.daemon.saturating_sub(self.daemon)),
            workers: percent(now.workers.saturating_sub(self.workers)),
        }
    }

    /// The share of the daemon and its workers together over this time, in percent.
    pub fn over(daemon: &Daemon, time: Duration) -> u32 {
        let share = Self::start(daemon);
        thread::sleep(time);
        let Shares { daemon, workers } = share.end(daemon);
        daemon + workers
    }
}

/// The number of the daemon's threads.
pub fn threads(daemon: &Daemon) -> usize {
    std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).expect("the daemon runs").count()
}

/// Bytes that the files of a directory take on disk.
pub fn disk(directory: &Path) -> u64 {
    let entries = directory.read_dir().into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| {
        let file = entry.metadata().ok()?;
        Some(if file.is_dir() { disk(&entry.path()) } else { file.blocks() * 512 })
    });
    sizes.sum()
}

/// The processor time of a process, and that of its children that have ended, in steps of 10 ms; `None` if it is gone.
fn times(pid: u64) -> Option<(Duration, Duration)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ").expect("the name of the process is in parentheses");
    // User and system time are the fields 14 and 15, those of the children 16 and 17; the rest begins with field 3.
    let ticks: Vec<u64> = fields.split(' ').skip(11).take(4).map(|ticks| ticks.parse().expect("a number")).collect();
    let sum = |ticks: &[u64]| Duration::from_millis(10 * ticks.iter().sum::<u64>());
    Some((sum(&ticks[..2]), sum(&ticks[2..])))
}

/// Anonymous memory of a process in KiB; nothing if it has ended.
fn own_memory(pid: u64) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}
