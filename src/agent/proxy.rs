//! Forwards requests of programs in the space to the API of a linked server, with the agent's token; both bodies pass
//! unchanged.

use super::{server_links::ServerLinks, server_url::BearerToken};
use bytes::Bytes;
use futures_util::AsyncReadExt as _;
use http::{
    HeaderValue, Method, Request, StatusCode,
    header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, USER_AGENT},
};
use isahc::{
    HttpClient,
    config::{Configurable as _, RedirectPolicy},
};
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

/// Time for the connection. The time for the answer is the called method's timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval of TCP keepalive, which detects a dead peer of an idle connection.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// The longest answer: the bound of a batch's answers, and what is around them.
const MAX_ANSWER: u64 = 65 << 20;

/// Forwards requests to a linked server.
pub struct ServerProxy {
    links: Arc<ServerLinks>,
    token: BearerToken,
    /// Made on first use.
    client: OnceLock<HttpClient>,
}

/// A server's response.
pub struct ProxyResponse {
    pub status: StatusCode,
    pub content_type: Option<HeaderValue>,
    pub body: Bytes,
}

/// A request that no server answered.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    #[error("the agent is not connected to a server: `svc agent status` tells why")]
    NotConnected,
    #[error("{server} cannot be asked: {reason}")]
    Unreachable { server: String, reason: String },
}

impl ServerProxy {
    pub fn new(links: Arc<ServerLinks>, token: BearerToken) -> Self {
        Self { links, token, client: OnceLock::new() }
    }

    /// Sends a request to the first linked server, as the owner of the space. It waits for a link that is being made.
    ///
    /// # Errors
    ///
    /// Fails if no server is linked, or the server does not answer. A status of failure is no error here.
    pub async fn forward(&self, method: Method, path: &str, body: Bytes) -> Result<ProxyResponse, ProxyError> {
        self.links.wait_up().await;
        let links = self.links.up();
        let server = &links.first().ok_or(ProxyError::NotConnected)?.server;
        let unreachable = |error: &dyn std::fmt::Display| ProxyError::Unreachable {
            server: server.to_string(),
            reason: error.to_string(),
        };
        let mut request = Request::new(body.to_vec());
        *request.method_mut() = method;
        *request.uri_mut() =
            server.api_url(path).parse().map_err(|error: http::uri::InvalidUri| unreachable(&error))?;
        let headers = request.headers_mut();
        headers.insert(AUTHORIZATION, self.token.header());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("svc/", env!("CARGO_PKG_VERSION"))));
        let answer = self.client().map_err(|error| unreachable(&error))?.send_async(request).await;
        let (head, body) = answer.map_err(|error| unreachable(&error))?.into_parts();
        let mut bytes = Vec::new();
        let read = body.take(MAX_ANSWER + 1).read_to_end(&mut bytes).await.map_err(|error| unreachable(&error))?;
        if read as u64 > MAX_ANSWER {
            return Err(unreachable(&"its answer is too long"));
        }
        let content_type = head.headers.get(CONTENT_TYPE).cloned();
        Ok(ProxyResponse { status: head.status, content_type, body: bytes.into() })
    }

    fn client(&self) -> Result<&HttpClient, isahc::Error> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let made = HttpClient::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_keepalive(KEEPALIVE)
            // A redirect must not carry the token elsewhere.
            .redirect_policy(RedirectPolicy::None)
            // The link does not use a proxy either.
            .proxy(None)
            .automatic_decompression(false)
            .build()?;
        Ok(self.client.get_or_init(|| made))
    }
}
