//! The one thread that writes. It takes whatever jobs wait, runs them in order against one batch, and
//! makes that batch durable in three steps, each needed: apply, `flush()`, and `sync_data()` on the
//! database file, because sled's flush alone does not survive a power cut on a growing file.

use super::{
    Shared, StoreError, Value,
    chunked::{self, Framed},
    commit_mark::Mark,
    keys,
};
use crate::platform::metrics::Metrics;
use std::{
    collections::HashMap,
    fs::File,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Instant,
};
use tokio::sync::{mpsc, oneshot};

/// Jobs in one group. More would only make the first of them wait longer.
const GROUP: usize = 1024;

/// Bytes after which a group is written even if more jobs wait.
const GROUP_BYTES: usize = 8 << 20;

pub(super) type Answer = Box<dyn FnOnce(Result<(), StoreError>) + Send>;
pub(super) type Job = Box<dyn FnOnce(&mut Batch<'_>) -> Answer + Send>;

pub(super) enum Message {
    Job(Job),
    Stop(oneshot::Sender<()>),
}

/// The writes of one group, with those already made in sight.
pub struct Batch<'a> {
    tree: &'a sled::Db,
    writes: HashMap<Vec<u8>, Option<Vec<u8>>>,
    bytes: usize,
    /// What went wrong while the writes were gathered.
    fault: Option<StoreError>,
}

impl Batch<'_> {
    /// Puts a value under a key, over whatever was there.
    pub fn put(&mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        let (key, value) = (key.into(), value.into());
        self.drop_pieces(&key);
        self.bytes += value.len();
        self.writes.extend(chunked::writes(key, value).into_iter().map(|(key, value)| (key, Some(value))));
    }

    /// Removes a key, if it is there.
    pub fn delete(&mut self, key: impl Into<Vec<u8>>) {
        let key = key.into();
        self.drop_pieces(&key);
        self.writes.insert(key, None);
    }

    /// What is under a key now, the group's own writes included.
    ///
    /// # Errors
    ///
    /// Fails if the database cannot be read.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        chunked::get(key, |key| self.raw(key))
    }

    /// Every key on disk that starts with `prefix`, in order, less what the group deleted. What the group itself put
    /// is not among them.
    pub fn keys(&self, prefix: &[u8]) -> impl Iterator<Item = Result<Value, StoreError>> + '_ {
        self.tree
            .scan_prefix(prefix)
            .keys()
            .map(|key| key.map_err(|error| StoreError::Failed(error.to_string())))
            .filter(|key| !matches!(key, Ok(key) if self.writes.get(&**key).is_some_and(Option::is_none)))
    }

    /// Removes every key that starts with `prefix`, the group's own writes included, and says how many there were.
    ///
    /// # Errors
    ///
    /// Fails if the database cannot be read.
    pub fn delete_prefix(&mut self, prefix: &[u8]) -> Result<usize, StoreError> {
        self.delete_raw(&keys::key(keys::PIECE, &[prefix]))?;
        self.delete_raw(prefix)
    }

    fn delete_raw(&mut self, prefix: &[u8]) -> Result<usize, StoreError> {
        let mut found = 0;
        for (_, value) in self.writes.iter_mut().filter(|(key, _)| key.starts_with(prefix)) {
            found += usize::from(value.take().is_some());
        }
        for key in self.tree.scan_prefix(prefix).keys() {
            let key = key.map_err(|error| StoreError::Failed(error.to_string()))?;
            found += usize::from(self.writes.insert(key.to_vec(), None).is_none());
        }
        Ok(found)
    }

    /// What is under a key as it is stored.
    fn raw(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        match self.writes.get(key) {
            Some(value) => Ok(value.as_deref().map(Value::from)),
            None => self.tree.get(key).map_err(|error| StoreError::Failed(error.to_string())),
        }
    }

    /// Removes the pieces of the value under `key`, if it is in pieces.
    fn drop_pieces(&mut self, key: &[u8]) {
        if keys::is_small(key) {
            return;
        }
        let framed = self.raw(key).and_then(|raw| raw.map(|raw| chunked::read(key, raw)).transpose());
        match framed {
            Ok(Some(Framed::Pieces(head))) => self.writes.extend(head.keys(key).map(|key| (key, None))),
            Ok(Some(Framed::Whole(_)) | None) => {}
            // The group is not written then: a job cannot answer for what it could not read.
            Err(error) => self.fault = Some(error),
        }
    }
}

pub(super) fn start(
    shared: Arc<Shared>,
    database: File,
    mark: Mark,
    inbox: mpsc::UnboundedReceiver<Message>,
    metrics: Arc<Metrics>,
) -> io::Result<()> {
    std::thread::Builder::new()
        .name("store".to_owned())
        .spawn(move || run(shared, &database, mark, inbox, &metrics))?;
    Ok(())
}

fn run(
    shared: Arc<Shared>,
    database: &File,
    mut mark: Mark,
    mut inbox: mpsc::UnboundedReceiver<Message>,
    metrics: &Metrics,
) {
    while let Some(first) = inbox.blocking_recv() {
        let started = Instant::now();
        let mut batch = Batch { tree: &shared.tree, writes: HashMap::new(), bytes: 0, fault: None };
        let mut answers = Vec::new();
        let mut next = Some(first);
        let mut stop = None;
        while let Some(message) = next.take() {
            match message {
                Message::Stop(done) => stop = Some(done),
                Message::Job(job) => match catch_unwind(AssertUnwindSafe(|| job(&mut batch))) {
                    Ok(answer) => answers.push(answer),
                    Err(_) => {
                        // Half of its writes may be in the batch, so none of the group may be kept.
                        let _ = shared.failure.set("a write job panicked".to_owned());
                    }
                },
            }
            if answers.len() < GROUP && batch.bytes < GROUP_BYTES && stop.is_none() {
                next = inbox.try_recv().ok();
            }
        }
        let jobs = answers.len();
        let result = match shared.failure.get() {
            Some(reason) => Err(StoreError::Failed(reason.clone())),
            None => commit(&shared, database, &mut mark, batch),
        };
        if let Err(StoreError::Failed(reason)) = &result
            && shared.failure.set(reason.clone()).is_ok()
        {
            log::error!("the store stops: {reason}");
        }
        for answer in answers {
            answer(result.clone());
        }
        metrics.flushed(jobs, started.elapsed());
        if let Some(done) = stop {
            inbox.close();
            // Jobs that came after the stop are dropped unanswered, which fails their callers.
            while inbox.try_recv().is_ok() {}
            if shared.failure.get().is_none()
                && let Err(error) = mark.note()
            {
                log::warn!("how far the database got could not be noted: {error}");
            }
            // Whoever waits may open the directory again, so this thread must no longer hold it.
            drop(shared);
            let _ = done.send(());
            return;
        }
        shared.is_short_of_room();
    }
}

fn commit(shared: &Shared, database: &File, mark: &mut Mark, batch: Batch<'_>) -> Result<(), StoreError> {
    if let Some(fault) = batch.fault {
        return Err(fault);
    }
    if batch.writes.is_empty() {
        return Ok(());
    }
    let mut writes = sled::Batch::default();
    for (key, value) in batch.writes {
        match value {
            Some(value) => writes.insert(key, value),
            None => writes.remove(key),
        }
    }
    let (key, number) = mark.next();
    writes.insert(&key, &number);
    let fault = |error: &dyn std::fmt::Display| StoreError::Failed(error.to_string());
    shared.tree.apply_batch(writes).map_err(|error| fault(&error))?;
    shared.tree.flush().map_err(|error| fault(&error))?;
    database.sync_data().map_err(|error| fault(&error))?;
    mark.committed();
    Ok(())
}
