//! Damage: a place in the files of a database that does not hold what sled wrote there.

use std::fmt;

/// Damages that are kept with their place; further ones are only counted.
const KEPT: usize = 64;

/// One damaged place. Its text is one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The name of the file inside the database's directory.
    pub file: String,
    /// The byte at which the damaged part begins, where one is known.
    pub offset: Option<u64>,
    pub what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            Some(offset) => write!(f, "`{}` at byte {offset}: {}", self.file, self.what),
            None => write!(f, "`{}`: {}", self.file, self.what),
        }
    }
}

/// The damages that were found, in the order in which they were.
#[derive(Debug, Default)]
pub(super) struct Damages {
    pub list: Vec<Damage>,
    pub count: u64,
}

impl Damages {
    pub fn add(&mut self, file: &str, offset: Option<u64>, what: impl Into<String>) {
        self.count += 1;
        if self.list.len() < KEPT {
            self.list.push(Damage { file: file.to_owned(), offset, what: what.into() });
        }
    }

    /// Adds damage of the log itself.
    pub fn log(&mut self, offset: Option<u64>, what: impl Into<String>) {
        self.add(LOG, offset, what);
    }
}

/// The name of the log inside the database's directory.
pub(super) const LOG: &str = "db";
