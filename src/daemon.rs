//! The wiring: opens everything from the ground up, serves, and closes in the opposite order.

use crate::{
    audit::{Audit, Entry},
    call::Calls,
    config::Config,
    deliver::{self, Deliverer},
    egress::Egress,
    emit::Emitter,
    event::{Actor, Event},
    http::{self, App},
    identity::{self, Identity},
    kv::Kv,
    live::{Feed, Live},
    metrics::Metrics,
    owner::Owner,
    queue::{
        Engine, Retention,
        sled::{Bounds, Signals, SledEngine},
    },
    registry::Registry,
    route::Routes,
    script::{Libraries, Runtime},
    session::{self, Sessions},
    sink::{self, Book},
    space::{Spaces, Supervisor, Templates, process::Launch},
    store::{OpenError, Store, StoreError},
    subscription::Subscriptions,
    timestamp::Timestamp,
};
use std::{
    io::{self, Write as _},
    sync::Arc,
    time::Duration,
};
use tokio::{net::TcpListener, sync::mpsc};
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
    Identity(#[from] identity::OpenError),
    #[error("cannot read the data directory: {0}")]
    Store(#[from] StoreError),
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
    let audit = Audit::new(store.clone());
    let identity = Identity::open(store.clone(), config.auth.session.0).await?;
    let book = Book::open(store.clone(), config.limits.sinks)?;
    let subscriptions = Subscriptions::open(store.clone())?;
    let kv = Kv::new(store.clone())?;
    let feed = Feed::new();

    let (ready, wakes) = mpsc::unbounded_channel();
    let watched = feed.clone();
    let accepted = Box::new(move |event: &Arc<Event>| watched.publish(Live::Accepted(event.clone())));
    let signals = Signals { accepted, ready };
    let bounds = Bounds { queue: config.delivery.queue, dead_letters: config.delivery.dead_letters };
    let engine: Arc<dyn Engine> = Arc::new(SledEngine::open(store.clone(), metrics.clone(), bounds, signals)?);
    let routes = Arc::new(Routes::new());

    let registry = Registry::default();
    let calls = Calls::new(registry.clone(), identity.clone(), metrics.clone());
    let egress = Egress::new(&config.egress);
    let libraries = Libraries { http: Arc::new(egress.clone()), kv: kv.clone(), caller: Arc::new(calls.clone()) };
    let runtime = Runtime::new(&config.script, libraries, metrics.clone());
    let context = sink::Context { egress, runtime: runtime.clone(), timeout: config.webhook.timeout.0 };
    let parts = deliver::Parts {
        engine: engine.clone(),
        book: book.clone(),
        subscriptions: subscriptions.clone(),
        door: Arc::new(calls.clone()),
        context: context.clone(),
        feed: feed.clone(),
        metrics: metrics.clone(),
    };
    let deliverer = Deliverer::new(&config.delivery, parts, shutdown.clone());
    deliver::follow(&routes, &deliverer);
    let emitter = Arc::new(Emitter::new(&config.zone, routes, engine.clone(), config.limits.payload.bytes()));
    let templates = Templates::open(store.clone())?;
    let spaces = Spaces::open(store.clone(), identity.clone(), emitter.clone(), config.limits.spaces)?;
    let agent = &config.agent;
    let environment =
        vec![("SVC_AGENT_HEARTBEAT", agent.heartbeat.to_string()), ("SVC_AGENT_SPOOL", agent.spool.to_string())];
    let launch = Launch { environment, ..Launch::of_server(address, &config.data)? };
    let supervisor = Supervisor::new(spaces.clone(), launch);
    let sessions = Sessions::new(session::Parts {
        zone: config.zone.as_str().into(),
        max_payload: config.limits.payload.bytes(),
        heartbeat: config.agent.heartbeat.0,
        identity: identity.clone(),
        spaces: spaces.clone(),
        registry: registry.clone(),
        subscriptions: subscriptions.clone(),
        emitter: emitter.clone(),
        deliverer: deliverer.clone(),
        shutdown: shutdown.clone(),
    });
    sessions.tidy().await?;
    let app = Arc::new(App {
        config: Arc::new(config),
        store,
        audit,
        identity,
        metrics,
        emitter,
        engine,
        book,
        spaces: spaces.clone(),
        templates,
        subscriptions,
        context,
        feed,
        rations: http::Rations::new(),
        registry,
        calls,
        sessions: sessions.clone(),
        kv: kv.clone(),
    });

    // Once everything hears of it: first what an earlier end left to tell, then the agents, which tell more.
    spaces.resume().await;
    supervisor.follow();

    log::info!("serving zone `{}` on http://{address}, data in {}", app.config.zone, app.config.data.display());
    writeln!(io::stdout(), "listening on http://{address}")?;
    tokio::join!(
        http::serve(listener, app.clone(), shutdown.clone()),
        deliverer.run(wakes),
        sweep(&app, &kv, &shutdown),
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
    runtime.shut_down();
    log::info!("stopped");
    Ok(())
}

/// Throws away what is old, now and then.
async fn sweep(app: &App, kv: &Kv, shutdown: &CancellationToken) {
    let history = &app.config.history;
    let retention = Retention { keep: history.keep.0, bytes: history.size.0 };
    let mut turns = tokio::time::interval(SWEEP);
    let sweeping = async {
        loop {
            turns.tick().await;
            let swept = async {
                app.engine.prune(retention).await?;
                app.audit.purge(Timestamp::now().before(history.audit.0), history.audit_size.0).await?;
                kv.purge().await
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

/// A user's sinks and spaces go with the user; a crash between the two leaves them to us.
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
