//! The format version of a database: a file in the database's folder, so that a replaced database brings its own.
//!
//! | format | rows |
//! |---|---|
//! | 1 | values without a checksum, events under their id; such a folder has no file |
//! | 2 | every value in a frame with a checksum, events under the time of their acceptance |
//! | 3 | the same, with a journal beside sled's file, and deliveries in a short form too |
//! | 4 | the same, with neighbouring rows in blocks too |
//! | 5 | the same, with large values compressed, and records of the journal compressed and at sectors |

use super::{commit_mark, database};
use std::{
    fs::File,
    io::{self, Write as _},
    path::Path,
};

/// The format that this version reads and writes.
pub const CURRENT: u32 = 5;

/// The oldest format that becomes the current one by its number alone.
pub const SECOND: u32 = 2;

/// The oldest format with a journal.
pub const THIRD: u32 = 3;

/// The oldest format, which had no file.
const FIRST: u32 = 1;

const FILE: &str = "format";

/// Returns the format of the database in this folder.
pub fn read(database: &Path) -> io::Result<u32> {
    let path = database.join(FILE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        // Format 1 kept this file elsewhere.
        Err(_) if database.join(commit_mark::FILE).exists() => return Err(invalid("is missing")),
        Err(_) => return Ok(FIRST),
    };
    match text.trim().parse() {
        Ok(format) if format > FIRST => Ok(format),
        _ => Err(invalid("holds no format version")),
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("`{FILE}` {what}"))
}

/// Notes in a database's folder that it has the current format.
pub fn write(database: &Path) -> io::Result<()> {
    let unfinished = database.join("format.new");
    let mut file = File::create(&unfinished)?;
    writeln!(file, "{CURRENT}")?;
    file.sync_all()?;
    std::fs::rename(unfinished, database.join(FILE))?;
    database::sync_folder(database)
}
