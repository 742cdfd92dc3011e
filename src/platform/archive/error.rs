//! Faults of an archive, each in one line.

use std::io;

/// Reason for which an archive cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("it cannot be read: {0}")]
    Unreadable(io::Error),
    #[error("it is no backup of svc: {0}")]
    Foreign(String),
    #[error(
        "its {what} has version {found}, and this svc {} reads up to version {known}: use svc {made_by} or later",
        env!("CARGO_PKG_VERSION")
    )]
    Newer { what: &'static str, found: u32, known: u32, made_by: String },
    #[error("it is incomplete: it ends after {rows} records, without the line that ends an archive")]
    Incomplete { rows: u64 },
    #[error("it is damaged after {rows} records: {why}")]
    Damaged { rows: u64, why: String },
}
