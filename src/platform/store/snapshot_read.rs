//! Reading the whole store as of one group while later groups are written.
//!
//! A snapshot starts on the writer thread, between two groups. From then on the writer saves the old value of every key
//! that a group is about to change ([`super::snapshot_slot`]), unless the reader has passed that key already. The reader goes
//! through the tree in chunks and puts the saved values in place of those it finds. A value is saved before the change is
//! applied, so a reader that sees the change finds the old value too.
//!
//! Kinds are read in the order of [`LATE`]: small kinds whose rows change all the time come first, so that their changes
//! need not be saved for long. Rows behind the last key that a kind had at the start are new and never saved, which
//! covers rows under time-ordered keys. A piece of a large value is saved as long as its head has not been read.

use super::{
    Store, StoreError,
    chunked::{self, Framed, Value},
    keys, scan,
    snapshot_slot::{SAVED_BYTES, SavedKey, SavedValues},
    state::StoreState,
};
use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Included},
    sync::Arc,
};

/// Bounds of one chunk: rows, and bytes of values.
const CHUNK_ROWS: usize = 512;
const CHUNK_BYTES: usize = 1 << 20;

/// The kinds that are read last: they hold most of the data, and new rows come at their end.
const LATE: [u8; 3] = [keys::AUDIT, keys::DELIVERY, keys::EVENT];

/// Reason for which the store could not be read as a whole.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("another backup is being read: try again when it has ended")]
    Busy,
    #[error(
        "more than {} MiB of older records changed while the backup was read: make it when there is less load",
        SAVED_BYTES >> 20
    )]
    TooManyChanges,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The records of the store as of one group, in chunks. Dropping it ends the saving of old values.
pub struct Snapshot {
    state: Arc<StoreState>,
    /// The kinds to read with their last keys, in order.
    kinds: Vec<(u8, Value)>,
    /// The kind that is being read, and the last key of it that was.
    rank: usize,
    passed: Vec<u8>,
    _active: ActiveSnapshot,
}

/// One record: its key, and its value unless that is damaged.
pub type SnapshotRow = (Value, Result<Value, StoreError>);

/// Empties the slot when it is dropped.
struct ActiveSnapshot(Arc<StoreState>);

impl Store {
    /// Starts a snapshot of the store as of the last group that was written.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::Busy`] while there is another one.
    pub async fn snapshot(&self) -> Result<Snapshot, SnapshotError> {
        let state = self.state().clone();
        self.write(move |_| Snapshot::start(state)).await?
    }

    /// Tells if a snapshot is being read. Deletions that can wait should, because their old values are kept for it.
    pub fn has_snapshot(&self) -> bool {
        self.state().snapshot.is_active()
    }
}

impl Snapshot {
    /// Runs on the writer thread, before the writes of the group that it is part of.
    fn start(state: Arc<StoreState>) -> Result<Self, SnapshotError> {
        let mut kinds = Vec::new();
        for kind in 0..u8::MAX {
            if matches!(kind, keys::COMMIT | keys::PIECE) {
                continue;
            }
            if let Some(last) = state.range(vec![kind]..vec![kind + 1]).next_back() {
                kinds.push((kind, last.map_err(StoreError::unreadable)?.0));
            }
        }
        kinds.sort_by_key(|(kind, _)| LATE.iter().position(|late| late == kind).map_or(0, |at| at + 1));
        if !state.snapshot.begin(kinds.clone()) {
            return Err(SnapshotError::Busy);
        }
        Ok(Self { _active: ActiveSnapshot(state.clone()), state, kinds, rank: 0, passed: Vec::new() })
    }

    /// The next records; empty at the end.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::TooManyChanges`], or an error of the database. The snapshot is of no use then.
    pub fn next_chunk(&mut self) -> Result<Vec<SnapshotRow>, SnapshotError> {
        scan::guarded(|| Ok(self.read_chunk()))?
    }

    fn read_chunk(&mut self) -> Result<Vec<SnapshotRow>, SnapshotError> {
        while let Some((kind, last)) = self.kinds.get(self.rank).cloned() {
            let from = if self.passed.is_empty() { vec![kind] } else { self.passed.clone() };
            // The first key of a kind may be its one byte alone.
            let first = Value::from(&*from);
            let start = if self.passed.is_empty() { Included(first) } else { Excluded(first) };
            let mut rows = BTreeMap::new();
            let (mut bytes, mut end) = (0, last.to_vec());
            for entry in self.state.tree.range(start, Included(last.clone())) {
                let (key, raw) = entry.map_err(StoreError::unreadable)?;
                bytes += raw.len();
                let is_full = rows.len() + 1 == CHUNK_ROWS || bytes >= CHUNK_BYTES;
                if is_full {
                    end = key.to_vec();
                }
                rows.insert(key, raw);
                if is_full {
                    break;
                }
            }
            self.put_saved_rows(&from, &end, &mut rows)?;
            let (chunk, end) = self.assemble(rows, end)?;
            self.advance(end, &last)?;
            if !chunk.is_empty() {
                return Ok(chunk);
            }
        }
        Ok(Vec::new())
    }

    /// Replaces, adds and removes what has changed in the rows behind `from` up to `end`.
    fn put_saved_rows(&self, from: &[u8], end: &[u8], rows: &mut BTreeMap<Value, Value>) -> Result<(), SnapshotError> {
        let at = |key: &[u8]| SavedKey { rank: self.rank, key: key.to_vec(), piece: Vec::new() };
        self.with_saved(|saved| {
            for (key, old) in saved.rows(&at(from), &at(end)).filter(|(key, _)| *key != &*self.passed) {
                match old {
                    Some(old) => drop(rows.insert(Value::from(key), old.clone())),
                    None => drop(rows.remove(key)),
                }
            }
        })
    }

    /// The values of the rows, and the key up to which they were read: large values may end a chunk before `end`.
    fn assemble(
        &self,
        rows: BTreeMap<Value, Value>,
        end: Vec<u8>,
    ) -> Result<(Vec<SnapshotRow>, Vec<u8>), SnapshotError> {
        let mut chunk = Vec::with_capacity(rows.len());
        let mut bytes = 0;
        for (key, raw) in rows {
            let value = match chunked::read(&key, &raw) {
                Ok(Framed::Whole(value)) => Ok(value),
                Ok(Framed::Pieces(_)) => self.join(&key, raw)?,
                Err(error) => Err(error),
            };
            bytes += value.as_ref().map_or(0, |value| value.len());
            chunk.push((key, value));
            if bytes >= 2 * CHUNK_BYTES {
                let end = chunk.last().map_or(end, |(key, _)| key.to_vec());
                return Ok((chunk, end));
            }
        }
        Ok((chunk, end))
    }

    /// The value in pieces whose head is `head`.
    fn join(&self, key: &Value, head: Value) -> Result<Result<Value, StoreError>, SnapshotError> {
        let joined = chunked::get(key, |wanted| {
            if wanted == &**key {
                return Ok(Some(head.clone()));
            }
            let current = self.state.tree.get(wanted).map_err(StoreError::unreadable)?;
            // The piece is searched among the saved ones after the tree: it is saved before it leaves the tree.
            let at = SavedKey { rank: self.rank, key: key.to_vec(), piece: wanted.to_vec() };
            let saved = self.state.snapshot.with(|saved| saved.get(&at).cloned()).flatten();
            Ok(saved.unwrap_or(current))
        });
        match joined {
            Ok(Some(value)) => Ok(Ok(value)),
            Ok(None) => Ok(Err(StoreError::damaged(key, "it has no value"))),
            Err(error @ StoreError::Damaged { .. }) => {
                // Saved pieces that were given up for lack of room look like missing ones.
                self.with_saved(|_| ())?;
                Ok(Err(error))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Notes that everything up to `end` has been read.
    fn advance(&mut self, end: Vec<u8>, last: &[u8]) -> Result<(), SnapshotError> {
        (self.rank, self.passed) = if *end == *last { (self.rank + 1, Vec::new()) } else { (self.rank, end) };
        let (rank, passed) = (self.rank, self.passed.clone());
        self.with_saved(|saved| saved.advance(rank, passed))
    }

    fn with_saved<T>(&self, run: impl FnOnce(&mut SavedValues) -> T) -> Result<T, SnapshotError> {
        self.state.snapshot.with(run).ok_or(SnapshotError::TooManyChanges)
    }
}

impl Drop for ActiveSnapshot {
    fn drop(&mut self) {
        self.0.snapshot.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::store::{Batch, test_support::noise};
    use std::{
        collections::HashMap,
        sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        time::Duration,
    };
    use tempfile::TempDir;

    /// Pairs of rows, one of an early and one of a late kind, that every write changes together.
    const PAIRS: u64 = 900;

    fn pair(n: u64) -> (Vec<u8>, Vec<u8>) {
        let id = uuid::Uuid::from_u64_pair(n.wrapping_mul(0x9e37_79b9_7f4a_7c15), n);
        (keys::key(keys::SINKS, &[id.as_bytes()]), keys::key(keys::EVENT, &[id.as_bytes()]))
    }

    /// A value that tells the number of its write, in one to three pieces.
    fn value(write: u64) -> Vec<u8> {
        let length = [20, 300, chunked::PIECE, 3 * chunked::PIECE - 1][(write % 4) as usize];
        let mut value = format!("{write:020}").into_bytes();
        value.extend(noise(write, length - 20));
        value
    }

    fn number_of(value: &[u8]) -> u64 {
        assert_eq!(value, self::value(std::str::from_utf8(&value[..20]).unwrap().parse().unwrap()), "a mixed value");
        std::str::from_utf8(&value[..20]).unwrap().parse().unwrap()
    }

    fn change(batch: &mut Batch<'_>, n: u64, write: u64) {
        let (early, late) = pair(n);
        if write.is_multiple_of(7) {
            batch.delete(early);
            batch.delete(late);
        } else {
            batch.put(early, value(write));
            batch.put(late, value(write));
        }
    }

    async fn store() -> (TempDir, Store) {
        let directory = TempDir::new().unwrap();
        let store = Store::open(directory.path(), 0, Arc::default()).unwrap();
        (directory, store)
    }

    fn rows(chunk: Vec<SnapshotRow>) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
        chunk.into_iter().map(|(key, value)| (key.to_vec(), value.unwrap().to_vec()))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn a_snapshot_under_load_has_the_rows_of_exactly_one_group() {
        let (_directory, store) = store().await;
        store.write(|batch| (0..PAIRS).filter(|n| n % 3 > 0).for_each(|n| change(batch, n, n * 7 + 1))).await.unwrap();
        let (writes, stop) = (Arc::new(AtomicU64::new(100_000)), Arc::new(AtomicBool::new(false)));
        let load: Vec<_> = (0..3)
            .map(|_| {
                let (store, writes, stop) = (store.clone(), writes.clone(), stop.clone());
                tokio::spawn(async move {
                    while !stop.load(Relaxed) {
                        let write = writes.fetch_add(1, Relaxed);
                        let n = write.wrapping_mul(0x2545_f491_4f6c_dd1d) % (PAIRS + 50);
                        store.write(move |batch| change(batch, n, write)).await.unwrap();
                    }
                })
            })
            .collect();
        for _ in 0..3 {
            let before = writes.load(Relaxed);
            let mut snapshot = store.snapshot().await.unwrap();
            assert!(matches!(store.snapshot().await, Err(SnapshotError::Busy)));
            let counter = writes.clone();
            let read = tokio::task::spawn_blocking(move || {
                let mut found = HashMap::new();
                loop {
                    let chunk = snapshot.next_chunk().unwrap();
                    if chunk.is_empty() {
                        return found;
                    }
                    rows(chunk).for_each(|(key, value)| assert!(found.insert(key, value).is_none(), "twice"));
                    // Each chunk is read after more changes than the one before.
                    let seen = counter.load(Relaxed);
                    while counter.load(Relaxed) < seen + 30 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            });
            let found = read.await.unwrap();
            let mut newest = 0;
            for n in 0..PAIRS + 50 {
                let (early, late) = pair(n);
                let (early, late) = (found.get(&early), found.get(&late));
                assert_eq!(early.map(|value| number_of(value)), late.map(|value| number_of(value)), "pair {n}");
                newest = newest.max(early.map_or(0, |value| number_of(value)));
            }
            assert!(newest < before + 10, "nothing of after the start: {newest}, {before}");
            assert!(writes.load(Relaxed) > before + 100, "there was load");
        }
        stop.store(true, Relaxed);
        for load in load {
            load.await.unwrap();
        }
        assert!(!store.has_snapshot());
        store.close().await;
    }

    #[tokio::test]
    async fn values_written_before_the_start_are_in_the_snapshot_whatever_happens_to_them_later() {
        let (_directory, store) = store().await;
        let key = |name: &str| keys::key(keys::KV, &[name.as_bytes()]);
        let large = noise(7, 5 * chunked::PIECE);
        for (name, value) in [("changed", large.clone()), ("deleted", large.clone()), ("kept", b"v".to_vec())] {
            let key = key(name);
            store.write(move |batch| batch.put(key, value)).await.unwrap();
        }
        store.write(|batch| batch.put([keys::HISTORY], 5_u64.to_be_bytes())).await.unwrap();
        let mut snapshot = store.snapshot().await.unwrap();
        let (changed, new) = (key("changed"), key("between"));
        store
            .write(move |batch| {
                batch.put(changed, noise(8, 3 * chunked::PIECE));
                batch.delete_prefix(&keys::key(keys::KV, &[b"deleted"])).unwrap();
                batch.put(new, noise(9, 2 * chunked::PIECE));
                batch.put([keys::HISTORY], 6_u64.to_be_bytes());
            })
            .await
            .unwrap();
        let mut found = Vec::new();
        loop {
            let chunk = snapshot.next_chunk().unwrap();
            if chunk.is_empty() {
                break;
            }
            found.extend(rows(chunk));
        }
        let mut expected = vec![
            (vec![keys::HISTORY], 5_u64.to_be_bytes().to_vec()),
            (key("changed"), large.clone()),
            (key("deleted"), large),
            (key("kept"), b"v".to_vec()),
        ];
        expected.sort();
        found.sort();
        assert_eq!(found, expected);
        drop(snapshot);
        assert!(!store.has_snapshot() && store.snapshot().await.is_ok(), "the next one may start");
        store.close().await;
    }

    #[tokio::test]
    async fn new_rows_behind_the_last_key_of_their_kind_cost_no_memory() {
        let (_directory, store) = store().await;
        let key = |n: u8| keys::key(keys::EVENT, &[&[n; 16]]);
        store.write(move |batch| batch.put(key(1), b"old")).await.unwrap();
        let mut snapshot = store.snapshot().await.unwrap();
        let values = |store: &Store| store.state().snapshot.with(|saved| saved.len()).unwrap();
        store.write(move |batch| batch.put(key(2), vec![1; 5000])).await.unwrap();
        assert_eq!(values(&store), 0);
        store.write(move |batch| batch.put(key(1), b"new")).await.unwrap();
        assert_eq!(values(&store), 1);
        let found: Vec<_> = rows(snapshot.next_chunk().unwrap()).collect();
        assert_eq!(found, [(key(1), b"old".to_vec())]);
        assert_eq!(values(&store), 0, "the reader has passed it");
        drop(snapshot);
        store.close().await;
    }
}
