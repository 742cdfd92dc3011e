//! Syncs of sled's file that a power cut does not undo.
//!
//! On Linux sled calls `sync_file_range` after each write of its log, and takes the write for stable then: the headers of later
//! segments say so, and segments that it made obsolete are written over. But that function leaves the cache of the disk and the
//! size of the file unwritten. After a power cut a header may then call a segment complete that never reached the disk, and
//! sled would drop the whole log. So sled finds the function below under that name, which the linker prefers to libc's.

#[cfg(target_os = "linux")]
use std::{
    ffi::{c_int, c_uint},
    io,
};

/// Bytes of a write that the system keeps as one page of its cache.
#[cfg(target_os = "linux")]
const PAGE: i64 = 4096;

/// Puts the whole file on disk, and lets the system forget what a large write left in its cache: newer ones keep that as large pages, and write
/// one of half a megabyte again for each small write into it, which sled follows up with. sled has a cache of its own.
#[cfg(target_os = "linux")]
#[unsafe(no_mangle)]
extern "C" fn sync_file_range(file: c_int, offset: i64, bytes: i64, _flags: c_uint) -> c_int {
    loop {
        // SAFETY: the call takes a number, and fails if it is not that of an open file.
        let result = unsafe { libc::fdatasync(file) };
        if result == 0 {
            if bytes > PAGE {
                // SAFETY: the call takes numbers. It is advice, and a failure costs only time.
                unsafe { libc::posix_fadvise(file, offset, bytes, libc::POSIX_FADV_DONTNEED) };
            }
            return result;
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return result;
        }
    }
}

/// Makes the function part of every program that opens a database: the linker leaves out what nothing refers to.
pub fn link() {
    #[cfg(target_os = "linux")]
    std::hint::black_box(sync_file_range as extern "C" fn(_, _, _, _) -> _);
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn the_function_of_that_name_is_the_one_that_syncs_the_file() {
        assert_eq!(libc::sync_file_range as *const (), super::sync_file_range as *const ());
    }
}
