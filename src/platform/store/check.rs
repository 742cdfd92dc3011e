//! Tells whether a database is sound before sled may open it. Nothing on disk is changed.

use super::{
    StoreError, StoreOpenError,
    block_tree::BlockSizes,
    chunked::Value,
    commit_mark::{self, Commit},
    database,
    digest::Digest,
    format, format1,
    journal::JournalEnd,
    keys,
    log_file::{LogEnd, LogFile},
    rewrite,
    room::LiveBytes,
    row_block::{self, BlockReader},
};
use std::{io, path::Path};

/// Facts about a sound database.
#[derive(Clone, Copy, Debug)]
pub struct DatabaseState {
    pub commit: Commit,
    /// Bytes of all rows, and of those in blocks.
    pub live: LiveBytes,
    /// The blocks of sled's file.
    pub blocks: BlockSizes,
    /// Bytes of sled's file that are in use.
    pub log_bytes: u64,
    /// Bytes of its files.
    pub size: u64,
}

/// Checks the database in `directory`, which has this format.
///
/// # Errors
///
/// [`StoreOpenError::Damaged`] if it is not sound.
pub fn check(directory: &Path, format: u32) -> Result<DatabaseState, StoreOpenError> {
    let path = database::path(directory);
    let failed = |source| unusable(&path, source);
    let log = LogFile::read(&path, log_end(format)).map_err(failed)?;
    if let Some(first) = log.damages().first() {
        let reason = match log.damage_count() - 1 {
            0 => first.to_string(),
            1 => format!("{first}; and another place"),
            more => format!("{first}; and {more} more places"),
        };
        return Err(StoreOpenError::damaged(&path, &reason));
    }
    let noted = noted(directory, &path, format).map_err(failed)?;
    let row = log.get(&[keys::COMMIT]).map_err(failed)?.map(Value::from);
    let commit = match format {
        1 => Commit { number: row.as_ref().and_then(format1::commit_number).unwrap_or(0), ..Commit::default() },
        _ => row.as_ref().and_then(Commit::of_row).unwrap_or_default(),
    };
    let journal = JournalEnd::read(&path).map_err(failed)?.unless_older_than(commit);
    if let Some(missing) = missing_groups(commit, &journal, noted) {
        return Err(StoreOpenError::damaged(&path, &missing.reason));
    }
    let commit = journal.last().unwrap_or(commit);
    let rows = if format > 1 { RowTotals::of(&log, &journal).map_err(failed)? } else { RowTotals::default() };
    if let Some(reason) = rows.fault(commit) {
        return Err(StoreOpenError::damaged(&path, &reason));
    }
    let size = rewrite::size(&path).map_err(failed)?;
    Ok(DatabaseState { commit, live: rows.live, blocks: rows.blocks, log_bytes: log.live_bytes(), size })
}

/// Facts about all rows of a database that is not open.
#[derive(Default)]
pub struct RowTotals {
    digest: Digest,
    live: LiveBytes,
    blocks: BlockSizes,
    /// The first block that cannot be read.
    broken: Option<StoreError>,
}

impl RowTotals {
    pub fn of(log: &LogFile, journal: &JournalEnd) -> io::Result<Self> {
        let (changes, mut totals, mut blocks) = (journal.changes(), Self::default(), BlockReader::new()?);
        log.rows(|start, raw| match blocks.open(start, &raw.into()) {
            Ok(block) => {
                if row_block::is_in_blocks(start) {
                    totals.blocks.sealed += (start.len() + raw.len()) as u64;
                    totals.blocks.content += block.iter().map(|(key, raw)| (key.len() + raw.len()) as u64).sum::<u64>();
                }
                let unchanged = block.iter().filter(|(key, _)| !changes.contains_key(key));
                unchanged.for_each(|(key, raw)| totals.add(key, raw));
            }
            Err(error) => totals.broken = totals.broken.take().or(Some(error)),
        })?;
        let changed = changes.iter().filter_map(|(key, raw)| Some((key, (*raw)?)));
        changed.for_each(|(key, raw)| totals.add(key, raw));
        Ok(totals)
    }

    fn add(&mut self, key: &[u8], raw: &[u8]) {
        self.digest.add(key, raw);
        self.live.add(key, raw);
    }

    /// The reason for which these are not the rows after the last group, if they are not.
    pub fn fault(&self, last: Commit) -> Option<String> {
        self.broken.as_ref().map(ToString::to_string).or_else(|| missing_rows(last, self.digest))
    }
}

/// The end of sled's log in a database of this format. Formats 1 and 2 put each group on disk as one batch before the
/// next. A loss of the last ones shows nowhere else if the number beside the database is old.
pub const fn log_end(format: u32) -> LogEnd {
    if format < format::THIRD { LogEnd::FirstUnreadableUnlessBatchesFollow } else { LogEnd::FirstUnreadable }
}

/// Groups that a database lacks.
pub struct MissingGroups {
    pub count: u64,
    pub reason: String,
}

/// Tells which groups are missing from a database whose files are sound, if any are. `commit` is the last one of sled's file.
pub fn missing_groups(commit: Commit, journal: &JournalEnd, noted: u64) -> Option<MissingGroups> {
    let in_file = commit.number;
    if let Some(first) = journal.first().filter(|first| *first > in_file + 1) {
        let reason = format!("`db` ends at write {in_file}, and the journal begins at write {first}");
        return Some(MissingGroups { count: first - in_file - 1, reason });
    }
    let last = journal.last().map_or(in_file, |last| last.number);
    (last < noted).then(|| MissingGroups {
        count: noted - last,
        reason: format!("`db` and the journal end at write {last}, and write {noted} had been made"),
    })
}

/// Tells whether rows are missing from a database with this last group, or are old.
pub fn missing_rows(commit: Commit, found: Digest) -> Option<String> {
    let Commit { digest, .. } = commit;
    if found.rows != digest.rows {
        return Some(format!("`db` holds {} records, and {} had been written", found.rows, digest.rows));
    }
    (found != digest).then(|| "some records in `db` are older than the last write of them".to_owned())
}

/// The format of the database in `directory`.
///
/// # Errors
///
/// [`StoreOpenError::Damaged`] if the file that tells is damaged or missing.
pub fn format(directory: &Path) -> Result<u32, StoreOpenError> {
    let path = database::path(directory);
    format::read(&path).map_err(|source| unusable(&path, source))
}

/// Tells content that makes no sense from a file that cannot be read.
fn unusable(database: &Path, source: io::Error) -> StoreOpenError {
    match source.kind() {
        io::ErrorKind::InvalidData => StoreOpenError::damaged(database, &source.to_string()),
        _ => StoreOpenError::Directory { path: database.to_owned(), source },
    }
}

/// The number of the last group as it was noted. Format 1 kept the file beside the database, and wrote it late.
pub fn noted(directory: &Path, database: &Path, format: u32) -> io::Result<u64> {
    match format {
        1 => match commit_mark::noted(&directory.join(commit_mark::FILE)) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(0),
            noted => noted,
        },
        _ => commit_mark::noted(&database.join(commit_mark::FILE)),
    }
}
