//! The guards of every request: addresses are looked up and checked, one timeout spans the whole exchange, and a
//! response is read up to a limit.

use super::{
    exchange::{EgressError, OutboundRequest, OutboundResponse},
    hyper_client::HyperClient,
    isahc_client::IsahcClient,
    policy::Policy,
    resolver::NameResolver,
};
use crate::{
    model::{outbound_http::check_url, owner::Owner},
    platform::config,
};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;
use url::{Host, Url};

/// Addresses of a host that are tried before giving up.
const ADDRESSES: usize = 4;

/// Upper bound of every timeout: a deadline in the far future overflows the clocks that compute with it.
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// The guarded HTTP client. Cloning it is cheap.
#[derive(Clone)]
pub struct Egress(Arc<EgressState>);

struct EgressState {
    policy: Policy,
    resolver: NameResolver,
    client: HttpBackend,
}

/// The client that sends.
enum HttpBackend {
    Hyper(HyperClient),
    Isahc(IsahcClient),
}

impl Egress {
    /// A client under this policy. Nothing is opened yet.
    pub fn new(config: &config::EgressConfig) -> Self {
        Self::with_policy(config, Policy::new(config))
    }

    /// A client for a program with `--sandbox`, which reaches public addresses alone.
    pub fn for_sandbox() -> Self {
        Self::with_policy(&config::EgressConfig::default(), Policy::for_sandbox())
    }

    fn with_policy(config: &config::EgressConfig, policy: Policy) -> Self {
        let client = match config.client {
            config::EgressClient::Hyper => HttpBackend::Hyper(HyperClient::default()),
            config::EgressClient::Isahc => HttpBackend::Isahc(IsahcClient::default()),
        };
        Self(Arc::new(EgressState { policy, resolver: NameResolver::new(&config.dns), client }))
    }

    /// Checks a URL as far as that is possible without resolving a name: a literal address, or `localhost`, that the
    /// policy refuses now is refused by every later [`Egress::send`] too.
    ///
    /// # Errors
    ///
    /// Fails if no request of this owner can reach the URL.
    pub fn check(&self, owner: Owner, url: &str) -> Result<(), EgressError> {
        let url = check_url(url)?;
        let address: IpAddr = match url.host() {
            Some(Host::Ipv4(address)) => address.into(),
            Some(Host::Ipv6(address)) => address.into(),
            Some(Host::Domain(name)) if is_localhost(name) => Ipv4Addr::LOCALHOST.into(),
            Some(Host::Domain(_)) | None => return Ok(()),
        };
        let denied =
            |denial| EgressError::Denied { host: url.host_str().unwrap_or_default().to_owned(), address, denial };
        self.0.policy.check(owner, address).map_err(denied)
    }

    /// Sends a request on behalf of `owner` and reads the response, whatever its status.
    ///
    /// A response over the limit is truncated and its connection closed; its status stands. Redirects are not followed.
    ///
    /// # Errors
    ///
    /// Fails if the address is out of bounds for this owner, or no complete answer came in time.
    pub async fn send(&self, owner: Owner, mut request: OutboundRequest) -> Result<OutboundResponse, EgressError> {
        let limit = request.timeout.min(MAX_TIMEOUT);
        request.timeout = limit;
        match tokio::time::timeout(limit, self.exchange(owner, request)).await {
            Ok(result) => result,
            Err(_) => Err(EgressError::Timeout(limit)),
        }
    }

    async fn exchange(&self, owner: Owner, mut request: OutboundRequest) -> Result<OutboundResponse, EgressError> {
        let deadline = Instant::now() + request.timeout;
        let addresses = self.resolve(owner, &request.url).await?;
        let mut waiting = addresses.len();
        for address in addresses {
            waiting -= 1;
            let left = deadline - Instant::now();
            let connect = left / (waiting as u32 + 1);
            let sent = match &self.0.client {
                HttpBackend::Hyper(client) => client.send(&mut request, address, connect).await,
                // On the heap: the other client's requests are smaller.
                HttpBackend::Isahc(client) => Box::pin(client.send(&request, address, left, connect)).await,
            };
            match sent {
                // Nothing was sent yet, so that the next address cannot receive it a second time.
                Err(EgressError::Connect { .. }) if waiting > 0 => {}
                sent => return sent,
            }
        }
        Err(EgressError::NoAddress { host: request.url.host_str().unwrap_or_default().to_owned() })
    }

    /// Every address of the host. One address that is not allowed refuses the host.
    async fn resolve(&self, owner: Owner, url: &Url) -> Result<Vec<SocketAddr>, EgressError> {
        let host = || url.host_str().unwrap_or_default().to_owned();
        let port = url.port_or_known_default().unwrap_or(80);
        let mut addresses: Vec<SocketAddr> = match url.host() {
            Some(Host::Ipv4(address)) => vec![(address, port).into()],
            Some(Host::Ipv6(address)) => vec![(address, port).into()],
            Some(Host::Domain(name)) if is_localhost(name) => {
                vec![(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()]
            }
            Some(Host::Domain(name)) => {
                let found = Box::pin(self.0.resolver.resolve(owner, name)).await;
                let found = found.map_err(|source| EgressError::Resolve { host: host(), source })?;
                found.iter().map(|address| (*address, port).into()).collect()
            }
            None => vec![],
        };
        for address in &addresses {
            if let Err(denial) = self.0.policy.check(owner, address.ip()) {
                return Err(EgressError::Denied { host: host(), address: address.ip(), denial });
            }
        }
        addresses.truncate(ADDRESSES);
        Ok(addresses)
    }
}

/// Returns true for the names that always mean this machine.
fn is_localhost(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    name == "localhost" || name.ends_with(".localhost")
}
