//! Refusals of a request before its message is read. A wrong message is answered in JSON-RPC instead.

use super::origin_check::OriginError;

/// Streams that one user has open at once.
pub const STREAMS: usize = 16;

/// Refusal of a request to `/mcp`.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    #[error(transparent)]
    Origin(#[from] OriginError),
    #[error("there is no such session: initialize a new one")]
    UnknownSession,
    #[error("you listen on {STREAMS} streams already: close one first")]
    TooManyStreams,
    #[error("a stream needs a client that takes it: send `Accept: text/event-stream`")]
    StreamNotAccepted,
    #[error("from protocol version 2026-07-28 on there is no stream here: send subscriptions/listen")]
    NoStreamInVersion,
}
