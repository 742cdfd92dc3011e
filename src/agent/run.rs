//! Runs an agent from its start to its end: opens the data directory, serves, drains, and closes the links.

use super::{
    api,
    binding::{Binding, BindingError},
    child_env::ChildEnv,
    dial::Dialer,
    generations::Generations,
    packages::Packages,
    proxy::ServerProxy,
    reconnect,
    registrar::{Registrar, RegistrarDeps},
    server_links::ServerLinks,
    server_url::ServerUrl,
    settings::{AgentSettings, StopSignals},
    setup_changes::SetupRuns,
    shutdown::{Shutdown, StopReason},
    spool::Spool,
    state::AgentState,
};
use crate::platform::{
    config::Span,
    kv::Kv,
    metrics::Metrics,
    store::{Store, StoreError, StoreOpenError},
    task,
};
use std::{
    io::{self, Write as _},
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};
use tokio::net::TcpListener;
use tokio_util::{
    sync::CancellationToken,
    task::{AbortOnDropHandle, TaskTracker},
};

/// Time for the last events to reach a server once the agent stops. The rest stays spooled.
const SEND_LAST_EVENTS: Duration = Duration::from_millis(1500);

/// Time for the links to close.
const CLOSE_LINKS: Duration = Duration::from_secs(3);

/// Time for method servers to stop.
const STOP_METHOD_SERVERS: Duration = Duration::from_secs(6);

/// Interval at which expired keys of the key-value store are deleted.
const PURGE_INTERVAL: Duration = Duration::from_secs(600);

/// An agent that did not start, or stopped without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("data directory {} is in use by another agent: stop it, or give this one its own with --data", .0.display())]
    InUse(PathBuf),
    #[error(transparent)]
    Open(StoreOpenError),
    #[error("cannot read the data directory: {0}")]
    Store(#[from] StoreError),
    #[error("stopped after a failed write to the data directory; events that were accepted are kept: {0}")]
    WriteFailed(StoreError),
    #[error("cannot serve: {0}")]
    Serve(#[from] io::Error),
    #[error("{0} is no loopback address, and everybody could emit events there: use one such as 127.0.0.1:7301")]
    NotLoopback(SocketAddr),
    #[error("another agent connected to {0} with the same token: only one can serve a space")]
    Replaced(ServerUrl),
    #[error("{0} no longer accepts the token: `svc space token NAME` prints a new one, if the space still exists")]
    Revoked(ServerUrl),
    #[error(transparent)]
    WrongSpace(BindingError),
}

/// Runs an agent until a signal or a server stops it.
///
/// The one line on stdout says that its API listens.
///
/// # Errors
///
/// Fails if the data directory cannot be used, or if a server rejects the agent.
pub async fn run(settings: AgentSettings, listener: TcpListener, signals: StopSignals) -> Result<(), AgentError> {
    let address = listener.local_addr()?;
    if !address.ip().is_loopback() {
        return Err(AgentError::NotLoopback(address));
    }
    let store =
        Store::open_with(&settings.data, &settings.store, Arc::<Metrics>::default()).map_err(|error| match error {
            StoreOpenError::InUse(path) => AgentError::InUse(path),
            other => AgentError::Open(other),
        })?;
    let ran = match open(settings, address, store.clone()) {
        Ok(agent) => serve(agent, &store, listener, address, signals).await,
        Err(error) => Err(error.into()),
    };
    store.close().await;
    match store.failure() {
        Some(failure) => Err(AgentError::WriteFailed(failure)),
        None => ran,
    }
}

/// Opens the state in the data directory.
fn open(settings: AgentSettings, address: SocketAddr, store: Store) -> Result<Arc<AgentState>, StoreError> {
    let binding = Arc::new(Binding::open(store.clone())?);
    let spool = Spool::open(store.clone(), settings.spool)?;
    let links = Arc::new(ServerLinks::new(&settings.servers));
    let packages = Arc::new(Packages::open(store.clone(), &settings.data)?);
    let child_env = ChildEnv::new(format!("http://{address}"), packages.clone());
    let kv = Kv::new(store.clone())?;
    let generations = Generations::default();
    let registrar = Registrar::new(RegistrarDeps {
        store,
        binding: binding.clone(),
        links: links.clone(),
        generations: generations.clone(),
        child_env: child_env.clone(),
        start_check: settings.start_check,
        methods_file: settings.methods_file.clone(),
    });
    if spool.depth() > 0 {
        log::info!("{} events wait for a server", spool.depth());
    }
    Ok(Arc::new(AgentState {
        dialer: Dialer::default(),
        proxy: ServerProxy::new(links.clone(), settings.token.clone()),
        settings,
        binding,
        spool,
        links,
        registrar,
        setup_runs: SetupRuns::default(),
        generations,
        child_env,
        packages,
        startup_script: Default::default(),
        kv,
        calls: TaskTracker::new(),
        shutdown: Shutdown::default(),
    }))
}

async fn serve(
    agent: Arc<AgentState>,
    store: &Store,
    listener: TcpListener,
    address: SocketAddr,
    signals: StopSignals,
) -> Result<(), AgentError> {
    log::info!("serving the space on http://{address}, data in {}", agent.settings.data.display());
    writeln!(io::stdout(), "listening on http://{address}")?;
    let _packages = AbortOnDropHandle::new(task::spawn(agent.packages.clone().follow()));
    let _purge = AbortOnDropHandle::new(task::spawn(purge(agent.kv.clone())));
    let (link_tasks, close_api) = (TaskTracker::new(), CancellationToken::new());
    let api = task::spawn(api::serve(listener, agent.clone(), close_api.clone()));
    for slot in 0..agent.links.slots().len() {
        link_tasks.spawn(reconnect::stay_connected(agent.clone(), slot));
    }
    link_tasks.close();
    tokio::select! {
        () = signals.stop.cancelled() => agent.shutdown.begin(StopReason::Requested),
        () = signals.abandoned.cancelled() => agent.shutdown.begin(StopReason::Abandoned),
        // Nothing can be spooled or settled any more; whoever runs the agent starts it again.
        () = store.stopped() => agent.shutdown.begin(StopReason::Requested),
        _ = agent.shutdown.begun() => {}
    }
    // The API serves on meanwhile: a call may need it for an event or a key.
    finish_calls(&agent).await;
    close_api.cancel();
    let _ = api.await;
    send_last_events(&agent).await;
    stop_all(&agent, &link_tasks).await;
    match agent.shutdown.begun().await.clone() {
        StopReason::Requested | StopReason::Abandoned => log::info!("stopped"),
        StopReason::SpaceStopped(server) => log::info!("stopped, as {server} asked"),
        StopReason::Replaced(server) => return Err(AgentError::Replaced(server)),
        StopReason::Revoked(server) => return Err(AgentError::Revoked(server)),
        StopReason::WrongSpace(error) => return Err(AgentError::WrongSpace(error)),
    }
    Ok(())
}

/// Deletes expired keys at every interval.
async fn purge(kv: Kv) {
    let mut ticks = tokio::time::interval(PURGE_INTERVAL);
    loop {
        ticks.tick().await;
        if let Err(error) = kv.purge().await {
            log::warn!("expired keys stay for now: {error}");
        }
    }
}

/// Waits for calls in flight, for a bounded time.
async fn finish_calls(agent: &AgentState) {
    agent.calls.close();
    let drain = agent.settings.drain;
    if tokio::time::timeout(drain, agent.calls.wait()).await.is_err() {
        log::warn!("{} calls take longer than {}, and fail", agent.calls.len(), Span(drain));
    }
}

/// Waits until a server has confirmed the spooled events, for a bounded time.
async fn send_last_events(agent: &AgentState) {
    if agent.spool.depth() > 0 && !agent.links.up().is_empty() {
        let _ = tokio::time::timeout(SEND_LAST_EVENTS, agent.spool.emptied()).await;
    }
    if agent.spool.depth() > 0 {
        log::warn!("{} events are kept for the next start", agent.spool.depth());
    }
}

/// Closes the links, and stops the method servers.
async fn stop_all(agent: &AgentState, link_tasks: &TaskTracker) {
    agent.shutdown.close_links();
    let closing = tokio::time::timeout(CLOSE_LINKS, link_tasks.wait());
    let stopping = tokio::time::timeout(STOP_METHOD_SERVERS, agent.generations.stop());
    let (_, stopped) = tokio::join!(closing, stopping);
    if stopped.is_err() {
        log::warn!("a method server did not stop in time");
    }
}
