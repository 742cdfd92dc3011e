//! The folder of a database, and opening it with sled.

use super::{StoreOpenError, log_file, sled_sync};
use std::{
    fs::File,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Time for which sled's own lock is waited for: its threads hold it a moment longer than its handle.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_INTERVAL: Duration = Duration::from_millis(5);

/// Pages that sled keeps in memory. Rows come at one end and go at the other, so that few pages are in use at a time.
const CACHE: u64 = 24 << 20;

/// The folder of the database in a data directory.
pub fn path(directory: &Path) -> PathBuf {
    directory.join("sled")
}

/// The file that holds the rows.
pub fn file(database: &Path) -> PathBuf {
    database.join("db")
}

/// Opens the database in this folder with sled, creating it if need be.
pub fn open(database: &Path) -> Result<sled::Db, StoreOpenError> {
    prepare(database).map_err(|source| StoreOpenError::Directory { path: database.to_owned(), source })?;
    let options = sled::Config::new().path(database).cache_capacity(CACHE);
    let began = Instant::now();
    loop {
        // sled panics on damage that it does not expect.
        let error = match catch_unwind(AssertUnwindSafe(|| options.open())) {
            Ok(Ok(tree)) => return Ok(tree),
            Ok(Err(error)) => error,
            Err(_) => return Err(StoreOpenError::damaged(database, "the database engine failed while it read it")),
        };
        match error {
            sled::Error::Io(error) if is_locked(&error) && began.elapsed() < LOCK_TIMEOUT => {
                std::thread::sleep(LOCK_INTERVAL);
            }
            sled::Error::Io(source) => return Err(StoreOpenError::Directory { path: database.to_owned(), source }),
            error => return Err(StoreOpenError::damaged(database, &error.to_string())),
        }
    }
}

/// Puts what a killed process has left of a database on disk: sled takes everything that it can read for stable.
fn prepare(database: &Path) -> io::Result<()> {
    sled_sync::link();
    match File::open(file(database)) {
        Ok(file) => file.sync_data()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    log_file::settle_snapshots(database)
}

/// Puts everything in the folder, and the folder itself, on disk.
pub fn sync(database: &Path) -> io::Result<()> {
    for entry in database.read_dir()? {
        File::open(entry?.path())?.sync_all()?;
    }
    sync_folder(database)
}

/// Puts the names in a folder on disk.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Waits until sled has let go of the database, after its handle was dropped.
pub fn wait_until_closed(database: &Path) -> io::Result<()> {
    let file = File::open(file(database))?;
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(std::fs::TryLockError::WouldBlock) if began.elapsed() < LOCK_TIMEOUT => {
                std::thread::sleep(LOCK_INTERVAL);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_locked(error: &io::Error) -> bool {
    error.to_string().contains("could not acquire lock")
}
