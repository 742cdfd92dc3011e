//! The lock of a data directory: one server, or one command on its database, at a time.

use super::StoreOpenError;
use std::{
    fs::{File, TryLockError},
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Time for which the directory's lock is waited for. A process that has just closed it may have been starting a child,
/// which holds a copy of the lock until it runs its program.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
const LOCK_INTERVAL: Duration = Duration::from_millis(5);

/// The file whose lock is that of a data directory.
pub fn lock_file(directory: &Path) -> PathBuf {
    directory.join("lock")
}

/// Takes the lock of a data directory, which is held for as long as the file is open.
///
/// # Errors
///
/// [`StoreOpenError::InUse`] while a server uses it.
pub fn lock(directory: &Path) -> Result<File, StoreOpenError> {
    let failed = |source| StoreOpenError::Directory { path: directory.to_owned(), source };
    take_lock(File::create(lock_file(directory)).map_err(failed)?, directory, File::try_lock)
}

/// Takes the lock of a data directory to read its database. Nothing is written: a directory without a lock file has had no
/// server, and may be one that cannot be written.
///
/// # Errors
///
/// [`StoreOpenError::InUse`] while a server uses it.
pub fn lock_to_read(directory: &Path) -> Result<Option<File>, StoreOpenError> {
    match File::open(lock_file(directory)) {
        // A shared lock needs no file that can be written, on any file system.
        Ok(file) => take_lock(file, directory, File::try_lock_shared).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(StoreOpenError::Directory { path: directory.to_owned(), source }),
    }
}

fn take_lock(
    lock: File,
    directory: &Path,
    try_lock: fn(&File) -> Result<(), TryLockError>,
) -> Result<File, StoreOpenError> {
    let began = Instant::now();
    loop {
        match try_lock(&lock) {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) if began.elapsed() < LOCK_TIMEOUT => std::thread::sleep(LOCK_INTERVAL),
            Err(TryLockError::WouldBlock) => return Err(StoreOpenError::InUse(directory.to_owned())),
            Err(TryLockError::Error(source)) => {
                return Err(StoreOpenError::Directory { path: directory.to_owned(), source });
            }
        }
    }
}
