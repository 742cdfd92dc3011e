//! The attempts that are under way, noted in a file, so that an attempt counts although it ended the server.
//!
//! An attempt is noted before it starts, and the note is deleted when it has failed. The note of a delivered event
//! stays until its place is needed: a start finds that the event has left its queue. A note of an event that is still
//! the head of its queue belongs to an attempt which the end of the server interrupted: by a defect that the attempt
//! set off, or by chance. The first time is taken for chance; from the second on the interrupted attempt counts as a
//! failed one, so that an event which ends the server is retried later each time and becomes a dead letter in the end.
//!
//! The file is not synced. It must outlast this process, which the system's cache does; no attempt cuts the power.

use crate::model::id::SinkId;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// The file's name in the data directory.
const FILE: &str = "attempts";

/// The interruptions of one event that do not count as failed attempts.
const FORGIVEN: u32 = 1;

/// The error of an interrupted attempt that counts.
pub(super) const INTERRUPTED: &str = "the server ended unexpectedly during this attempt";

/// The length of a note: sink, sequence number, interruptions, state, and the checksum of these.
const NOTE: usize = 16 + 8 + 4 + 4 + 4;

/// The attempts that are under way. Cloning the handle is cheap.
#[derive(Clone)]
pub struct RunningAttempts(Arc<RunningAttemptsShared>);

struct RunningAttemptsShared {
    file: File,
    slots: Mutex<NoteSlots>,
    /// A write has failed, and the log says so.
    failed: AtomicBool,
}

/// The places of notes in the file.
#[derive(Default)]
struct NoteSlots {
    free: Vec<usize>,
    /// The number of places that the file has.
    count: usize,
    /// Events that were interrupted, with the place of their note.
    interrupted: HashMap<SinkId, (usize, AttemptNote)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AttemptNote {
    sink: SinkId,
    sequence: u64,
    /// The number of attempts at this event that were interrupted.
    interruptions: u32,
    state: NoteState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoteState {
    /// An attempt is under way.
    Running,
    /// An attempt was interrupted, and the event has not been looked at since.
    Interrupted,
    /// No attempt is under way, and the interruptions are kept for the next one.
    Waiting,
}

/// The note of one attempt. Dropping it ends the attempt.
pub(super) struct RunningAttempt<'a> {
    shared: &'a RunningAttemptsShared,
    slot: usize,
    note: AttemptNote,
    counts_as_failed: bool,
    /// The event has left its queue.
    settled: bool,
}

impl RunningAttempts {
    /// Opens the file in the data directory, and finds the attempts that were interrupted. Notes are kept of those
    /// events for which `is_head` returns true: the others have left their queue since.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or written.
    pub fn open(directory: &Path, is_head: impl Fn(SinkId, u64) -> bool) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let mut file =
            options.read(true).write(true).create(true).truncate(false).mode(0o600).open(directory.join(FILE))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let mut slots = NoteSlots { count: bytes.len().div_ceil(NOTE), ..NoteSlots::default() };
        for slot in 0..slots.count {
            let bytes = bytes.get(slot * NOTE..(slot + 1) * NOTE).unwrap_or_default();
            match AttemptNote::read(bytes)
                .filter(|note| is_head(note.sink, note.sequence))
                .map(AttemptNote::after_a_start)
            {
                Some(note) => {
                    file.write_all_at(&note.bytes(), offset(slot))?;
                    slots.interrupted.insert(note.sink, (slot, note));
                }
                None => {
                    file.write_all_at(&[0; NOTE], offset(slot))?;
                    slots.free.push(slot);
                }
            }
        }
        Ok(Self(Arc::new(RunningAttemptsShared { file, slots: Mutex::new(slots), failed: AtomicBool::new(false) })))
    }

    /// Deletes all notes: the server stops, and an attempt that does not end in time was interrupted on purpose.
    pub(super) fn clear(&self) {
        if let Err(error) = self.0.file.set_len(0) {
            log::warn!("cannot clear the file `{FILE}` of the data directory: {error}");
        }
    }

    /// Notes that an attempt at this event starts. A sink has one attempt at a time. The note of an interrupted attempt
    /// that counts as failed stays until the new one is dropped.
    pub(super) fn begin(&self, sink: SinkId, sequence: u64) -> RunningAttempt<'_> {
        let (slot, found) = {
            let mut slots = self.0.slots.lock();
            match slots.interrupted.remove(&sink) {
                Some((slot, note)) => (slot, Some(note).filter(|note| note.sequence == sequence)),
                None => (slots.take(), None),
            }
        };
        let interruptions = found.map_or(0, |note| note.interruptions);
        let counts_as_failed =
            interruptions > FORGIVEN && found.is_some_and(|note| note.state == NoteState::Interrupted);
        let note = AttemptNote { sink, sequence, interruptions, state: NoteState::Running };
        if !counts_as_failed {
            self.0.write(slot, &note.bytes());
        }
        RunningAttempt { shared: &self.0, slot, note, counts_as_failed, settled: false }
    }
}

impl RunningAttemptsShared {
    /// Writes to the file. A failure costs the guard against events that end the server, and nothing else.
    fn write(&self, slot: usize, bytes: &[u8; NOTE]) {
        if let Err(error) = self.file.write_all_at(bytes, offset(slot))
            && !self.failed.swap(true, Relaxed)
        {
            log::warn!("cannot note attempts in the file `{FILE}` of the data directory: {error}");
        }
    }
}

impl RunningAttempt<'_> {
    /// Returns true if the attempt before this one was interrupted and counts as failed: then none is to be made now.
    pub fn counts_as_failed(&self) -> bool {
        self.counts_as_failed
    }

    /// Returns true if an attempt at this event was interrupted before.
    pub fn was_interrupted(&self) -> bool {
        self.note.interruptions > 0
    }

    /// Ends the attempt at an event that was delivered and has left its queue. The note need not be deleted, which
    /// saves a write for each delivery. A server that ends before the delivery is on disk finds it, and delivers the
    /// event again: an interruption by chance.
    pub fn end_settled(mut self) {
        self.settled = true;
    }
}

impl Drop for RunningAttempt<'_> {
    fn drop(&mut self) {
        if !self.settled && self.was_interrupted() {
            let note = AttemptNote { state: NoteState::Waiting, ..self.note };
            self.shared.write(self.slot, &note.bytes());
            self.shared.slots.lock().interrupted.insert(note.sink, (self.slot, note));
            return;
        }
        if !self.settled {
            self.shared.write(self.slot, &[0; NOTE]);
        }
        self.shared.slots.lock().free.push(self.slot);
    }
}

impl NoteSlots {
    fn take(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        })
    }
}

impl AttemptNote {
    /// Reads a note; `None` if the place is free or damaged.
    fn read(bytes: &[u8]) -> Option<Self> {
        let (content, checksum) = bytes.split_last_chunk::<4>()?;
        if content.len() != NOTE - 4 || crc32fast::hash(content) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let (sink, rest) = content.split_first_chunk::<16>()?;
        let (sequence, rest) = rest.split_first_chunk::<8>()?;
        let (interruptions, rest) = rest.split_first_chunk::<4>()?;
        let state = match rest {
            [1, ..] => NoteState::Running,
            [2, ..] => NoteState::Interrupted,
            [3, ..] => NoteState::Waiting,
            _ => return None,
        };
        Some(Self {
            sink: SinkId::from_slice(sink)?,
            sequence: u64::from_le_bytes(*sequence),
            interruptions: u32::from_le_bytes(*interruptions),
            state,
        })
    }

    fn bytes(&self) -> [u8; NOTE] {
        let mut bytes = [0; NOTE];
        bytes[..16].copy_from_slice(self.sink.as_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.interruptions.to_le_bytes());
        bytes[28] = match self.state {
            NoteState::Running => 1,
            NoteState::Interrupted => 2,
            NoteState::Waiting => 3,
        };
        let checksum = crc32fast::hash(&bytes[..NOTE - 4]);
        bytes[NOTE - 4..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The note as the next start finds it: an attempt under way was interrupted.
    fn after_a_start(self) -> Self {
        match self.state {
            NoteState::Running => {
                Self { interruptions: self.interruptions.saturating_add(1), state: NoteState::Interrupted, ..self }
            }
            NoteState::Interrupted | NoteState::Waiting => self,
        }
    }
}

fn offset(slot: usize) -> u64 {
    (slot * NOTE) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(directory: &Path) -> RunningAttempts {
        RunningAttempts::open(directory, |_, _| true).unwrap()
    }

    /// Begins an attempt and ends the server in the middle of it.
    fn interrupt(directory: &Path, sink: SinkId, sequence: u64) {
        let attempts = open(directory);
        let attempt = attempts.begin(sink, sequence);
        assert!(!attempt.counts_as_failed());
        std::mem::forget(attempt);
    }

    #[test]
    fn an_attempt_that_ends_the_server_counts_as_failed_from_the_second_time_on() {
        let directory = tempfile::tempdir().unwrap();
        let sink = SinkId::new();
        interrupt(directory.path(), sink, 7);
        interrupt(directory.path(), sink, 7);
        for _ in 0..3 {
            let attempts = open(directory.path());
            let counted = attempts.begin(sink, 7);
            assert!(counted.counts_as_failed());
            // Until it is dropped, it counts again after another start.
            assert!(open(directory.path()).begin(sink, 7).counts_as_failed());
            drop(counted);
            // The retry that the failure led to.
            let retry = attempts.begin(sink, 7);
            assert!(!retry.counts_as_failed());
            std::mem::forget(retry);
        }
    }

    #[test]
    fn an_interrupted_attempt_counts_once_however_often_the_server_starts() {
        let directory = tempfile::tempdir().unwrap();
        let sink = SinkId::new();
        interrupt(directory.path(), sink, 7);
        for _ in 0..5 {
            drop(open(directory.path()));
        }
        interrupt(directory.path(), sink, 7);
        for _ in 0..5 {
            drop(open(directory.path()));
        }
        let attempts = open(directory.path());
        assert!(attempts.begin(sink, 7).counts_as_failed());
        assert!(!attempts.begin(sink, 7).counts_as_failed());
    }

    #[test]
    fn an_attempt_that_ended_and_the_next_event_of_a_sink_are_not_blamed() {
        let directory = tempfile::tempdir().unwrap();
        let (sink, other) = (SinkId::new(), SinkId::new());
        for _ in 0..5 {
            interrupt(directory.path(), sink, 7);
            drop(open(directory.path()).begin(sink, 8));
            drop(open(directory.path()).begin(other, 7));
        }
        assert!(!open(directory.path()).begin(other, 7).counts_as_failed());
    }

    #[test]
    fn the_file_stays_as_small_as_the_attempts_that_run_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let attempts = open(directory.path());
        let first = attempts.begin(SinkId::new(), 1);
        for sequence in 0..100 {
            drop(attempts.begin(SinkId::new(), sequence));
        }
        drop(first);
        let file = directory.path().join(FILE);
        assert_eq!(std::fs::metadata(&file).unwrap().len(), 2 * NOTE as u64);
        std::mem::forget(attempts.begin(SinkId::new(), 1));
        // The event has left its queue since.
        RunningAttempts::open(directory.path(), |_, _| false).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), vec![0; 2 * NOTE]);
    }

    #[test]
    fn the_note_of_an_event_that_left_its_queue_is_written_over_and_blames_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (sink, other) = (SinkId::new(), SinkId::new());
        let attempts = open(directory.path());
        attempts.begin(sink, 7).end_settled();
        std::mem::forget(attempts.begin(other, 1));
        // The second attempt took the place of the first.
        let found = std::cell::RefCell::new(Vec::new());
        RunningAttempts::open(directory.path(), |sink, sequence| {
            found.borrow_mut().push((sink, sequence));
            false
        })
        .unwrap();
        assert_eq!(found.into_inner(), [(other, 1)]);
        // An interrupted event that was delivered in the end has no note either.
        interrupt(directory.path(), sink, 8);
        let attempts = open(directory.path());
        attempts.begin(sink, 8).end_settled();
        assert!(attempts.0.slots.lock().interrupted.is_empty());
    }

    #[test]
    fn a_server_that_stops_on_purpose_blames_no_attempt() {
        let directory = tempfile::tempdir().unwrap();
        let sink = SinkId::new();
        for _ in 0..5 {
            let attempts = open(directory.path());
            let attempt = attempts.begin(sink, 7);
            assert!(!attempt.counts_as_failed());
            attempts.clear();
            std::mem::forget(attempt);
        }
    }

    #[test]
    fn damaged_notes_are_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let sink = SinkId::new();
        interrupt(directory.path(), sink, 7);
        let file = directory.path().join(FILE);
        for damage in [|bytes: &mut Vec<u8>| bytes[20] ^= 1, |bytes: &mut Vec<u8>| bytes.truncate(NOTE - 3)] {
            let mut bytes = std::fs::read(&file).unwrap();
            damage(&mut bytes);
            std::fs::write(&file, bytes).unwrap();
            assert!(!open(directory.path()).begin(sink, 7).counts_as_failed());
        }
    }
}
