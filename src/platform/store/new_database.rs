//! A database that is built aside, in the folder `sled.new` of the data directory, and put in the place of the present one
//! when it is whole ([`replacement`]). Dropping it before deletes the folder.

use super::{
    StoreOpenError, chunked,
    commit_mark::{self, Commit},
    database,
    digest::Digest,
    format,
    replacement::{self, Previous},
};
use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
};

/// Rows and bytes that are written to the new database at once.
const GROUP_ROWS: usize = 1000;
const GROUP_BYTES: usize = 4 << 20;

/// A database that is being built.
pub struct NewDatabase {
    // It is closed before its folder is deleted.
    tree: sled::Db,
    folder: UnfinishedFolder,
    group: sled::Batch,
    group_rows: usize,
    group_bytes: usize,
    rows: u64,
    digest: Digest,
    /// The last key of each kind. A key that follows it is new.
    last_keys: HashMap<u8, Vec<u8>>,
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
        let tree = database::open(&folder.path)?;
        Ok(Self {
            tree,
            folder,
            group: sled::Batch::default(),
            group_rows: 0,
            group_bytes: 0,
            rows: 0,
            digest: Digest::default(),
            last_keys: HashMap::new(),
        })
    }

    /// Adds a value, in pieces if it is large.
    ///
    /// # Errors
    ///
    /// Fails if the new database cannot be written; the present one is as it was.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        chunked::writes(key.to_vec(), value).into_iter().try_for_each(|(key, raw)| self.put_raw(&key, &raw))
    }

    /// Adds a row as another database of this format stores it.
    pub(super) fn put_raw(&mut self, key: &[u8], raw: &[u8]) -> io::Result<()> {
        self.count(key, raw)?;
        self.group.insert(key, raw);
        self.group_rows += 1;
        self.group_bytes += key.len() + raw.len();
        self.rows += 1;
        if self.group_rows >= GROUP_ROWS || self.group_bytes >= GROUP_BYTES {
            self.write_group()?;
        }
        Ok(())
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
        self.write_group()?;
        let number = commit + 1;
        let (key, row) = Commit { number, digest: self.digest }.row();
        self.put_raw(&key, &row)?;
        self.write_group()?;
        self.tree.flush()?;
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

    /// Counts a row in the digest, in place of an earlier one with its key.
    fn count(&mut self, key: &[u8], raw: &[u8]) -> io::Result<()> {
        let last = self.last_keys.entry(key.first().copied().unwrap_or(0)).or_default();
        if key > last.as_slice() {
            last.clear();
            last.extend_from_slice(key);
        } else {
            self.write_group()?;
            if let Some(earlier) = self.tree.get(key)? {
                self.digest.remove(key, &earlier);
            }
        }
        self.digest.add(key, raw);
        Ok(())
    }

    fn write_group(&mut self) -> io::Result<()> {
        self.tree.apply_batch(std::mem::take(&mut self.group))?;
        (self.group_rows, self.group_bytes) = (0, 0);
        Ok(())
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
