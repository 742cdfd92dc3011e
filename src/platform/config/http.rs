//! The settings `http.…`: proxies that are believed, and access to the metrics.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    pub trusted_proxies: Vec<AddressRange>,
    pub metrics: MetricsAccess,
}

/// One address, or a range of addresses such as `10.1.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AddressRange(IpNet);

/// Callers that read `/metrics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum MetricsAccess {
    /// Anybody who reaches the server.
    #[default]
    Open,
    /// Every caller with a valid credential.
    Authenticated,
    /// Anybody who reaches this address, which serves nothing else. Port 0 picks a free port.
    Listener(SocketAddr),
}

impl AddressRange {
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl FromStr for AddressRange {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let range = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        range.map(Self).map_err(|_| "expected an address such as 10.1.0.7, or a range such as 10.1.0.0/16")
    }
}

impl TryFrom<String> for AddressRange {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map_err(|reason| format!("`{text}`: {reason}"))
    }
}

impl From<AddressRange> for String {
    fn from(range: AddressRange) -> Self {
        range.to_string()
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_one = self.0.prefix_len() == self.0.max_prefix_len();
        if is_one { self.0.addr().fmt(f) } else { self.0.fmt(f) }
    }
}

impl TryFrom<String> for MetricsAccess {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "open" => Ok(Self::Open),
            "authenticated" => Ok(Self::Authenticated),
            other => other.parse().map(Self::Listener).map_err(|_| {
                format!(
                    "`{other}`: expected \"open\", \"authenticated\", or an address and port such as 127.0.0.1:7390"
                )
            }),
        }
    }
}

impl From<MetricsAccess> for String {
    fn from(access: MetricsAccess) -> Self {
        match access {
            MetricsAccess::Open => "open".to_owned(),
            MetricsAccess::Authenticated => "authenticated".to_owned(),
            MetricsAccess::Listener(address) => address.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_range_of_one() {
        let one: AddressRange = "10.1.0.7".parse().unwrap();
        assert!(one.contains("10.1.0.7".parse().unwrap()) && !one.contains("10.1.0.8".parse().unwrap()));
        assert!(one.contains("::ffff:10.1.0.7".parse().unwrap()), "a mapped address is the same one");
        assert_eq!(one.to_string(), "10.1.0.7");
        let many: AddressRange = "2001:db8::/32".parse().unwrap();
        assert!(many.contains("2001:db8:7::1".parse().unwrap()) && !many.contains("10.1.0.7".parse().unwrap()));
        assert_eq!(many.to_string(), "2001:db8::/32");
        assert!("example.org".parse::<AddressRange>().is_err());
    }

    #[test]
    fn metrics_are_open_closed_or_elsewhere() {
        for text in ["open", "authenticated", "127.0.0.1:7390"] {
            assert_eq!(String::from(MetricsAccess::try_from(text.to_owned()).unwrap()), text);
        }
        let error = MetricsAccess::try_from("closed".to_owned()).unwrap_err();
        assert!(error.contains("`closed`") && error.contains("authenticated"), "{error}");
    }
}
