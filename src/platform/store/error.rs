//! Errors of the store. The variant of a [`StoreError`] tells the caller whether to wait, to retry or to ask the operator
//! for a restart, so that no caller has to parse a message.

use super::keys;
use std::{fmt::Display, io, path::PathBuf, sync::Arc, time::Duration};

/// Reason for which a data directory could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreOpenError {
    #[error("cannot use data directory {}: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("data directory {} is in use by another svc server: stop it, or give this one its own with --data", .0.display())]
    InUse(PathBuf),
    #[error(
        "the database in {} is damaged: it ends at write {stored}, and the server had got to {noted}. Restore a backup, \
         or delete the file `mark` there to go on with what is left",
        path.display()
    )]
    Damaged { path: PathBuf, stored: u64, noted: u64 },
    #[error("cannot open the database in {}: {reason}", path.display())]
    Database { path: PathBuf, reason: String },
}

/// Reason for which a read or a write failed. Nothing was written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The same write may succeed once there is room.
    #[error("the disk under the data directory is almost full: free some space")]
    DiskFull,
    /// A write has failed, which is final: every further write is refused until the server is restarted.
    #[error("the store has stopped after an error and needs a restart: {0}")]
    Stopped(String),
    /// One record cannot be decoded. The store goes on, and so does everything that does not need this record.
    #[error("the stored {kind} {key} is damaged: {reason}")]
    Damaged { kind: &'static str, key: String, reason: String },
    /// The database could not be read. The same read may succeed later.
    #[error("the database cannot be read: {0}")]
    Unreadable(Arc<io::Error>),
    /// The server is shutting down and accepts no further writes.
    #[error("the server is stopping: try again when it is back")]
    Closing,
}

impl StoreError {
    /// The record under `key` cannot be decoded for this reason.
    pub fn damaged(key: &[u8], reason: impl Display) -> Self {
        Self::Damaged { kind: keys::kind_name(key), key: keys::display(key), reason: reason.to_string() }
    }

    /// The code of this error in the HTTP APIs of server and agent. Programs rely on it.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::DiskFull => "disk_full",
            Self::Stopped(_) => "store_stopped",
            Self::Damaged { .. } => "damaged_record",
            Self::Unreadable(_) => "store_unreadable",
            Self::Closing => "stopping",
        }
    }

    /// The time after which a client may try again; `None` if the error does not pass by itself.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::DiskFull => Some(Duration::from_secs(60)),
            Self::Closing => Some(Duration::from_secs(5)),
            Self::Stopped(_) | Self::Damaged { .. } | Self::Unreadable(_) => None,
        }
    }

    pub(super) fn unreadable(error: sled::Error) -> Self {
        Self::Unreadable(Arc::new(error.into()))
    }
}
