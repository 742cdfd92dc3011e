//! Connections that wait for their next request, by destination. There are at most [`MAX_IDLE`] in all, and none waits
//! for longer than [`IDLE_FOR`].

use super::{exchange::Tls, hyper_connection::HttpConnection};
use crate::platform::task;
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::time::Instant;

/// The most connections that wait. The one that waits longest is closed for another.
const MAX_IDLE: usize = 512;
const IDLE_FOR: Duration = Duration::from_secs(60);
const SWEEP: Duration = Duration::from_secs(5);

/// The other end of a connection. A connection is reused only for the same one, so that a request goes to the address
/// that was checked for it, with the certificate verified as it asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Destination {
    pub address: SocketAddr,
    /// The name in the certificate and its verification; `None` without TLS.
    pub tls: Option<(Box<str>, Tls)>,
}

/// The connections that wait. Cloning the handle is cheap.
#[derive(Clone, Default)]
pub(super) struct IdlePool(Arc<Mutex<IdleConnections>>);

#[derive(Default)]
struct IdleConnections {
    /// By a number that grows, so that the first has waited longest.
    connections: BTreeMap<u64, IdleConnection>,
    /// The numbers of the connections to each destination, in ascending order.
    numbers: HashMap<Destination, Vec<u64>>,
    next: u64,
    /// A task closes the connections that wait too long.
    sweeping: bool,
}

struct IdleConnection {
    connection: HttpConnection,
    destination: Destination,
    since: Instant,
}

impl IdlePool {
    /// Takes a connection to this destination that can be used: the one that was used last.
    pub fn take(&self, destination: &Destination) -> Option<HttpConnection> {
        loop {
            let mut connection = self.0.lock().pop(destination)?;
            // Outside the lock, because it reads from the socket.
            if connection.is_reusable() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection for the next request, if it can have one.
    pub fn put(&self, destination: Destination, mut connection: HttpConnection) {
        if !connection.is_reusable() {
            return;
        }
        let (_closed, sweep) = {
            let mut idle = self.0.lock();
            idle.push(destination, connection);
            let closed = if idle.connections.len() > MAX_IDLE { idle.pop_eldest() } else { None };
            (closed, !std::mem::replace(&mut idle.sweeping, true))
        };
        if sweep {
            task::spawn(sweep_until_empty(Arc::downgrade(&self.0)));
        }
    }
}

impl IdleConnections {
    fn push(&mut self, destination: Destination, connection: HttpConnection) {
        self.next += 1;
        self.numbers.entry(destination.clone()).or_default().push(self.next);
        self.connections.insert(self.next, IdleConnection { connection, destination, since: Instant::now() });
    }

    fn pop(&mut self, destination: &Destination) -> Option<HttpConnection> {
        let numbers = self.numbers.get_mut(destination)?;
        let number = numbers.pop();
        if numbers.is_empty() {
            self.numbers.remove(destination);
        }
        let idle = self.connections.remove(&number?)?;
        // Those that remain have waited for longer, and the sweep closes them.
        (idle.since.elapsed() < IDLE_FOR).then_some(idle.connection)
    }

    fn pop_eldest(&mut self) -> Option<HttpConnection> {
        let (number, idle) = self.connections.pop_first()?;
        if let Some(numbers) = self.numbers.get_mut(&idle.destination) {
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                self.numbers.remove(&idle.destination);
            }
        }
        Some(idle.connection)
    }
}

/// Closes connections that have waited long enough, until there is none.
async fn sweep_until_empty(idle: Weak<Mutex<IdleConnections>>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let Some(idle) = idle.upgrade() else { return };
        let mut closed = Vec::new();
        let mut idle = idle.lock();
        while idle.connections.first_key_value().is_some_and(|(_, idle)| idle.since.elapsed() >= IDLE_FOR) {
            closed.extend(idle.pop_eldest());
        }
        if idle.connections.is_empty() {
            idle.sweeping = false;
            return;
        }
    }
}
