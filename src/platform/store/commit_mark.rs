//! The number of the last group, kept in a file beside the database, so that a damaged database is not taken for a
//! younger one.
//!
//! Every group carries a number. Once the group is on disk, its number is put into a file of its own, which is
//! therefore never ahead of a sound database, whatever kills the process. After a power cut the file may be behind.

use super::{
    chunked::{self, Framed, Value},
    frame, keys,
};
use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

/// The file's name, in the database's folder.
pub const FILE: &str = "mark";

/// Digits in the file, so that a longer number never leaves the end of another behind.
const DIGITS: usize = 20;

pub struct CommitMark {
    file: File,
    number: u64,
}

impl CommitMark {
    /// Continues after group `number`, the last one in the database.
    pub fn open(database: &Path, number: u64) -> io::Result<Self> {
        let file = File::options().write(true).create(true).truncate(false).open(database.join(FILE))?;
        Ok(Self { file, number })
    }

    /// The write that numbers the next group.
    pub fn next(&mut self) -> ([u8; 1], Vec<u8>) {
        self.number += 1;
        row(self.number)
    }

    /// Notes the number of the group that has just reached the disk.
    pub fn note(&self) -> io::Result<()> {
        self.file.write_all_at(&text(self.number), 0)
    }
}

/// The row that holds the number of the last group.
pub fn row(number: u64) -> ([u8; 1], Vec<u8>) {
    let key = [keys::COMMIT];
    let value = frame::seal(&key, chunked::WHOLE, &number.to_be_bytes());
    (key, value)
}

/// The number in that row; `None` if the row is damaged.
pub fn number(row: &Value) -> Option<u64> {
    match chunked::read(&[keys::COMMIT], row) {
        Ok(Framed::Whole(value)) => keys::number(&value, 0),
        _ => None,
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

/// The content of the file for this number.
pub fn text(number: u64) -> Vec<u8> {
    format!("{number:0DIGITS$}\n").into_bytes()
}
