//! The number of the last group, kept in a file beside the database, so that a damaged database is not taken for a
//! younger one.
//!
//! Every group carries a number, and a digest of all rows. Once the group is on disk, its number is put into a file of its own, which is
//! therefore never ahead of a sound database, whatever kills the process. After a power cut the file may be behind, unless the
//! database was closed: the number is synced then, before the journal is deleted.

use super::{
    chunked::{self, Framed, Value},
    digest::Digest,
    frame, keys,
};
use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

/// The file's name, in the database's folder.
pub const FILE: &str = "mark";

/// Digits in the file, so that a longer number never leaves the end of another behind.
const DIGITS: usize = 20;

pub struct CommitMark {
    file: File,
    last: Commit,
}

/// The last group: its number, and the digest of all rows after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    pub number: u64,
    pub digest: Digest,
}

impl CommitMark {
    /// Continues after the last group in the database.
    pub fn open(database: &Path, last: Commit) -> io::Result<Self> {
        let file = File::options().write(true).create(true).truncate(false).open(database.join(FILE))?;
        Ok(Self { file, last })
    }

    /// The write that goes with the next group, which changes the digest so.
    pub fn next(&mut self, change: Digest) -> ([u8; 1], Vec<u8>) {
        self.last.number += 1;
        self.last.digest.merge(change);
        self.last.row()
    }

    /// The number of the last group.
    pub const fn number(&self) -> u64 {
        self.last.number
    }

    /// Notes the number of the group that has just reached the disk.
    pub fn note(&self) -> io::Result<()> {
        self.file.write_all_at(&text(self.last.number), 0)
    }

    /// Puts the number that was noted last on disk.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

impl Commit {
    /// The row that holds this.
    pub fn row(self) -> ([u8; 1], Vec<u8>) {
        let key = [keys::COMMIT];
        let value = [self.number.to_be_bytes().as_slice(), &self.digest.to_bytes()].concat();
        let raw = frame::seal(&key, chunked::WHOLE, &value);
        (key, raw)
    }

    /// Reads the row; `None` if it is damaged.
    pub fn of_row(raw: &Value) -> Option<Self> {
        match chunked::read(&[keys::COMMIT], raw) {
            Ok(Framed::Whole(value)) => {
                Some(Self { number: keys::number(&value, 0)?, digest: Digest::from_bytes(value.get(8..)?)? })
            }
            _ => None,
        }
    }
}

/// Returns the number in the file.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidData`] if the file is missing or holds no number: it is on disk before the database is used.
pub fn noted(file: &Path) -> io::Result<u64> {
    let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("`{FILE}` {what}"));
    match std::fs::read_to_string(file) {
        Ok(text) => text.trim().parse().map_err(|_| invalid("holds no number")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(invalid("is missing")),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(invalid("holds no number")),
        Err(error) => Err(error),
    }
}

/// The content of the file for this number. Made for every group, therefore without the machinery of formatting.
pub fn text(number: u64) -> [u8; DIGITS + 1] {
    let mut text = [b'\n'; DIGITS + 1];
    let mut rest = number;
    for digit in text[..DIGITS].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    text
}
