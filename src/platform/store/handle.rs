//! The handle to the store: opening the data directory, reads, and jobs for the writer thread.

use super::{
    Batch, StoreError, StoreOpenError,
    chunked::Value,
    inbox::{Inbox, InboxReader, WaitingJob, WriteCallback},
    open::{self, OpenDatabase, StoreOptions},
    room::{StoreRoom, StoreSizes},
    scan::{self, Scan},
    state::{JOB_PANICKED, StoreState},
    writer,
};
use crate::platform::metrics::Metrics;
use parking_lot::Mutex;
use std::{
    path::Path,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// A handle to the data directory. Cloning it is cheap.
#[derive(Clone)]
pub struct Store(Arc<StoreState>);

impl Store {
    /// Opens the data directory with the default options, except for the bytes of the disk to leave free.
    ///
    /// # Errors
    ///
    /// Fails as [`Store::open_with`] does.
    pub fn open(directory: &Path, keep_free: u64, metrics: Arc<Metrics>) -> Result<Self, StoreOpenError> {
        Self::open_with(directory, &StoreOptions { keep_free, ..StoreOptions::default() }, metrics)
    }

    /// Opens the database in `directory`, creating both if need be, and starts the writer.
    ///
    /// # Errors
    ///
    /// Fails if another process keeps the directory open, or the database cannot be opened. A database that is refused
    /// because of its format or damage is not changed.
    pub fn open_with(directory: &Path, options: &StoreOptions, metrics: Arc<Metrics>) -> Result<Self, StoreOpenError> {
        let OpenDatabase { tree, groups, live, lock } = open::open(directory, options)?;
        let inbox = Arc::<Inbox>::default();
        let state = Arc::new(StoreState {
            tree,
            inbox: inbox.clone(),
            closed: AtomicBool::new(false),
            failure: OnceLock::new(),
            stopped: CancellationToken::new(),
            short_of_room: AtomicBool::new(false),
            keep_free: options.keep_free,
            live: Mutex::new(live),
            directory: directory.to_owned(),
            snapshot: Default::default(),
            _lock: lock,
        });
        state.measure_room();
        writer::start(state.clone(), groups, InboxReader::new(inbox), metrics)
            .map_err(|source| StoreOpenError::Directory { path: directory.to_owned(), source })?;
        Ok(Self(state))
    }

    /// Runs `job` on the writer thread and returns its value once its writes are on disk.
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

    /// Like [`Store::write`], and runs `then` on the writer thread once the write is on disk: in the order of the jobs,
    /// and even if the caller has stopped waiting. It must not block.
    ///
    /// # Errors
    ///
    /// Nothing is written then, and `then` does not run.
    pub async fn write_then<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Batch<'_>) -> T + Send + 'static,
        then: impl FnOnce(&T) + Send + 'static,
    ) -> Result<T, StoreError> {
        if let Some(stopped) = self.failure() {
            return Err(stopped);
        }
        let (answer, answered) = oneshot::channel();
        self.send(move |batch| {
            let value = job(batch);
            Box::new(move |result| {
                if result.is_ok() {
                    then(&value);
                }
                // The write of a caller that has gone away stands.
                let _ = answer.send(result.map(|()| value));
            })
        });
        answered.await.unwrap_or_else(|_| {
            // The job was dropped unanswered: by a closed inbox, or by a panic that the writer is about to note.
            let dropped = if self.0.closed.load(Ordering::Acquire) {
                StoreError::Closing
            } else {
                StoreError::Stopped(JOB_PANICKED.to_owned())
            };
            Err(self.failure().unwrap_or(dropped))
        })
    }

    /// Refuses if the disk is short of room. Called before writes that add records; settlements, deletions and
    /// withdrawals of rights must pass, and the room that is kept free is kept for them.
    ///
    /// # Errors
    ///
    /// [`StoreError::DiskFull`], until there is room again.
    pub fn check_room(&self) -> Result<(), StoreError> {
        if self.0.short_of_room.load(Ordering::Relaxed) && self.0.measure_room() {
            return Err(StoreError::DiskFull);
        }
        Ok(())
    }

    /// Hands `job` to the writer without waiting for it. It is on disk with the next group that somebody waits for, or a little
    /// later. For settlements, which a crash may repeat.
    pub fn write_soon(&self, job: impl FnOnce(&mut Batch<'_>) + Send + 'static) {
        let job = move |batch: &mut Batch<'_>| -> WriteCallback {
            job(batch);
            Box::new(|_| {})
        };
        self.0.inbox.add(WaitingJob { job: Box::new(job), is_awaited: false });
    }

    /// The value under `key`, as of the last group that was written.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`] or [`StoreError::Unreadable`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        scan::get(&self.0.tree, key)
    }

    /// Every row whose key starts with `prefix`, in order; `rev()` reads backwards.
    pub fn scan(&self, prefix: &[u8]) -> impl DoubleEndedIterator<Item = Result<(Value, Value), StoreError>> + use<> {
        Scan::new(&self.0.tree, self.0.tree.scan_prefix(prefix))
    }

    /// Every row in a range, in order.
    pub fn range(
        &self,
        range: std::ops::Range<Vec<u8>>,
    ) -> impl DoubleEndedIterator<Item = Result<(Value, Value), StoreError>> + use<> {
        Scan::new(&self.0.tree, self.0.range(range))
    }

    /// Every key in a range, in order, without its value: for readers that go on past a damaged value, which they read
    /// with [`Store::get`].
    pub fn keys(
        &self,
        range: std::ops::Range<Vec<u8>>,
    ) -> impl DoubleEndedIterator<Item = Result<Value, StoreError>> + use<> {
        self.0.range(range).keys().map(|key| key.map_err(StoreError::unreadable))
    }

    /// [`StoreError::Stopped`] if a write has failed, after which every further one is refused.
    pub fn failure(&self) -> Option<StoreError> {
        self.0.failure.get().cloned().map(StoreError::Stopped)
    }

    /// Completes once a write has failed, after which every further one is refused.
    pub async fn stopped(&self) {
        self.0.stopped.cancelled().await;
    }

    /// True if the disk has less room than is kept free.
    pub fn is_short_of_room(&self) -> bool {
        self.0.measure_room()
    }

    /// The room for new records; `None` if the system does not say.
    pub fn room(&self) -> Option<StoreRoom> {
        self.0.room()
    }

    pub(super) fn state(&self) -> &Arc<StoreState> {
        &self.0
    }

    /// The sizes of the records and of the file that holds them.
    pub fn sizes(&self) -> StoreSizes {
        self.0.sizes()
    }

    /// The data directory.
    pub fn directory(&self) -> &Path {
        &self.0.directory
    }

    /// Writes the jobs that still wait and stops the writer. Later writes fail with [`StoreError::Closing`].
    pub async fn close(&self) {
        let (done, closed) = oneshot::channel();
        self.0.inbox.stop(done);
        // Nobody is told if the writer has ended.
        let _ = closed.await;
    }

    fn send(&self, job: impl FnOnce(&mut Batch<'_>) -> WriteCallback + Send + 'static) {
        // A closed inbox drops the job, and with it the answer its caller waits for.
        self.0.inbox.add(WaitingJob { job: Box::new(job), is_awaited: true });
    }
}

#[cfg(test)]
impl Store {
    /// Replaces the stored bytes under a key by some that are the value of no record.
    pub fn damage(&self, key: &[u8]) {
        let (done, written) = std::sync::mpsc::channel();
        let key = key.to_vec();
        self.send(move |batch| {
            batch.put_raw(key, b"\x09\xff");
            Box::new(move |_| done.send(()).unwrap())
        });
        written.recv().unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::platform::store::{Table, chunked, keys, test_support::noise};
    use std::io;
    use tempfile::TempDir;

    fn open(directory: &Path) -> Result<Store, StoreOpenError> {
        Store::open(directory, 0, Arc::default())
    }

    #[tokio::test]
    async fn a_second_opening_of_the_same_directory_is_refused_by_name() {
        let temporary = TempDir::new().unwrap();
        let directory = temporary.path();
        let first = open(directory).unwrap();
        let Err(StoreOpenError::InUse(path)) = open(directory) else { panic!("opened twice") };
        assert_eq!(path, directory);
        first.close().await;
    }

    #[tokio::test]
    async fn written_values_are_there_after_reopening() {
        let temporary = TempDir::new().unwrap();
        let directory = temporary.path();
        let store = open(directory).unwrap();
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
        let store = open(directory).unwrap();
        assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
        store.close().await;
    }

    #[tokio::test]
    async fn a_job_sees_the_writes_of_the_jobs_before_it() {
        let temporary = TempDir::new().unwrap();
        let directory = temporary.path();
        let store = open(directory).unwrap();
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
    }

    #[tokio::test]
    async fn a_disk_short_of_room_is_reported_and_unchecked_writes_still_pass() {
        let temporary = TempDir::new().unwrap();
        let directory = temporary.path();
        let store = Store::open(directory, u64::MAX, Arc::default()).unwrap();
        assert!(matches!(store.check_room(), Err(StoreError::DiskFull)));
        store.write(|batch| batch.put(b"k", b"v")).await.unwrap();
        store.close().await;
        assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    }

    #[tokio::test]
    async fn the_size_of_the_records_is_the_same_after_a_queue_was_emptied() {
        let directory = TempDir::new().unwrap();
        let store = open(directory.path()).unwrap();
        store.write(|batch| batch.put([keys::KV], b"v")).await.unwrap();
        let before = store.sizes().live.all;
        let key = |n: u64| keys::key(keys::QUEUE, &[&[7; 16], &n.to_be_bytes()]);
        // The accepted time and the id of an event.
        store.write(move |batch| (0..100).for_each(|n| batch.put(key(n), [7; 8 + 16]))).await.unwrap();
        assert!(store.sizes().live.all > before + 100 * (25 + 24), "{before} {:?}", store.sizes());
        store.write(move |batch| (0..100).for_each(|n| batch.delete(key(n)))).await.unwrap();
        assert_eq!(store.sizes().live.all, before);
        store.close().await;
    }

    #[tokio::test]
    async fn the_size_of_the_records_follows_what_comes_and_goes() {
        let directory = TempDir::new().unwrap();
        let store = open(directory.path()).unwrap();
        let empty = store.sizes().live.all;
        let key = |n: u8| keys::key(keys::KV, &[&[n]]);
        let put = |n: u8, length: usize| store.write(move |batch| batch.put(key(n), noise(n.into(), length)));
        for n in 0..10 {
            put(n, 1000).await.unwrap();
        }
        let full = store.sizes().live.all - empty;
        assert!((10_000..10_200).contains(&full), "{full}");
        put(0, 3 * chunked::PIECE).await.unwrap();
        put(0, 500).await.unwrap();
        let smaller = store.sizes().live.all - empty;
        assert_eq!(smaller, full - 500);
        store.write(|batch| batch.delete_prefix(&[keys::KV])).await.unwrap().unwrap();
        assert_eq!(store.sizes().live.all, empty);
        store.close().await;
    }

    #[tokio::test]
    async fn only_the_owner_can_look_into_the_directory() {
        use std::os::unix::fs::PermissionsExt;
        let temporary = TempDir::new().unwrap();
        let directory = temporary.path();
        std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755)).unwrap();
        let store = open(directory).unwrap();
        assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        store.close().await;
    }

    /// sled does not sync the files it puts large pages into, so there must be none.
    #[tokio::test]
    async fn large_values_come_back_whole_and_never_leave_the_synced_file() {
        let temporary = TempDir::new().unwrap();
        let directory = temporary.path();
        let store = open(directory).unwrap();
        let value = |n: usize, length: usize| -> Vec<u8> { noise(n as u64, length) };
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
    }

    #[tokio::test]
    async fn a_damaged_database_is_not_taken_for_an_empty_one() {
        let temporary = TempDir::new().unwrap();
        let directory = temporary.path();
        let store = open(directory).unwrap();
        for n in 0..20_u8 {
            store.write(move |batch| batch.put([b'k', n], vec![n; 3000])).await.unwrap();
        }
        store.close().await;
        drop(store);
        let file = directory.join("sled/db");
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[400..416].fill(0xff);
        std::fs::write(&file, bytes).unwrap();
        let Err(error) = open(directory) else { panic!("it opened as if nothing had happened") };
        let text = error.to_string();
        assert!(text.contains("damaged") && text.contains("backup"), "{text}");
    }

    #[tokio::test]
    async fn a_closed_store_refuses_writes_because_the_server_is_stopping() {
        let directory = TempDir::new().unwrap();
        let store = open(directory.path()).unwrap();
        store.close().await;
        let refused = store.write(|batch| batch.put(b"k", b"v")).await;
        assert!(matches!(refused, Err(StoreError::Closing)), "{refused:?}");
        assert!(store.failure().is_none(), "nothing has failed");
    }

    #[tokio::test]
    async fn a_job_that_panics_stops_the_store_until_it_is_reopened() {
        let directory = TempDir::new().unwrap();
        let store = open(directory.path()).unwrap();
        let stopped = store
            .write(|batch| {
                batch.put(b"k", b"half");
                panic!("in the middle of a job");
            })
            .await;
        assert!(matches!(&stopped, Err(StoreError::Stopped(reason)) if reason.contains("panicked")), "{stopped:?}");
        assert!(stopped.unwrap_err().to_string().contains("needs a restart"));
        assert!(matches!(store.write(|_| ()).await, Err(StoreError::Stopped(_))));
        assert!(matches!(store.failure(), Some(StoreError::Stopped(_))));
        store.close().await;
        drop(store);
        let store = open(directory.path()).unwrap();
        assert_eq!(store.get(b"k").unwrap(), None, "nothing of the group was written");
        store.write(|batch| batch.put(b"k", b"v")).await.unwrap();
        store.close().await;
    }

    #[tokio::test]
    async fn a_step_after_a_write_that_panics_stops_the_store_and_keeps_the_write() {
        let directory = TempDir::new().unwrap();
        let store = open(directory.path()).unwrap();
        let written = store.write_then(|batch| batch.put(b"k", b"v"), |()| panic!("after the write")).await;
        assert!(matches!(&written, Err(StoreError::Stopped(_))), "{written:?}");
        assert!(matches!(store.write(|_| ()).await, Err(StoreError::Stopped(_))));
        assert!(matches!(store.failure(), Some(StoreError::Stopped(_))));
        store.close().await;
        drop(store);
        let store = open(directory.path()).unwrap();
        assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
        store.close().await;
    }

    #[tokio::test]
    async fn a_damaged_record_names_itself_and_the_store_goes_on() {
        let directory = TempDir::new().unwrap();
        let store = open(directory.path()).unwrap();
        let id = uuid::Uuid::now_v7();
        let (damaged, sound) = (keys::key(keys::SINKS, &[id.as_bytes()]), keys::key(keys::SINKS, &[&[255; 16]]));
        store.0.tree.put([(damaged.clone(), Some(b"\x07no frame".to_vec()))].into());
        let read = store.get(&damaged).unwrap_err();
        let StoreError::Damaged { kind: "sink", key, .. } = &read else { panic!("{read:?}") };
        assert_eq!(*key, id.to_string());
        assert!(!read.to_string().contains("restart"), "{read}");
        let (key, other) = (damaged.clone(), sound.clone());
        let seen = store.write(move |batch| {
            batch.put(other, b"{}");
            batch.get(&key).map(|_| ())
        });
        assert!(matches!(seen.await, Ok(Err(StoreError::Damaged { .. }))), "only the job that reads it fails");
        assert!(store.get(&sound).unwrap().is_some() && store.failure().is_none());
        let records = Table::<u32>::new(keys::ROLES);
        store.write(|batch| batch.put(keys::key(keys::ROLES, &[b"1"]), b"no number")).await.unwrap();
        assert!(matches!(records.get(&store, b"1"), Err(StoreError::Damaged { kind: "role", .. })));
        store.close().await;
    }

    #[tokio::test]
    async fn a_damaged_record_can_be_replaced_and_deleted_without_leaving_pieces() {
        let directory = TempDir::new().unwrap();
        let store = open(directory.path()).unwrap();
        let key = |suffix: &[u8]| keys::key(keys::KV, &[b"k", suffix]);
        let pieces = |store: &Store| store.scan(&[keys::PIECE]).count();
        // The key of the other record begins with the damaged one's.
        for suffix in [&b""[..], b"longer"] {
            let key = key(suffix);
            store.write(move |batch| batch.put(key, noise(7, 2 * chunked::PIECE))).await.unwrap();
        }
        assert_eq!(pieces(&store), 4);
        store.0.tree.put([(key(b"").to_vec(), Some(b"\x09".to_vec()))].into());
        let (damaged, other) = (key(b""), key(b"other"));
        let (replaced, beside) = tokio::join!(
            store.write(move |batch| batch.put(damaged, b"new")),
            store.write(move |batch| batch.put(other, b"v"))
        );
        replaced.unwrap();
        beside.unwrap();
        assert_eq!(store.get(&key(b"")).unwrap().as_deref(), Some(&b"new"[..]));
        assert_eq!(pieces(&store), 2, "those of the neighbour");
        // A head that promises more pieces than any value has is damaged too.
        store
            .0
            .tree
            .put([(key(b"").to_vec(), Some([&[1][..], &[0; 8], &u32::MAX.to_be_bytes()].concat().to_vec()))].into());
        assert!(matches!(store.get(&key(b"")), Err(StoreError::Damaged { .. })));
        let damaged = key(b"");
        store.write(move |batch| batch.delete(damaged)).await.unwrap();
        assert_eq!(store.get(&key(b"")).unwrap(), None);
        assert_eq!(store.get(&key(b"longer")).unwrap().unwrap().len(), 2 * chunked::PIECE);
        store.close().await;
    }

    #[test]
    fn an_error_of_the_database_while_reading_asks_for_no_restart() {
        let error = StoreError::unreadable(sled::Error::Io(io::Error::other("a bad sector")));
        assert!(matches!(error, StoreError::Unreadable(_)));
        let text = error.to_string();
        assert!(text.contains("a bad sector") && !text.contains("restart"), "{text}");
    }
}
