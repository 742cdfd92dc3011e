//! Tells whether a database is sound before sled may open it.

use super::{StoreOpenError, chunked::Value, commit_mark, database, format1, keys, rewrite};
use std::path::Path;

/// Facts about a sound database.
#[derive(Clone, Copy, Debug)]
pub struct DatabaseState {
    /// The number of its last group.
    pub commit: u64,
    /// Bytes of all rows.
    pub live: u64,
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
    let failed = |source| StoreOpenError::Directory { path: path.clone(), source };
    let tree = database::open(&path)?;
    let mut live = 0;
    for row in tree.iter() {
        let (key, raw) = row.map_err(|error| StoreOpenError::damaged(&path, &error.to_string()))?;
        live += (key.len() + raw.len()) as u64;
    }
    let row = tree.get([keys::COMMIT]).map_err(|error| StoreOpenError::damaged(&path, &error.to_string()))?;
    let commit = number(row.as_ref(), format);
    drop(tree);
    database::wait_until_closed(&path).map_err(failed)?;
    let noted = commit_mark::noted(&mark_file(directory, format)).map_err(failed)?;
    if commit < noted {
        let reason = format!("it ends at write {commit}, and write {noted} had been made");
        return Err(StoreOpenError::damaged(&path, &reason));
    }
    Ok(DatabaseState { commit, live, size: rewrite::size(&path).map_err(failed)? })
}

/// The number in the row of the last group; 0 without one.
fn number(row: Option<&Value>, format: u32) -> u64 {
    let number = match format {
        1 => row.and_then(format1::commit_number),
        _ => row.and_then(commit_mark::number),
    };
    number.unwrap_or(0)
}

/// Format 1 kept the file beside the database.
fn mark_file(directory: &Path, format: u32) -> std::path::PathBuf {
    match format {
        1 => directory.join(commit_mark::FILE),
        _ => database::path(directory).join(commit_mark::FILE),
    }
}
