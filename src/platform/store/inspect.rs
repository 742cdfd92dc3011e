//! Reads the database of a data directory that no server uses, without changing a byte of it: to verify it, or to save
//! what is left of it.

use super::{
    StoreError, StoreOpenError,
    check::{self, RowTotals},
    chunked::{self, Framed, Value},
    commit_mark::Commit,
    digest::Digest,
    directory_lock::lock_to_read,
    format,
    format1::{self, CurrentRow, EventTimes},
    journal::JournalEnd,
    keys,
    log_file::{LogEnd, LogFile},
    open, replacement,
    row_block::{self, BlockReader},
};
use sha2::{Digest as _, Sha256};
use std::{
    collections::{HashMap, HashSet},
    io,
    path::Path,
};

/// Damages that are told one by one; further ones are only counted.
const TOLD: usize = 100;

/// The number of records that are lost, as far as it is known. The last write has the number of all records; without it nothing tells
/// how many there were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostRows {
    Exactly(u64),
    /// Deleted records that are back make up for lost ones in the count.
    AtLeast(u64),
    Unknown,
}

impl Default for LostRows {
    fn default() -> Self {
        Self::Exactly(0)
    }
}

/// The result of reading a whole database.
#[derive(Debug, Default)]
pub struct Inspection {
    pub format: u32,
    /// Records that were read.
    pub rows: u64,
    /// Records that had been written and are not among those that were read.
    pub lost: LostRows,
    /// Pages of which nothing can be read, each with some records.
    pub lost_pages: u64,
    /// Writes that had been made and of which nothing is left, each with some records. `None` if that is not known.
    pub lost_writes: Option<u64>,
    /// Pages that can be read only as they once were.
    pub stale_pages: u64,
    /// Bytes of the file that are in use.
    pub live: u64,
    /// Bytes of the file.
    pub size: u64,
    /// The damages, each in one line. Empty if the database is sound.
    pub damages: Vec<String>,
    pub damage_count: u64,
    /// Records that are there and cannot be read, and blocks of records.
    unreadable_rows: u64,
    unreadable_blocks: u64,
}

impl Inspection {
    pub fn is_sound(&self) -> bool {
        self.damage_count == 0
    }

    pub fn add_damage(&mut self, damage: impl ToString) {
        self.damage_count += 1;
        if self.damages.len() < TOLD {
            self.damages.push(damage.to_string());
        }
    }

    /// Compares the rows that were found with those that there were after the last write, `last`.
    fn count_lost(&mut self, last: Commit, found: Digest) {
        match check::missing_rows(last, found) {
            // Every row is as it was last written.
            None => {
                self.lost = LostRows::Exactly(self.unreadable_rows);
                (self.lost_pages, self.stale_pages) = (0, 0);
            }
            Some(reason) => {
                let missing = last.digest.rows.saturating_sub(found.rows).max(self.unreadable_blocks);
                self.lost = match self.unreadable_rows + missing {
                    0 => LostRows::Unknown,
                    lost => LostRows::AtLeast(lost),
                };
                self.add_damage(reason);
            }
        }
    }
}

/// The rows of a database that is not open: what sled's file holds, with the changes of the journal.
struct RowsAtRest<'a> {
    log: LogFile,
    journal: HashMap<&'a [u8], Option<&'a [u8]>>,
}

impl RowsAtRest<'_> {
    fn get(&self, key: &[u8]) -> io::Result<Option<Value>> {
        match self.journal.get(key) {
            Some(change) => Ok(change.map(Value::from)),
            None => Ok(self.log.get(key)?.map(Value::from)),
        }
    }
}

/// The rows in blocks that were visited in a broken database, as hashes of their keys. Blocks that are found in an older state may have rows
/// that are in another block too, and the newest page is visited first.
struct VisitedRows(Option<HashSet<u64>>);

impl VisitedRows {
    fn of(log: &LogFile) -> Self {
        Self((log.damage_count() > 0).then(HashSet::new))
    }

    /// True if the row was not visited before.
    fn insert(&mut self, key: &[u8]) -> bool {
        match &mut self.0 {
            Some(visited) if row_block::is_in_blocks(key) => {
                let digest = Sha256::digest(key);
                visited.insert(keys::number(&digest, 0).unwrap_or_default())
            }
            _ => true,
        }
    }
}

/// Visits every record that can be read, in no order if the database is damaged. The visitor may tell damages of its own.
///
/// # Errors
///
/// Fails if a server uses the directory, it holds no database or one of a newer format, a file cannot be read, or the
/// visitor fails. Damage is no error. The records of an older format come as those of the current one.
pub fn inspect(
    directory: &Path,
    mut visit: impl FnMut(&mut Inspection, &[u8], &[u8]) -> io::Result<()>,
) -> Result<Inspection, StoreOpenError> {
    let place = open::find_database(directory)?;
    let _lock = lock_to_read(directory)?;
    let present = replacement::present(directory);
    let present = present.map_err(|source| StoreOpenError::Directory { path: place.clone(), source })?;
    let path = present.unwrap_or(place);
    let failed = |source| StoreOpenError::Directory { path: path.clone(), source };
    let mut file_damages = Vec::new();
    // A file with nonsense is a damage; the rows tell more.
    let mut sensible = |read: io::Result<u64>| match read {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            file_damages.push(error.to_string());
            Ok(None)
        }
        read => read.map(Some).map_err(failed),
    };
    let known = format::CURRENT;
    let found = sensible(format::read(&path).map(u64::from))?.map_or(known, |found| found as u32);
    if found > known {
        return Err(StoreOpenError::NewerFormat { path, found, known });
    }
    let noted = sensible(check::noted(directory, &path, found))?;
    let (log, journal) = read_files(&path, found, noted).map_err(failed)?;
    let rows = RowsAtRest { log, journal: journal.changes() };
    let log = &rows.log;
    let mut inspection = Inspection {
        format: found,
        live: log.live_bytes(),
        size: log.file_bytes(),
        damages: log.damages().iter().map(ToString::to_string).collect(),
        damage_count: log.damage_count(),
        ..Inspection::default()
    };
    file_damages.into_iter().for_each(|damage| inspection.add_damage(damage));
    let mut times = EventTimes::default();
    if found == 1 {
        log.rows(|key, _| times.see(key)).map_err(failed)?;
    }
    let commit = commit_of(log, found).map_err(failed)?;
    let (mut digest, mut result) = (Digest::default(), Ok(()));
    let (mut visited, mut blocks) = (VisitedRows::of(log), BlockReader::new().map_err(failed)?);
    let read = log.rows(|start, raw| {
        if result.is_err() {
            return;
        }
        if found == 1 {
            result = read_row_of_format1(log, &times, start, raw, &mut inspection, &mut visit);
            return;
        }
        if start.first() == Some(&keys::COMMIT) {
            return;
        }
        let block = match blocks.open(start, &raw.into()) {
            Ok(block) => block,
            Err(error) => {
                inspection.unreadable_blocks += 1;
                return inspection.add_damage(error);
            }
        };
        let mut is_new = |key: &[u8]| !rows.journal.contains_key(key) && visited.insert(key);
        result = block.iter().filter(|(key, _)| is_new(key)).try_for_each(|(key, raw)| {
            digest.add(key, raw);
            read_row(&rows, key, raw, &mut inspection, &mut visit)
        });
    });
    let read = read.and_then(|read| result.map(|()| read)).map_err(failed)?;
    for (key, raw) in rows.journal.iter().filter_map(|(key, raw)| Some((key, (*raw)?))) {
        if key.first() != Some(&keys::COMMIT) {
            digest.add(key, raw);
            read_row(&rows, key, raw, &mut inspection, &mut visit).map_err(failed)?;
        }
    }
    (inspection.lost_pages, inspection.stale_pages) = (read.lost_pages, read.stale_pages);
    let last = journal.last().unwrap_or(commit);
    // Format 1 had no digest.
    let is_last_state = if found > 1 { check::missing_rows(last, digest).is_none() } else { log.damage_count() == 0 };
    match check::missing_groups(commit, &journal, noted.unwrap_or(0)) {
        Some(missing) => {
            inspection.lost = LostRows::Unknown;
            // If other rows are there than after the last write that was found, they come from a part of the missing ones.
            inspection.lost_writes = (last.number > 0 && is_last_state).then_some(missing.count);
            inspection.add_damage(missing.reason);
        }
        None => {
            inspection.lost_writes = noted.map(|_| 0);
            match found {
                1 if is_last_state => inspection.lost = LostRows::Exactly(inspection.unreadable_rows),
                1 => inspection.lost = LostRows::Unknown,
                _ => inspection.count_lost(last, digest),
            }
        }
    }
    if noted.is_none() {
        inspection.lost = LostRows::Unknown;
    }
    Ok(inspection)
}

/// Reads the files of a database of this format. What can be read behind the end that sled finds counts too if the rows
/// before it, with the journal, are not those of the last group: the log was on disk beyond its end, or is damaged.
fn read_files(path: &Path, format: u32, noted: Option<u64>) -> io::Result<(LogFile, JournalEnd)> {
    let with_journal = |log_end: LogEnd| -> io::Result<_> {
        let log = LogFile::read(path, log_end)?;
        let commit = commit_of(&log, format)?;
        let journal = JournalEnd::read(path)?.unless_older_than(commit);
        Ok((log, journal, commit))
    };
    let (log, journal, commit) = with_journal(check::log_end(format))?;
    let has_groups = noted.is_some_and(|noted| check::missing_groups(commit, &journal, noted).is_none());
    let last = journal.last().unwrap_or(commit);
    let has_rows = |log: &LogFile| -> io::Result<bool> {
        match format {
            1 => Ok(log.damages().is_empty()),
            _ => Ok(RowTotals::of(log, &journal)?.fault(last).is_none()),
        }
    };
    if !log.ends_early() || has_groups && has_rows(&log)? {
        return Ok((log, journal));
    }
    let (log, journal, _) = with_journal(LogEnd::LastReadable)?;
    Ok((log, journal))
}

/// The last group in sled's file, or the one before the first if its record cannot be read.
fn commit_of(log: &LogFile, format: u32) -> io::Result<Commit> {
    let row = log.get(&[keys::COMMIT])?.map(Value::from);
    Ok(match format {
        1 => Commit { number: row.as_ref().and_then(format1::commit_number).unwrap_or(0), ..Commit::default() },
        _ => row.as_ref().and_then(Commit::of_row).unwrap_or_default(),
    })
}

fn read_row_of_format1(
    log: &LogFile,
    times: &EventTimes,
    key: &[u8],
    raw: &[u8],
    inspection: &mut Inspection,
    visit: &mut impl FnMut(&mut Inspection, &[u8], &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let raw = Value::from(raw);
    match format1::current_row(times, key, &raw, |piece| Ok(log.get(piece)?.map(Value::from)))? {
        CurrentRow::Row { key, value } => take_row(&key, Ok(value), inspection, visit),
        CurrentRow::Absent => Ok(()),
        CurrentRow::Damaged => {
            take_row(key, Err(StoreError::damaged(key, "its value cannot be read")), inspection, visit)
        }
    }
}

fn read_row(
    rows: &RowsAtRest<'_>,
    key: &[u8],
    raw: &[u8],
    inspection: &mut Inspection,
    visit: &mut impl FnMut(&mut Inspection, &[u8], &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    // The pieces of a value are read with it.
    if key.first() == Some(&keys::PIECE) {
        return Ok(());
    }
    let raw = Value::from(raw);
    let value = match chunked::read(key, &raw) {
        Ok(Framed::Whole(value)) => Ok(value),
        Ok(Framed::Pieces(_)) => join(rows, key, &raw)?,
        Err(error) => Err(error),
    };
    take_row(key, value, inspection, visit)
}

/// Gives a row to the visitor, or counts it as lost.
fn take_row(
    key: &[u8],
    value: Result<Value, StoreError>,
    inspection: &mut Inspection,
    visit: &mut impl FnMut(&mut Inspection, &[u8], &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    match value {
        Ok(value) => {
            inspection.rows += 1;
            visit(inspection, key, &value)
        }
        Err(error) => {
            inspection.unreadable_rows += 1;
            inspection.add_damage(error);
            Ok(())
        }
    }
}

/// The value in pieces whose head is `head`.
fn join(rows: &RowsAtRest<'_>, key: &[u8], head: &Value) -> io::Result<Result<Value, StoreError>> {
    let joined = chunked::get(key, |wanted| {
        if wanted == key {
            return Ok(Some(head.clone()));
        }
        rows.get(wanted).map_err(|error| StoreError::Unreadable(error.into()))
    });
    match joined {
        Ok(Some(value)) => Ok(Ok(value)),
        Ok(None) => Ok(Err(StoreError::damaged(key, "it has no value"))),
        Err(StoreError::Unreadable(error)) => Err(io::Error::new(error.kind(), error.to_string())),
        Err(error) => Ok(Err(error)),
    }
}
