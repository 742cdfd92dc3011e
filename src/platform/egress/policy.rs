//! The egress policy: addresses that requests on behalf of an owner may connect to.
//!
//! Addresses are checked, never names, because a name can resolve to another address at the moment of connecting. An
//! IPv6 address that embeds an IPv4 one is checked as both.

use super::own_addresses::OwnAddresses;
use crate::{model::owner::Owner, platform::config};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The policy of one server.
pub(super) struct Policy {
    private: Private,
    deny: Vec<IpNet>,
    own: OwnAddresses,
}

/// Owners whose sinks reach private addresses. On a server, global ones always do: the users who may create those are
/// trusted.
enum Private {
    /// A program with `--sandbox`: the agent listens on a local address, asks for no token and runs processes.
    Nobody,
    GlobalOnly,
    Everyone,
}

/// Reason for which an address is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    #[error("link-local addresses are never allowed")]
    LinkLocal,
    #[error("cloud metadata addresses are never allowed")]
    Metadata,
    #[error("this is no address of a single host")]
    NotAHost,
    #[error("the server's `egress.deny` list has it")]
    Listed,
    #[error(
        "loopback and private addresses are closed to user-owned sinks: \
         make the sink global, or have `egress.allow_private` set on the server"
    )]
    Private,
    #[error(
        "the server's own addresses are closed to user-owned sinks: \
         make the sink global, or have `egress.allow_private` set on the server"
    )]
    OwnAddress,
    #[error(
        "the addresses of this machine cannot be read, and are closed to user-owned sinks and sandboxed programs: the log says why"
    )]
    OwnAddressesUnknown,
    #[error("loopback and private addresses and those of this machine are closed to a program with --sandbox")]
    Sandboxed,
}

impl Denial {
    /// Returns true if the same request will be refused again until somebody changes it, or a setting.
    pub fn is_lasting(self) -> bool {
        self != Self::OwnAddressesUnknown
    }
}

/// Metadata services of clouds, which hand out credentials, outside the link-local ranges: Alibaba, Oracle, Azure, AWS,
/// Google.
const METADATA: [IpAddr; 5] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

impl Policy {
    pub(super) fn new(config: &config::EgressConfig) -> Self {
        let private = if config.allow_private { Private::Everyone } else { Private::GlobalOnly };
        Self { private, deny: config.deny.clone(), own: OwnAddresses::default() }
    }

    /// The policy of a program with `--sandbox`, whose requests have no owner.
    pub(super) fn for_sandbox() -> Self {
        Self { private: Private::Nobody, deny: Vec::new(), own: OwnAddresses::default() }
    }

    /// Checks a connection to `address` on behalf of `owner`.
    pub(super) fn check(&self, owner: Owner, address: IpAddr) -> Result<(), Denial> {
        self.check_one(owner, address)?;
        match address {
            IpAddr::V6(outer) => embedded(outer).map_or(Ok(()), |inner| self.check_one(owner, inner.into())),
            IpAddr::V4(_) => Ok(()),
        }
    }

    fn check_one(&self, owner: Owner, address: IpAddr) -> Result<(), Denial> {
        if METADATA.contains(&address) || address == IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)) {
            return Err(Denial::Metadata);
        }
        if is_link_local(address) {
            return Err(Denial::LinkLocal);
        }
        if is_no_host(address) {
            return Err(Denial::NotAHost);
        }
        if self.deny.iter().any(|net| net.contains(&address)) {
            return Err(Denial::Listed);
        }
        let (private, own) = match (owner, &self.private) {
            (_, Private::Nobody) => (Denial::Sandboxed, Denial::Sandboxed),
            (Owner::User(_), Private::GlobalOnly) => (Denial::Private, Denial::OwnAddress),
            (Owner::Global, Private::GlobalOnly) | (_, Private::Everyone) => return Ok(()),
        };
        if is_private(address) {
            return Err(private);
        }
        match self.own.has(address) {
            Some(true) => Err(own),
            Some(false) => Ok(()),
            None => Err(Denial::OwnAddressesUnknown),
        }
    }
}

/// The IPv4 address an IPv6 one stands for: mapped, compatible, NAT64, 6to4 or Teredo.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, high, low] = address.segments();
    let v4 = |high: u16, low: u16| {
        let [[a, b], [c, d]] = [high.to_be_bytes(), low.to_be_bytes()];
        Ipv4Addr::new(a, b, c, d)
    };
    match [a, b, c, d, e, f] {
        // `::` and `::1` are not IPv4 in disguise.
        [0, 0, 0, 0, 0, 0] if high != 0 => Some(v4(high, low)),
        [0, 0, 0, 0, 0, 0xffff] | [0, 0, 0, 0, 0xffff, 0] | [0x64, 0xff9b, 0, 0, 0, 0] => Some(v4(high, low)),
        [0x2002, high, low, ..] => Some(v4(high, low)),
        [0x2001, 0, ..] => Some(v4(!high, !low)),
        _ => None,
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// Unspecified, multicast and broadcast addresses, and those set aside for documentation (2001:db8::/32, 3fff::/20),
/// discarding (100::/64) and segment routing (5f00::/16). On Linux `0.0.0.0` connects to the local machine.
fn is_no_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.octets()[0] == 0 || v4.is_multicast() || v4.is_broadcast(),
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            v6.is_unspecified()
                || v6.is_multicast()
                || (a == 0x2001 && b == 0xdb8)
                || (a == 0x3fff && b & 0xf000 == 0)
                || [a, b, c, d] == [0x100, 0, 0, 0]
                || a == 0x5f00
        }
    }
}

/// Loopback and addresses routed only inside a network: RFC 1918, CGNAT, benchmarking, unique-local and the like.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            v4.is_loopback()
                || v4.is_private()
                || (a == 100 && b & 0xc0 == 64)
                || (a == 192 && b == 0 && c == 0)
                || (a == 198 && b & 0xfe == 18)
                || a >= 240
        }
        IpAddr::V6(v6) => {
            let [a, b, c, ..] = v6.segments();
            v6.is_loopback() || v6.is_unique_local() || a & 0xffc0 == 0xfec0 || [a, b, c] == [0x64, 0xff9b, 1]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::UserId;

    fn check(policy: &Policy, owner: Owner, address: &str) -> Result<(), Denial> {
        policy.check(owner, address.parse().expect(address))
    }

    fn strict() -> Policy {
        Policy::new(&config::EgressConfig::default())
    }

    #[test]
    fn link_local_and_metadata_are_closed_to_everyone_in_every_spelling() {
        let open = Policy::new(&config::EgressConfig { allow_private: true, ..config::EgressConfig::default() });
        for owner in [Owner::Global, Owner::User(UserId::new())] {
            for address in [
                "169.254.169.254",
                "169.254.170.2",
                "fe80::1",
                "fd00:ec2::254",
                "fd20:ce::254",
                "100.100.100.200",
                "168.63.129.16",
                "::ffff:169.254.169.254",
                "::ffff:0:169.254.169.254",
                "::169.254.169.254",
                "64:ff9b::169.254.169.254",
                "2002:a9fe:a9fe::1",
                "2001:0:1:2:3:4:5601:5601",
            ] {
                assert!(
                    matches!(check(&open, owner, address), Err(Denial::LinkLocal | Denial::Metadata)),
                    "{address} for {owner:?}"
                );
            }
        }
    }

    #[test]
    fn an_address_of_no_single_host_is_closed_to_everyone() {
        let open = Policy::new(&config::EgressConfig { allow_private: true, ..config::EgressConfig::default() });
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "ff02::1",
            "::ffff:0.0.0.0",
            "2001:db8::1",
            "2001:db8:ffff::1",
            "3fff::1",
            "3fff:fff::1",
            "100::1",
            "100::ffff:ffff:ffff:ffff",
            "5f00::1",
            "5f00:ffff::1",
        ] {
            assert_eq!(check(&open, Owner::Global, address), Err(Denial::NotAHost), "{address}");
        }
    }

    #[test]
    fn private_addresses_are_for_global_sinks_unless_the_server_allows_them() {
        let open = Policy::new(&config::EgressConfig { allow_private: true, ..config::EgressConfig::default() });
        let user = Owner::User(UserId::new());
        for address in [
            "127.0.0.1",
            "127.8.8.8",
            "10.0.0.1",
            "172.31.255.1",
            "192.168.1.1",
            "100.64.0.1",
            "198.18.0.1",
            "240.0.0.1",
            "::1",
            "fc00::1",
            "fdff::1",
            "fec0::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "64:ff9b::10.0.0.1",
            "2002:7f00:1::",
        ] {
            assert_eq!(check(&strict(), user, address), Err(Denial::Private), "{address}");
            assert_eq!(check(&strict(), Owner::Global, address), Ok(()), "{address}");
            assert_eq!(check(&open, user, address), Ok(()), "{address}");
        }
    }

    #[test]
    fn public_addresses_are_open_to_everyone() {
        for address in [
            "1.1.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
            "2001:db9::1",
            "3ffe::1",
            "4000::1",
            "100:0:0:1::1",
            "5f01::1",
        ] {
            assert_eq!(check(&strict(), Owner::User(UserId::new()), address), Ok(()), "{address}");
        }
    }

    #[test]
    fn the_deny_list_holds_for_global_sinks_and_disguised_addresses() {
        let deny = vec!["10.1.0.0/16".parse().unwrap(), "2606::/16".parse().unwrap()];
        let policy =
            Policy::new(&config::EgressConfig { allow_private: true, deny, ..config::EgressConfig::default() });
        for address in ["10.1.2.3", "::ffff:10.1.2.3", "2606::1"] {
            assert_eq!(check(&policy, Owner::Global, address), Err(Denial::Listed), "{address}");
        }
        assert_eq!(check(&policy, Owner::Global, "10.2.0.1"), Ok(()));
    }

    #[test]
    fn the_hosts_own_addresses_are_closed_to_users_in_every_spelling() {
        let own = ["203.0.114.7".parse().unwrap(), "2606:4700::7".parse().unwrap()];
        let user = Owner::User(UserId::new());
        for (allow_private, expected) in [(false, Err(Denial::OwnAddressesUnknown)), (true, Ok(()))] {
            let mut policy = Policy::new(&config::EgressConfig { allow_private, ..config::EgressConfig::default() });
            policy.own = OwnAddresses::unreadable();
            assert_eq!(check(&policy, user, "203.0.114.8"), expected);
        }
        for (allow_private, expected) in [(false, Err(Denial::OwnAddress)), (true, Ok(()))] {
            let mut policy = Policy::new(&config::EgressConfig { allow_private, ..config::EgressConfig::default() });
            policy.own = OwnAddresses::fixed(own);
            for address in
                ["203.0.114.7", "2606:4700::7", "::ffff:203.0.114.7", "64:ff9b::203.0.114.7", "2002:cb00:7207::"]
            {
                assert_eq!(check(&policy, user, address), expected, "{address}");
                assert_eq!(check(&policy, Owner::Global, address), Ok(()), "{address}");
            }
            assert_eq!(check(&policy, user, "203.0.114.8"), Ok(()));
        }
    }

    #[test]
    fn a_program_in_the_sandbox_reaches_public_addresses_alone_and_the_refusal_names_no_sink() {
        let mut policy = Policy::for_sandbox();
        policy.own = OwnAddresses::fixed(["203.0.114.7".parse().unwrap()]);
        for owner in [Owner::Global, Owner::User(UserId::new())] {
            for address in ["127.0.0.1", "::1", "10.1.2.3", "203.0.114.7", "::ffff:127.0.0.1"] {
                let denial = check(&policy, owner, address).unwrap_err();
                assert_eq!(denial, Denial::Sandboxed, "{address}");
                assert!(!denial.to_string().contains("sink"), "{denial}");
            }
            assert_eq!(check(&policy, owner, "169.254.169.254"), Err(Denial::Metadata));
            assert_eq!(check(&policy, owner, "203.0.114.8"), Ok(()));
        }
        policy.own = OwnAddresses::unreadable();
        assert_eq!(check(&policy, Owner::Global, "203.0.114.8"), Err(Denial::OwnAddressesUnknown));
    }
}
