//! Who may ask. Everything on this machine can connect to loopback, the pages in a browser among it.
//!
//! A page can make a browser send requests here, and with a name of its own that suddenly means 127.0.0.1 even read the
//! answers. It cannot choose the Host or the Origin that the browser sends, nor send JSON without asking first, which
//! nobody answers. So these three are looked at.

use super::{Ends, error::Refusal, peer};
use http::{
    HeaderMap, Request, StatusCode,
    header::{CONTENT_TYPE, HOST, ORIGIN},
    uri::Authority,
};
use std::net::IpAddr;
use url::{Host, Url};

/// Whether a request comes from where it should.
///
/// # Errors
///
/// Refuses one for another host, and one on behalf of a page from elsewhere.
pub fn check_source<B>(request: &Request<B>) -> Result<(), Refusal> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let named = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().is_ok_and(is_loopback),
        _ => false,
    };
    let aimed = request.uri().authority().is_none_or(|authority| is_loopback(authority.as_str()));
    if !named || !aimed {
        let message = "this is the agent's own API, for this machine alone: use http://127.0.0.1 and its port";
        return Err(Refusal::new(StatusCode::FORBIDDEN, "forbidden", message));
    }
    if request.headers().get_all(ORIGIN).iter().any(|origin| !origin.to_str().is_ok_and(is_local_origin)) {
        return Err(Refusal::new(StatusCode::FORBIDDEN, "forbidden", "web pages from elsewhere have no business here"));
    }
    Ok(())
}

/// Whether a body is announced as JSON.
///
/// # Errors
///
/// Refuses anything else, which a page could send unasked.
pub fn check_json(headers: &HeaderMap) -> Result<(), Refusal> {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = value.split_once(';').map_or(value, |(kind, _)| kind).trim();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = "send the body as `Content-Type: application/json`";
    Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message))
}

/// Whether a connection is of the agent's own user, or of root: who registers chooses what the agent runs, and who calls
/// methods does so as the owner of the space.
///
/// # Errors
///
/// Refuses others, and whoever cannot be told.
pub fn check_user(ends: Ends) -> Result<(), Refusal> {
    // SAFETY: it only returns a number.
    let own = unsafe { libc::geteuid() };
    let message = match peer::user_of(ends.peer, ends.local) {
        Ok(Some(user)) if user == own || user == 0 => return Ok(()),
        Ok(Some(user)) => format!("only user {own}, who runs the agent, may ask for this; this is user {user}"),
        Ok(None) => format!("only user {own}, who runs the agent, may ask for this, and you have gone already"),
        // Elsewhere than on Linux there is nothing to look into.
        Err(_) if !cfg!(target_os = "linux") => return Ok(()),
        Err(error) => format!("the agent cannot tell who asks: /proc/net/tcp: {error}"),
    };
    Err(Refusal::new(StatusCode::FORBIDDEN, "forbidden", message))
}

/// Whether `host[:port]` can only mean this machine.
fn is_loopback(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else { return false };
    if authority.as_str().contains('@') {
        return false;
    }
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// Whether an origin is a page of this machine. `null`, of pages that hide theirs, is not.
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
    fn only_names_of_this_machine_are_answered() {
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
    fn pages_from_elsewhere_are_refused() {
        for origin in ["http://localhost:3000", "http://127.0.0.1:7301", "https://[::1]"] {
            assert!(source(Some("127.0.0.1:7301"), Some(origin)), "{origin}");
        }
        for origin in ["https://evil.example", "null", "http://localhost.evil.example", "", "file://"] {
            assert!(!source(Some("127.0.0.1:7301"), Some(origin)), "{origin}");
        }
    }

    #[test]
    fn a_body_is_json_or_refused() {
        let json = |kind: &str| check_json(&HeaderMap::from_iter([(CONTENT_TYPE, kind.parse().unwrap())])).is_ok();
        assert!(json("application/json") && json("Application/JSON; charset=utf-8"));
        assert!(!json("text/plain") && !json("application/x-www-form-urlencoded") && !json("application/jsonp"));
        assert!(check_json(&HeaderMap::new()).is_err());
    }
}
