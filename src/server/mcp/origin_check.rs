//! Checks `Host` and `Origin` against DNS rebinding: a web page must not reach a server on its user's machine through a
//! host name that the page's owner points there.
//!
//! An IP address or `localhost` cannot be rebound and is always allowed; any other host must be in `mcp.hosts`. An origin
//! must be the server's own or in `mcp.origins`; clients that are no browser send none.

use crate::platform::config;
use http::{HeaderMap, HeaderValue, Uri, header, uri::Authority};
use std::net::IpAddr;

/// Hosts and origins that may call the endpoint.
pub struct OriginCheck {
    hosts: Vec<String>,
    origins: Vec<String>,
}

/// Refusal of a request by its host or origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OriginError {
    #[error("the request does not say by which name it reaches this server: send a `Host` header")]
    NoHost,
    #[error("MCP clients do not reach this server as `{0}`: add that to `mcp.hosts` in its config if they should")]
    Host(String),
    #[error("the page `{0}` may not call this server: add it to `mcp.origins` in its config if it should")]
    Origin(String),
}

impl OriginCheck {
    pub fn new(config: &config::McpConfig) -> Self {
        let lower = |names: &[String]| {
            names.iter().map(|name| name.trim().trim_end_matches('/').to_ascii_lowercase()).collect()
        };
        Self { hosts: lower(&config.hosts), origins: lower(&config.origins) }
    }

    /// Checks a request by its headers; over HTTP/2 the host is in the URI.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), OriginError> {
        let sent = headers.get(header::HOST).map(|host| String::from_utf8_lossy(host.as_bytes()).to_ascii_lowercase());
        let sent = sent.or_else(|| uri.authority().map(|authority| authority.as_str().to_ascii_lowercase()));
        let sent = sent.ok_or(OriginError::NoHost)?;
        let host: Authority = sent.parse().map_err(|_| OriginError::Host(sent.clone()))?;
        if !is_address_or_localhost(host.host()) && !self.hosts.iter().any(|name| *name == sent || name == host.host())
        {
            return Err(OriginError::Host(sent));
        }
        for origin in headers.get_all(header::ORIGIN) {
            let text = String::from_utf8_lossy(origin.as_bytes()).to_ascii_lowercase();
            if !is_own_origin(&text, &host) && !self.allows_origin(origin) {
                return Err(OriginError::Origin(text));
            }
        }
        Ok(())
    }

    /// Returns whether this `Origin` is in the config.
    pub fn allows_origin(&self, origin: &HeaderValue) -> bool {
        self.origins.iter().any(|listed| listed.as_bytes().eq_ignore_ascii_case(origin.as_bytes()))
    }
}

/// Returns whether the host cannot be pointed here by anybody else.
fn is_address_or_localhost(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host == "localhost" || bare.parse::<IpAddr>().is_ok()
}

/// Returns whether the origin has the same host and port.
fn is_own_origin(origin: &str, host: &Authority) -> bool {
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

    fn check(host: Option<&'static str>, origin: Option<&'static str>) -> Result<(), OriginError> {
        let config = config::McpConfig {
            hosts: vec!["svc.example".to_owned(), "Other.example:8443".to_owned()],
            origins: vec!["https://Inspector.example/".to_owned()],
        };
        let mut headers = HeaderMap::new();
        for (name, value) in [(header::HOST, host), (header::ORIGIN, origin)] {
            if let Some(value) = value {
                headers.insert(name, value.parse().unwrap());
            }
        }
        OriginCheck::new(&config).check(&"/mcp".parse().unwrap(), &headers)
    }

    #[test]
    fn addresses_and_configured_hosts_are_allowed_and_no_other() {
        for host in ["127.0.0.1", "127.0.0.1:7300", "[::1]:7300", "192.0.2.7", "localhost", "LocalHost:1"] {
            assert_eq!(check(Some(host), None), Ok(()), "{host}");
        }
        for host in ["svc.example", "SVC.example:7300", "other.example:8443"] {
            assert_eq!(check(Some(host), None), Ok(()), "{host}");
        }
        for host in ["evil.example", "other.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "a b"] {
            assert!(matches!(check(Some(host), None), Err(OriginError::Host(_))), "{host}");
        }
        assert_eq!(check(None, None), Err(OriginError::NoHost));
    }

    #[test]
    fn an_origin_must_be_the_server_s_own_or_configured() {
        let at = "127.0.0.1:7300";
        assert_eq!(check(Some(at), Some("http://127.0.0.1:7300")), Ok(()));
        assert_eq!(check(Some(at), Some("https://inspector.example")), Ok(()));
        assert_eq!(check(Some("svc.example"), Some("https://svc.example")), Ok(()));
        for page in ["http://localhost:7300", "http://127.0.0.1", "https://evil.example", "null", "", "127.0.0.1:7300"]
        {
            assert!(matches!(check(Some(at), Some(page)), Err(OriginError::Origin(_))), "{page}");
        }
    }

    #[test]
    fn over_http_2_the_host_is_in_the_uri() {
        let check = OriginCheck::new(&config::McpConfig::default());
        let uri = |text: &str| text.parse().unwrap();
        assert_eq!(check.check(&uri("http://127.0.0.1:7300/mcp"), &HeaderMap::new()), Ok(()));
        assert!(check.check(&uri("http://evil.example/mcp"), &HeaderMap::new()).is_err());
    }
}
