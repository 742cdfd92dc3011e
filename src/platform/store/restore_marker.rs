//! The file that a data directory holds while a restore replaces its files.
//!
//! A restore replaces files beside the database too. Between the first and the last of these steps no server opens the
//! directory, so that nobody takes half a restore for a whole one. The marker holds the name under which the restore keeps
//! the database of before, and is empty if there was none.

use super::{StoreOpenError, database, replacement};
use std::{
    fs::File,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

const FILE: &str = "restore.unfinished";

pub fn path(directory: &Path) -> PathBuf {
    directory.join(FILE)
}

/// Writes the marker, or replaces it.
pub fn write(directory: &Path, previous: Option<&str>) -> io::Result<()> {
    let (place, new) = (path(directory), directory.join("restore.unfinished.new"));
    let mut file = File::create(&new)?;
    writeln!(file, "{}", previous.unwrap_or_default())?;
    file.sync_all()?;
    std::fs::rename(&new, &place)?;
    database::sync_folder(directory)
}

/// The name of the database that the restore has replaced and kept, which is the one of before.
pub fn kept(directory: &Path) -> Option<String> {
    let name = noted(directory)?;
    directory.join(&name).exists().then_some(name)
}

/// The name for the database of before; `None` if there was none.
fn noted(directory: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path(directory)).ok()?;
    Some(text.trim().to_owned()).filter(|name| !name.is_empty())
}

pub fn delete(directory: &Path) -> io::Result<()> {
    std::fs::remove_file(path(directory))?;
    database::sync_folder(directory)
}

/// # Errors
///
/// [`StoreOpenError::UnfinishedRestore`] if a restore into the directory was broken off.
pub fn refuse(directory: &Path) -> Result<(), StoreOpenError> {
    match path(directory).exists() {
        true => Err(StoreOpenError::UnfinishedRestore { path: directory.to_owned(), way_back: way_back(directory) }),
        false => Ok(()),
    }
}

/// The steps by hand that bring back the database of before, as the end of the error.
fn way_back(directory: &Path) -> String {
    if noted(directory).is_none() {
        return String::new();
    }
    let replaced = replacement::replaced(directory).exists().then(|| "sled.old".to_owned());
    match kept(directory).or(replaced) {
        Some(previous) => format!(
            ", or go back by hand: delete `sled` there if it exists, rename `{previous}` to `sled`, and delete `{FILE}`"
        ),
        None => format!(", or go back by hand: delete `{FILE}` there"),
    }
}
