//! A database that is built aside and put in the place of the present one when it is whole.
//!
//! It grows in the folder `sled.new` of the data directory. [`NewDatabase::install`] syncs it, moves the present
//! database to `sled.old` and the new one to `sled`. [`recover`] cleans up after a process that died in between: without a
//! `sled` the old one moves back, and whatever else is left over is deleted.

use super::{StoreOpenError, chunked, commit_mark, database, format};
use std::{
    io,
    path::{Path, PathBuf},
};

/// Rows and bytes that are written to the new database at once.
const GROUP_ROWS: usize = 1000;
const GROUP_BYTES: usize = 4 << 20;

/// Use of the database that a new one replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Previous {
    Delete,
    /// Keeps it in the data directory under this name.
    Keep(String),
}

/// A database that is being built.
pub struct NewDatabase {
    directory: PathBuf,
    tree: sled::Db,
    group: sled::Batch,
    group_rows: usize,
    group_bytes: usize,
    rows: u64,
}

impl NewDatabase {
    /// Begins a database for this data directory, whose lock the caller holds.
    ///
    /// # Errors
    ///
    /// Fails if the directory cannot be written.
    pub fn create(directory: &Path) -> Result<Self, StoreOpenError> {
        let path = unfinished(directory);
        let failed = |source| StoreOpenError::Directory { path: path.clone(), source };
        delete_folder(&path).map_err(failed)?;
        std::fs::create_dir_all(&path).map_err(failed)?;
        let tree = database::open(&path)?;
        let directory = directory.to_owned();
        Ok(Self { directory, tree, group: sled::Batch::default(), group_rows: 0, group_bytes: 0, rows: 0 })
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

    /// Puts the new database on disk and then in the place of the present one.
    ///
    /// # Errors
    ///
    /// The present database is in its place still, or is moved back by the next start.
    pub fn install(self, previous: &Previous) -> io::Result<()> {
        self.install_after(0, previous)
    }

    /// Like [`NewDatabase::install`], and continues to number groups after `commit`.
    pub(super) fn install_after(mut self, commit: u64, previous: &Previous) -> io::Result<()> {
        let number = commit + 1;
        let (key, row) = commit_mark::row(number);
        self.put_raw(&key, &row)?;
        self.write_group()?;
        self.tree.flush()?;
        let Self { directory, tree, .. } = self;
        drop(tree);
        let (new, old, place) = (unfinished(&directory), replaced(&directory), database::path(&directory));
        database::wait_until_closed(&new)?;
        std::fs::write(new.join(commit_mark::FILE), commit_mark::text(number))?;
        format::write(&new)?;
        database::sync(&new)?;
        database::sync_folder(&directory)?;
        delete_folder(&old)?;
        if place.exists() {
            std::fs::rename(&place, &old)?;
        }
        std::fs::rename(&new, &place)?;
        database::sync_folder(&directory)?;
        if !old.exists() {
            return Ok(());
        }
        match previous {
            Previous::Delete => delete_folder(&old)?,
            Previous::Keep(name) => std::fs::rename(&old, free_name(&directory, name))?,
        }
        database::sync_folder(&directory)
    }

    fn write_group(&mut self) -> io::Result<()> {
        self.tree.apply_batch(std::mem::take(&mut self.group))?;
        (self.group_rows, self.group_bytes) = (0, 0);
        Ok(())
    }
}

/// Name under which a database of an older format is kept.
pub fn migrated_name(format: u32) -> String {
    format!("sled.format-{format}")
}

/// Ends a replacement that a process began and did not finish. The caller holds the directory's lock.
pub fn recover(directory: &Path) -> io::Result<()> {
    let (new, old, place) = (unfinished(directory), replaced(directory), database::path(directory));
    if old.exists() {
        if !place.exists() {
            std::fs::rename(&old, &place)?;
        } else {
            match format::read(&old) {
                Ok(format) if format < format::CURRENT => {
                    std::fs::rename(&old, free_name(directory, &migrated_name(format)))?;
                }
                _ => delete_folder(&old)?,
            }
        }
        database::sync_folder(directory)?;
    }
    delete_folder(&new)
}

/// True if the database of this directory is under its name for a replaced one, which [`recover`] mends.
pub fn is_replaced(directory: &Path) -> bool {
    replaced(directory).exists()
}

fn unfinished(directory: &Path) -> PathBuf {
    directory.join("sled.new")
}

fn replaced(directory: &Path) -> PathBuf {
    directory.join("sled.old")
}

/// The database that [`recover`] would leave in place: the replaced one if there is no other.
pub fn present(directory: &Path) -> Option<PathBuf> {
    [database::path(directory), replaced(directory)].into_iter().find(|path| path.exists())
}

/// A name in the directory that begins with `name` and is not taken.
fn free_name(directory: &Path, name: &str) -> PathBuf {
    let names = std::iter::once(name.to_owned()).chain((2..).map(|number| format!("{name}.{number}")));
    let mut paths = names.map(|name| directory.join(name));
    paths.find(|path| !path.exists()).expect("the numbers do not end")
}

fn delete_folder(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
