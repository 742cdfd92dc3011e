//! Work on a data directory that no server uses: replacing its database, and the marker of a restore.
//!
//! A restore replaces files beside the database too. Between the first and the last of these steps the directory holds the
//! marker, and no server opens it, so that nobody takes half a restore for a whole one.

use super::{
    NewDatabase, StoreOpenError, database, new_database,
    open::{self, RESTORE_MARKER},
};
use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

/// A data directory with its lock held, so that no server starts on it.
pub struct OfflineDirectory {
    path: PathBuf,
    _lock: File,
}

impl OfflineDirectory {
    /// Locks a data directory, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// [`StoreOpenError::InUse`] while a server uses it.
    pub fn create(path: &Path) -> Result<Self, StoreOpenError> {
        let failed = |source| StoreOpenError::Directory { path: path.to_owned(), source };
        open::private_directory(path).map_err(failed)?;
        Ok(Self { path: path.to_owned(), _lock: open::lock(path)? })
    }

    pub fn has_database(&self) -> bool {
        database::file(&database::path(&self.path)).exists()
    }

    /// True if a restore into the directory was broken off.
    pub fn has_unfinished_restore(&self) -> bool {
        self.path.join(RESTORE_MARKER).exists()
    }

    /// Begins a database that is to replace the one of the directory.
    ///
    /// # Errors
    ///
    /// Fails if the directory cannot be written.
    pub fn new_database(&self) -> Result<NewDatabase, StoreOpenError> {
        let failed = |source| StoreOpenError::Directory { path: self.path.clone(), source };
        new_database::recover(&self.path).map_err(failed)?;
        NewDatabase::create(&self.path)
    }

    /// Keeps servers from opening the directory until [`Self::end_restore`].
    pub fn begin_restore(&self) -> io::Result<()> {
        File::create(self.path.join(RESTORE_MARKER))?.sync_all()?;
        database::sync_folder(&self.path)
    }

    pub fn end_restore(&self) -> io::Result<()> {
        database::sync_folder(&self.path)?;
        std::fs::remove_file(self.path.join(RESTORE_MARKER))?;
        database::sync_folder(&self.path)
    }
}
