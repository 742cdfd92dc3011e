//! Access checks. Every program on this machine can connect to loopback, including web pages in a browser.
//!
//! A page can make a browser send requests here, and by DNS rebinding even read the answers. It cannot choose the Host
//! or the Origin that the browser sends, nor send JSON without a preflight request, which is never granted. So these
//! three are checked.

use super::{
    error::ApiRefusal,
    peer::{self, SocketPair},
};
use http::{
    HeaderMap, Request, StatusCode,
    header::{CONTENT_TYPE, HOST, ORIGIN},
    uri::Authority,
};
use std::net::IpAddr;
use url::{Host, Url};

/// Refuses a request for another host, and one from a web page of another machine.
pub fn check_source<B>(request: &Request<B>) -> Result<(), ApiRefusal> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let named = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().is_ok_and(is_loopback),
        _ => false,
    };
    let aimed = request.uri().authority().is_none_or(|authority| is_loopback(authority.as_str()));
    if !named || !aimed {
        let message = "this is the agent's own API, for this machine alone: use http://127.0.0.1 and its port";
        return Err(ApiRefusal::new(StatusCode::FORBIDDEN, "forbidden", message));
    }
    if request.headers().get_all(ORIGIN).iter().any(|origin| !origin.to_str().is_ok_and(is_local_origin)) {
        return Err(ApiRefusal::new(
            StatusCode::FORBIDDEN,
            "forbidden",
            "web pages from elsewhere have no business here",
        ));
    }
    Ok(())
}

/// Refuses a body that is not announced as JSON, which a web page could send without a preflight request.
pub fn check_json(headers: &HeaderMap) -> Result<(), ApiRefusal> {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = value.split_once(';').map_or(value, |(kind, _)| kind).trim();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = "send the body as `Content-Type: application/json`";
    Err(ApiRefusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message))
}

/// Refuses a connection that is not of the agent's own user or of root: a registration chooses what the agent runs, and
/// a call acts as the owner of the space. A user that cannot be determined is refused too.
pub fn check_user(sockets: SocketPair) -> Result<(), ApiRefusal> {
    // SAFETY: it only returns a number.
    let own = unsafe { libc::geteuid() };
    let message = match peer::user_of(sockets) {
        Ok(Some(user)) if user == own || user == 0 => return Ok(()),
        Ok(Some(user)) => format!("only user {own}, who runs the agent, may ask for this; this is user {user}"),
        Ok(None) => format!("only user {own}, who runs the agent, may ask for this, and you have gone already"),
        // Other systems than Linux have no such table.
        Err(_) if !cfg!(target_os = "linux") => return Ok(()),
        Err(error) => format!("the agent cannot tell who asks: /proc/net/tcp: {error}"),
    };
    Err(ApiRefusal::new(StatusCode::FORBIDDEN, "forbidden", message))
}

/// Returns whether `host[:port]` can only mean this machine.
fn is_loopback(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else { return false };
    if authority.as_str().contains('@') {
        return false;
    }
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// Returns whether an origin is of this machine. `null`, of pages that hide theirs, is not.
fn is_local_origin(origin: &str) -> bool {
    match Url::parse(origin).as_ref().map(Url::host) {
        Ok(Some(Host::Domain(name))) => name == "localhost",
        Ok(Some(Host::Ipv4(address))) => address.is_loopback(),
        Ok(Some(Host::Ipv6(address))) => address.is_loopback(),
        Ok(None) | Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(host: Option<&str>, origin: Option<&str>) -> bool {
        let mut request = Request::builder().uri("/event");
        for (name, value) in [(HOST, host), (ORIGIN, origin)] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        check_source(&request.body(()).unwrap()).is_ok()
    }

    #[test]
    fn only_requests_for_names_of_this_machine_are_accepted() {
        for host in ["127.0.0.1", "127.0.0.1:7301", "localhost:7301", "LOCALHOST", "[::1]:7301", "127.8.8.8:1"] {
            assert!(source(Some(host), None), "{host}");
        }
        for host in [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example:7301",
            "10.0.0.1",
            "x@127.0.0.1",
            "",
            "[::2]",
        ] {
            assert!(!source(Some(host), None), "{host}");
        }
        assert!(!source(None, None));
        let twice = Request::builder().header(HOST, "127.0.0.1").header(HOST, "127.0.0.1").body(()).unwrap();
        assert!(check_source(&twice).is_err());
        let absolute = Request::builder().uri("http://evil.example/event").header(HOST, "127.0.0.1").body(()).unwrap();
        assert!(check_source(&absolute).is_err());
    }

    #[test]
    fn web_pages_of_other_machines_are_refused() {
        for origin in ["http://localhost:3000", "http://127.0.0.1:7301", "https://[::1]"] {
            assert!(source(Some("127.0.0.1:7301"), Some(origin)), "{origin}");
        }
        for origin in ["https://evil.example", "null", "http://localhost.evil.example", "", "file://"] {
            assert!(!source(Some("127.0.0.1:7301"), Some(origin)), "{origin}");
        }
    }

    #[test]
    fn a_body_that_is_not_json_is_refused() {
        let json = |kind: &str| check_json(&HeaderMap::from_iter([(CONTENT_TYPE, kind.parse().unwrap())])).is_ok();
        assert!(json("application/json") && json("Application/JSON; charset=utf-8"));
        assert!(!json("text/plain") && !json("application/x-www-form-urlencoded") && !json("application/jsonp"));
        assert!(check_json(&HeaderMap::new()).is_err());
    }
}
