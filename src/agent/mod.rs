//! The agent: runs inside a space, keeps a link to each of its servers, and works for both sides.
//!
//! For the space: [`api`] takes events and registrations from what runs there, on loopback only; [`spool`] keeps the
//! events on disk until a server has them; [`registrar`] publishes the methods and starts the [`method_server`] that answers;
//! [`setup`] runs the scripts that register them, and [`packages`] has the libraries they load.
//! For the servers: [`reconnect`] holds a link to each, [`connection`] is what is said on it, and [`health_check`] checks the space.
//!
//! An event's way: [`api`] → [`spool`] → [`connection`] → the server, until it confirms. A call's way: [`connection`] → [`generations`]
//! → [`method_server`], and its answer back.

mod api;
mod backoff;
mod binding;
mod child_env;
mod connection;
mod dial;
mod generations;
pub mod health_check;
mod in_flight;
mod liveness;
pub mod method_server;
mod packages;
mod proxy;
mod reconnect;
mod registrar;
mod registration_file;
mod server_link;
mod server_links;
mod setup;
mod setup_changes;
mod shutdown;
mod spool;
mod startup;
#[cfg(test)]
mod tests;

pub use api::NOT_CONNECTED;
pub use dial::{ServerUrl, ServerUrlError, Token, TokenError};
pub use reconnect::Pace;

use crate::{
    model::{
        event::{EventType, EventTypeError},
        id::{EventId, SpaceId},
    },
    platform::{
        kv::Kv,
        metrics::Metrics,
        store::{OpenError, Store, StoreError},
    },
    routing::emit::{self, EmitError},
    scripting::lua::CheckedSpace,
};
use binding::{Home, HomeError, Space};
use child_env::Surroundings;
use dial::Dialer;
use generations::Serving;
use health_check::Checker;
use packages::Packages;
use proxy::Passage;
use registrar::{RegisterError, Registered, Registrar};
use registration_file::Named;
use serde::Serialize;
use serde_json::value::RawValue;
use server_links::{Links, Standing};
use setup_changes::{Doings, Scripts};
use shutdown::{End, Reason};
use spool::{Spool, SpoolError};
use startup::Opening;
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

/// How long calls under way may take once the agent ends. Those that take longer fail.
const LAST_CALLS: Duration = Duration::from_secs(2);

/// How long the last events may take to reach a server once the agent ends. They are kept if that is too short.
const LAST_EVENTS: Duration = Duration::from_millis(1500);

/// How long links may take to part.
const PARTING: Duration = Duration::from_secs(3);

/// How long method servers may take to stop.
const STOPPING: Duration = Duration::from_secs(6);

/// How often what programs remembered for a time only is cleared away.
const SWEEP: Duration = Duration::from_secs(600);

/// Everything an agent is told.
#[derive(Clone, Debug)]
pub struct Settings {
    pub servers: Vec<ServerUrl>,
    pub token: Token,
    pub data: PathBuf,
    /// The registration to publish with the first link.
    pub methods_file: Option<PathBuf>,
    /// How long a set-up script may take.
    pub setup_timeout: Duration,
    /// Events kept while no server takes them.
    pub spool: usize,
    pub heartbeat: Duration,
    /// The largest payload until a server has said how large.
    pub max_payload: usize,
    /// Room kept free on the disk.
    pub disk_free: u64,
    /// Where the commands of health checks and the startup script run.
    pub directory: PathBuf,
    /// The machine's name.
    pub node_id: String,
    pub pace: Pace,
    /// A new method server that ends within this time has not started.
    pub trial: Duration,
    /// How long a server may think about a registration.
    pub answer: Duration,
}

/// What ends an agent from outside.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    /// The space stops; its servers are told.
    pub stop: CancellationToken,
    /// Whoever watched over the agent is gone, or wants it gone. What that means for the space is not ours to say.
    pub abandoned: CancellationToken,
}

/// Why an agent did not run, or not until it was asked to end.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("data directory {} is in use by another agent: stop it, or give this one its own with --data", .0.display())]
    InUse(PathBuf),
    #[error(transparent)]
    Open(OpenError),
    #[error("cannot read the data directory: {0}")]
    Store(#[from] StoreError),
    #[error("cannot serve: {0}")]
    Serve(#[from] io::Error),
    #[error("{0} is no loopback address, and everybody could raise events there: use one such as 127.0.0.1:7301")]
    NotLoopback(SocketAddr),
    #[error("another agent came to {0} with the same token: only one can serve a space")]
    Replaced(ServerUrl),
    #[error("the token is not good any more, says {0}: `svc space token NAME` prints a new one, if the space still is")]
    Revoked(ServerUrl),
    #[error(transparent)]
    Foreign(HomeError),
}

/// What the parts of an agent share.
struct Agent {
    settings: Settings,
    dialer: Dialer,
    passage: Passage,
    home: Arc<Home>,
    spool: Spool,
    links: Arc<Links>,
    registrar: Arc<Registrar>,
    /// The set-up scripts that run now.
    scripts: Scripts,
    serving: Serving,
    surroundings: Surroundings,
    packages: Arc<Packages>,
    opening: Opening,
    /// What health checks in Lua and the programs of the space remember.
    kv: Kv,
    /// The calls that are being answered, on all links.
    calls: TaskTracker,
    end: End,
}

/// Runs an agent until it is told to stop, by a signal or by a server.
///
/// The one line on stdout says that its API listens.
///
/// # Errors
///
/// Fails if the data directory cannot be used, or if a server sends the agent away.
pub async fn run(settings: Settings, listener: TcpListener, signals: Signals) -> Result<(), AgentError> {
    let address = listener.local_addr()?;
    if !address.ip().is_loopback() {
        return Err(AgentError::NotLoopback(address));
    }
    let store =
        Store::open(&settings.data, settings.disk_free, Arc::<Metrics>::default()).map_err(|error| match error {
            OpenError::InUse(path) => AgentError::InUse(path),
            other => AgentError::Open(other),
        })?;
    let ran = serve(settings, listener, address, store.clone(), signals).await;
    store.close().await;
    ran
}

async fn serve(
    settings: Settings,
    listener: TcpListener,
    address: SocketAddr,
    store: Store,
    signals: Signals,
) -> Result<(), AgentError> {
    let home = Arc::new(Home::open(store.clone())?);
    let spool = Spool::open(store.clone(), settings.spool)?;
    let links = Arc::new(Links::new(&settings.servers));
    let packages = Arc::new(Packages::open(store.clone(), &settings.data)?);
    let surroundings = Surroundings::new(format!("http://{address}"), packages.clone());
    let kv = Kv::new(store.clone())?;
    let serving = Serving::default();
    let registrar = Registrar::new(
        store,
        home.clone(),
        links.clone(),
        serving.clone(),
        surroundings.clone(),
        settings.trial,
        settings.methods_file.clone(),
    );
    if spool.depth() > 0 {
        log::info!("{} events wait for a server", spool.depth());
    }
    let agent = Arc::new(Agent {
        settings,
        dialer: Dialer::default(),
        passage: Passage::default(),
        home,
        spool,
        links,
        registrar,
        scripts: Scripts::default(),
        serving,
        surroundings,
        packages,
        opening: Opening::default(),
        kv,
        calls: TaskTracker::new(),
        end: End::default(),
    });

    log::info!("serving the space on http://{address}, data in {}", agent.settings.data.display());
    writeln!(io::stdout(), "listening on http://{address}")?;
    let tasks = TaskTracker::new();
    let closing = CancellationToken::new();
    let _keeping_up = AbortOnDropHandle::new(tokio::spawn(agent.packages.clone().keep_up()));
    let _sweeping = AbortOnDropHandle::new(tokio::spawn(sweep(agent.kv.clone())));
    let api = tokio::spawn(api::serve(listener, agent.clone(), closing.clone()));
    for seat in 0..agent.links.seats().len() {
        tasks.spawn(reconnect::keep(agent.clone(), seat));
    }
    tasks.close();
    tokio::select! {
        () = signals.stop.cancelled() => agent.end.begin(Reason::Asked),
        () = signals.abandoned.cancelled() => agent.end.begin(Reason::Abandoned),
        _ = agent.end.begun() => {}
    }
    closing.cancel();
    let last_events = async {
        let _ = api.await;
        agent.send_last_events().await;
    };
    tokio::join!(last_events, agent.finish_calls());
    agent.part(&tasks).await;
    match agent.end.begun().await.clone() {
        Reason::Asked | Reason::Abandoned => log::info!("stopped"),
        Reason::Stopped(server) => log::info!("stopped, as {server} asked"),
        Reason::Replaced(server) => return Err(AgentError::Replaced(server)),
        Reason::Revoked(server) => return Err(AgentError::Revoked(server)),
        Reason::Foreign(error) => return Err(AgentError::Foreign(error)),
    }
    Ok(())
}

/// Clears away what nobody can read any more.
async fn sweep(kv: Kv) {
    let mut turns = tokio::time::interval(SWEEP);
    loop {
        turns.tick().await;
        if let Err(error) = kv.purge().await {
            log::warn!("what has expired stays for now: {error}");
        }
    }
}

/// An event that is on disk.
#[derive(Debug, Serialize)]
struct Raised {
    event_id: EventId,
    event_type: EventType,
}

/// Why an event was not taken.
#[derive(Debug, thiserror::Error)]
enum RaiseError {
    #[error("`type`: {0}")]
    Type(#[from] EventTypeError),
    #[error(transparent)]
    Payload(#[from] EmitError),
    #[error(transparent)]
    Spool(#[from] SpoolError),
}

/// How an agent is.
#[derive(Debug, Serialize)]
struct Status {
    version: &'static str,
    space: Option<Space>,
    servers: Vec<Standing>,
    spool: SpoolStatus,
    registration: Option<Registered>,
}

#[derive(Debug, Serialize)]
struct SpoolStatus {
    depth: usize,
    limit: usize,
}

impl Agent {
    fn status(&self) -> Status {
        Status {
            version: env!("CARGO_PKG_VERSION"),
            space: self.home.space(),
            servers: self.links.standings(),
            spool: SpoolStatus { depth: self.spool.depth(), limit: self.spool.limit() },
            registration: self.registrar.registered(),
        }
    }

    /// Takes an event, and tells of it once it is on disk.
    async fn raise(&self, kind: &str, payload: Option<Box<RawValue>>) -> Result<Raised, RaiseError> {
        let event_type = EventType::custom(kind)?;
        let payload = payload.unwrap_or_else(|| RawValue::from_string("{}".to_owned()).expect("it is JSON"));
        emit::check_payload(&payload, self.max_payload())?;
        let event_id = self.spool.push(kind, payload).await?;
        Ok(Raised { event_id, event_type })
    }

    /// Removes the method of this local name, or all.
    async fn unregister(&self, local_name: Option<&str>, by: Option<&Doings>) -> Result<Vec<Named>, RegisterError> {
        match local_name {
            Some(name) => self.registrar.unregister_one(name, by).await,
            None => self.registrar.unregister(by).await,
        }
    }

    /// The largest payload an event can have.
    fn max_payload(&self) -> usize {
        self.home.space().map_or(self.settings.max_payload, |space| space.max_payload)
    }

    /// What health checks are run with.
    fn checker(&self) -> Checker {
        let space = self.home.space();
        let checked_space = CheckedSpace {
            id: space.as_ref().map_or(SpaceId::NIL, |space| space.id),
            name: space.map(|space| space.name).unwrap_or_default(),
        };
        Checker::new(checked_space, self.settings.directory.clone(), self.surroundings.clone(), self.kv.clone())
    }

    /// Lets the calls under way end, for a while.
    async fn finish_calls(&self) {
        self.calls.close();
        if tokio::time::timeout(LAST_CALLS, self.calls.wait()).await.is_err() {
            log::warn!("{} calls take longer than {LAST_CALLS:?}, and fail", self.calls.len());
        }
    }

    /// Sends the events that can still be sent.
    async fn send_last_events(&self) {
        if self.spool.depth() > 0 && !self.links.up().is_empty() {
            let _ = tokio::time::timeout(LAST_EVENTS, self.spool.emptied()).await;
        }
        if self.spool.depth() > 0 {
            log::warn!("{} events are kept for the next start", self.spool.depth());
        }
    }

    /// Says goodbye, and stops what runs.
    async fn part(&self, tasks: &TaskTracker) {
        self.end.leave();
        let parting = tokio::time::timeout(PARTING, tasks.wait());
        let stopping = tokio::time::timeout(STOPPING, self.serving.stop());
        let (_, stopped) = tokio::join!(parting, stopping);
        if stopped.is_err() {
            log::warn!("a method server did not stop in time");
        }
    }
}
