//! The addresses of this host's network interfaces. They reach services that listen for this host alone as loopback
//! does, also where the address is a public one.

use parking_lot::Mutex;
use std::{
    collections::HashSet,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::{Duration, Instant},
};

/// Interfaces come and go; a new address is known after this time.
const REFRESH: Duration = Duration::from_secs(10);

/// The addresses of the interfaces, read again now and then.
#[derive(Default)]
pub(super) struct OwnAddresses(Mutex<Option<ReadAddresses>>);

struct ReadAddresses {
    /// `None` if they could not be read so far.
    addresses: Option<HashSet<IpAddr>>,
    /// `None` for addresses that are not read again.
    until: Option<Instant>,
}

impl OwnAddresses {
    /// These addresses for ever.
    #[cfg(test)]
    pub fn fixed(addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        Self(Mutex::new(Some(ReadAddresses { addresses: Some(addresses.into_iter().collect()), until: None })))
    }

    /// Addresses that can never be read.
    #[cfg(test)]
    pub fn unreadable() -> Self {
        Self(Mutex::new(Some(ReadAddresses { addresses: None, until: None })))
    }

    /// Tells if an interface of this host has the address; `None` if the interfaces could not be read so far. An
    /// address behind a translating router is not known here.
    pub fn has(&self, address: IpAddr) -> Option<bool> {
        let now = Instant::now();
        let mut read = self.0.lock();
        if let Some(read) = &*read
            && read.until.is_none_or(|until| now < until)
        {
            return read.has(address);
        }
        let before = read.take().and_then(|read| read.addresses);
        let addresses = match interface_addresses() {
            Ok(addresses) => Some(addresses),
            Err(error) => {
                log::error!(
                    "the addresses of this host, which sinks and scripts of users must not reach, cannot be read: {error} \
                     (under systemd, RestrictAddressFamilies= needs AF_NETLINK)"
                );
                before
            }
        };
        read.insert(ReadAddresses { addresses, until: Some(now + REFRESH) }).has(address)
    }
}

impl ReadAddresses {
    fn has(&self, address: IpAddr) -> Option<bool> {
        self.addresses.as_ref().map(|addresses| addresses.contains(&address))
    }
}

fn interface_addresses() -> io::Result<HashSet<IpAddr>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the pointer is valid for a write; the list is freed below, after its last use.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut addresses = HashSet::new();
    let mut next = first;
    // SAFETY: each entry of the list is valid until the list is freed, and the last one points to nothing.
    while let Some(interface) = unsafe { next.as_ref() } {
        // SAFETY: the address of an entry is null or points to a socket address of its family.
        addresses.extend(unsafe { ip_address(interface.ifa_addr) });
        next = interface.ifa_next;
    }
    // SAFETY: the list came from `getifaddrs` and is not used any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(addresses)
}

/// The IP address in a socket address; none if it is of another family.
///
/// # Safety
///
/// The pointer is null or points to a socket address of its family.
unsafe fn ip_address(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: as the caller guarantees.
    match i32::from(unsafe { address.as_ref() }?.sa_family) {
        libc::AF_INET => {
            // SAFETY: an address of this family has this type; it need not be aligned to it.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_known_of_a_host_whose_interfaces_cannot_be_read() {
        assert_eq!(OwnAddresses::unreadable().has(Ipv4Addr::LOCALHOST.into()), None);
    }

    #[test]
    fn the_addresses_of_all_interfaces_are_known() {
        let own = OwnAddresses::default();
        assert_eq!(own.has(Ipv4Addr::LOCALHOST.into()), Some(true), "the loopback interface has it");
        assert_eq!(own.has(Ipv4Addr::new(192, 0, 2, 1).into()), Some(false));
        // The address that a packet to another network would leave from; a host without a route has none.
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("192.0.2.1:9").is_ok() {
            assert_eq!(own.has(socket.local_addr().unwrap().ip()), Some(true));
        }
    }
}
