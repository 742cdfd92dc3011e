//! Reads the database of a data directory that no server uses, without changing a byte of it: to verify it, or to save
//! what is left of it.

use super::{
    StoreError, StoreOpenError, check,
    chunked::{self, Framed, Value},
    commit_mark::Commit,
    digest::Digest,
    directory_lock::lock_to_read,
    format,
    format1::{self, CurrentRow, EventTimes},
    journal::JournalEnd,
    keys,
    log_file::LogFile,
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

/// The result of reading a whole database.
#[derive(Debug, Default)]
pub struct Inspection {
    pub format: u32,
    /// Records that were read.
    pub rows: u64,
    /// Records that are there and cannot be read.
    pub lost: u64,
    /// Pages of which nothing can be read, each with some records.
    pub lost_pages: u64,
    /// Writes that had been made and of which nothing is left, each with some records.
    pub lost_writes: u64,
    /// Pages that can be read only as they once were.
    pub stale_pages: u64,
    /// Bytes of the file that are in use.
    pub live: u64,
    /// Bytes of the file.
    pub size: u64,
    /// The damages, each in one line. Empty if the database is sound.
    pub damages: Vec<String>,
    pub damage_count: u64,
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

    fn lose(&mut self, error: &StoreError) {
        self.lost += 1;
        self.add_damage(error);
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
    let mut sensible = |read: io::Result<u64>, otherwise: u64| match read {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            file_damages.push(error.to_string());
            Ok(otherwise)
        }
        read => read.map_err(failed),
    };
    let known = format::CURRENT;
    let found = sensible(format::read(&path).map(u64::from), known.into())? as u32;
    if found > known {
        return Err(StoreOpenError::NewerFormat { path, found, known });
    }
    let noted = sensible(check::noted(directory, &path, found), 0)?;
    let log = LogFile::read(&path).map_err(failed)?;
    let in_file = if found > 1 { log.get(&[keys::COMMIT]).map_err(failed)?.map(Value::from) } else { None };
    let in_file = in_file.as_ref().and_then(Commit::of_row).unwrap_or_default();
    let journal = JournalEnd::read(&path).map_err(failed)?.unless_older_than(in_file);
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
    let (mut commit, mut digest, mut result) = (Commit::default(), Digest::default(), Ok(()));
    let (mut visited, mut blocks) = (VisitedRows::of(log), BlockReader::new().map_err(failed)?);
    let read = log.rows(|start, raw| {
        if result.is_err() {
            return;
        }
        if found == 1 {
            result = read_row_of_format1(log, &times, start, raw, &mut inspection, &mut commit, &mut visit);
            return;
        }
        if start.first() == Some(&keys::COMMIT) {
            commit = Commit::of_row(&raw.into()).unwrap_or_default();
            return;
        }
        let block = match blocks.open(start, &raw.into()) {
            Ok(block) => block,
            Err(error) => return inspection.lose(&error),
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
    if let Some(missing) = check::missing_groups(commit, &journal, noted) {
        // With lost or old pages the number of the last write is not known.
        if inspection.lost_pages + inspection.stale_pages == 0 && commit.number > 0 {
            inspection.lost_writes = missing.count;
        }
        inspection.add_damage(missing.reason);
    // Format 1 had no digest.
    } else if found > 1
        && let Some(reason) = check::missing_rows(journal.last().unwrap_or(commit), digest)
    {
        inspection.add_damage(reason);
    }
    Ok(inspection)
}

fn read_row_of_format1(
    log: &LogFile,
    times: &EventTimes,
    key: &[u8],
    raw: &[u8],
    inspection: &mut Inspection,
    commit: &mut Commit,
    visit: &mut impl FnMut(&mut Inspection, &[u8], &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let raw = Value::from(raw);
    if key.first() == Some(&keys::COMMIT) {
        commit.number = format1::commit_number(&raw).unwrap_or(0);
    }
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
            inspection.lose(&error);
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
