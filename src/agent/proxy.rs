//! The way to a server's own API, for what runs in the space: the agent asks one that is linked, with its own token, and
//! passes both bodies on as they are.

use super::Agent;
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
use std::{sync::OnceLock, time::Duration};

/// How long a server may take to pick up. How long it takes to answer is the method's business.
const CONNECT: Duration = Duration::from_secs(10);

/// How often an idle connection is checked for a dead peer, which would otherwise never be noticed.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// The longest answer: what the answers of a batch may have together, and what is around them.
const LONGEST: u64 = 65 << 20;

/// The HTTP client, made when it is first needed.
#[derive(Default)]
pub struct Passage(OnceLock<HttpClient>);

/// What a server answered.
pub struct Passed {
    pub status: StatusCode,
    pub kind: Option<HeaderValue>,
    pub body: Bytes,
}

/// Why no server answered.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    #[error("the agent is not connected to a server: `svc agent status` tells why")]
    NotConnected,
    #[error("{server} cannot be asked: {why}")]
    Unreachable { server: String, why: String },
}

impl Agent {
    /// Asks one of the servers that are linked, as the owner of the space.
    ///
    /// # Errors
    ///
    /// Fails if there is none, or none that answers. Whatever it answers is no error here.
    pub async fn pass(&self, method: Method, path: &str, body: Bytes) -> Result<Passed, PassError> {
        let links = self.links.up();
        let server = &links.first().ok_or(PassError::NotConnected)?.server;
        let unreachable = |error: &dyn std::fmt::Display| PassError::Unreachable {
            server: server.to_string(),
            why: error.to_string(),
        };
        let mut request = Request::new(body.to_vec());
        *request.method_mut() = method;
        *request.uri_mut() = server.route(path).parse().map_err(|error: http::uri::InvalidUri| unreachable(&error))?;
        let headers = request.headers_mut();
        headers.insert(AUTHORIZATION, self.settings.token.header());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("svc/", env!("CARGO_PKG_VERSION"))));
        let answer = self.passage.client().map_err(|error| unreachable(&error))?.send_async(request).await;
        let (head, body) = answer.map_err(|error| unreachable(&error))?.into_parts();
        let mut bytes = Vec::new();
        let read = body.take(LONGEST + 1).read_to_end(&mut bytes).await.map_err(|error| unreachable(&error))?;
        if read as u64 > LONGEST {
            return Err(unreachable(&"its answer is too long"));
        }
        Ok(Passed { status: head.status, kind: head.headers.get(CONTENT_TYPE).cloned(), body: bytes.into() })
    }
}

impl Passage {
    fn client(&self) -> Result<&HttpClient, isahc::Error> {
        if let Some(client) = self.0.get() {
            return Ok(client);
        }
        let made = HttpClient::builder()
            .connect_timeout(CONNECT)
            .tcp_keepalive(KEEPALIVE)
            // The token must not travel on to wherever a redirect points.
            .redirect_policy(RedirectPolicy::None)
            // The link goes through none either.
            .proxy(None)
            .automatic_decompression(false)
            .build()?;
        Ok(self.0.get_or_init(|| made))
    }
}
