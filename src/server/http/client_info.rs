//! The address and scheme a request comes from, as far as they can be trusted.

use hyper::header::{HeaderMap, HeaderName};
use std::net::{IpAddr, SocketAddr};

static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Origin of a request on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientInfo {
    /// The peer's address, or the one that a proxy on this machine reports.
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
    /// Reads the forwarding headers of a proxy on this machine, and only the part that the proxy added itself: the last
    /// address of the list. Any other peer could write anything there.
    pub fn of(headers: &HeaderMap, peer: SocketAddr) -> Self {
        let mut client = Self { address: peer.ip().to_canonical(), scheme: Scheme::Http };
        if client.address.is_loopback() {
            let last = headers.get_all(&FORWARDED_FOR).iter().next_back().and_then(|value| value.to_str().ok());
            if let Some(address) = last.and_then(|list| list.rsplit(',').next()?.trim().parse().ok()) {
                client.address = address;
            }
            if headers.get(&FORWARDED_PROTO).is_some_and(|proto| proto.as_bytes().eq_ignore_ascii_case(b"https")) {
                client.scheme = Scheme::Https;
            }
        }
        client
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_proxy_on_this_machine_is_believed_about_the_address() {
        let pairs = [(&FORWARDED_FOR, "10.9.9.9, 192.0.2.7"), (&FORWARDED_PROTO, "https")];
        let headers: HeaderMap =
            pairs.into_iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        let proxied = ClientInfo::of(&headers, "127.0.0.1:5".parse().unwrap());
        assert_eq!(proxied, ClientInfo { address: "192.0.2.7".parse().unwrap(), scheme: Scheme::Https });
        let direct = ClientInfo::of(&headers, "198.51.100.1:5".parse().unwrap());
        assert_eq!(direct, ClientInfo { address: "198.51.100.1".parse().unwrap(), scheme: Scheme::Http });
        let mapped = ClientInfo::of(&HeaderMap::new(), "[::ffff:198.51.100.1]:5".parse().unwrap());
        assert_eq!(mapped.address.to_string(), "198.51.100.1");
    }
}
