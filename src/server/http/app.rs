//! What handlers work with, and how it is put together from the ground up.

use super::Rations;
use crate::{
    calls::{call::Calls, registry::Registry},
    delivery::{
        deliver::{self, Deliverer},
        sinks::{self, Book},
        subscriptions::Subscriptions,
    },
    identity::{self, Identity},
    model::{event::Event, id::SinkId},
    platform::{
        audit::Audit,
        config::Config,
        egress::Egress,
        kv::Kv,
        metrics::Metrics,
        store::{Store, StoreError},
    },
    routing::{
        emit::Emitter,
        feed::{Feed, Live},
        matcher::Routes,
        queue::{
            Engine,
            sled::{Bounds, Signals, SledEngine},
        },
    },
    scripting::{
        lua::{Libraries, Runtime},
        scripts::{Raiser, Shelf, Toolbox},
    },
    server::{
        agent_hub::{self, Sessions},
        mcp,
    },
    spaces::{Spaces, Templates},
};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// What handlers work with.
pub struct App {
    pub config: Arc<Config>,
    pub store: Store,
    pub audit: Audit,
    pub identity: Identity,
    pub metrics: Arc<Metrics>,
    pub emitter: Arc<Emitter>,
    pub engine: Arc<dyn Engine>,
    pub book: Book,
    /// Stored scripts.
    pub shelf: Shelf,
    /// Runs the tools among them.
    pub toolbox: Toolbox,
    pub spaces: Spaces,
    pub templates: Templates,
    pub subscriptions: Subscriptions,
    /// For deliveries outside any queue: tests and previews.
    pub context: sinks::Context,
    pub feed: Feed,
    pub rations: Rations,
    pub registry: Registry,
    pub calls: Calls,
    pub mcp: mcp::Endpoint,
    pub sessions: Sessions,
    /// What scripts remember.
    pub kv: Kv,
}

/// An app and what is to run beside it.
pub struct Opened {
    pub app: Arc<App>,
    pub deliverer: Deliverer,
    /// The queues that have something for the deliverer.
    pub wakes: mpsc::UnboundedReceiver<SinkId>,
}

/// Why there is no app.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error(transparent)]
    Identity(#[from] identity::OpenError),
    #[error("cannot read the data directory: {0}")]
    Store(#[from] StoreError),
}

impl App {
    /// Opens everything there is on the store and connects it. Nothing is delivered, told or launched yet.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read, or the first records cannot be written.
    pub async fn open(
        config: Config,
        store: Store,
        metrics: Arc<Metrics>,
        shutdown: &CancellationToken,
    ) -> Result<Opened, AppError> {
        let identity = Identity::open(store.clone(), config.auth.session.0).await?;
        let book = Book::open(store.clone(), config.limits.sinks)?;
        let shelf = Shelf::open(store.clone(), config.limits.scripts)?;
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
        let libraries = Libraries {
            http: Arc::new(egress.clone()),
            kv: Some(kv.clone()),
            caller: Arc::new(calls.clone()),
            modules: Arc::new(shelf.clone()),
        };
        let runtime = Runtime::new(&config.script, libraries, metrics.clone());
        let context = sinks::Context { egress, runtime, shelf: shelf.clone(), timeout: config.webhook.timeout.0 };
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
        let sessions = Sessions::new(agent_hub::Parts {
            zone: config.zone.as_str().into(),
            max_payload: config.limits.payload.bytes(),
            heartbeat: config.agent.heartbeat.0,
            shelf: shelf.clone(),
            identity: identity.clone(),
            spaces: spaces.clone(),
            registry: registry.clone(),
            subscriptions: subscriptions.clone(),
            emitter: emitter.clone(),
            deliverer: deliverer.clone(),
            shutdown: shutdown.clone(),
        });
        let toolbox = Toolbox {
            runtime: context.runtime.clone(),
            caller: Arc::new(calls.clone()),
            emitter: Arc::new(Raiser::new(emitter.clone(), identity.clone())),
        };
        let parts = mcp::Parts {
            registry: registry.clone(),
            identity: identity.clone(),
            calls: calls.clone(),
            shelf: shelf.clone(),
            toolbox: toolbox.clone(),
            shutdown: shutdown.clone(),
        };
        let mcp = mcp::Endpoint::new(&config.mcp, parts);
        let app = Self {
            config: Arc::new(config),
            audit: Audit::new(store.clone()),
            store,
            identity,
            metrics,
            emitter,
            engine,
            book,
            shelf,
            toolbox,
            spaces,
            templates,
            subscriptions,
            context,
            feed,
            rations: Rations::new(),
            registry,
            calls,
            mcp,
            sessions,
            kv,
        };
        Ok(Opened { app: Arc::new(app), deliverer, wakes })
    }
}
