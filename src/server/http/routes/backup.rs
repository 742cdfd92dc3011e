//! `GET /api/backup`: everything the server holds, as one archive.
//!
//! A thread reads the store and compresses; the response takes from a short channel, so that a slow client makes the
//! thread wait. A client that goes away, or does not read until the connection's write timeout, ends the backup.

use crate::{
    platform::{
        archive::{
            ArchiveEnd,
            backup::{Backup, BackupError},
        },
        store::SnapshotError,
    },
    server::http::{ApiError, ApiRequest, ArchiveStream, services::BackupServices},
};
use bytes::Bytes;
use futures_util::stream;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use serde_json::json;
use std::{
    io::{self, BufWriter, Write},
    sync::Arc,
};
use tokio::sync::mpsc;

/// The bytes of the archive before compression, roughly.
const ESTIMATE: HeaderName = HeaderName::from_static("svc-backup-bytes");

/// Compressed bytes that are sent at once, and the number of such pieces that may wait for the client.
const PIECE: usize = 256 << 10;
const PIECES: usize = 4;

/// The end of the thread: pieces of the archive for the response.
struct ResponseWriter(mpsc::Sender<io::Result<Bytes>>);

pub async fn create(services: Arc<BackupServices>, request: ApiRequest) -> Result<ArchiveStream, ApiError> {
    let caller = request.caller().clone();
    let backup = Backup::start(&services.store).await?;
    let manifest = backup.manifest();
    let entry = caller.audit_entry("backup.create", "store");
    services.audit.note(entry.with(json!({"bytes_estimate": manifest.bytes_estimate})));
    let estimate = HeaderValue::from(manifest.bytes_estimate);
    let (pieces, taken) = mpsc::channel(PIECES);
    tokio::task::spawn_blocking(move || {
        let written = write(backup, ResponseWriter(pieces.clone()));
        match written {
            Ok(end) => log::info!("a backup of {} records was made", end.rows),
            Err(BackupError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                log::warn!("a backup was broken off: its reader is gone, or the server stops");
            }
            Err(error) => {
                log::warn!("a backup was broken off: {error}");
                let _ = pieces.blocking_send(Err(io::Error::other(error)));
            }
        }
    });
    let (identity, shutdown) = (services.identity.clone(), request.shutdown.clone());
    let ended = async move {
        tokio::select! {
            () = identity.wait_until_invalid(&caller) => {}
            () = shutdown.cancelled() => {}
        }
    };
    let body = stream::unfold(Some((taken, Box::pin(ended))), |state| async move {
        let (mut taken, mut ended) = state?;
        tokio::select! {
            // The error breaks the connection off, so that nobody takes the response for a whole one.
            () = &mut ended => Some((Err(io::ErrorKind::ConnectionAborted.into()), None)),
            piece = taken.recv() => match piece? {
                Ok(piece) => Some((Ok(piece), Some((taken, ended)))),
                Err(error) => Some((Err(error), None)),
            },
        }
    });
    let mut response = warp::Reply::into_response(warp::reply::stream(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/zstd"));
    response.headers_mut().insert(ESTIMATE, estimate);
    Ok(ArchiveStream(response))
}

fn write(backup: Backup, out: ResponseWriter) -> Result<ArchiveEnd, BackupError> {
    let (mut out, end) = backup.write(BufWriter::with_capacity(PIECE, out))?;
    out.flush()?;
    Ok(end)
}

impl Write for ResponseWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        sent.map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl From<BackupError> for ApiError {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::Snapshot(SnapshotError::Store(error)) => error.into(),
            BackupError::Snapshot(error @ SnapshotError::Busy) => Self::Conflict(error.to_string()),
            BackupError::Snapshot(error @ SnapshotError::TooManyChanges) => Self::Unavailable(error.to_string()),
            BackupError::Write(error) => Self::Internal(error.to_string()),
        }
    }
}
