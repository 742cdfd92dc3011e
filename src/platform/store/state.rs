//! State that the handles of the store share with its writer thread.

use super::{
    buffered_tree::{BufferedTree, TreeRows},
    disk,
    inbox::Inbox,
    room::{LiveBytes, LiveGrowth, StoreRoom, StoreSizes},
    snapshot_slot::SnapshotSlot,
};
use parking_lot::Mutex;
use std::{
    fs::File,
    ops::{
        Bound::{Excluded, Included},
        Range,
    },
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio_util::sync::CancellationToken;

/// Reason of a store that stopped because a job panicked.
pub const JOB_PANICKED: &str = "a write job panicked";

/// The reason of a store that stopped because the step after a write panicked.
pub const ANSWER_PANICKED: &str = "the step after a write panicked";

pub struct StoreState {
    pub tree: Arc<BufferedTree>,
    pub inbox: Arc<Inbox>,
    /// Set by the writer when it takes no more jobs.
    pub closed: AtomicBool,
    /// The reason of the write that failed, once one has.
    pub failure: OnceLock<String>,
    /// Set by the writer when less than `keep_free` is left; checked again by each write that is refused for it.
    pub short_of_room: AtomicBool,
    pub keep_free: u64,
    /// Bytes of all rows, nearly.
    pub live: Mutex<LiveBytes>,
    /// Cancelled once a write has failed.
    pub stopped: CancellationToken,
    pub directory: PathBuf,
    /// Old values for the reader of the whole store, if there is one.
    pub snapshot: SnapshotSlot,
    /// Held for as long as the store is open; the file's content does not matter.
    pub _lock: File,
}

impl StoreState {
    /// Looks at the disk and keeps the result. Returns true if too little room is left.
    pub fn measure_room(&self) -> bool {
        let short = self.room().is_some_and(StoreRoom::is_short);
        self.short_of_room.store(short, Ordering::Relaxed);
        short
    }

    /// The room for new records; `None` if the system does not say.
    pub fn room(&self) -> Option<StoreRoom> {
        let free = disk::free_bytes(&self.directory)?;
        Some(StoreRoom { free, keep_free: self.keep_free, sizes: self.sizes() })
    }

    /// The rows from `range.start` to before `range.end`.
    pub fn range(&self, range: Range<Vec<u8>>) -> TreeRows {
        self.tree.range(Included(range.start.into()), Excluded(range.end.into()))
    }

    pub fn sizes(&self) -> StoreSizes {
        StoreSizes { live: *self.live.lock(), blocks: self.tree.block_sizes(), file: self.tree.file_bytes() }
    }

    /// Counts the rows of a group that was written.
    pub fn grow(&self, growth: LiveGrowth) {
        self.live.lock().grow(growth);
    }
}
