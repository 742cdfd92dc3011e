//! Backup archives: everything in a data directory, as JSON lines in zstd frames.
//!
//! The first line is the [`Manifest`]. One line for each record follows ([`record`]): its kind by name, the parts of
//! its key, and its value as it is stored. The last line is the [`ArchiveEnd`]: the number of records, and a SHA-256 of
//! all lines before. An archive without it is incomplete, and nothing may follow it. An archive does not depend on the
//! files of the database it was made from.
//!
//! [`write`](mod@write) and [`read`] are the two directions. [`backup`] makes an archive from a store in use, and
//! [`restore`] makes a store from an archive; [`salvage`] makes one from a store that may be damaged.

pub mod backup;
mod error;
mod kinds;
mod manifest;
mod read;
mod record;
mod repair;
pub mod restore;
pub mod salvage;
mod write;

pub use error::ArchiveError;
pub use manifest::{ARCHIVE_VERSION, ArchiveEnd, Manifest};
pub use read::ArchiveReader;
pub use record::{ARCHIVED_FILES, ArchiveRecord};
pub use write::{ArchiveWriter, LINE_LIMIT};
