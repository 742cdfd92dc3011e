//! Rewrites a database row by row into a new one: to give unused space back ([`compact`]), or into the current format
//! ([`migrate`]).

use super::{
    StoreOpenError,
    block_tree::BlockSizes,
    commit_mark::Commit,
    database, format1, journal, keys,
    new_database::NewDatabase,
    replacement::{Previous, migrated_name},
};
use std::{
    io,
    ops::Bound::Unbounded,
    path::Path,
    time::{Duration, Instant},
};

/// Interval at which a rewrite reports its progress.
const REPORT: Duration = Duration::from_secs(2);

/// The sizes of a database before and after it was compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compaction {
    pub before: u64,
    pub after: u64,
    pub rows: u64,
}

/// Called from time to time with the number of rows written so far.
pub type RewriteProgress<'a> = dyn FnMut(u64) + 'a;

/// Rewrites the database, whose lock the caller holds and which is sound, so that it takes only the space it needs.
pub fn compact(directory: &Path, progress: &mut RewriteProgress<'_>) -> Result<Compaction, StoreOpenError> {
    let path = database::path(directory);
    let failed = |source| StoreOpenError::Directory { path: path.clone(), source };
    let before = size(&path).map_err(failed)?;
    let tree = journal::open(&path, BlockSizes::default())?;
    let commit = tree.get(&[keys::COMMIT]).map_err(|error| failed(error.into()))?;
    let commit = commit.as_ref().and_then(Commit::of_row).unwrap_or_default().number;
    let mut new = NewDatabase::create(directory)?;
    let mut report = Report::new(progress);
    let copied: io::Result<()> = tree.range(Unbounded, Unbounded).try_for_each(|row| {
        let (key, raw) = row?;
        new.put_row(&key, &raw)?;
        report.rows(new.rows());
        Ok(())
    });
    copied.map_err(failed)?;
    drop(tree);
    database::wait_until_closed(&path).map_err(failed)?;
    let rows = new.rows();
    let finished = new.finish_after(commit).map_err(failed)?;
    finished.install(&Previous::Delete).map_err(failed)?;
    Ok(Compaction { before, after: size(&path).map_err(failed)?, rows })
}

/// Rewrites a database of format 1 into the current one, and keeps the old database beside it.
pub fn migrate(directory: &Path, progress: &mut RewriteProgress<'_>) -> Result<(), StoreOpenError> {
    let path = database::path(directory);
    let failed = |source| StoreOpenError::Directory { path: path.clone(), source };
    let tree = database::open(&path)?;
    let commit = tree.get([keys::COMMIT]).map_err(|error| failed(error.into()))?;
    let commit = commit.as_ref().and_then(format1::commit_number).unwrap_or(0);
    let mut new = NewDatabase::create(directory)?;
    let mut report = Report::new(progress);
    let damaged = format1::rows(&tree, |key, value| {
        new.put(key, value)?;
        report.rows(new.rows());
        Ok(())
    });
    let damaged = damaged.map_err(failed)?;
    drop(tree);
    database::wait_until_closed(&path).map_err(failed)?;
    if damaged > 0 {
        log::warn!("{damaged} damaged records of the old database were left out");
    }
    let finished = new.finish_after(commit).map_err(failed)?;
    finished.install(&Previous::Keep(migrated_name(1))).map_err(failed)
}

/// Bytes of all files in the database's folder.
pub fn size(database: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in database.read_dir()? {
        let metadata = entry?.metadata()?;
        bytes += if metadata.is_file() { metadata.len() } else { 0 };
    }
    Ok(bytes)
}

/// Limits the calls of a progress function.
struct Report<'a, 'b> {
    progress: &'a mut RewriteProgress<'b>,
    last: Instant,
}

impl<'a, 'b> Report<'a, 'b> {
    fn new(progress: &'a mut RewriteProgress<'b>) -> Self {
        Self { progress, last: Instant::now() }
    }

    fn rows(&mut self, rows: u64) {
        if rows.is_multiple_of(1000) && self.last.elapsed() >= REPORT {
            self.last = Instant::now();
            (self.progress)(rows);
        }
    }
}
