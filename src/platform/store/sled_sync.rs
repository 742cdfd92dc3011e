//! Syncs of sled's file that a power cut does not undo.
//!
//! sled calls `sync_file_range` after each write of its log, and takes the write for stable then: the headers of later segments say
//! so, and segments that it made obsolete are written over. But that function leaves the cache of the disk and the size of the
//! file unwritten. After a power cut a header may then call a segment complete that never reached the disk, and sled would drop
//! the whole log. So sled finds the function below under that name, which is the linker's first choice before libc's.

#[cfg(target_os = "linux")]
use std::ffi::{c_int, c_uint};

/// Puts the whole file on disk.
#[cfg(target_os = "linux")]
#[unsafe(no_mangle)]
extern "C" fn sync_file_range(file: c_int, _offset: i64, _bytes: i64, _flags: c_uint) -> c_int {
    // SAFETY: the call takes a number, and fails if it is not that of an open file.
    unsafe { libc::fdatasync(file) }
}

/// Makes the function part of every program that opens a database: the linker leaves out what nothing refers to.
pub fn link() {
    #[cfg(target_os = "linux")]
    std::hint::black_box(sync_file_range as extern "C" fn(_, _, _, _) -> _);
}
