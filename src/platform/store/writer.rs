//! The writer thread. It takes the jobs that wait, runs them in order against one batch, puts that batch on disk as a record
//! of the [`Journal`], and answers.

use super::{
    Batch, StoreError,
    commit_mark::CommitMark,
    inbox::{InboxReader, WaitingJob},
    journal::Journal,
    state::{ANSWER_PANICKED, JOB_PANICKED, StoreState},
};
use crate::platform::metrics::Metrics;
use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

/// Jobs in one group. More would only make the first of them wait longer.
const GROUP: usize = 1024;

/// The time for which a group waits for the next of the callers that it expects, and for all of them.
const NEXT_CALLER: Duration = Duration::from_micros(200);
const ALL_CALLERS: Duration = Duration::from_micros(500);

/// Bytes after which a group is written even if more jobs wait.
const GROUP_BYTES: usize = 8 << 20;

/// The time between two looks at the free room of the disk while groups are written.
const ROOM_LOOK: Duration = Duration::from_millis(20);

pub(super) fn start(
    state: Arc<StoreState>,
    groups: GroupLog,
    inbox: InboxReader,
    metrics: Arc<Metrics>,
) -> io::Result<()> {
    std::thread::Builder::new().name("store".to_owned()).spawn(move || run(state, groups, inbox, &metrics))?;
    Ok(())
}

/// The files beside sled's that record each group.
pub(super) struct GroupLog {
    pub mark: CommitMark,
    pub journal: Journal,
}

fn run(state: Arc<StoreState>, mut groups: GroupLog, mut inbox: InboxReader, metrics: &Metrics) {
    make_timers_exact();
    let mut expected: usize = 0;
    let mut room_seen = Instant::now();
    while let Some(first) = inbox.first() {
        let started = Instant::now();
        let mut batch = Batch::new(&state.tree);
        let mut answers = Vec::new();
        let (mut next, mut callers) = (Some(first), 0);
        // The time until which the next caller is waited for, and that for all of them.
        let (mut next_ends, mut all_end) = (None, None);
        while let Some(WaitingJob { job, is_awaited }) = next.take() {
            if is_awaited {
                callers += 1;
                let now = Instant::now();
                next_ends = Some(now + NEXT_CALLER);
                all_end = all_end.or(Some(now + ALL_CALLERS));
            }
            match catch_unwind(AssertUnwindSafe(|| job(&mut batch))) {
                Ok(answer) => answers.push(answer),
                // Half of its writes may be in the batch, so none of the group may be kept.
                Err(_) => fail(&state, JOB_PANICKED),
            }
            if answers.len() < GROUP && batch.bytes() < GROUP_BYTES {
                let ends = next_ends.min(all_end).filter(|_| callers < expected);
                let wait = ends.map_or(Duration::ZERO, |ends| ends.saturating_duration_since(Instant::now()));
                next = inbox.next_within(wait, expected.saturating_sub(callers));
            }
        }
        let jobs = answers.len();
        let result = commit(&state, &mut groups, batch);
        expected = expected_callers(callers, expected, inbox.awaited());
        for answer in answers {
            // What is on disk is not in memory then.
            if catch_unwind(AssertUnwindSafe(|| answer(result.clone()))).is_err() {
                fail(&state, ANSWER_PANICKED);
            }
        }
        metrics.flushed(jobs, started.elapsed());
        if room_seen.elapsed() >= ROOM_LOOK {
            state.measure_room();
            room_seen = Instant::now();
        }
    }
    state.closed.store(true, Ordering::Release);
    if state.failure.get().is_none() {
        end(&state, groups);
    }
    // Jobs that came after the stop are dropped unanswered, which fails their callers.
    let done = inbox.close();
    // The caller may open the directory again, so this thread must no longer hold it.
    drop(state);
    for done in done {
        let _ = done.send(());
    }
}

/// The callers that the next group waits for, so that one sync takes the place of many: those of this group, who may be back soon after
/// their answers, and those who have come meanwhile. A caller who is alone waits for nobody.
///
/// If this group had fewer than it `expected`, some do not come back, and the next one waits for no more than these.
fn expected_callers(callers: usize, expected: usize, meanwhile: usize) -> usize {
    if callers < expected { callers } else { callers + meanwhile }
}

/// Lets this thread sleep for a few microseconds. The system adds fifty to every sleep otherwise.
fn make_timers_exact() {
    #[cfg(target_os = "linux")]
    // SAFETY: the option takes one number. It fails on no kernel that has it, and a failure costs only time.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1_000);
    }
}

/// Makes the batch durable. A failure is final, because sled cannot be trusted after one.
fn commit(state: &StoreState, groups: &mut GroupLog, batch: Batch<'_>) -> Result<(), StoreError> {
    if state.failure.get().is_none() {
        // sled panics on some damage that it meets.
        match catch_unwind(AssertUnwindSafe(|| write(state, groups, batch))) {
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

fn write(state: &StoreState, groups: &mut GroupLog, batch: Batch<'_>) -> io::Result<()> {
    let (growth, digest) = (batch.growth(), batch.digest());
    let GroupLog { mark, journal } = groups;
    state.snapshot.save(&state.tree, batch.changed_keys())?;
    let mut changes = batch.into_changes().map_err(io::Error::other)?;
    if changes.is_empty() {
        return Ok(());
    }
    let (key, commit) = mark.next(digest);
    changes.insert(key.into(), Some(commit));
    journal.append(mark.number(), changes)?;
    state.grow(growth);
    // The next group makes up for a failure.
    let _ = mark.note();
    Ok(())
}

/// Puts everything into sled's file. The journal is kept if that fails, and the next start reads it.
fn end(state: &StoreState, groups: GroupLog) {
    let GroupLog { mark, journal } = groups;
    // Without a journal nothing else tells of a loss at the end of sled's file. sled panics on some damage that it meets.
    match catch_unwind(AssertUnwindSafe(|| journal.end(|| mark.note().and_then(|()| mark.sync())))) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => log::warn!("the journal in {} is kept: {error}", state.directory.display()),
        Err(_) => log::warn!("the journal in {} is kept: the database engine failed", state.directory.display()),
    }
}

fn fail(state: &StoreState, reason: &str) {
    if state.failure.set(reason.to_owned()).is_ok() {
        log::error!("the store stops: {reason}");
        state.stopped.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_who_is_alone_waits_for_nobody() {
        assert!(expected_callers(1, 0, 0) <= 1);
        assert!(expected_callers(1, 1, 0) <= 1);
    }

    #[test]
    fn callers_in_turns_are_brought_together_and_those_who_stay_away_are_waited_for_once() {
        // Four write while the other four wait.
        let all = expected_callers(4, 4, 4);
        assert_eq!(all, 8);
        assert_eq!(expected_callers(8, all, 0), 8);
        assert_eq!(expected_callers(5, all, 0), 5);
    }
}
