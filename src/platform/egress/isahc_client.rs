//! The client on isahc, which is curl: for receivers that need what only curl can do (`egress.client = "isahc"`).

use super::exchange::{AGENT_NAME, Completeness, DRAIN, EgressError, OutboundRequest, OutboundResponse, Tls};
use futures_util::AsyncReadExt;
use http::{HeaderValue, header::USER_AGENT};
use isahc::{
    AsyncBody, HttpClient,
    config::{Configurable, RedirectPolicy},
    error::ErrorKind,
    net::Dialer,
    tls::TlsConfig,
};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    net::SocketAddr,
    time::Duration,
};
use tokio::sync::OnceCell;
use url::Url;

/// Each client is one thread; a host always gets the same one, so that its connections are reused.
const CLIENTS: usize = 2;

/// Idle connections each client keeps, and for how long.
const IDLE_CONNECTIONS: usize = 256;
const IDLE_FOR: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct IsahcClient {
    /// Created on first use: a daemon that sends nothing does not pay for them.
    clients: [OnceCell<HttpClient>; CLIENTS],
}

impl IsahcClient {
    /// Sends a request to this address and reads the response. The caller limits the time of the whole exchange, of
    /// which `left` is left.
    pub async fn send(
        &self,
        request: &OutboundRequest,
        address: SocketAddr,
        left: Duration,
        connect: Duration,
    ) -> Result<OutboundResponse, EgressError> {
        let url = &*request.url;
        let pinned = pin(request, address, left, connect)?;
        let fault = |error| fault(error, url, address);
        read(self.client(url).await?.send_async(pinned).await.map_err(fault)?, request.keep).await.map_err(fault)
    }

    async fn client(&self, url: &Url) -> Result<&HttpClient, EgressError> {
        let mut hasher = DefaultHasher::new();
        url.authority().hash(&mut hasher);
        let index = hasher.finish() % CLIENTS as u64;
        let make = || async {
            HttpClient::builder()
                .connection_cache_size(IDLE_CONNECTIONS)
                .connection_cache_ttl(IDLE_FOR)
                .build()
                .map_err(|error| EgressError::Client(error.to_string()))
        };
        self.clients[index as usize].get_or_try_init(make).await
    }
}

/// The request for the HTTP client, pinned to one address.
fn pin(
    request: &OutboundRequest,
    address: SocketAddr,
    left: Duration,
    connect: Duration,
) -> Result<http::Request<AsyncBody>, EgressError> {
    // Our own timeout ends the wait; the client's, a little later, frees the connection that we no longer use.
    let mut builder = isahc::Request::builder()
        .method(request.method.clone())
        .uri(request.url.as_str())
        .dial(Dialer::ip_socket(address))
        .redirect_policy(RedirectPolicy::None)
        .proxy(None)
        .automatic_decompression(false)
        .expect_continue(false)
        .tcp_nodelay()
        .connect_timeout(connect)
        .timeout(left + Duration::from_secs(1));
    if request.tls == Tls::SkipVerify {
        let trusting = TlsConfig::builder().danger_accept_invalid_certs(true).danger_accept_invalid_hosts(true).build();
        builder = builder.tls_config(trusting);
    }
    if let Some(headers) = builder.headers_mut() {
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT_NAME));
        headers.extend(request.headers.clone());
    }
    // Held as bytes, not as a stream: the client sends them anew when an idle connection turns out to be closed.
    let body = if request.is_bodiless() { AsyncBody::empty() } else { AsyncBody::from(request.body.to_vec()) };
    builder.body(body).map_err(|error| EgressError::Client(error.to_string()))
}

async fn read(response: http::Response<AsyncBody>, keep: usize) -> Result<OutboundResponse, isahc::Error> {
    let (parts, mut body) = response.into_parts();
    let mut kept = Vec::new();
    let mut seen = 0;
    let mut chunk = vec![0; 4 << 10];
    while seen <= keep.max(DRAIN) {
        let count = body.read(&mut chunk).await?;
        if count == 0 {
            break;
        }
        seen += count;
        kept.extend_from_slice(&chunk[..count.min(keep - kept.len())]);
    }
    let completeness = if seen > kept.len() { Completeness::Cut } else { Completeness::Whole };
    Ok(OutboundResponse { status: parts.status, headers: parts.headers, body: kept.into(), completeness })
}

/// A timeout is the one for connecting: the timeout of the whole exchange is the caller's and would have ended the
/// wait.
fn fault(error: isahc::Error, url: &Url, address: SocketAddr) -> EgressError {
    let reason = error.to_string();
    match error.kind() {
        ErrorKind::ConnectionFailed | ErrorKind::Timeout => EgressError::Connect { address, reason },
        ErrorKind::BadServerCertificate => {
            EgressError::Certificate { host: url.host_str().unwrap_or_default().to_owned(), reason }
        }
        ErrorKind::Io | ErrorKind::ProtocolViolation | ErrorKind::InvalidContentEncoding => EgressError::Broken(reason),
        _ => EgressError::Client(reason),
    }
}
