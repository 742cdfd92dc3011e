//! The address and scheme a request comes from, as far as they can be trusted.

use crate::platform::config::AddressRange;
use hyper::header::{HeaderMap, HeaderName};
use std::net::{IpAddr, SocketAddr};

static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Origin of a request on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientInfo {
    /// The peer's address, or the one that a trusted proxy reports.
    pub address: IpAddr,
    pub scheme: Scheme,
}

/// Scheme by which the client reaches the service or the proxy in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    Http,
    Https,
}

impl ClientInfo {
    /// Reads the forwarding headers of a trusted proxy. Any other peer could write anything there, so its own address
    /// counts.
    ///
    /// Each proxy appends the address of its peer. From the end of the list, the first address that is no trusted proxy
    /// is the client; what stands before it, the client may have written itself.
    pub fn of(headers: &HeaderMap, peer: SocketAddr, trusted_proxies: &[AddressRange]) -> Self {
        let is_trusted = |address: &IpAddr| trusted_proxies.iter().any(|range| range.contains(*address));
        let mut client = Self { address: peer.ip().to_canonical(), scheme: Scheme::Http };
        if !is_trusted(&client.address) {
            return client;
        }
        let lists = headers.get_all(&FORWARDED_FOR).iter().rev();
        let entries = lists.flat_map(|list| list.to_str().unwrap_or_default().rsplit(','));
        for entry in entries {
            // A malformed entry ends the part of the list that trusted proxies wrote.
            let Some(address) = parse_address(entry.trim()) else { break };
            client.address = address;
            if !is_trusted(&address) {
                break;
            }
        }
        if headers.get(&FORWARDED_PROTO).is_some_and(|proto| proto.as_bytes().eq_ignore_ascii_case(b"https")) {
            client.scheme = Scheme::Https;
        }
        client
    }
}

/// An address of the list. Some proxies write it with a port, and an IPv6 address in brackets.
fn parse_address(entry: &str) -> Option<IpAddr> {
    let bare = entry.trim_start_matches('[').trim_end_matches(']');
    let address = bare.parse().ok().or_else(|| Some(entry.parse::<SocketAddr>().ok()?.ip()))?;
    Some(IpAddr::to_canonical(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(forwarded: &[&str], peer: &str, trusted: &[&str]) -> (String, Scheme) {
        let mut headers = HeaderMap::new();
        for list in forwarded {
            headers.append(&FORWARDED_FOR, list.parse().unwrap());
        }
        headers.append(&FORWARDED_PROTO, "https".parse().unwrap());
        let trusted: Vec<_> = trusted.iter().map(|range| range.parse().unwrap()).collect();
        let client = ClientInfo::of(&headers, peer.parse().unwrap(), &trusted);
        (client.address.to_string(), client.scheme)
    }

    #[test]
    fn without_trusted_proxies_the_address_of_the_connection_counts_even_on_this_machine() {
        for peer in ["127.0.0.1:5", "[::1]:5", "198.51.100.1:5"] {
            let own = peer.parse::<SocketAddr>().unwrap().ip().to_string();
            assert_eq!(info(&["192.0.2.7"], peer, &[]), (own, Scheme::Http));
        }
        assert_eq!(info(&[], "[::ffff:198.51.100.1]:5", &[]).0, "198.51.100.1");
    }

    #[test]
    fn a_trusted_proxy_is_believed_about_the_last_address_that_is_no_proxy() {
        let trusted = ["127.0.0.1", "10.1.0.0/16"];
        let of = |forwarded: &[&str]| info(forwarded, "127.0.0.1:5", &trusted);
        assert_eq!(of(&["10.9.9.9, 192.0.2.7"]), ("192.0.2.7".to_owned(), Scheme::Https));
        assert_eq!(of(&["6.6.6.6, 192.0.2.7, 10.1.2.3"]).0, "192.0.2.7");
        assert_eq!(of(&["6.6.6.6", "192.0.2.7", "10.1.2.3"]).0, "192.0.2.7");
        assert_eq!(of(&["192.0.2.7:4711"]).0, "192.0.2.7");
        assert_eq!(of(&["[2001:db8::7]"]).0, "2001:db8::7");
        assert_eq!(of(&["6.6.6.6, unknown, 10.1.2.3"]).0, "10.1.2.3", "nothing before a malformed entry counts");
        assert_eq!(of(&[]).0, "127.0.0.1");
        assert_eq!(info(&["192.0.2.7"], "198.51.100.1:5", &trusted), ("198.51.100.1".to_owned(), Scheme::Http));
    }
}
