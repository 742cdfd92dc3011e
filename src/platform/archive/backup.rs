//! Makes an archive from a store in use.

use super::{ARCHIVED_FILES, ArchiveEnd, ArchiveWriter, Manifest};
use crate::platform::store::{Snapshot, SnapshotError, Store, StoreError, keys};
use std::io::{self, Write};

/// Bytes of a line beside those that are counted: names, keys, quotes.
const LINE_OVERHEAD: u64 = 120;

/// Reason for which no archive was made.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error("the archive cannot be written: {0}")]
    Write(#[from] io::Error),
}

/// A backup that is about to be written: the snapshot of a store and the files beside it.
pub struct Backup {
    snapshot: Snapshot,
    files: Vec<(&'static str, Vec<u8>)>,
    manifest: Manifest,
}

impl Backup {
    /// Starts a backup of the store as it is now.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::Busy`] while there is another one.
    pub async fn start(store: &Store) -> Result<Self, BackupError> {
        let snapshot = store.snapshot().await?;
        let manifest = Manifest::new(estimate(store).map_err(SnapshotError::from)?);
        let mut files = Vec::new();
        for name in ARCHIVED_FILES {
            match std::fs::read(store.directory().join(name)) {
                Ok(content) => files.push((name, content)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Self { snapshot, files, manifest })
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Writes the archive. Blocks; a failing write ends it at once.
    ///
    /// # Errors
    ///
    /// The part that was written before is no whole archive then.
    pub fn write<W: Write + Send + 'static>(mut self, out: W) -> Result<(W, ArchiveEnd), BackupError> {
        let mut archive = ArchiveWriter::new(out, &self.manifest)?;
        for (name, content) in self.files {
            archive.file(name, &content)?;
        }
        loop {
            let chunk = self.snapshot.next_chunk()?;
            if chunk.is_empty() {
                break;
            }
            for (key, value) in chunk {
                match value {
                    Ok(value) => archive.row(&key, &value)?,
                    Err(error) => {
                        log::warn!("a backup goes on without a record: {error}");
                        archive.lose_rows(1);
                    }
                }
            }
        }
        // The old values of the snapshot need not be kept while the last lines are written.
        drop(self.snapshot);
        Ok(archive.finish()?)
    }
}

/// Bytes of the lines of an archive of this store, roughly: history and audit log are counted as they are written.
fn estimate(store: &Store) -> Result<u64, StoreError> {
    let mut bytes = LINE_OVERHEAD;
    for counter in [keys::HISTORY, keys::AUDIT_BYTES] {
        let counted = store.get(&[counter])?.and_then(|value| keys::number(&value, 0)).unwrap_or(0);
        bytes += counted + counted / 4;
    }
    Ok(bytes)
}
