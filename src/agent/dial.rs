//! The way to a server: its address, the connection with or without TLS, and the WebSocket handshake.

use super::liveness::{Felt, Pulse};
use crate::model::agent_protocol;
use http::{
    HeaderValue, StatusCode,
    header::{AUTHORIZATION, USER_AGENT},
};
use rustls_platform_verifier::BuilderVerifierExt;
use std::{fmt, io, str::FromStr, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::OnceCell,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{self, ClientConfig, crypto::aws_lc_rs, pki_types::ServerName},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{self, client::IntoClientRequest, protocol::WebSocketConfig},
};
use url::{Host, Url};

/// How long the connection and both handshakes may take together.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is read from the socket at once, and gathered before it is written unasked.
const BUFFER: usize = 64 << 10;

/// Where a server of ours has its agents connect.
const PATH: &str = "/api/agent";

/// What is told of a server's own words in a refusal.
const MAX_WORDS: usize = 300;

/// The address of a server, `http` or `https`, with the path it lives behind if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    url: Url,
    /// Without a final slash, as it is shown.
    text: String,
}

/// Why a text is no server's address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no server address: write one such as http://127.0.0.1:7300")]
pub struct ServerUrlError(String);

/// The secret by which a server knows which space this is. It is never shown.
#[derive(Clone)]
pub struct Token(HeaderValue);

/// Why a text can be no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the agent's token is empty or has characters no token has: `svc space token NAME` prints a new one")]
pub struct TokenError;

/// Connects to servers.
#[derive(Default)]
pub struct Dialer {
    /// Reads the system's certificates, so it is made once and only if it is needed.
    tls: OnceCell<TlsConnector>,
}

/// An open link, before anything was said on it.
pub type Socket = WebSocketStream<Box<dyn Stream>>;

/// What a link runs over.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Why there is no link.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    #[error("TLS: {0}")]
    Tls(io::Error),
    #[error("cannot use TLS here: {0}")]
    NoTls(rustls::Error),
    /// The token is what it does not like.
    #[error(
        "the server refused the token ({status}{words}): give this agent the one that `svc space token NAME` prints, in \
         SVC_AGENT_TOKEN"
    )]
    Refused { status: u16, words: Words },
    /// It does not like something else.
    #[error("the server answered {status}{words}")]
    Answered { status: u16, words: Words },
    #[error("no WebSocket: {0}")]
    Handshake(Box<tungstenite::Error>),
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Timeout,
}

/// What a server says to a refusal, if it says anything we understand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words(Option<String>);

impl Dialer {
    /// Connects to `server` and shows it the token. What moves on the link is counted in `pulse`.
    ///
    /// # Errors
    ///
    /// Says at which step it failed.
    pub async fn dial(&self, server: &ServerUrl, token: &Token, pulse: Arc<Pulse>) -> Result<Socket, DialError> {
        let dialled = tokio::time::timeout(PATIENCE, self.connect(server, token, pulse));
        dialled.await.unwrap_or(Err(DialError::Timeout))
    }

    async fn connect(&self, server: &ServerUrl, token: &Token, pulse: Arc<Pulse>) -> Result<Socket, DialError> {
        let tcp = TcpStream::connect(server.endpoint()).await.map_err(DialError::Connect)?;
        // Messages are gathered before they are sent; waiting for more would only delay them.
        let _ = tcp.set_nodelay(true);
        let felt = Felt::new(tcp, pulse);
        let stream: Box<dyn Stream> = match server.is_secure() {
            false => Box::new(felt),
            true => {
                let tls = self.tls.get_or_try_init(connector).await.map_err(DialError::NoTls)?;
                Box::new(tls.connect(server.name(), felt).await.map_err(DialError::Tls)?)
            }
        };
        let config = WebSocketConfig::default()
            .read_buffer_size(BUFFER)
            .write_buffer_size(BUFFER)
            .max_message_size(Some(agent_protocol::MAX_MESSAGE))
            .max_frame_size(Some(agent_protocol::MAX_MESSAGE));
        let request = server.request(token).map_err(|error| DialError::Handshake(Box::new(error)))?;
        match tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await {
            Ok((socket, _)) => Ok(socket),
            Err(tungstenite::Error::Http(response)) => {
                let words = Words::of(response.body().as_deref().unwrap_or_default());
                let status = response.status().as_u16();
                Err(match response.status() {
                    // Its words are about headers and the tokens of users, which are of no use here.
                    StatusCode::UNAUTHORIZED => DialError::Refused { status, words: Words(None) },
                    StatusCode::FORBIDDEN => DialError::Refused { status, words },
                    _ => DialError::Answered { status, words },
                })
            }
            Err(error) => Err(DialError::Handshake(Box::new(error))),
        }
    }
}

/// TLS as the system trusts it. The crypto provider is named: the process's default is ambiguous when several are linked.
async fn connector() -> Result<TlsConnector, rustls::Error> {
    let make = || {
        let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_platform_verifier()?
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsConnector::from(Arc::new(config)))
    };
    // It reads files.
    let made = tokio::task::spawn_blocking(make).await;
    made.unwrap_or_else(|panic| Err(rustls::Error::General(panic.to_string())))
}

impl ServerUrl {
    /// Whether the link is encrypted.
    pub fn is_secure(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// Whether the link leaves the machine.
    pub fn is_remote(&self) -> bool {
        match self.url.host() {
            Some(Host::Domain(name)) => name != "localhost" && !name.ends_with(".localhost"),
            Some(Host::Ipv4(address)) => !address.is_loopback(),
            Some(Host::Ipv6(address)) => !address.is_loopback(),
            None => true,
        }
    }

    /// The address of the WebSocket.
    fn socket(&self) -> String {
        let rest = self.text.split_once("://").map_or("", |(_, rest)| rest);
        let scheme = if self.is_secure() { "wss" } else { "ws" };
        format!("{scheme}://{rest}{PATH}")
    }

    /// The address of a path of its API, which begins with a slash.
    pub fn route(&self, path: &str) -> String {
        format!("{}{path}", self.text)
    }

    fn request(&self, token: &Token) -> Result<http::Request<()>, tungstenite::Error> {
        let mut request = self.socket().into_client_request()?;
        let headers = request.headers_mut();
        headers.insert(AUTHORIZATION, token.0.clone());
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("svc/", env!("CARGO_PKG_VERSION"))));
        Ok(request)
    }

    /// Host and port to connect to.
    fn endpoint(&self) -> (String, u16) {
        let host = self.url.host_str().unwrap_or_default();
        let port = self.url.port_or_known_default().expect("http and https have default ports");
        (host.trim_start_matches('[').trim_end_matches(']').to_owned(), port)
    }

    /// Whose certificate the server must show.
    fn name(&self) -> ServerName<'static> {
        let (host, _) = self.endpoint();
        ServerName::try_from(host).expect("the address was checked to have a name or an address")
    }
}

impl FromStr for ServerUrl {
    type Err = ServerUrlError;

    fn from_str(text: &str) -> Result<Self, ServerUrlError> {
        let text = text.trim();
        let wrong = || ServerUrlError(text.to_owned());
        let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let url = Url::parse(&whole).map_err(|_| wrong())?;
        let plain = url.query().is_none() && url.fragment().is_none() && url.password().is_none();
        if !matches!(url.scheme(), "http" | "https") || !plain || !url.username().is_empty() {
            return Err(wrong());
        }
        let named = url.host_str().is_some_and(|host| {
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            ServerName::try_from(bare).is_ok()
        });
        if !named {
            return Err(wrong());
        }
        let text = url.as_str().trim_end_matches('/').to_owned();
        Ok(Self { url, text })
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError);
        }
        let mut value = HeaderValue::from_str(&format!("Bearer {text}")).map_err(|_| TokenError)?;
        value.set_sensitive(true);
        Ok(Self(value))
    }
}

impl Token {
    /// What a request shows to a server.
    pub fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Words {
    /// Our servers say `{"error":{"message":…}}`; what others say is not worth repeating.
    fn of(body: &[u8]) -> Self {
        let body = serde_json::from_slice::<serde_json::Value>(body).ok();
        let message = body.as_ref().and_then(|body| body["error"]["message"].as_str());
        Self(message.map(|message| message.chars().take(MAX_WORDS).collect()))
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(words) => write!(f, ": {words}"),
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

    fn server(text: &str) -> ServerUrl {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_becomes_that_of_its_web_socket() {
        for (text, socket, endpoint, remote) in [
            ("http://127.0.0.1:7300", "ws://127.0.0.1:7300/api/agent", ("127.0.0.1", 7300), false),
            ("127.0.0.1:7300", "ws://127.0.0.1:7300/api/agent", ("127.0.0.1", 7300), false),
            ("https://svc.example", "wss://svc.example/api/agent", ("svc.example", 443), true),
            ("https://svc.example:8443/", "wss://svc.example:8443/api/agent", ("svc.example", 8443), true),
            ("https://svc.example/zone/eu/", "wss://svc.example/zone/eu/api/agent", ("svc.example", 443), true),
            ("http://[::1]:7300", "ws://[::1]:7300/api/agent", ("::1", 7300), false),
            ("HTTP://LocalHost", "ws://localhost/api/agent", ("localhost", 80), false),
        ] {
            let server = server(text);
            assert_eq!(server.socket(), socket, "{text}");
            assert_eq!(server.endpoint(), (endpoint.0.to_owned(), endpoint.1), "{text}");
            assert_eq!(server.is_remote(), remote, "{text}");
            assert_eq!(server.is_secure(), socket.starts_with("wss"), "{text}");
            server.name();
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["", "ftp://a", "http://", "a b", "http://a?x=1", "http://a/#x", "http://me:secret@a", "ws://a"] {
            let error = text.parse::<ServerUrl>().unwrap_err();
            assert!(error.to_string().contains("http://127.0.0.1:7300"), "{text}");
        }
    }

    #[test]
    fn the_token_is_sent_and_never_shown() {
        let token: Token = " sva_secret\n".parse().unwrap();
        let request = server("https://svc.example:8443").request(&token).unwrap();
        assert_eq!(request.headers()[AUTHORIZATION], "Bearer sva_secret");
        assert_eq!(request.headers()["host"], "svc.example:8443");
        assert!(!format!("{token:?} {request:?}").contains("secret"));
        for bad in ["", " ", "a b", "a\nb", "ä"] {
            assert!(bad.parse::<Token>().is_err(), "{bad:?}");
        }
    }

    #[tokio::test]
    async fn tls_needs_no_default_of_the_process() {
        // A machine without certificates gives an error, which is fine; a panic over crypto providers is not.
        let error = connector().await.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(!error.contains("panic"), "{error}");
    }
}
