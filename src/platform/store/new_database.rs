//! A database that is built aside, in the folder `sled.new` of the data directory, and put in the place of the present one
//! when it is whole ([`replacement`]). Dropping it before deletes the folder.

use super::{
    StoreOpenError, block_changes,
    block_tree::{BlockSizes, BlockTree},
    chunked::{self, Value},
    commit_mark::{self, Commit},
    database,
    digest::Digest,
    format,
    replacement::{self, Previous},
};
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Bytes of rows that are put into the database at once: neighbours go into one block then.
const TOGETHER: usize = 4 << 20;

/// A database that is being built.
pub struct NewDatabase {
    // It is closed before its folder is deleted.
    tree: Arc<BlockTree>,
    folder: UnfinishedFolder,
    /// Rows that the tree does not have yet.
    waiting: BTreeMap<Vec<u8>, Value>,
    waiting_bytes: usize,
    rows: u64,
    digest: Digest,
}

/// A new database that is whole and on disk.
pub struct FinishedDatabase(UnfinishedFolder);

/// The folder of a new database, which is deleted if it does not become the one in place.
struct UnfinishedFolder {
    directory: PathBuf,
    path: PathBuf,
}

impl NewDatabase {
    /// Begins a database for this data directory, whose lock the caller holds.
    ///
    /// # Errors
    ///
    /// Fails if the directory cannot be written.
    pub fn create(directory: &Path) -> Result<Self, StoreOpenError> {
        let folder = UnfinishedFolder { directory: directory.to_owned(), path: replacement::unfinished(directory) };
        let failed = |source| StoreOpenError::Directory { path: folder.path.clone(), source };
        replacement::delete_folder(&folder.path).map_err(failed)?;
        std::fs::create_dir_all(&folder.path).map_err(failed)?;
        let tree = BlockTree::new(database::open(&folder.path)?, BlockSizes::default());
        let (waiting, digest) = (BTreeMap::new(), Digest::default());
        Ok(Self { tree, folder, waiting, waiting_bytes: 0, rows: 0, digest })
    }

    /// The rows that store a value, several if it is large. They are made apart from [`Self::put_row`], so that another
    /// thread can do it.
    pub fn rows_of(key: Vec<u8>, value: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        chunked::writes(key, value)
    }

    /// Adds a value.
    ///
    /// # Errors
    ///
    /// Fails if the new database cannot be written; the present one is as it was.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        Self::rows_of(key.to_vec(), value).iter().try_for_each(|(key, raw)| self.put_row(key, raw))
    }

    /// Adds a row as a database of this format stores it.
    ///
    /// # Errors
    ///
    /// As [`Self::put`].
    pub fn put_row(&mut self, key: &[u8], raw: &[u8]) -> io::Result<()> {
        if let Some(earlier) = self.waiting.insert(key.to_vec(), raw.into()) {
            self.digest.remove(key, &earlier);
        }
        self.digest.add(key, raw);
        self.rows += 1;
        self.waiting_bytes += key.len() + raw.len();
        if self.waiting_bytes > TOGETHER { self.put_waiting() } else { Ok(()) }
    }

    fn put_waiting(&mut self) -> io::Result<()> {
        self.waiting_bytes = 0;
        let waiting = std::mem::take(&mut self.waiting);
        let rows = waiting.iter().map(|(key, raw)| (key.as_slice(), Some(raw.clone())));
        block_changes::apply(&self.tree, rows, |key, earlier| self.digest.remove(key, earlier))
    }

    /// The number of rows so far.
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// Puts the new database on disk, so that only its place is missing.
    ///
    /// # Errors
    ///
    /// Fails if the disk has no room for it; the present database is as it was.
    pub fn finish(self) -> io::Result<FinishedDatabase> {
        self.finish_after(0)
    }

    /// Like [`NewDatabase::finish`], and continues to number groups after `commit`.
    pub(super) fn finish_after(mut self, commit: u64) -> io::Result<FinishedDatabase> {
        let number = commit + 1;
        self.put_waiting()?;
        let (key, row) = Commit { number, digest: self.digest }.row();
        self.put_row(&key, &row)?;
        self.put_waiting()?;
        let Self { tree, folder, .. } = self;
        drop(tree);
        let new = &folder.path;
        database::wait_until_closed(new)?;
        std::fs::write(new.join(commit_mark::FILE), commit_mark::text(number))?;
        format::write(new)?;
        database::sync(new)?;
        database::sync_folder(&folder.directory)?;
        Ok(FinishedDatabase(folder))
    }
}

impl FinishedDatabase {
    /// Puts the new database in the place of the present one.
    ///
    /// # Errors
    ///
    /// The present database is in its place still, or is moved back by the next start.
    pub fn install(self, previous: &Previous) -> io::Result<()> {
        replacement::put_in_place(&self.0.directory, previous)
    }
}

impl Drop for UnfinishedFolder {
    fn drop(&mut self) {
        if self.path.exists() {
            // The engine's threads end a moment after its handle, and would write to the folder.
            let _ = database::wait_until_closed(&self.path);
            let _ = replacement::delete_folder(&self.path);
        }
    }
}
