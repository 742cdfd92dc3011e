//! Work on a data directory that no server uses: replacing its database by a restored one.

use super::{
    FinishedDatabase, NewDatabase, Previous, StoreOpenError, database,
    directory_lock::{lock, lock_file},
    private_directory::private_directory,
    replacement, restore_marker,
};
use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

/// A data directory with its lock held, so that no server starts on it.
pub struct OfflineDirectory {
    path: PathBuf,
    was_created: bool,
    _lock: File,
}

impl OfflineDirectory {
    /// Locks a data directory, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// [`StoreOpenError::InUse`] while a server uses it.
    pub fn create(path: &Path) -> Result<Self, StoreOpenError> {
        let was_created = !path.exists();
        private_directory(path)?;
        Ok(Self { path: path.to_owned(), was_created, _lock: lock(path)? })
    }

    /// Deletes the directory if it was made for this and nothing came of it.
    pub fn delete_if_created(self) {
        if self.was_created && !self.has_unfinished_restore() {
            let _ = std::fs::remove_file(lock_file(&self.path));
            let _ = std::fs::remove_dir(&self.path);
        }
    }

    /// True if there is a database, also one that a broken replacement has left under another name.
    ///
    /// # Errors
    ///
    /// Fails if the directory cannot be read.
    pub fn has_database(&self) -> Result<bool, StoreOpenError> {
        let present = replacement::present(&self.path);
        present.map(|path| path.is_some()).map_err(|source| self.unusable(source))
    }

    /// True if a restore into the directory was broken off.
    pub fn has_unfinished_restore(&self) -> bool {
        restore_marker::path(&self.path).exists()
    }

    /// Begins a database that is to replace the one of the directory.
    ///
    /// # Errors
    ///
    /// Fails if the directory cannot be written.
    pub fn new_database(&self) -> Result<NewDatabase, StoreOpenError> {
        NewDatabase::create(&self.path)
    }

    /// Puts the restored database in place, keeps the one of before under a name that begins with `name`, and returns
    /// that name. No server opens the directory from now on until [`Self::end_restore`].
    ///
    /// # Errors
    ///
    /// The directory is as it was. If the database of before cannot be moved back, no server opens the directory.
    pub fn begin_restore(&self, database: FinishedDatabase, name: &str) -> io::Result<Option<String>> {
        let was_unfinished = self.has_unfinished_restore();
        let begun = self.replace(database, name, was_unfinished);
        if begun.is_err() && !was_unfinished && !replacement::replaced(&self.path).exists() {
            let _ = restore_marker::delete(&self.path);
        }
        begun
    }

    fn replace(&self, database: FinishedDatabase, name: &str, was_unfinished: bool) -> io::Result<Option<String>> {
        let directory = &self.path;
        replacement::move_back(directory)?;
        let name = replacement::free_name(directory, name);
        // A restore that was broken off has promised to keep the database that it replaced.
        let mut previous = restore_marker::kept(directory);
        if was_unfinished && replacement::replaced(directory).exists() {
            replacement::set_aside(directory, &name)?;
            previous = previous.or_else(|| Some(name.clone()));
        }
        if !replacement::is_absent(&database::path(directory))? {
            previous = previous.or_else(|| Some(name.clone()));
        }
        restore_marker::write(directory, previous.as_deref())?;
        database.install(&Previous::Keep(name))?;
        Ok(previous)
    }

    /// Lets servers open the directory again.
    ///
    /// # Errors
    ///
    /// No server opens the directory then.
    pub fn end_restore(&self) -> io::Result<()> {
        database::sync_folder(&self.path)?;
        restore_marker::delete(&self.path)
    }

    fn unusable(&self, source: io::Error) -> StoreOpenError {
        StoreOpenError::Directory { path: self.path.clone(), source }
    }
}
