//! The address of a server, and the token with which the agent authenticates there.

use http::{
    HeaderValue,
    header::{AUTHORIZATION, USER_AGENT},
};
use std::{fmt, str::FromStr};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_tungstenite::tungstenite::{self, client::IntoClientRequest};
use url::{Host, Url};

/// Path of the WebSocket for agents in a server's API.
const SOCKET_PATH: &str = "/api/agent";

/// The address of a server, `http` or `https`, with a path prefix if it is behind one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    url: Url,
    /// The address as it is shown, without a final slash.
    text: String,
}

/// A text that is not the address of a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no server address: write one such as http://127.0.0.1:7300")]
pub struct ServerUrlError(String);

/// The secret that identifies the space to its servers, as an `Authorization` header. It is never shown.
#[derive(Clone)]
pub struct BearerToken(HeaderValue);

/// A text that cannot be a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the agent's token is empty or has characters no token has: `svc space token NAME` prints a new one")]
pub struct BearerTokenError;

impl ServerUrl {
    pub fn is_secure(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// Returns whether the server may be on another machine.
    pub fn is_remote(&self) -> bool {
        match self.url.host() {
            Some(Host::Domain(name)) => name != "localhost" && !name.ends_with(".localhost"),
            Some(Host::Ipv4(address)) => !address.is_loopback(),
            Some(Host::Ipv6(address)) => !address.is_loopback(),
            None => true,
        }
    }

    /// The address of a path of the server's API; `path` begins with a slash.
    pub fn api_url(&self, path: &str) -> String {
        format!("{}{path}", self.text)
    }

    /// The request that opens the WebSocket.
    ///
    /// # Errors
    ///
    /// Fails if the address makes no valid request.
    pub fn socket_request(&self, token: &BearerToken) -> Result<http::Request<()>, tungstenite::Error> {
        let mut request = self.socket_url().into_client_request()?;
        let headers = request.headers_mut();
        headers.insert(AUTHORIZATION, token.0.clone());
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("svc/", env!("CARGO_PKG_VERSION"))));
        Ok(request)
    }

    /// Host and port to connect to.
    pub fn endpoint(&self) -> (String, u16) {
        let host = self.url.host_str().unwrap_or_default();
        let port = self.url.port_or_known_default().expect("http and https have default ports");
        (host.trim_start_matches('[').trim_end_matches(']').to_owned(), port)
    }

    /// The name that the server's certificate must have.
    pub fn certificate_name(&self) -> ServerName<'static> {
        let (host, _) = self.endpoint();
        ServerName::try_from(host).expect("the address was checked to have a name or an address")
    }

    fn socket_url(&self) -> String {
        let rest = self.text.split_once("://").map_or("", |(_, rest)| rest);
        let scheme = if self.is_secure() { "wss" } else { "ws" };
        format!("{scheme}://{rest}{SOCKET_PATH}")
    }
}

impl FromStr for ServerUrl {
    type Err = ServerUrlError;

    fn from_str(text: &str) -> Result<Self, ServerUrlError> {
        let text = text.trim();
        let invalid = || ServerUrlError(text.to_owned());
        let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let url = Url::parse(&whole).map_err(|_| invalid())?;
        let plain = url.query().is_none() && url.fragment().is_none() && url.password().is_none();
        if !matches!(url.scheme(), "http" | "https") || !plain || !url.username().is_empty() {
            return Err(invalid());
        }
        let has_name = url.host_str().is_some_and(|host| {
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            ServerName::try_from(bare).is_ok()
        });
        if !has_name {
            return Err(invalid());
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

impl BearerToken {
    /// The value of the `Authorization` header.
    pub fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl FromStr for BearerToken {
    type Err = BearerTokenError;

    fn from_str(text: &str) -> Result<Self, BearerTokenError> {
        let text = text.trim();
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(BearerTokenError);
        }
        let mut value = HeaderValue::from_str(&format!("Bearer {text}")).map_err(|_| BearerTokenError)?;
        value.set_sensitive(true);
        Ok(Self(value))
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(text: &str) -> ServerUrl {
        text.parse().unwrap()
    }

    #[test]
    fn a_server_address_becomes_the_address_of_its_web_socket() {
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
            assert_eq!(server.socket_url(), socket, "{text}");
            assert_eq!(server.endpoint(), (endpoint.0.to_owned(), endpoint.1), "{text}");
            assert_eq!(server.is_remote(), remote, "{text}");
            assert_eq!(server.is_secure(), socket.starts_with("wss"), "{text}");
            server.certificate_name();
        }
    }

    #[test]
    fn a_text_that_is_no_address_is_refused() {
        for text in ["", "ftp://a", "http://", "a b", "http://a?x=1", "http://a/#x", "http://me:secret@a", "ws://a"] {
            let error = text.parse::<ServerUrl>().unwrap_err();
            assert!(error.to_string().contains("http://127.0.0.1:7300"), "{text}");
        }
    }

    #[test]
    fn the_token_is_sent_and_never_shown() {
        let token: BearerToken = " sva_secret\n".parse().unwrap();
        let request = server("https://svc.example:8443").socket_request(&token).unwrap();
        assert_eq!(request.headers()[AUTHORIZATION], "Bearer sva_secret");
        assert_eq!(request.headers()["host"], "svc.example:8443");
        assert!(!format!("{token:?} {request:?}").contains("secret"));
        for bad in ["", " ", "a b", "a\nb", "ä"] {
            assert!(bad.parse::<BearerToken>().is_err(), "{bad:?}");
        }
    }
}
