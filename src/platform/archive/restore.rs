//! Restores an archive into a data directory.
//!
//! The whole archive is checked before anything is written. The database is then built aside and put in its place at the
//! end, so that a restore that is broken off leaves the directory as it was, or marked as unfinished.

use super::{
    ArchiveEnd, ArchiveError, ArchiveReader, ArchiveRecord, Manifest,
    repair::{Repair, RepairedCounters},
};
use crate::{
    model::timestamp::Timestamp,
    platform::store::{NewDatabase, OfflineDirectory, Previous, StoreOpenError},
};
use std::{
    fs::File,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// Treatment of a database that is in the directory already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExistingDatabase {
    Refuse,
    /// Replaces it, and keeps it beside the new one.
    Replace,
}

/// Reason for which nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error("{}: {source}", path.display())]
    Archive { path: PathBuf, source: ArchiveError },
    #[error("{} holds a database already: name another directory, or use --force to replace it", .0.display())]
    HasDatabase(PathBuf),
    #[error(transparent)]
    Directory(#[from] StoreOpenError),
    #[error("cannot write to {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// A restore that was carried out.
#[derive(Debug)]
pub struct Restored {
    pub manifest: Manifest,
    pub end: ArchiveEnd,
    /// The name in the directory under which the database of before is kept.
    pub previous: Option<String>,
}

/// A step of a restore, with the bytes of lines and the records read in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreStep {
    Checking { bytes: u64, of: u64, rows: u64 },
    Writing { bytes: u64, of: u64, rows: u64 },
}

/// Restores the archive in `file` into `directory`.
///
/// # Errors
///
/// Nothing is restored then, and a database in the directory is still there.
pub fn restore(
    file: &Path,
    directory: &Path,
    existing: ExistingDatabase,
    progress: &mut dyn FnMut(RestoreStep),
) -> Result<Restored, RestoreError> {
    let damaged = |source| RestoreError::Archive { path: file.to_owned(), source };
    let open = || File::open(file).map_err(ArchiveError::Unreadable).and_then(ArchiveReader::new);
    let mut bytes = 0;
    let checked = open().and_then(|archive| {
        let of = archive.manifest().bytes_estimate;
        archive.check(|read, rows| {
            bytes = read;
            progress(RestoreStep::Checking { bytes, of, rows });
        })
    });
    let (manifest, end) = checked.map_err(damaged)?;

    let failed = |source| RestoreError::Write { path: directory.to_owned(), source };
    let directory_lock = OfflineDirectory::create(directory)?;
    let has_database = directory_lock.has_database();
    let may_replace = existing == ExistingDatabase::Replace || directory_lock.has_unfinished_restore();
    if has_database && !may_replace {
        return Err(RestoreError::HasDatabase(directory.to_owned()));
    }
    let mut archive = open().map_err(damaged)?;
    let mut database = directory_lock.new_database()?;
    let mut files = Vec::new();
    let mut repair = manifest.salvaged.then(Repair::default);
    loop {
        let (read, rows) = (archive.bytes(), archive.rows());
        match archive.next_record().map_err(damaged)? {
            Some(ArchiveRecord::Row { key, value }) => {
                let is_kept = repair.as_mut().is_none_or(|repair| repair.keeps(&key, &value));
                if is_kept {
                    database.put(&key, &value).map_err(failed)?;
                }
                progress(RestoreStep::Writing { bytes: read, of: bytes, rows });
            }
            Some(ArchiveRecord::File { name, content }) => files.push((name, content)),
            None => break,
        }
    }
    put_counters(&mut database, repair.map(Repair::finish)).map_err(failed)?;

    let previous = has_database.then(|| format!("sled.before-restore-{}", Timestamp::now().seconds()));
    directory_lock.begin_restore().map_err(failed)?;
    for (name, content) in files {
        write_private(directory, name, &content).map_err(failed)?;
    }
    let keep = previous.clone().map_or(Previous::Delete, Previous::Keep);
    database.install(&keep).map_err(failed)?;
    directory_lock.end_restore().map_err(failed)?;
    Ok(Restored { manifest, end, previous })
}

fn put_counters(database: &mut NewDatabase, counters: Option<RepairedCounters>) -> io::Result<()> {
    counters.into_iter().flatten().try_for_each(|(key, number)| database.put(&key, &number.to_be_bytes()))
}

/// Replaces a file of the directory with one that only its owner can read.
fn write_private(directory: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let unfinished = directory.join(format!("{name}.new"));
    let _ = std::fs::remove_file(&unfinished);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&unfinished, directory.join(name))
}
