//! The number of the last group, kept in a file beside the database, so that a damaged database is not taken for a
//! younger one.
//!
//! sled opens a database with damaged bytes as if what follows them had never been written. So every group carries a
//! number, and once a second and at the end that number is put into a file of its own. The file is written after the
//! group is on disk and is never ahead of a sound database, whatever kills the process.

use super::{StoreOpenError, keys};
use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::Path,
    time::{Duration, Instant},
};

/// Interval at which the file is written while groups are.
const EVERY: Duration = Duration::from_secs(1);

/// Digits in the file, so that a longer number never leaves the end of another behind.
const DIGITS: usize = 20;

pub(super) struct CommitMark {
    file: File,
    number: u64,
    noted: Instant,
}

impl CommitMark {
    /// # Errors
    ///
    /// Fails if the database ends before the number in the file, or the file cannot be read.
    pub fn open(directory: &Path, tree: &sled::Db) -> Result<Self, StoreOpenError> {
        let path = directory.join("mark");
        let wrong = |source| StoreOpenError::Directory { path: path.clone(), source };
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(wrong)?;
        let noted: u64 = match io::read_to_string(&file).map_err(wrong)?.trim() {
            "" => 0,
            text => text.parse().map_err(|_| wrong(io::ErrorKind::InvalidData.into()))?,
        };
        let stored = tree
            .get([keys::COMMIT])
            .map_err(|error| StoreOpenError::Database { path: directory.join("sled"), reason: error.to_string() })?;
        let number = stored.and_then(|value| keys::number(&value, 0)).unwrap_or(0);
        if number < noted {
            return Err(StoreOpenError::Damaged { path: directory.to_owned(), stored: number, noted });
        }
        Ok(Self { file, number, noted: Instant::now() })
    }

    /// The write that numbers the next group.
    pub fn next(&mut self) -> ([u8; 1], [u8; 8]) {
        self.number += 1;
        ([keys::COMMIT], self.number.to_be_bytes())
    }

    /// Called once the group is on disk. Writes the file if it is time to; a later write makes up for one that fails.
    pub fn committed(&mut self) {
        if self.noted.elapsed() >= EVERY {
            let _ = self.note();
        }
    }

    /// Writes the file now.
    pub fn note(&mut self) -> io::Result<()> {
        self.noted = Instant::now();
        self.file.write_all_at(format!("{:0DIGITS$}\n", self.number).as_bytes(), 0)
    }
}
