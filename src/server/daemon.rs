//! The daemon: opens the services, serves until shutdown, and closes them in the opposite order.

use crate::{
    delivery::report_sinks,
    platform::{
        config::{Config, MetricsAccess},
        metrics::Metrics,
        store::{Store, StoreError, StoreOpenError},
        task,
    },
    routing::queue::BurstEnd,
    server::{
        http::{self, StatusServices},
        services::{Services, ServicesError},
        stop_phases::StopPhases,
        sweep,
    },
    spaces::{
        ProcessDriver,
        process_driver::{AgentLaunch, AgentRestartPolicy},
    },
};
use std::{
    io::{self, Write as _},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};
use tokio::net::TcpListener;
use tokio_util::{
    sync::CancellationToken,
    task::{AbortOnDropHandle, TaskTracker},
};

/// Time for the answers to calls that failed because their links ended, on top of `limits.drain`.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// Time in which probes can learn of a failed write before the server ends because of it.
const TELL_PROBES: Duration = Duration::from_secs(1);

/// Time to notify agents of the shutdown.
const AGENT_DRAIN: Duration = Duration::from_secs(3);

/// Time for an agent that the server runs to send its last events and to stop its method server, on top of the time for
/// its calls.
const AGENT_GRACE: Duration = Duration::from_secs(10);

/// Time after which an agent whose connection ended without a goodbye is reported as lost.
const AGENT_LOST_AFTER: Duration = Duration::from_secs(10);

/// Failure of the daemon to start or to serve.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error(transparent)]
    Open(#[from] StoreOpenError),
    #[error(transparent)]
    Services(#[from] ServicesError),
    #[error(transparent)]
    StoreStopped(StoreError),
    #[error("cannot listen on {address} for the metrics: {source}; stop what is there, or change `http.metrics`")]
    ListenForMetrics { address: SocketAddr, source: io::Error },
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
    let metrics_listener = listen_for_metrics(config.http.metrics).await?;
    let metrics = Arc::<Metrics>::default();
    let store = Store::open_with(&config.data, &config.store_options(), metrics.clone())?;
    let stop_with_store = AbortOnDropHandle::new(task::spawn(shut_down_after_failure(store.clone(), shutdown.clone())));
    let served = serve(config, listener, metrics_listener, shutdown, store.clone(), metrics, address).await;
    drop(stop_with_store);
    store.close().await;
    match store.failure() {
        Some(failure) => Err(DaemonError::StoreStopped(failure)),
        None => served,
    }
}

/// Binds the address that serves nothing but the metrics, if there is one.
async fn listen_for_metrics(access: MetricsAccess) -> Result<Option<TcpListener>, DaemonError> {
    let MetricsAccess::Listener(address) = access else { return Ok(None) };
    let bound = TcpListener::bind(address).await;
    let listener = bound.map_err(|source| DaemonError::ListenForMetrics { address, source })?;
    log::info!("serving metrics on http://{}/metrics", listener.local_addr()?);
    Ok(Some(listener))
}

/// Shuts the daemon down once a write has failed: only a new process can open the store again. Deliveries and answers
/// under way still end, and whoever runs the daemon starts it again because of its exit code.
async fn shut_down_after_failure(store: Store, shutdown: CancellationToken) {
    store.stopped().await;
    log::error!("stopping: the store takes no more writes");
    shutdown.cancel();
}

async fn serve(
    config: Config,
    listener: TcpListener,
    metrics_listener: Option<TcpListener>,
    shutdown: CancellationToken,
    store: Store,
    metrics: Arc<Metrics>,
    address: SocketAddr,
) -> Result<(), DaemonError> {
    let phases = StopPhases::new(shutdown);
    let (services, inboxes) = Services::open(config, store, metrics, &phases).await?;
    let Services { config, spaces, agents, deliverer, .. } = &services;
    let drain = config.limits.drain;
    let environment = vec![
        ("SVC_AGENT_HEARTBEAT", config.agent.heartbeat.to_string()),
        ("SVC_AGENT_SPOOL", config.agent.spool.to_string()),
        ("SVC_LIMITS_DRAIN", drain.to_string()),
    ];
    let restart_policy = AgentRestartPolicy { grace: drain.0 + AGENT_GRACE, ..AgentRestartPolicy::default() };
    let launch = AgentLaunch { environment, restart_policy, ..AgentLaunch::of_server(address, &config.data)? };
    let process_driver = ProcessDriver::new(spaces.clone(), launch);
    agents.tidy().await.map_err(ServicesError::from)?;
    spaces.report_lost_agents(AGENT_LOST_AFTER);
    // Events that an earlier run left unsent go out before the agents are launched, which emit more.
    spaces.resume().await;
    process_driver.follow();

    log::info!("serving zone `{}` on http://{address}, data in {}", config.zone, config.data.display());
    writeln!(io::stdout(), "listening on http://{address}")?;
    let requests_ended = CancellationToken::new();
    let http_services = Arc::new(services.http());
    let serving_metrics = serve_metrics(metrics_listener, http_services.status.clone(), phases.closing.clone());
    let progress = HttpProgress { under_way: http_services.under_way.clone(), ended: requests_ended.clone() };
    let serving = async {
        http::serve(listener, http_services, phases.clone(), drain.0 + LAST_ANSWERS).await;
        requests_ended.cancel();
    };
    tokio::join!(
        serving,
        serving_metrics,
        deliverer.run(inboxes.ready_queues),
        report_sinks(&services.failures, inboxes.sinks_to_report, &services.emitter, &phases.stopping),
        deliverer.run_replays(),
        sweep::run(&services, &phases.stopping),
        stop_in_phases(&services, &phases, &process_driver, &progress),
    );
    if let Err(error) = services.engine.end_bursts(BurstEnd::All).await {
        log::warn!("the losses of sinks in the last minute are not summed up: {error}");
    }
    services.workers.shut_down();
    log::info!("stopped");
    Ok(())
}

async fn serve_metrics(listener: Option<TcpListener>, services: Arc<StatusServices>, shutdown: CancellationToken) {
    if let Some(listener) = listener {
        http::serve_metrics(listener, services, shutdown).await;
    }
}

/// The progress of the HTTP server.
struct HttpProgress {
    /// The requests that are being answered.
    under_way: TaskTracker,
    /// Cancelled once the last connection has ended.
    ended: CancellationToken,
}

/// Waits until the server begins to stop, and then ends everything that requests and deliveries under way need after
/// they have ended. The only place that orders the [`StopPhases`].
async fn stop_in_phases(
    services: &Services,
    phases: &StopPhases,
    process_driver: &ProcessDriver,
    http_progress: &HttpProgress,
) {
    let Services { config, spaces, agents, deliverer, store, .. } = services;
    phases.stopping.cancelled().await;
    let drain = config.limits.drain;
    let under_way = async {
        if store.failure().is_some() {
            http_progress.under_way.close();
            tokio::join!(tokio::time::sleep(TELL_PROBES), deliverer.finished(), http_progress.under_way.wait());
        }
        phases.closing.cancel();
        tokio::join!(http_progress.ended.cancelled(), deliverer.finished());
    };
    if tokio::time::timeout(drain.0, under_way).await.is_err() {
        log::warn!(
            "some calls, requests or deliveries did not end within {drain}: the calls fail, and the deliveries are made \
             again after the next start"
        );
    }
    phases.closing.cancel();
    // Links that end from now on are no failure of their spaces.
    spaces.pause();
    phases.links_ending.cancel();
    if tokio::time::timeout(AGENT_DRAIN, agents.finished()).await.is_err() {
        log::warn!("some agents were not notified of the shutdown in time");
    }
    process_driver.shut_down().await;
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
