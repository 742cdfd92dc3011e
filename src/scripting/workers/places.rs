//! The places of worker processes: how many there are, and for whom.
//!
//! A worker belongs to one owner until it ends. Templates, scripts and filters have workers of their own, and scripts
//! cannot take all places: a script may wait for long, the others never do.

use crate::{
    model::owner::Owner,
    scripting::lua::{FILTER_BUDGET, RunLimits},
};
use std::{fmt, time::Duration};

/// The most filters of one run. The filters of an owner for one event are one run, or several if there are more of
/// them.
pub(super) const MAX_FILTERS: usize = 32;

/// The events of one owner whose filters run, or wait for a worker, at the same time.
pub(super) const EVENTS_PER_OWNER: usize = 64;

/// The least default number of workers, whatever the memory.
const MIN_WORKERS: usize = 4;

/// The memory that this process and its children may use, in a container; `max` or absent without a limit.
const CGROUP_MEMORY: &str = "/sys/fs/cgroup/memory.max";

/// Whose code a worker runs, and on whose behalf. They differ only for a tool that one owner wrote and another runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct WorkerKey {
    /// The owner of the code, its libraries and its `kv`.
    pub code_owner: Owner,
    /// The owner whose rights it has otherwise, and whose places it takes.
    pub acts_for: Owner,
}

/// The kind of runs that a worker has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum WorkerClass {
    /// Runs that never wait: templates, and compilations.
    Template,
    /// Runs that may wait: scripts and tools.
    Script,
    /// Filters, which decide while an event is routed. A slow template of the same owner must not hold them up.
    Filter,
}

/// A kind of worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct WorkerPlace {
    pub key: WorkerKey,
    pub class: WorkerClass,
}

/// The bounds of the pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolBounds {
    /// Workers of all kinds.
    pub workers: usize,
    /// Workers for scripts. The rest of the places is left to templates.
    pub script_workers: usize,
    /// Workers of one kind for one owner.
    pub per_owner: usize,
    /// Runs in progress in one worker, waiting ones included. Each holds a Lua state.
    pub runs: usize,
    /// Turns that a worker is given before another worker is started or waited for.
    pub turns: usize,
    /// Runs that wait for a worker.
    pub queue: usize,
    /// Runs of one owner that wait for a worker.
    pub queue_per_owner: usize,
    /// Runs of one owner that may wait however many of others do.
    pub assured_per_owner: usize,
}

impl WorkerKey {
    /// The key of the programs that an owner runs for itself.
    pub fn of_owner(owner: Owner) -> Self {
        Self { code_owner: owner, acts_for: owner }
    }
}

impl WorkerClass {
    /// The limits of one run in a worker of this class, if a script has these.
    pub fn limits(self, script: RunLimits) -> RunLimits {
        match self {
            Self::Template | Self::Script => script,
            Self::Filter => {
                let cpu = FILTER_BUDGET * MAX_FILTERS as u32;
                RunLimits { cpu, wall: Duration::from_secs(1), memory: script.memory }
            }
        }
    }
}

impl PoolBounds {
    /// The runs in progress in one worker of this class, waiting ones included.
    pub fn runs(&self, class: WorkerClass) -> usize {
        match class {
            WorkerClass::Template | WorkerClass::Script => self.runs,
            // They are short, never wait, and share a Lua state.
            WorkerClass::Filter => EVENTS_PER_OWNER,
        }
    }

    /// The turns that a worker of this class is given before another worker is started or waited for.
    pub fn turns(&self, class: WorkerClass) -> usize {
        match class {
            WorkerClass::Template | WorkerClass::Script => self.turns,
            WorkerClass::Filter => EVENTS_PER_OWNER,
        }
    }

    /// The bounds for this many workers of `worker_memory` bytes each; 0 means a number by the machine's cores and
    /// memory.
    pub fn new(workers: usize, worker_memory: usize) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let workers = match workers {
            0 => default_workers(cores, machine_memory(), worker_memory),
            workers => workers.max(2),
        };
        let script_workers = workers - (workers / 4).max(1);
        let per_owner = (cores / 2).clamp(1, script_workers);
        Self {
            workers,
            script_workers,
            per_owner,
            runs: 16,
            turns: 4,
            queue: 1024,
            queue_per_owner: 256,
            assured_per_owner: 16,
        }
    }
}

/// The number of workers for a machine: sixteen for each core, and at most as many as half of the memory holds.
fn default_workers(cores: usize, memory: usize, worker_memory: usize) -> usize {
    let fitting = (memory / 2).checked_div(worker_memory).unwrap_or(usize::MAX);
    (cores * 16).clamp(16, 128).min(fitting.max(MIN_WORKERS))
}

/// The bytes of memory that the machine has, or that its container may use.
fn machine_memory() -> usize {
    // SAFETY: the calls take a number.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    let bytes = usize::try_from(pages).ok().zip(usize::try_from(size).ok()).map(|(pages, size)| pages * size);
    let allowed = std::fs::read_to_string(CGROUP_MEMORY).ok().and_then(|text| text.trim().parse().ok());
    bytes.unwrap_or(usize::MAX).min(allowed.unwrap_or(usize::MAX))
}

impl fmt::Display for WorkerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.acts_for {
            Owner::Global => f.write_str("the global owner"),
            Owner::User(user) => write!(f, "the user {user}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_workers_together_take_at_most_half_of_the_memory() {
        const MIB: usize = 1 << 20;
        for (cores, memory, workers) in
            [(2, 16 << 10, 32), (2, 4 << 10, 10), (64, 256 << 10, 128), (1, 256 << 10, 16), (8, 512, 4)]
        {
            assert_eq!(default_workers(cores, memory * MIB, 192 * MIB), workers, "{cores} cores, {memory} MiB");
        }
        assert_eq!(PoolBounds::new(3, 192 * MIB).workers, 3, "a setting counts as it is");
        assert!(PoolBounds::new(0, usize::MAX).workers == 4 && machine_memory() > 64 * MIB);
    }
}
