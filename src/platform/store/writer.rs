//! The writer thread. It takes the jobs that wait, runs them in order against one batch, and makes that batch durable in
//! three steps, each needed: apply, `flush()`, and `sync_data()` on the database file, because sled's flush alone does
//! not survive a power cut on a growing file.

use super::{
    Batch, StoreError,
    commit_mark::CommitMark,
    keys,
    state::{JOB_PANICKED, StoreState, Urgency, WriterMessage},
};
use crate::platform::metrics::Metrics;
use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering, mpsc},
    time::{Duration, Instant},
};

/// Jobs in one group. More would only make the first of them wait longer.
const GROUP: usize = 1024;

/// The time for which a group that nobody waits for gathers jobs. A sync of the disk takes the place of many then.
const GATHER: Duration = Duration::from_millis(10);

/// Changed rows for which one unchanged row is written to help sled reuse freed space.
const CHANGES_PER_ASSIST: usize = 3;

/// Bytes after which a group is written even if more jobs wait.
const GROUP_BYTES: usize = 8 << 20;

pub(super) fn start(
    state: Arc<StoreState>,
    mark: CommitMark,
    inbox: mpsc::Receiver<WriterMessage>,
    metrics: Arc<Metrics>,
) -> io::Result<()> {
    std::thread::Builder::new().name("store".to_owned()).spawn(move || run(state, mark, inbox, &metrics))?;
    Ok(())
}

fn run(state: Arc<StoreState>, mut mark: CommitMark, inbox: mpsc::Receiver<WriterMessage>, metrics: &Metrics) {
    while let Ok(first) = inbox.recv() {
        let mut started = Instant::now();
        let gathered = started + GATHER;
        let mut urgency = Urgency::Soon;
        let mut batch = Batch::new(&state.tree);
        let mut answers = Vec::new();
        let mut next = Some(first);
        let mut stop = None;
        while let Some(message) = next.take() {
            match message {
                WriterMessage::Stop(done) => stop = Some(done),
                WriterMessage::Job(job, job_urgency) => {
                    if urgency == Urgency::Soon && job_urgency == Urgency::Now {
                        (urgency, started) = (Urgency::Now, Instant::now());
                    }
                    match catch_unwind(AssertUnwindSafe(|| job(&mut batch))) {
                        Ok(answer) => answers.push(answer),
                        // Half of its writes may be in the batch, so none of the group may be kept.
                        Err(_) => fail(&state, JOB_PANICKED),
                    }
                }
            }
            if answers.len() < GROUP && batch.bytes() < GROUP_BYTES && stop.is_none() {
                next = match urgency {
                    Urgency::Now => inbox.try_recv().ok(),
                    Urgency::Soon => inbox.recv_timeout(gathered.saturating_duration_since(Instant::now())).ok(),
                };
            }
        }
        if urgency == Urgency::Soon {
            started = Instant::now();
        }
        let jobs = answers.len();
        let result = commit(&state, &mut mark, batch);
        for answer in answers {
            answer(result.clone());
        }
        metrics.flushed(jobs, started.elapsed());
        if let Some(done) = stop {
            state.closed.store(true, Ordering::Release);
            // Jobs that came after the stop are dropped unanswered, which fails their callers.
            drop(inbox);
            // The caller may open the directory again, so this thread must no longer hold it.
            drop(state);
            let _ = done.send(());
            return;
        }
        state.is_short_of_room();
    }
}

/// Makes the batch durable. A failure is final, because sled cannot be trusted after one.
fn commit(state: &StoreState, mark: &mut CommitMark, batch: Batch<'_>) -> Result<(), StoreError> {
    if state.failure.get().is_none() {
        // sled panics on some damage that it meets.
        match catch_unwind(AssertUnwindSafe(|| write(state, mark, batch))) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => fail(state, &error.to_string()),
            Err(_) => fail(state, "the database engine failed during a write"),
        }
    }
    match state.failure.get() {
        Some(reason) => Err(StoreError::Stopped(reason.clone())),
        None => Ok(()),
    }
}

fn write(state: &StoreState, mark: &mut CommitMark, batch: Batch<'_>) -> io::Result<()> {
    let (growth, digest) = (batch.growth(), batch.digest());
    let changes = batch.changed_keys().count();
    state.snapshot.save(&state.tree, batch.changed_keys())?;
    let Some(mut writes) = batch.into_writes().map_err(io::Error::other)? else { return Ok(()) };
    assist_cleaning(&state.tree, changes)?;
    let (key, number) = mark.next(digest);
    writes.insert(&key, number);
    state.tree.apply_batch(writes)?;
    state.tree.flush()?;
    state.file.sync_data()?;
    state.grow(growth);
    // The next group makes up for a failure.
    let _ = mark.note();
    Ok(())
}

/// Makes sled reuse freed space as fast as the group takes new space.
///
/// sled empties a segment of its file that is half unused by moving one page each time it rewrites a page as a whole,
/// which is once in ten changes of the page. That is too seldom under load, and the file grows to several times its data. A
/// small row that is written again, unchanged, for every few changes adds the rewrites that are missing.
fn assist_cleaning(tree: &sled::Db, changes: usize) -> io::Result<()> {
    let key = [keys::COMMIT];
    let Some(number) = tree.get(key)? else { return Ok(()) };
    for _ in 0..changes / CHANGES_PER_ASSIST {
        tree.insert(key, number.clone())?;
    }
    Ok(())
}

fn fail(state: &StoreState, reason: &str) {
    if state.failure.set(reason.to_owned()).is_ok() {
        log::error!("the store stops: {reason}");
        state.stopped.cancel();
    }
}
