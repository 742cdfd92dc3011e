//! Finds the user whose process is at the other end of a loopback connection, in `/proc/net/tcp`.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

/// The state of a socket that its process still holds. A closed one is listed with user 0, and must not pass for
/// root's.
const ESTABLISHED: &str = "01";

/// The addresses of both ends of a connection.
#[derive(Clone, Copy, Debug)]
pub struct SocketPair {
    pub peer: SocketAddr,
    pub local: SocketAddr,
}

/// The user whose process holds the peer's socket; `None` if it is closed.
///
/// # Errors
///
/// Fails if the system's tables cannot be read.
pub fn user_of(SocketPair { peer, local }: SocketPair) -> io::Result<Option<u32>> {
    let mut found = Err(io::ErrorKind::NotFound.into());
    // A dual-stack socket connects from a mapped address, and is in the IPv6 table.
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        match std::fs::read_to_string(table) {
            Ok(text) => {
                if let Some(user) = find(&text, peer, local) {
                    return Ok(Some(user));
                }
                found = Ok(None);
            }
            Err(error) if found.is_err() => found = Err(error),
            Err(_) => {}
        }
    }
    found
}

fn find(table: &str, peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (from, to) = (address(fields.next()?)?, address(fields.next()?)?);
        let state = fields.next()?;
        // Skips queues, timer and retransmissions.
        let user = fields.nth(3)?.parse().ok()?;
        (state == ESTABLISHED && from == canonical(peer) && to == canonical(local)).then_some(user)
    })
}

/// Parses `0100007F:1C84`, in which each word of the address has the machine's byte order.
fn address(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.split_once(':')?;
    let word = |from: usize| Some(u32::from_str_radix(host.get(from..from + 8)?, 16).ok()?.to_ne_bytes());
    let host = match host.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (index, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(index * 8)?);
            }
            IpAddr::from(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(canonical(SocketAddr::new(host, u16::from_str_radix(port, 16).ok()?)))
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    const LOCAL: &str = "127.0.0.1:7301";

    fn line(from: &str, state: &str, user: u32) -> String {
        format!(
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
             1: {from} 0100007F:1C85 {state} 00000000:00000000 00:00000000 00000000  {user}        0 31337 1 0 20 4 30 10 -1\n"
        )
    }

    #[test]
    fn a_connection_belongs_to_the_user_of_its_process() {
        let (peer, local) = ("127.0.0.1:40000".parse().unwrap(), LOCAL.parse().unwrap());
        assert_eq!(find(&line("0100007F:9C40", "01", 1000), peer, local), Some(1000));
        assert_eq!(find(&line("0100007F:9C41", "01", 1000), peer, local), None, "another port");
        let mapped = line("0000000000000000FFFF00000100007F:9C40", "01", 7);
        assert_eq!(
            find(&mapped.replace("0100007F:1C85", "0000000000000000FFFF00000100007F:1C85"), peer, local),
            Some(7)
        );
    }

    #[test]
    fn a_closed_socket_belongs_to_nobody_although_it_is_listed_as_roots() {
        let (peer, local) = ("127.0.0.1:40000".parse().unwrap(), LOCAL.parse().unwrap());
        for state in ["04", "05", "06"] {
            assert_eq!(find(&line("0100007F:9C40", state, 0), peer, local), None, "{state}");
        }
    }

    #[test]
    fn a_connection_of_this_process_belongs_to_its_user() {
        // SAFETY: it only returns a number.
        let me = unsafe { libc::geteuid() };
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(host) else { continue };
            let local = listener.local_addr().unwrap();
            let near = TcpStream::connect(local).unwrap();
            let (_far, peer) = listener.accept().unwrap();
            assert_eq!(user_of(SocketPair { peer, local }).unwrap(), Some(me), "{host}");
            drop(near);
            assert_eq!(user_of(SocketPair { peer, local }).unwrap(), None, "{host}: it is closed");
        }
    }
}
