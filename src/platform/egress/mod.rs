//! The guarded HTTP client: every HTTP request that the daemon makes on behalf of a user goes through [`Egress::send`].
//!
//! The host is resolved by the [`resolver`], each of its addresses is checked against the [`policy`], and the connection is pinned to a
//! checked address, so that no second resolution, redirect or proxy leads elsewhere. One timeout spans the whole
//! exchange, and a response is read up to a limit.

mod own_addresses;
mod policy;
#[cfg(test)]
pub(crate) mod receiver;
mod resolver;
#[cfg(test)]
mod resolver_tests;

pub use policy::Denial;
pub use resolver::ResolveError;

use crate::{
    model::{
        outbound_http::{UrlError, check_url},
        owner::Owner,
    },
    platform::config,
};
use bytes::Bytes;
use futures_util::AsyncReadExt;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header::USER_AGENT};
use isahc::{
    AsyncBody, HttpClient,
    config::{Configurable, RedirectPolicy},
    error::ErrorKind,
    net::Dialer,
    tls::TlsConfig,
};
use policy::Policy;
use resolver::NameResolver;
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::OnceCell, time::Instant};
use url::{Host, Url};

/// Bytes read of a response even if the caller keeps fewer: a connection whose response was read to its end is reused.
const DRAIN: usize = 64 << 10;

/// Addresses of a host that are tried before giving up.
const ADDRESSES: usize = 4;

/// Each client is one thread; a host always gets the same one, so that its connections are reused.
const CLIENTS: usize = 2;

/// Idle connections each client keeps, and for how long.
const IDLE_CONNECTIONS: usize = 256;
const IDLE_FOR: Duration = Duration::from_secs(60);

/// Upper bound of every timeout: a deadline in the far future overflows the clocks that compute with it.
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// The guarded HTTP client. Cloning it is cheap.
#[derive(Clone)]
pub struct Egress(Arc<EgressState>);

struct EgressState {
    policy: Policy,
    resolver: NameResolver,
    /// Created on first use: a daemon that sends nothing does not pay for them.
    clients: [OnceCell<HttpClient>; CLIENTS],
}

/// One request to send.
#[derive(Clone, Debug)]
pub struct OutboundRequest {
    pub method: Method,
    pub url: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Timeout of the whole exchange: resolving, connecting, sending and reading the response. At most a day.
    pub timeout: Duration,
    pub tls: Tls,
    /// Bytes of the response body that the caller wants.
    pub keep: usize,
}

/// Verification of the receiver's certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tls {
    #[default]
    Verify,
    SkipVerify,
}

/// The response to an [`OutboundRequest`].
#[derive(Clone, Debug)]
pub struct OutboundResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// The first [`OutboundRequest::keep`] bytes.
    pub body: Bytes,
    /// Tells a whole body from a truncated one.
    pub completeness: Completeness,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completeness {
    Whole,
    /// More was sent than is kept.
    Cut,
}

/// Reason for which there is no response.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error("cannot resolve `{host}`: {source}")]
    Resolve { host: String, source: ResolveError },
    #[error("`{host}` has no address")]
    NoAddress { host: String },
    #[error("`{host}` is at {address}, which is not allowed: {denial}")]
    Denied { host: String, address: IpAddr, denial: Denial },
    #[error("cannot connect to {address}: {reason}")]
    Connect { address: SocketAddr, reason: String },
    #[error("the certificate of `{host}` is not trusted: {reason}")]
    Certificate { host: String, reason: String },
    #[error("no complete answer within {0:?}")]
    Timeout(Duration),
    #[error("the connection broke before the answer was complete: {0}")]
    Broken(String),
    #[error("the HTTP client failed: {0}")]
    Client(String),
}

impl Egress {
    /// A client under this policy. Nothing is opened yet.
    pub fn new(config: &config::EgressConfig) -> Self {
        let (policy, resolver) = (Policy::new(config), NameResolver::new(&config.dns));
        Self(Arc::new(EgressState { policy, resolver, clients: Default::default() }))
    }

    /// Checks a URL as far as that is possible without resolving a name: a literal address, or `localhost`, that the
    /// policy refuses now is refused by every later [`Egress::send`] too.
    ///
    /// # Errors
    ///
    /// Fails if no request of this owner can reach the URL.
    pub fn check(&self, owner: Owner, url: &str) -> Result<(), EgressError> {
        let url = check_url(url)?;
        let address: IpAddr = match url.host() {
            Some(Host::Ipv4(address)) => address.into(),
            Some(Host::Ipv6(address)) => address.into(),
            Some(Host::Domain(name)) if is_localhost(name) => Ipv4Addr::LOCALHOST.into(),
            Some(Host::Domain(_)) | None => return Ok(()),
        };
        let denied =
            |denial| EgressError::Denied { host: url.host_str().unwrap_or_default().to_owned(), address, denial };
        self.0.policy.check(owner, address).map_err(denied)
    }

    /// Sends a request on behalf of `owner` and reads the response, whatever its status.
    ///
    /// A response over the limit is truncated and its connection closed; its status stands. Redirects are not followed.
    ///
    /// # Errors
    ///
    /// Fails if the address is out of bounds for this owner, or no complete answer came in time.
    pub async fn send(&self, owner: Owner, mut request: OutboundRequest) -> Result<OutboundResponse, EgressError> {
        let limit = request.timeout.min(MAX_TIMEOUT);
        request.timeout = limit;
        match tokio::time::timeout(limit, self.exchange(owner, request)).await {
            Ok(result) => result,
            Err(_) => Err(EgressError::Timeout(limit)),
        }
    }

    async fn exchange(&self, owner: Owner, request: OutboundRequest) -> Result<OutboundResponse, EgressError> {
        let deadline = Instant::now() + request.timeout;
        let url = check_url(&request.url)?;
        let addresses = self.resolve(owner, &url).await?;
        let client = self.client(&url).await?;
        let mut waiting = addresses.len();
        for address in addresses {
            waiting -= 1;
            let left = deadline - Instant::now();
            let pinned = pin(&request, &url, address, left, left / (waiting as u32 + 1))?;
            match client.send_async(pinned).await {
                Ok(response) => return read(response, request.keep).await.map_err(|error| fault(error, &url, address)),
                // Nothing was sent yet, so that the next address cannot receive it a second time.
                Err(error) if waiting > 0 && never_connected(&error) => {}
                Err(error) => return Err(fault(error, &url, address)),
            }
        }
        Err(EgressError::NoAddress { host: url.host_str().unwrap_or_default().to_owned() })
    }

    /// Every address of the host. One address that is not allowed refuses the host.
    async fn resolve(&self, owner: Owner, url: &Url) -> Result<Vec<SocketAddr>, EgressError> {
        let host = || url.host_str().unwrap_or_default().to_owned();
        let port = url.port_or_known_default().unwrap_or(80);
        let mut addresses: Vec<SocketAddr> = match url.host() {
            Some(Host::Ipv4(address)) => vec![(address, port).into()],
            Some(Host::Ipv6(address)) => vec![(address, port).into()],
            Some(Host::Domain(name)) if is_localhost(name) => {
                vec![(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()]
            }
            Some(Host::Domain(name)) => {
                let found = self.0.resolver.resolve(owner, name).await;
                let found = found.map_err(|source| EgressError::Resolve { host: host(), source })?;
                found.iter().map(|address| (*address, port).into()).collect()
            }
            None => vec![],
        };
        for address in &addresses {
            if let Err(denial) = self.0.policy.check(owner, address.ip()) {
                return Err(EgressError::Denied { host: host(), address: address.ip(), denial });
            }
        }
        addresses.truncate(ADDRESSES);
        Ok(addresses)
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
        self.0.clients[index as usize].get_or_try_init(make).await
    }
}

/// The request for the HTTP client, pinned to one address.
fn pin(
    request: &OutboundRequest,
    url: &Url,
    address: SocketAddr,
    left: Duration,
    connect: Duration,
) -> Result<http::Request<AsyncBody>, EgressError> {
    // Our own timeout ends the wait; the client's, a little later, frees the connection that we no longer use.
    let mut builder = isahc::Request::builder()
        .method(request.method.clone())
        .uri(url.as_str())
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
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("svc/", env!("CARGO_PKG_VERSION"))));
        headers.extend(request.headers.clone());
    }
    let bodiless = request.body.is_empty() && ![Method::POST, Method::PUT, Method::PATCH].contains(&request.method);
    // Held as bytes, not as a stream: the client sends them anew when an idle connection turns out to be closed.
    let body = if bodiless { AsyncBody::empty() } else { AsyncBody::from(request.body.to_vec()) };
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

/// True if the client failed before it could send anything. A timeout is the one for connecting: the timeout of the whole
/// exchange is our own and would have ended the wait.
fn never_connected(error: &isahc::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionFailed | ErrorKind::Timeout)
}

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

/// Returns true for the names that always mean this machine.
fn is_localhost(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::{
        receiver::{Behaviour, Receiver},
        *,
    };
    use crate::model::id::UserId;

    const SOON: Duration = Duration::from_millis(300);
    const LONG: Duration = Duration::from_secs(30);

    fn egress() -> Egress {
        Egress::new(&config::EgressConfig::default())
    }

    fn post(url: impl Into<String>, timeout: Duration) -> OutboundRequest {
        OutboundRequest {
            method: Method::POST,
            url: url.into(),
            headers: HeaderMap::new(),
            body: Bytes::from_static(b"{}"),
            timeout,
            tls: Tls::Verify,
            keep: 1024,
        }
    }

    async fn send(behaviour: Behaviour, timeout: Duration) -> Result<OutboundResponse, EgressError> {
        let receiver = Receiver::start(behaviour).await;
        egress().send(Owner::Global, post(receiver.url(), timeout)).await
    }

    #[tokio::test]
    async fn an_answer_comes_back_with_its_status_headers_and_body() {
        let receiver =
            Receiver::start(Behaviour::Answer("HTTP/1.1 418 Teapot\r\nX-Kind: tea\r\nContent-Length: 2\r\n\r\nhi"))
                .await;
        let response = egress().send(Owner::Global, post(receiver.url(), LONG)).await.unwrap();
        assert_eq!(response.status.as_u16(), 418);
        assert_eq!(response.headers["x-kind"], "tea");
        assert_eq!((&*response.body, response.completeness), (&b"hi"[..], Completeness::Whole));
        let request = receiver.request(0);
        assert!(request.starts_with("POST / HTTP/1.1\r\n"), "{request}");
        assert!(request.contains(concat!("user-agent: svc/", env!("CARGO_PKG_VERSION"))), "{request}");
        assert!(!request.to_lowercase().contains("accept-encoding"), "{request}");
        assert!(request.ends_with("\r\n\r\n{}"), "{request}");
    }

    #[tokio::test]
    async fn a_connection_is_used_again() {
        let receiver = Receiver::start(Behaviour::Answer("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")).await;
        let egress = egress();
        for _ in 0..5 {
            egress.send(Owner::Global, post(receiver.url(), LONG)).await.unwrap();
        }
        assert_eq!((receiver.requests(), receiver.connections()), (5, 1));
    }

    #[tokio::test]
    async fn a_receiver_that_never_answers_is_given_up_in_time() {
        assert!(matches!(send(Behaviour::Silence, SOON).await, Err(EgressError::Timeout(SOON))));
    }

    #[tokio::test]
    async fn a_timeout_past_the_end_of_time_is_one_of_a_day() {
        for timeout in [Duration::from_secs(u64::MAX / 2), Duration::MAX] {
            let answer = Behaviour::Answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            assert!(send(answer, timeout).await.is_ok());
        }
    }

    #[tokio::test]
    async fn a_receiver_that_answers_byte_by_byte_cannot_stretch_the_timeout() {
        for text in ["HTTP/1.1 200 OK\r\nX-Slow: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "HTTP/1.1 200 OK\r\n\r\nslow"] {
            let result = send(Behaviour::ByteByByte(text), SOON).await;
            assert!(matches!(result, Err(EgressError::Timeout(SOON))), "{result:?}");
        }
    }

    #[tokio::test]
    async fn a_receiver_that_closes_mid_response_is_a_broken_connection() {
        // A head without its end is not among them: the client takes an incomplete head for a complete one.
        for text in [
            "",
            "HTTP/1.1 20",
            "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal",
        ] {
            let result = send(Behaviour::Close(text), LONG).await;
            assert!(matches!(result, Err(EgressError::Broken(_))), "{text:?}: {result:?}");
        }
    }

    #[tokio::test]
    async fn an_endless_body_is_cut_off_and_its_status_stands() {
        let receiver = Receiver::start(Behaviour::Endless("HTTP/1.1 201 Created\r\n\r\n")).await;
        let response = egress().send(Owner::Global, post(receiver.url(), LONG)).await.unwrap();
        assert_eq!((response.status.as_u16(), response.body.len()), (201, 1024));
        assert_eq!(response.completeness, Completeness::Cut);
        receiver.closed().await;
    }

    #[tokio::test]
    async fn a_redirect_is_an_answer_and_is_not_followed() {
        let target = Receiver::start(Behaviour::Answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")).await;
        let head = format!("HTTP/1.1 307 Moved\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n", target.url());
        let response = send(Behaviour::Answer(head.leak()), LONG).await.unwrap();
        assert_eq!((response.status.as_u16(), target.requests()), (307, 0));
    }

    #[tokio::test]
    async fn an_untrusted_certificate_is_refused_unless_verification_is_off() {
        let answer = Behaviour::Answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        let receiver = Receiver::start_untrusted(answer).await;
        let egress = egress();
        let strict = post(receiver.url(), LONG);
        let trusting = OutboundRequest { tls: Tls::SkipVerify, ..strict.clone() };
        assert!(egress.send(Owner::Global, trusting).await.is_ok());
        // A request that verifies certificates must not reuse a connection that was opened without verifying.
        let result = egress.send(Owner::Global, strict).await;
        assert!(matches!(result, Err(EgressError::Certificate { .. })), "{result:?}");
        assert_eq!(receiver.requests(), 1);
    }

    #[tokio::test]
    async fn a_closed_port_is_a_failed_connection() {
        // Bound and not listening, so that no other test can be given the port.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let url = format!("http://{}/", socket.local_addr().unwrap());
        let result = egress().send(Owner::Global, post(url, LONG)).await;
        assert!(matches!(result, Err(EgressError::Connect { .. })), "{result:?}");
    }

    #[tokio::test]
    async fn every_address_of_a_host_is_tried() {
        let receiver = Receiver::start(Behaviour::Answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")).await;
        let url = format!("http://localhost:{}/", receiver.address().port());
        assert!(egress().send(Owner::Global, post(url, LONG)).await.is_ok());
    }

    #[tokio::test]
    async fn every_spelling_of_a_forbidden_address_is_refused_before_connecting() {
        let receiver = Receiver::start(Behaviour::Answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")).await;
        let port = receiver.address().port();
        let user = Owner::User(UserId::new());
        for host in [
            "127.0.0.1",
            "2130706433",
            "0x7f.1",
            "0x7f000001",
            "0177.0.0.1",
            "127.1",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[::127.0.0.1]",
            "localhost",
            "0.0.0.0",
            "0",
            "①②⑦.⓪.⓪.①",
            "169.254.169.254",
            "[::ffff:169.254.169.254]",
        ] {
            let result = egress().send(user, post(format!("http://{host}:{port}/"), LONG)).await;
            assert!(matches!(result, Err(EgressError::Denied { .. })), "{host}: {result:?}");
        }
        assert_eq!(receiver.connections(), 0);
    }
}
