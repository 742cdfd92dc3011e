//! Resolves the host names of outgoing requests.
//!
//! Look-ups are asynchronous and take no thread, so that a slow name server holds up only those who ask it. Each owner
//! has a share of look-ups, and a cache of its own: nobody waits for the names of another. Callers that ask for the
//! same name share one look-up, which ends when all of them are gone. The places for look-ups of all owners are shared
//! fairly: an owner without one finds one at once, however many names of others are never answered.
//!
//! Names come from `/etc/hosts`, then from the name servers of `egress.dns` or `/etc/resolv.conf`. Both files are read
//! again when they change, on a thread that may wait for the disk.

use crate::{
    model::owner::Owner,
    platform::{keyed_semaphore::KeyedSemaphore, owner_pool::Pool},
};
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};
use hickory_resolver::{
    TokioResolver,
    config::{LookupIpStrategy, NameServerConfig, ResolverConfig, ResolverOpts},
    net::{NetError, runtime::TokioRuntimeProvider},
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::time::Instant;

/// Look-ups that one user has under way at once, and waiting.
const RUNNING: usize = 16;
const WAITING: usize = 256;

/// The same for all that is global.
const RUNNING_GLOBAL: usize = 64;
const WAITING_GLOBAL: usize = 1024;

/// Look-ups under way for all owners together, which bounds the sockets.
const RUNNING_TOTAL: usize = 512;

/// Look-ups of those that only owners without any take, so that each owner has one under way.
const RESERVED: usize = 128;

/// Timeout of one look-up: two tries with an answer to each.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
const TRY_TIMEOUT: Duration = Duration::from_secs(2);
const RETRIES: usize = 1;

/// Bounds of the time that addresses are kept, whatever the time to live of their records.
const KEEP_MIN: Duration = Duration::from_secs(1);
const KEEP_MAX: Duration = Duration::from_secs(30);

/// Time that a failure is kept.
const KEEP_FAILURE: Duration = Duration::from_secs(3);

/// Names of one owner that are kept.
const MAX_NAMES: usize = 256;

/// Owners whose names are kept before those without a current name are dropped.
const SWEEP_OWNERS: usize = 256;

/// Time between two looks at the times of change of the system's files.
const FILES_CHECKED_AFTER: Duration = Duration::from_secs(5);

/// The system's files that a resolver is made of.
const RESOLV_CONF: &str = "/etc/resolv.conf";
const HOSTS: &str = "/etc/hosts";

/// The addresses of a name, IPv4 first: a host without IPv6 gives up on such an address only after a while.
type Addresses = Result<Arc<[IpAddr]>, ResolveError>;

/// Reason for which a name has no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    #[error("no such host")]
    NotFound,
    #[error("no name server answered within {} s", LOOKUP_TIMEOUT.as_secs())]
    Timeout,
    #[error("the resolver is busy: {waiting} look-ups of this owner wait already")]
    Busy { waiting: usize },
    #[error("{0}")]
    Failed(String),
}

/// The resolver of one server. Cloning it is cheap.
#[derive(Clone)]
pub(super) struct NameResolver(Arc<ResolverState>);

struct ResolverState {
    /// The name servers of the settings; empty for those of the system.
    servers: Vec<SocketAddr>,
    users: KeyedSemaphore<Owner>,
    global: KeyedSemaphore<()>,
    total: Arc<Pool>,
    names: Mutex<HashMap<Owner, HashMap<Box<str>, NameState>>>,
    dns: Mutex<Option<LoadedDns>>,
}

/// One name of one owner.
enum NameState {
    /// Callers wait for it.
    Pending(WeakShared<BoxFuture<'static, Addresses>>),
    Known {
        addresses: Addresses,
        until: Instant,
    },
}

/// A client of the name servers, and the state of the files it was made of.
struct LoadedDns {
    client: TokioResolver,
    files: [Option<SystemTime>; 2],
    checked_at: Instant,
}

impl NameResolver {
    /// A resolver that asks these name servers; the system's if there are none. Nothing is read or opened yet.
    pub fn new(servers: &[SocketAddr]) -> Self {
        Self(Arc::new(ResolverState {
            servers: servers.to_vec(),
            users: KeyedSemaphore::new(RUNNING, WAITING),
            global: KeyedSemaphore::new(RUNNING_GLOBAL, WAITING_GLOBAL),
            total: Pool::with_reserve(RUNNING_TOTAL, RESERVED),
            names: Mutex::default(),
            dns: Mutex::default(),
        }))
    }

    /// The addresses of a name, for a request of this owner. Dropping the future ends the look-up if nobody else waits
    /// for it.
    pub async fn resolve(&self, owner: Owner, name: &str) -> Addresses {
        let pending = match self.0.known_or_pending(owner, name) {
            Ok(addresses) => return addresses,
            Err(Some(pending)) => pending,
            Err(None) => {
                let state = self.0.clone();
                let looking_up = state.look_up(owner, name.into()).boxed().shared();
                if let Some(weak) = looking_up.downgrade() {
                    self.0.put(owner, name, NameState::Pending(weak));
                }
                looking_up
            }
        };
        pending.await
    }
}

impl ResolverState {
    /// The addresses of a name if they are known, or the look-up that is under way.
    fn known_or_pending(
        &self,
        owner: Owner,
        name: &str,
    ) -> Result<Addresses, Option<Shared<BoxFuture<'static, Addresses>>>> {
        let names = self.names.lock();
        match names.get(&owner).and_then(|names| names.get(name)) {
            Some(NameState::Known { addresses, until }) if *until > Instant::now() => Ok(addresses.clone()),
            Some(NameState::Pending(weak)) => Err(weak.upgrade()),
            Some(NameState::Known { .. }) | None => Err(None),
        }
    }

    fn put(&self, owner: Owner, name: &str, state: NameState) {
        let now = Instant::now();
        let mut owners = self.names.lock();
        if owners.len() >= SWEEP_OWNERS {
            owners.retain(|_, names| names.values().any(|state| state.is_current(now)));
        }
        let names = owners.entry(owner).or_default();
        if names.len() >= MAX_NAMES && !names.contains_key(name) {
            names.retain(|_, state| state.is_current(now));
        }
        if names.len() >= MAX_NAMES && !names.contains_key(name) {
            let first =
                names.iter().filter_map(|(name, state)| Some((name, state.until()?))).min_by_key(|(_, until)| *until);
            match first.map(|(name, _)| name.clone()) {
                Some(first) => names.remove(&first),
                // Every name is being looked up. This one is, too, but nobody shares it.
                None => return,
            };
        }
        names.insert(name.into(), state);
    }

    async fn look_up(self: Arc<Self>, owner: Owner, name: Box<str>) -> Addresses {
        let (turn, waiting) = match owner {
            Owner::Global => (self.global.acquire(()).await, WAITING_GLOBAL),
            Owner::User(_) => (self.users.acquire(owner).await, WAITING),
        };
        let _turn = turn.ok_or(ResolveError::Busy { waiting })?;
        let _total = self.total.acquire(owner).await;
        let (addresses, keep) = match tokio::time::timeout(LOOKUP_TIMEOUT, self.ask(&name)).await {
            Ok(Ok((addresses, keep))) => (Ok(addresses), keep.clamp(KEEP_MIN, KEEP_MAX)),
            Ok(Err(error)) => (Err(error), KEEP_FAILURE),
            Err(_) => (Err(ResolveError::Timeout), KEEP_FAILURE),
        };
        self.put(owner, &name, NameState::Known { addresses: addresses.clone(), until: Instant::now() + keep });
        addresses
    }

    /// Asks the name servers, and returns the time for which the answer holds too.
    async fn ask(&self, name: &str) -> Result<(Arc<[IpAddr]>, Duration), ResolveError> {
        let client = self.client().await?;
        let found = client.lookup_ip(name).await.map_err(|error| match error {
            error if error.is_no_records_found() || error.is_nx_domain() => ResolveError::NotFound,
            NetError::Timeout => ResolveError::Timeout,
            error => ResolveError::Failed(error.to_string()),
        })?;
        let keep = found.valid_until().saturating_duration_since(std::time::Instant::now());
        let mut addresses: Vec<IpAddr> = found.iter().collect();
        addresses.sort_by_key(IpAddr::is_ipv6);
        Ok((addresses.into(), keep))
    }

    /// The client of the name servers, made anew if the system's files have changed. While one caller looks at them,
    /// the others go on with the client there is.
    async fn client(&self) -> Result<TokioResolver, ResolveError> {
        let now = Instant::now();
        let before = {
            let mut dns = self.dns.lock();
            match dns.as_mut() {
                Some(loaded) if now < loaded.checked_at + FILES_CHECKED_AFTER => return Ok(loaded.client.clone()),
                Some(loaded) => {
                    loaded.checked_at = now;
                    Some(loaded.files)
                }
                None => None,
            }
        };
        let servers = self.servers.clone();
        let loading = tokio::task::spawn_blocking(move || {
            let files = times_of_change();
            (before != Some(files)).then(|| load(&servers).map(|client| (client, files)))
        });
        let loaded = loading.await.map_err(|error| ResolveError::Failed(error.to_string()))?;
        let loaded = loaded.transpose().map_err(|error| ResolveError::Failed(error.to_string()))?;
        let mut dns = self.dns.lock();
        if let Some((client, files)) = loaded {
            *dns = Some(LoadedDns { client, files, checked_at: now });
        }
        let client = dns.as_ref().map(|loaded| loaded.client.clone());
        Ok(client.expect("it is loaded here unless it was before"))
    }
}

/// Reads the system's files, and makes a client of these name servers; of the system's if there are none.
fn load(servers: &[SocketAddr]) -> Result<TokioResolver, NetError> {
    let system = if servers.is_empty() { hickory_resolver::system_conf::read_system_conf().ok() } else { None };
    let (config, options) = system.unwrap_or_else(|| {
        // The C library asks this address too if the file is missing or names no server.
        let local = [SocketAddr::from((Ipv4Addr::LOCALHOST, 53))];
        let servers = if servers.is_empty() { &local[..] } else { servers };
        let servers = servers.iter().map(name_server).collect();
        (ResolverConfig::from_parts(None, vec![], servers), ResolverOpts::default())
    });
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    let all = builder.options_mut();
    *all = options;
    all.timeout = TRY_TIMEOUT;
    all.attempts = RETRIES;
    all.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    // Answers are kept here, by owner.
    all.cache_size = 0;
    all.max_active_requests = RUNNING_TOTAL;
    builder.build()
}

impl NameState {
    fn is_current(&self, now: Instant) -> bool {
        match self {
            Self::Pending(weak) => weak.upgrade().is_some(),
            Self::Known { until, .. } => *until > now,
        }
    }

    fn until(&self) -> Option<Instant> {
        match self {
            Self::Pending(_) => None,
            Self::Known { until, .. } => Some(*until),
        }
    }
}

fn name_server(address: &SocketAddr) -> NameServerConfig {
    let mut server = NameServerConfig::udp_and_tcp(address.ip());
    for connection in &mut server.connections {
        connection.port = address.port();
    }
    server
}

fn times_of_change() -> [Option<SystemTime>; 2] {
    [RESOLV_CONF, HOSTS].map(|path| std::fs::metadata(path).and_then(|file| file.modified()).ok())
}
