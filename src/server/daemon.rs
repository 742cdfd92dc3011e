//! The daemon: opens the services, serves until shutdown, and closes them in the opposite order.

use crate::{
    platform::{
        config::Config,
        metrics::Metrics,
        store::{Store, StoreOpenError},
    },
    server::{
        http,
        services::{Services, ServicesError},
        sweep,
    },
    spaces::{ProcessDriver, process_driver::AgentLaunch},
};
use std::{
    io::{self, Write as _},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Time for deliveries in flight to end once the daemon stops. A delivery that is cut off is made again later.
const DELIVERY_DRAIN: Duration = Duration::from_secs(6);

/// Time to notify agents of the shutdown.
const AGENT_DRAIN: Duration = Duration::from_secs(3);

/// Failure of the daemon to start or to serve.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error(transparent)]
    Open(#[from] StoreOpenError),
    #[error(transparent)]
    Services(#[from] ServicesError),
    #[error("cannot serve: {0}")]
    Serve(#[from] io::Error),
}

/// Serves on `listener` until `shutdown` is cancelled, then finishes the work in flight.
///
/// Prints one line to stdout once it serves.
///
/// # Errors
///
/// Fails if the data directory cannot be opened; nothing has been served then.
pub async fn run(config: Config, listener: TcpListener, shutdown: CancellationToken) -> Result<(), DaemonError> {
    raise_open_file_limit();
    let address = listener.local_addr()?;
    let metrics = Arc::<Metrics>::default();
    let store = Store::open(&config.data, config.limits.disk_free.0, metrics.clone())?;
    let served = serve(config, listener, shutdown, store.clone(), metrics, address).await;
    store.close().await;
    served
}

async fn serve(
    config: Config,
    listener: TcpListener,
    shutdown: CancellationToken,
    store: Store,
    metrics: Arc<Metrics>,
    address: SocketAddr,
) -> Result<(), DaemonError> {
    let (services, ready_queues) = Services::open(config, store, metrics, &shutdown).await?;
    let Services { config, spaces, agents, deliverer, .. } = &services;
    let environment = vec![
        ("SVC_AGENT_HEARTBEAT", config.agent.heartbeat.to_string()),
        ("SVC_AGENT_SPOOL", config.agent.spool.to_string()),
    ];
    let launch = AgentLaunch { environment, ..AgentLaunch::of_server(address, &config.data)? };
    let process_driver = ProcessDriver::new(spaces.clone(), launch);
    agents.tidy().await.map_err(ServicesError::from)?;
    // Events that an earlier run left unsent go out before the agents are launched, which emit more.
    spaces.resume().await;
    process_driver.follow();

    log::info!("serving zone `{}` on http://{address}, data in {}", config.zone, config.data.display());
    writeln!(io::stdout(), "listening on http://{address}")?;
    tokio::join!(
        http::serve(listener, Arc::new(services.http()), shutdown.clone()),
        deliverer.run(ready_queues),
        sweep::run(&services, &shutdown),
        async {
            shutdown.cancelled().await;
            if tokio::time::timeout(DELIVERY_DRAIN, deliverer.finished()).await.is_err() {
                log::warn!("some deliveries did not end in time; they are made again after the next start");
            }
        },
        async {
            shutdown.cancelled().await;
            // Links that end from now on are no failure of their spaces.
            spaces.pause();
            if tokio::time::timeout(AGENT_DRAIN, agents.finished()).await.is_err() {
                log::warn!("some agents were not notified of the shutdown in time");
            }
            process_driver.shut_down().await;
        },
    );
    services.runtime.shut_down();
    log::info!("stopped");
    Ok(())
}

/// Raises the soft limit of open files, often a thousand, to the hard limit: every connection of a sink is a file.
fn raise_open_file_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls only read or write the structure they are given.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}
