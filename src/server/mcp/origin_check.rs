//! By which names the endpoint may be called, and from which pages: a page that a browser shows must not reach a server
//! on its user's machine by a name that its owner made point there.
//!
//! Such a name is one of theirs. So an address or `localhost` is always right, and any other name must be in the
//! config. A page must be of the server's own name, or in the config as well; who is no page sends no `Origin`.

use crate::platform::config;
use http::{HeaderMap, HeaderValue, Uri, header, uri::Authority};
use std::net::IpAddr;

/// What is let through.
pub struct Gate {
    hosts: Vec<String>,
    origins: Vec<String>,
}

/// Why a request is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Shut {
    #[error("the request does not say by which name it reaches this server: send a `Host` header")]
    NoHost,
    #[error("MCP clients do not reach this server as `{0}`: add that to `mcp.hosts` in its config if they should")]
    Host(String),
    #[error("the page `{0}` may not call this server: add it to `mcp.origins` in its config if it should")]
    Origin(String),
}

impl Gate {
    pub fn new(config: &config::Mcp) -> Self {
        let lower = |names: &[String]| {
            names.iter().map(|name| name.trim().trim_end_matches('/').to_ascii_lowercase()).collect()
        };
        Self { hosts: lower(&config.hosts), origins: lower(&config.origins) }
    }

    /// Decides on a request by its headers; over HTTP/2 the host is in the URI.
    ///
    /// # Errors
    ///
    /// Says why it goes no further.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Shut> {
        let said = headers.get(header::HOST).map(|host| String::from_utf8_lossy(host.as_bytes()).to_ascii_lowercase());
        let said = said.or_else(|| uri.authority().map(|authority| authority.as_str().to_ascii_lowercase()));
        let said = said.ok_or(Shut::NoHost)?;
        let host: Authority = said.parse().map_err(|_| Shut::Host(said.clone()))?;
        if !is_unnamed(host.host()) && !self.hosts.iter().any(|name| *name == said || name == host.host()) {
            return Err(Shut::Host(said));
        }
        for origin in headers.get_all(header::ORIGIN) {
            let text = String::from_utf8_lossy(origin.as_bytes()).to_ascii_lowercase();
            if !is_at(&text, &host) && !self.lists_page(origin) {
                return Err(Shut::Origin(text));
            }
        }
        Ok(())
    }

    /// Whether the page of this `Origin` is in the config.
    pub fn lists_page(&self, origin: &HeaderValue) -> bool {
        self.origins.iter().any(|listed| listed.as_bytes().eq_ignore_ascii_case(origin.as_bytes()))
    }
}

/// Whether nobody else can make this name point to us.
fn is_unnamed(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host == "localhost" || bare.parse::<IpAddr>().is_ok()
}

/// Whether the page is served by the same name and port.
fn is_at(origin: &str, host: &Authority) -> bool {
    let (rest, port) = match origin.split_once("://") {
        Some(("http", rest)) => (rest, 80),
        Some(("https", rest)) => (rest, 443),
        _ => return false,
    };
    let Ok(page) = rest.parse::<Authority>() else { return false };
    page.host() == host.host() && page.port_u16().unwrap_or(port) == host.port_u16().unwrap_or(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(host: Option<&'static str>, origin: Option<&'static str>) -> Result<(), Shut> {
        let config = config::Mcp {
            hosts: vec!["svc.example".to_owned(), "Other.example:8443".to_owned()],
            origins: vec!["https://Inspector.example/".to_owned()],
        };
        let mut headers = HeaderMap::new();
        for (name, value) in [(header::HOST, host), (header::ORIGIN, origin)] {
            if let Some(value) = value {
                headers.insert(name, value.parse().unwrap());
            }
        }
        Gate::new(&config).check(&"/mcp".parse().unwrap(), &headers)
    }

    #[test]
    fn addresses_and_listed_names_are_let_through_and_no_other() {
        for host in ["127.0.0.1", "127.0.0.1:7300", "[::1]:7300", "192.0.2.7", "localhost", "LocalHost:1"] {
            assert_eq!(check(Some(host), None), Ok(()), "{host}");
        }
        for host in ["svc.example", "SVC.example:7300", "other.example:8443"] {
            assert_eq!(check(Some(host), None), Ok(()), "{host}");
        }
        for host in ["evil.example", "other.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "a b"] {
            assert!(matches!(check(Some(host), None), Err(Shut::Host(_))), "{host}");
        }
        assert_eq!(check(None, None), Err(Shut::NoHost));
    }

    #[test]
    fn a_page_must_be_of_the_same_name_or_listed() {
        let at = "127.0.0.1:7300";
        assert_eq!(check(Some(at), Some("http://127.0.0.1:7300")), Ok(()));
        assert_eq!(check(Some(at), Some("https://inspector.example")), Ok(()));
        assert_eq!(check(Some("svc.example"), Some("https://svc.example")), Ok(()));
        for page in ["http://localhost:7300", "http://127.0.0.1", "https://evil.example", "null", "", "127.0.0.1:7300"]
        {
            assert!(matches!(check(Some(at), Some(page)), Err(Shut::Origin(_))), "{page}");
        }
    }

    #[test]
    fn over_http_2_the_host_is_in_the_uri() {
        let gate = Gate::new(&config::Mcp::default());
        let uri = |text: &str| text.parse().unwrap();
        assert_eq!(gate.check(&uri("http://127.0.0.1:7300/mcp"), &HeaderMap::new()), Ok(()));
        assert!(gate.check(&uri("http://evil.example/mcp"), &HeaderMap::new()).is_err());
    }
}
