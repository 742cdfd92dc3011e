//! The places of worker processes: how many there are, and for whom.
//!
//! A worker belongs to one owner until it ends. Templates and scripts have workers of their own, and scripts cannot take
//! all places: a script may wait for long, a template never does.

use crate::model::owner::Owner;
use std::fmt;

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

impl PoolBounds {
    /// The bounds for this many workers; 0 means a number by the machine's cores.
    pub fn new(workers: usize) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let workers = match workers {
            0 => (cores * 16).clamp(16, 128),
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

impl fmt::Display for WorkerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.acts_for {
            Owner::Global => f.write_str("the global owner"),
            Owner::User(user) => write!(f, "the user {user}"),
        }
    }
}
