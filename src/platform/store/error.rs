//! Errors of the store. The variant of a [`StoreError`] tells the caller whether to wait, to retry or to ask the operator
//! for a restart, so that no caller has to parse a message.

use super::keys;
use std::{
    fmt::Display,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Reason for which a data directory could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreOpenError {
    #[error("cannot use data directory {}: {}", path.display(), reason_and_way_out(source))]
    Directory { path: PathBuf, source: io::Error },
    /// Nothing on disk was changed.
    #[error(
        "cannot use data directory {}: it {reason}. Give svc a directory of its own with --data: an empty one, or one that \
         does not exist yet",
        path.display()
    )]
    ForeignDirectory { path: PathBuf, reason: &'static str },
    /// Nothing on disk was changed.
    #[error(
        "data directory {} belongs to another user of this machine, with the id {owner}: run this as that user, or give it a \
         directory of its own with --data",
        path.display()
    )]
    NotOwner { path: PathBuf, owner: u32 },
    #[error("data directory {} is in use by another svc server: stop it, or give this one its own with --data", .0.display())]
    InUse(PathBuf),
    #[error("{} holds no database of svc: give the directory that the server uses with --data", .0.display())]
    NoDatabase(PathBuf),
    /// Nothing on disk was changed.
    #[error(
        "the database in {} is damaged: {reason}. Restore a backup (`svc restore FILE --data DIR --force`), or save what is \
         readable of it (`svc store salvage FILE --data DIR`)",
        path.display()
    )]
    Damaged { path: PathBuf, reason: String },
    #[error(
        "the database in {} has format {found}, and this version of svc knows formats up to {known}: start the newer \
         version that wrote it, or restore a backup into another directory",
        path.display()
    )]
    NewerFormat { path: PathBuf, found: u32, known: u32 },
    #[error(
        "the database in {} has format {found}, and this version of svc writes format {known}: start without \
         --no-migrate to rewrite it (the old database is kept), or use the older version",
        path.display()
    )]
    OlderFormat { path: PathBuf, found: u32, known: u32 },
    #[error(
        "a restore into {} was broken off: run `svc restore FILE --data {}` again{way_back}",
        path.display(),
        path.display()
    )]
    UnfinishedRestore { path: PathBuf, way_back: String },
}

impl StoreOpenError {
    /// The database in this folder is damaged for this reason.
    pub(super) fn damaged(database: &Path, reason: &str) -> Self {
        Self::Damaged { path: database.to_owned(), reason: reason.to_owned() }
    }
}

/// Tells why a directory could not be used, and what to do about it where that is known.
fn reason_and_way_out(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "its disk is full. Free some space, or give svc a directory on another disk with --data".to_owned()
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "its file system is mounted read-only. Give svc a directory that it can write to with --data".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            format!("{error}. Run svc as the user it belongs to, or give svc another directory with --data")
        }
        _ => error.to_string(),
    }
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

/// Turns a damaged record into an absent one, for steps that go on without the record.
///
/// # Errors
///
/// Every other error of the read.
pub fn readable<T>(read: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Ok(record) => Ok(Some(record)),
        Err(StoreError::Damaged { .. }) => Ok(None),
        Err(error) => Err(error),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_directory_on_a_full_disk_is_refused_with_the_way_out() {
        let full = || io::Error::from_raw_os_error(libc::ENOSPC);
        // sled makes errors of its own from those of the operating system.
        for source in [full(), io::Error::new(io::ErrorKind::StorageFull, format!("{:?}", full()))] {
            let error = StoreOpenError::Directory { path: "/data".into(), source };
            assert_eq!(
                error.to_string(),
                "cannot use data directory /data: its disk is full. Free some space, or give svc a directory on another \
                 disk with --data"
            );
        }
    }
}
