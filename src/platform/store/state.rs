//! State that the handles of the store share with its writer thread.

use super::{Batch, StoreError};
use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::{mpsc, oneshot};

/// Reason of a store that stopped because a job panicked.
pub const JOB_PANICKED: &str = "a write job panicked";

/// Called with the result of the group's write.
pub type WriteCallback = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Gathers its writes into the batch of its group.
pub type Job = Box<dyn FnOnce(&mut Batch<'_>) -> WriteCallback + Send>;

/// Order to the writer thread.
pub enum WriterMessage {
    Job(Job),
    Stop(oneshot::Sender<()>),
}

pub struct StoreState {
    pub tree: sled::Db,
    pub jobs: mpsc::UnboundedSender<WriterMessage>,
    /// The reason of the write that failed, once one has.
    pub failure: OnceLock<String>,
    /// Set by the writer when less than `keep_free` is left; checked again by each write that is refused for it.
    pub short_of_room: AtomicBool,
    pub keep_free: u64,
    pub directory: PathBuf,
    /// Held for as long as the store is open; the file's content does not matter.
    pub _lock: File,
}

impl StoreState {
    pub fn is_short_of_room(&self) -> bool {
        let short = free_bytes(&self.directory).is_some_and(|free| free < self.keep_free);
        self.short_of_room.store(short, Ordering::Relaxed);
        short
    }
}

/// Bytes that an unprivileged process may still write on the disk under `path`; `None` if the system does not say.
fn free_bytes(path: &Path) -> Option<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut stat = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `path` ends in a NUL and `stat` has room for what is written, which is read only on success.
    let stat = unsafe {
        if libc::statvfs(path.as_ptr(), stat.as_mut_ptr()) != 0 {
            return None;
        }
        stat.assume_init()
    };
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}
