//! The daemon: opens the app, serves, and closes in the opposite order.

use crate::{
    model::{event::Actor, owner::Owner, timestamp::Timestamp},
    platform::{
        audit::{Audit, Entry},
        config::Config,
        metrics::Metrics,
        store::{OpenError, Store},
    },
    routing::queue::Retention,
    server::http::{self, App, AppError, Opened},
    spaces::{Supervisor, process_driver::Launch},
};
use std::{
    io::{self, Write as _},
    sync::Arc,
    time::Duration,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// How long deliveries in flight may take to end once the daemon stops. What is cut off is delivered again.
const LAST_DELIVERIES: Duration = Duration::from_secs(6);

/// How long agents may take to hear that the daemon stops.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// How often what is old is thrown away.
const SWEEP: Duration = Duration::from_secs(60);

/// Why the daemon did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    App(#[from] AppError),
    #[error("cannot serve: {0}")]
    Serve(#[from] io::Error),
}

/// Serves on `listener` until `shutdown` is cancelled, then finishes what is under way.
///
/// The one line on stdout says that it serves.
///
/// # Errors
///
/// Fails if the data directory cannot be opened; nothing has been served then.
pub async fn run(config: Config, listener: TcpListener, shutdown: CancellationToken) -> Result<(), DaemonError> {
    allow_many_files();
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
    address: std::net::SocketAddr,
) -> Result<(), DaemonError> {
    let Opened { app, deliverer, wakes } = App::open(config, store, metrics, &shutdown).await?;
    let (spaces, sessions) = (&app.spaces, &app.sessions);
    let agent = &app.config.agent;
    let environment =
        vec![("SVC_AGENT_HEARTBEAT", agent.heartbeat.to_string()), ("SVC_AGENT_SPOOL", agent.spool.to_string())];
    let launch = Launch { environment, ..Launch::of_server(address, &app.config.data)? };
    let supervisor = Supervisor::new(spaces.clone(), launch);
    sessions.tidy().await.map_err(AppError::from)?;
    // Once everything hears of it: first what an earlier end left to tell, then the agents, which tell more.
    spaces.resume().await;
    supervisor.follow();

    log::info!("serving zone `{}` on http://{address}, data in {}", app.config.zone, app.config.data.display());
    writeln!(io::stdout(), "listening on http://{address}")?;
    tokio::join!(
        http::serve(listener, app.clone(), shutdown.clone()),
        deliverer.run(wakes),
        sweep(&app, &shutdown),
        async {
            shutdown.cancelled().await;
            if tokio::time::timeout(LAST_DELIVERIES, deliverer.finished()).await.is_err() {
                log::warn!("some deliveries did not end in time; they are made again after the next start");
            }
        },
        async {
            shutdown.cancelled().await;
            // Links end now, and that is nobody's fault.
            spaces.pause();
            if tokio::time::timeout(LAST_WORDS, sessions.finished()).await.is_err() {
                log::warn!("some agents were not told that the server stops");
            }
            supervisor.shut_down().await;
        },
    );
    app.context.runtime.shut_down();
    log::info!("stopped");
    Ok(())
}

/// Throws away what is old, now and then.
async fn sweep(app: &App, shutdown: &CancellationToken) {
    let history = &app.config.history;
    let retention = Retention { keep: history.keep.0, bytes: history.size.0 };
    let mut turns = tokio::time::interval(SWEEP);
    let sweeping = async {
        loop {
            turns.tick().await;
            let swept = async {
                app.engine.prune(retention).await?;
                app.audit.purge(Timestamp::now().before(history.audit.0), history.audit_size.0).await?;
                app.kv.purge().await
            };
            if let Err(error) = swept.await {
                log::warn!("old records stay for now: {error}");
            }
            if let Err(error) = app.identity.purge_sessions().await {
                log::warn!("old sessions stay for now: {error}");
            }
            delete_orphans(app).await;
        }
    };
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = sweeping => {}
    }
}

/// A user's sinks, spaces and scripts go with the user; a crash between the two leaves them to us.
async fn delete_orphans(app: &App) {
    for space in app.spaces.all() {
        if app.identity.user(space.owner).is_none()
            && let Err(error) = app.spaces.delete(Actor::system(), space.id).await
        {
            log::warn!("space {} of a deleted user stays for now: {error}", space.id);
        }
    }
    for sink in app.book.all() {
        if !matches!(sink.owner, Owner::User(user) if app.identity.user(user).is_none()) {
            continue;
        }
        let entry = Entry::new(None, "sink.delete", format!("sink:{}", sink.id))
            .with(serde_json::json!({"name": sink.name, "reason": "its user was deleted"}));
        if let Err(error) = app.book.delete(sink.id, move |batch| Audit::record(batch, &entry)).await {
            log::warn!("sink {} of a deleted user stays for now: {error}", sink.id);
        }
    }
    for script in app.shelf.all() {
        if !matches!(script.owner, Owner::User(user) if app.identity.user(user).is_none()) {
            continue;
        }
        let entry = Entry::new(None, "script.delete", format!("script:{}", script.id))
            .with(serde_json::json!({"name": script.name, "reason": "its user was deleted"}));
        if let Err(error) = app.shelf.delete(script.id, move |batch| Audit::record(batch, &entry)).await {
            log::warn!("script {} of a deleted user stays for now: {error}", script.id);
        }
    }
}

/// Every sink's connection is a file. The soft limit is often a thousand; the hard one is what the system means.
fn allow_many_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls only read or write the structure they are given.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}
