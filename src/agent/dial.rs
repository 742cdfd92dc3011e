//! Connects to a server: TCP, TLS for `https`, and the WebSocket handshake.

use super::{
    liveness::{CountedStream, LinkActivity},
    server_url::{BearerToken, ServerUrl},
};
use crate::{model::agent_protocol, platform::tls};
use http::StatusCode;
use std::{fmt, io, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::OnceCell,
};
use tokio_rustls::{TlsConnector, rustls};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{self, protocol::WebSocketConfig},
};

/// Time for the connection and both handshakes together.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Size of the socket's read buffer, and of the write buffer before it is flushed unasked.
const BUFFER: usize = 64 << 10;

/// Characters of a server's own message that are repeated in an error.
const MAX_SERVER_MESSAGE: usize = 300;

/// Connects to servers.
#[derive(Default)]
pub struct Dialer {
    /// Made on first use, because it reads the system's certificates.
    tls: OnceCell<TlsConnector>,
}

/// An open WebSocket, before the first message.
pub type Socket = WebSocketStream<Box<dyn ByteStream>>;

/// The stream below a WebSocket, with or without TLS.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// A connection that failed, by its step.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    #[error("TLS: {0}")]
    Tls(io::Error),
    #[error("cannot use TLS here: {0}")]
    NoTls(rustls::Error),
    #[error(
        "the server refused the token ({status}{message}): give this agent the one that `svc space token NAME` prints, in \
         SVC_AGENT_TOKEN"
    )]
    TokenRefused { status: u16, message: ServerMessage },
    /// Any other HTTP status instead of a WebSocket.
    #[error("the server answered {status}{message}")]
    Answered { status: u16, message: ServerMessage },
    #[error("no WebSocket: {0}")]
    Handshake(Box<tungstenite::Error>),
    #[error("no answer within {} s", DIAL_TIMEOUT.as_secs())]
    Timeout,
}

/// The message in a server's error body, if the body has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerMessage(Option<String>);

impl Dialer {
    /// Connects to `server` with the token. The bytes of the link are counted in `activity`.
    ///
    /// # Errors
    ///
    /// Says at which step it failed.
    pub async fn dial(
        &self,
        server: &ServerUrl,
        token: &BearerToken,
        activity: Arc<LinkActivity>,
    ) -> Result<Socket, DialError> {
        let dialled = tokio::time::timeout(DIAL_TIMEOUT, self.connect(server, token, activity));
        dialled.await.unwrap_or(Err(DialError::Timeout))
    }

    async fn connect(
        &self,
        server: &ServerUrl,
        token: &BearerToken,
        activity: Arc<LinkActivity>,
    ) -> Result<Socket, DialError> {
        let tcp = TcpStream::connect(server.endpoint()).await.map_err(DialError::Connect)?;
        // Messages are batched before they are sent; waiting for more would only delay them.
        let _ = tcp.set_nodelay(true);
        let counted = CountedStream::new(tcp, activity);
        let stream: Box<dyn ByteStream> = match server.is_secure() {
            false => Box::new(counted),
            true => {
                let tls = self.tls.get_or_try_init(tls_connector).await.map_err(DialError::NoTls)?;
                Box::new(tls.connect(server.certificate_name(), counted).await.map_err(DialError::Tls)?)
            }
        };
        let config = WebSocketConfig::default()
            .read_buffer_size(BUFFER)
            .write_buffer_size(BUFFER)
            .max_message_size(Some(agent_protocol::MAX_MESSAGE))
            .max_frame_size(Some(agent_protocol::MAX_MESSAGE));
        let request = server.socket_request(token).map_err(|error| DialError::Handshake(Box::new(error)))?;
        match tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await {
            Ok((socket, _)) => Ok(socket),
            Err(tungstenite::Error::Http(response)) => {
                let message = ServerMessage::of_body(response.body().as_deref().unwrap_or_default());
                let status = response.status().as_u16();
                Err(match response.status() {
                    // The server's message is about headers and users' tokens, which do not help here.
                    StatusCode::UNAUTHORIZED => DialError::TokenRefused { status, message: ServerMessage(None) },
                    StatusCode::FORBIDDEN => DialError::TokenRefused { status, message },
                    _ => DialError::Answered { status, message },
                })
            }
            Err(error) => Err(DialError::Handshake(Box::new(error))),
        }
    }
}

async fn tls_connector() -> Result<TlsConnector, rustls::Error> {
    // On a blocking thread, because it reads files.
    let made = tokio::task::spawn_blocking(tls::verifying_config).await;
    made.unwrap_or_else(|panic| Err(rustls::Error::General(panic.to_string()))).map(TlsConnector::from)
}

impl ServerMessage {
    /// Reads `{"error":{"message":…}}`, the shape of this API's errors; other bodies are not repeated.
    fn of_body(body: &[u8]) -> Self {
        let body = serde_json::from_slice::<serde_json::Value>(body).ok();
        let message = body.as_ref().and_then(|body| body["error"]["message"].as_str());
        Self(message.map(|message| message.chars().take(MAX_SERVER_MESSAGE).collect()))
    }
}

impl fmt::Display for ServerMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(message) => write!(f, ": {message}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dialer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tls_needs_no_default_crypto_provider_of_the_process() {
        // A machine without certificates gives an error, which is fine; a panic over crypto providers is not.
        let error = tls_connector().await.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(!error.contains("panic"), "{error}");
    }
}
