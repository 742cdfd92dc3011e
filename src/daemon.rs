//! The running server: `run(config, listener, shutdown)`.

use crate::config::Config;
use std::io::{self, Write as _};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Why the server stopped before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error("cannot serve: {0}")]
    Serve(#[from] io::Error),
}

/// Serves on `listener` until `shutdown` is cancelled.
///
/// # Errors
///
/// Fails if the address it listens on cannot be told.
pub async fn run(_config: Config, listener: TcpListener, shutdown: CancellationToken) -> Result<(), DaemonError> {
    let address = listener.local_addr()?;
    writeln!(io::stdout(), "listening on http://{address}")?;
    shutdown.cancelled().await;
    Ok(())
}
