//! Everything durable, in one sled tree with one-byte key prefixes ([`keys`]). No other module names sled.
//!
//! Reads go straight to the tree. Writes are jobs for one writer thread ([`writer`]), which gathers
//! whatever waits into one batch, puts it on disk, and only then answers. A job runs alone, after
//! every job before it and with their writes in sight, so that check-then-write needs no lock.
//!
//! A failed write is final: sled cannot be trusted after one. The store then refuses every further
//! write, says why ([`Store::failure`]), and waits to be reopened by a restart. A disk that is merely
//! getting full is noticed before that, and refused only until there is room again.

mod change;
mod chunked;
mod commit_mark;
mod keyed_mutex;
pub mod keys;
mod table;
mod writer;

pub use change::Change;
pub use keyed_mutex::Lanes;
pub use table::Table;
pub use writer::Batch;

use crate::platform::metrics::Metrics;
use chunked::Framed;
use commit_mark::Mark;
use std::{
    fs::{File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::{mpsc, oneshot};

/// How long the directory's lock is waited for, and how often it is asked for. A process that has just closed it may
/// have been starting a child, which holds a copy of the lock until it runs its program.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// A handle to the data directory. Cloning it is cheap.
#[derive(Clone)]
pub struct Store(Arc<Shared>);

struct Shared {
    tree: sled::Db,
    jobs: mpsc::UnboundedSender<writer::Message>,
    failure: OnceLock<String>,
    /// Set by the writer when less than `keep_free` is left; re-checked by whoever is refused for it.
    short_of_room: AtomicBool,
    keep_free: u64,
    directory: PathBuf,
    /// Held for as long as the store is open; the file's content does not matter.
    _lock: File,
}

/// Why a data directory could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot use data directory {}: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("data directory {} is in use by another svc server: stop it, or give this one its own with --data", .0.display())]
    InUse(PathBuf),
    #[error(
        "the database in {} is damaged: it ends at write {stored}, and the server had got to {noted}. Restore a backup, \
         or delete the file `mark` there to go on with what is left",
        path.display()
    )]
    Damaged { path: PathBuf, stored: u64, noted: u64 },
    #[error("cannot open the database in {}: {reason}", path.display())]
    Database { path: PathBuf, reason: String },
}

/// Why something was not written or read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Nothing was written; the same write may succeed once there is room.
    #[error("the disk under the data directory is almost full: free some space")]
    DiskFull,
    /// Final until a restart.
    #[error("the store has stopped after an error and needs a restart: {0}")]
    Failed(String),
}

/// A value as the store holds it.
pub type Value = sled::IVec;

impl Store {
    /// Opens the database in `directory`, creating both if need be, and starts the writer.
    ///
    /// # Errors
    ///
    /// Fails if another process has the directory open, and still has after a moment.
    pub fn open(directory: &Path, keep_free: u64, metrics: Arc<Metrics>) -> Result<Self, OpenError> {
        let wrong = |source| OpenError::Directory { path: directory.to_owned(), source };
        private_directory(directory).map_err(wrong)?;
        let lock = File::create(directory.join("lock")).map_err(wrong)?;
        let began = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if began.elapsed() < LOCK_PATIENCE => std::thread::sleep(LOCK_PAUSE),
                Err(TryLockError::WouldBlock) => return Err(OpenError::InUse(directory.to_owned())),
                Err(TryLockError::Error(source)) => return Err(wrong(source)),
            }
        }
        let path = directory.join("sled");
        let broken = |reason: String| OpenError::Database { path: path.clone(), reason };
        let options = sled::Config::new().path(&path).cache_capacity(64 << 20);
        let tree = loop {
            match options.open() {
                Ok(tree) => break tree,
                // sled locks its file too, and its threads hold it a moment longer than its handle.
                Err(sled::Error::Io(_)) if began.elapsed() < LOCK_PATIENCE => std::thread::sleep(LOCK_PAUSE),
                Err(error) => return Err(broken(error.to_string())),
            }
        };
        let database = File::open(path.join("db")).map_err(|error| broken(error.to_string()))?;
        let mark = Mark::open(directory, &tree)?;
        let (jobs, inbox) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            tree,
            jobs,
            failure: OnceLock::new(),
            short_of_room: AtomicBool::new(false),
            keep_free,
            directory: directory.to_owned(),
            _lock: lock,
        });
        shared.is_short_of_room();
        writer::start(shared.clone(), database, mark, inbox, metrics).map_err(wrong)?;
        Ok(Self(shared))
    }

    /// Runs `job` on the writer thread and returns its value once what it put is on disk.
    ///
    /// # Errors
    ///
    /// Nothing is written then.
    pub async fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Batch<'_>) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        self.write_then(job, |_| ()).await
    }

    /// As [`Store::write`], and once the write is on disk runs `then` on the writer thread: in the order of the
    /// jobs, and even if the caller has stopped waiting. It must not block.
    ///
    /// # Errors
    ///
    /// Nothing is written then, and `then` does not run.
    pub async fn write_then<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Batch<'_>) -> T + Send + 'static,
        then: impl FnOnce(&T) + Send + 'static,
    ) -> Result<T, StoreError> {
        self.check()?;
        let (answer, answered) = oneshot::channel();
        self.send(move |batch| {
            let value = job(batch);
            Box::new(move |result| {
                if result.is_ok() {
                    then(&value);
                }
                // A caller that has gone away is told nothing; its write stands.
                let _ = answer.send(result.map(|()| value));
            })
        });
        answered.await.unwrap_or_else(|_| Err(self.stopped()))
    }

    /// Refuses if the disk is short of room. For writes that bring something new; what settles, deletes or takes rights
    /// away must pass, and the room that is kept free is kept for it.
    ///
    /// # Errors
    ///
    /// [`StoreError::DiskFull`], until there is room again.
    pub fn check_room(&self) -> Result<(), StoreError> {
        if self.0.short_of_room.load(Ordering::Relaxed) && self.0.is_short_of_room() {
            return Err(StoreError::DiskFull);
        }
        Ok(())
    }

    /// Hands `job` to the writer; nobody waits. For settlements, which a crash may repeat.
    pub fn write_soon(&self, job: impl FnOnce(&mut Batch<'_>) + Send + 'static) {
        self.send(move |batch| {
            job(batch);
            Box::new(|_| {})
        });
    }

    /// The value under `key`, as of the last group that was written.
    ///
    /// # Errors
    ///
    /// Fails if the database cannot be read.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        chunked::get(key, |key| self.0.tree.get(key).map_err(|error| StoreError::Failed(error.to_string())))
    }

    /// Every key that starts with `prefix`, in order; `rev()` reads it backwards.
    pub fn scan(&self, prefix: &[u8]) -> impl DoubleEndedIterator<Item = Result<(Value, Value), StoreError>> + use<> {
        self.readable(self.0.tree.scan_prefix(prefix))
    }

    /// Every key in a range, in order.
    pub fn range(
        &self,
        range: std::ops::Range<Vec<u8>>,
    ) -> impl DoubleEndedIterator<Item = Result<(Value, Value), StoreError>> + use<> {
        self.readable(self.0.tree.range(range))
    }

    /// Why the store stopped, if it did.
    pub fn failure(&self) -> Option<&str> {
        self.0.failure.get().map(String::as_str)
    }

    /// Whether the disk has less room than is kept free.
    pub fn is_short_of_room(&self) -> bool {
        self.0.is_short_of_room()
    }

    /// Where the data is.
    pub fn directory(&self) -> &Path {
        &self.0.directory
    }

    /// Writes what is still waiting and stops the writer. Later writes fail.
    pub async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.0.jobs.send(writer::Message::Stop(done)).is_ok() {
            let _ = closed.await;
        }
    }

    fn readable(
        &self,
        iter: sled::Iter,
    ) -> impl DoubleEndedIterator<Item = Result<(Value, Value), StoreError>> + use<> {
        let store = self.clone();
        iter.filter_map(move |entry| {
            let (key, raw) = match entry {
                Ok(entry) => entry,
                Err(error) => return Some(Err(StoreError::Failed(error.to_string()))),
            };
            let value = match chunked::read(&key, raw) {
                Ok(Framed::Whole(value)) => Ok(Some(value)),
                Ok(Framed::Pieces(_)) => store.get(&key),
                Err(error) => Err(error),
            };
            // A value that is gone by the time its pieces are read is as good as never seen.
            value.transpose().map(|value| Ok((key, value?)))
        })
    }

    fn send(&self, job: impl FnOnce(&mut Batch<'_>) -> writer::Answer + Send + 'static) {
        // A closed channel drops the job, and with it the answer its caller waits for.
        let _ = self.0.jobs.send(writer::Message::Job(Box::new(job)));
    }

    fn check(&self) -> Result<(), StoreError> {
        match self.0.failure.get() {
            Some(_) => Err(self.stopped()),
            None => Ok(()),
        }
    }

    fn stopped(&self) -> StoreError {
        StoreError::Failed(self.failure().unwrap_or("the writer has stopped").to_owned())
    }
}

impl Shared {
    fn is_short_of_room(&self) -> bool {
        let short = free_bytes(&self.directory).is_some_and(|free| free < self.keep_free);
        self.short_of_room.store(short, Ordering::Relaxed);
        short
    }
}

/// Runs a change to its end: memory and disk must not part because whoever asked for it hung up between them.
///
/// # Errors
///
/// Those of the change, and that the server stops before it has ended.
pub async fn carried_through<T, E>(change: impl Future<Output = Result<T, E>> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: From<StoreError> + Send + 'static,
{
    match tokio::spawn(change).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(StoreError::Failed("the server is stopping".to_owned()).into()),
        },
    }
}

/// Makes the directory, and sees to it that only we can look inside: it holds webhook secrets and payloads.
fn private_directory(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(directory)?;
    let mut permissions = std::fs::metadata(directory)?.permissions();
    if permissions.mode() & 0o077 != 0 {
        permissions.set_mode(permissions.mode() & !0o077);
        std::fs::set_permissions(directory, permissions)?;
    }
    Ok(())
}

/// What an unprivileged process may still write on the disk under `path`; `None` if the system does not say.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch() -> PathBuf {
        std::env::temp_dir().join(format!("svc-store-{}", uuid::Uuid::now_v7()))
    }

    fn open(directory: &Path) -> Result<Store, OpenError> {
        Store::open(directory, 0, Arc::default())
    }

    #[tokio::test]
    async fn a_second_opening_of_the_same_directory_is_refused_by_name() {
        let directory = scratch();
        let first = open(&directory).unwrap();
        let Err(OpenError::InUse(path)) = open(&directory) else { panic!("opened twice") };
        assert_eq!(path, directory);
        first.close().await;
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[tokio::test]
    async fn what_was_written_is_there_after_reopening() {
        let directory = scratch();
        let store = open(&directory).unwrap();
        let old = store
            .write(|batch| {
                let old = batch.get(b"k").unwrap();
                batch.put(b"k", b"v");
                old
            })
            .await
            .unwrap();
        assert_eq!(old, None);
        store.close().await;
        assert!(store.write(|_| ()).await.is_err(), "a closed store takes nothing");
        drop(store);
        let store = open(&directory).unwrap();
        assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
        store.close().await;
        drop(store);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[tokio::test]
    async fn a_job_sees_the_writes_of_the_jobs_before_it() {
        let directory = scratch();
        let store = open(&directory).unwrap();
        let mut waits = Vec::new();
        for _ in 0..100 {
            let store = store.clone();
            waits.push(tokio::spawn(async move {
                store
                    .write(|batch| {
                        let count = batch.get(b"n").unwrap().map_or(0, |value| value[0]);
                        batch.put(b"n", [count + 1]);
                    })
                    .await
            }));
        }
        for wait in waits {
            wait.await.unwrap().unwrap();
        }
        assert_eq!(store.get(b"n").unwrap().as_deref(), Some(&[100][..]));
        store.close().await;
        drop(store);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[tokio::test]
    async fn a_disk_short_of_room_is_told_and_still_takes_what_must_pass() {
        let directory = scratch();
        let store = Store::open(&directory, u64::MAX, Arc::default()).unwrap();
        assert!(matches!(store.check_room(), Err(StoreError::DiskFull)));
        store.write(|batch| batch.put(b"k", b"v")).await.unwrap();
        store.close().await;
        assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
        drop(store);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[tokio::test]
    async fn only_the_owner_can_look_into_the_directory() {
        use std::os::unix::fs::PermissionsExt;
        let directory = scratch();
        std::fs::create_dir(&directory).unwrap();
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).unwrap();
        let store = open(&directory).unwrap();
        assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        store.close().await;
        drop(store);
        std::fs::remove_dir_all(directory).unwrap();
    }

    /// sled does not sync the files it puts large pages into, so there must be none.
    #[tokio::test]
    async fn large_values_come_back_whole_and_never_leave_the_synced_file() {
        let directory = scratch();
        let store = open(&directory).unwrap();
        let value = |n: usize, length: usize| -> Vec<u8> { (0..length).map(|k| (k * 31 + n) as u8).collect() };
        let lengths = [0, 1, chunked::PIECE, chunked::PIECE + 1, 3 * chunked::PIECE, 300_000];
        for round in 0..3 {
            for n in 0..40 {
                let length = lengths[(n + round) % lengths.len()];
                store
                    .write(move |batch| batch.put(keys::key(keys::KV, &[&[n as u8]]), value(n, length)))
                    .await
                    .unwrap();
            }
        }
        for n in 0..40 {
            let expected = value(n, lengths[(n + 2) % lengths.len()]);
            assert_eq!(store.get(&keys::key(keys::KV, &[&[n as u8]])).unwrap().unwrap(), expected, "{n}");
        }
        let scanned: Vec<usize> = store.scan(&[keys::KV]).map(|entry| entry.unwrap().1.len()).collect();
        assert_eq!(scanned, (0..40).map(|n| lengths[(n + 2) % lengths.len()]).collect::<Vec<_>>());
        let removed = store.write(|batch| batch.delete_prefix(&[keys::KV])).await.unwrap().unwrap();
        assert_eq!(removed, 40);
        assert_eq!(store.scan(&[keys::KV]).count() + store.scan(&[keys::PIECE]).count(), 0, "no piece is left behind");
        store.close().await;
        let blobs = std::fs::read_dir(directory.join("sled/blobs")).map_or(0, Iterator::count);
        assert_eq!(blobs, 0, "sled made files of its own for large pages");
        drop(store);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[tokio::test]
    async fn a_damaged_database_is_not_taken_for_an_empty_one() {
        let directory = scratch();
        let store = open(&directory).unwrap();
        for n in 0..20_u8 {
            store.write(move |batch| batch.put([b'k', n], vec![n; 3000])).await.unwrap();
        }
        store.close().await;
        drop(store);
        let file = directory.join("sled/db");
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[400..416].fill(0xff);
        std::fs::write(&file, bytes).unwrap();
        let Err(error) = open(&directory) else { panic!("it opened as if nothing had happened") };
        let text = error.to_string();
        assert!(text.contains("damaged") && text.contains("backup"), "{text}");
        std::fs::remove_dir_all(directory).unwrap();
    }
}
