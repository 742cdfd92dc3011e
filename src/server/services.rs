//! Opens every service of the server on the store and connects them, lower levels first.
//!
//! This is the only file that knows all of them. Each service gets what it needs when it is made: the HTTP routes get
//! theirs through [`Services::http`]. [`super::daemon`] runs what is opened here and closes it again.

use crate::{
    calls::{call::Calls, registry::Registry},
    delivery::{
        SinkFailures, SinksToReport,
        deliver::{self, Deliverer, DelivererDeps, RunningAttempts},
        filters::EventFilters,
        sinks::{self, Sinks, SinksError},
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
        secret_keys::{SecretKeys, SecretKeysError},
        store::{Store, StoreError},
    },
    routing::{
        emit::Emitter,
        feed::Feed,
        matcher::Routes,
        queue::{
            Engine, RouteTarget,
            sled::{EngineHooks, QueueLimits, SledEngine},
        },
    },
    scripting::{
        scripts::{ArgumentChecker, RunLimit, Scripts, ToolEventEmitter, ToolRunner},
        workers::{LuaWorkers, WorkerCommand, WorkerServices},
    },
    server::{
        agent_hub::{AgentHub, AgentHubDeps},
        http::{
            ActivityRecords, ActivityServices, BackupServices, BodyMemory, EventServices, HttpServices, HttpSettings,
            LoginServices, MethodServices, ScriptRunServices, ScriptServices, SinkServices, SourceServices,
            SpaceServices, StatusServices, SubscriptionServices, UserLimits, UserServices,
        },
        mcp,
        stop_phases::StopPhases,
        user_records::UserRecords,
    },
    sources::{DeadLetters, SourceIntake, Sources, SourcesError},
    spaces::{Spaces, Templates},
};
use std::sync::Arc;
use tokio::sync::mpsc;

/// The services of one server. Every field is a cheap handle.
#[derive(Clone)]
pub struct Services {
    pub config: Arc<Config>,
    pub store: Store,
    pub metrics: Arc<Metrics>,
    pub audit: Audit,
    pub kv: Kv,
    pub identity: Identity,
    pub emitter: Arc<Emitter>,
    pub engine: Arc<dyn Engine>,
    pub feed: Feed,
    pub registry: Registry,
    pub calls: Calls,
    pub sinks: Sinks,
    /// Takes requests at sources.
    pub intake: SourceIntake,
    pub subscriptions: Subscriptions,
    pub filters: EventFilters,
    pub failures: SinkFailures,
    /// The services that attempts at sinks use.
    pub sink_context: sinks::SinkContext,
    pub deliverer: Deliverer,
    pub scripts: Scripts,
    /// Runs stored tools.
    pub tools: ToolRunner,
    /// Runs the Lua of users.
    pub workers: LuaWorkers,
    pub spaces: Spaces,
    pub templates: Templates,
    pub agents: AgentHub,
    pub mcp: mcp::Endpoint,
}

/// The ends of channels between services, for the tasks that the daemon runs.
pub struct ServiceInboxes {
    /// Ids of the queues that hold something for the deliverer, sent by the queue engine.
    pub ready_queues: mpsc::UnboundedReceiver<SinkId>,
    pub sinks_to_report: SinksToReport,
}

/// Failure to open the services.
#[derive(Debug, thiserror::Error)]
pub enum ServicesError {
    #[error(transparent)]
    Identity(#[from] identity::IdentityOpenError),
    #[error(transparent)]
    Secrets(#[from] SecretKeysError),
    #[error("the webhook secrets cannot be encrypted: {0}")]
    Sinks(#[from] SinksError),
    #[error("the secrets of sources cannot be encrypted: {0}")]
    Sources(#[from] SourcesError),
    #[error("cannot read the data directory: {0}")]
    Store(#[from] StoreError),
    #[error("cannot open the file `attempts` of the data directory: {0}")]
    Attempts(std::io::Error),
    #[error("cannot start a thread for worker processes: {0}")]
    Workers(std::io::Error),
}

impl Services {
    /// Opens all services. Nothing is delivered and no agent is launched yet.
    ///
    /// They follow `phases`: deliveries, new calls and MCP streams end first, the links of agents later.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read, or the first records of an empty one cannot be written.
    pub async fn open(
        config: Config,
        store: Store,
        metrics: Arc<Metrics>,
        phases: &StopPhases,
    ) -> Result<(Self, ServiceInboxes), ServicesError> {
        let identity = Identity::open(store.clone(), config.auth.session.0).await?;
        let keys = SecretKeys::open(&config.key_file(store.directory()))?;
        let sinks = Sinks::open(store.clone(), config.limits.sinks, keys.clone())?;
        sinks.encrypt_stored().await?;
        let sources = Sources::open(store.clone(), config.limits.sources, keys)?;
        sources.encrypt_stored().await?;
        let letters =
            DeadLetters::open(store.clone(), config.limits.source_letters, |source| sources.get(source).is_some())?;
        letters.follow(&sources);
        let scripts = Scripts::open(store.clone(), config.limits.scripts)?;
        let subscriptions = Subscriptions::open(store.clone())?;
        let kv = Kv::new(store.clone())?.limited_to(config.limits.kv.0);
        let feed = Feed::new();

        let (ready, ready_queues) = mpsc::unbounded_channel();
        let accepted_feed = feed.clone();
        let accepted = Box::new(move |event: &Arc<Event>| accepted_feed.accepted(event));
        let limits = QueueLimits {
            queue: config.delivery.queue,
            dead_letters: config.delivery.dead_letters,
            undelivered: config.limits.undelivered.0,
        };
        let (failures, sinks_to_report) = SinkFailures::open(store.clone())?;
        let (known_sinks, drops, activity) = (sinks.clone(), failures.clone(), feed.activity().clone());
        let dropped = Box::new(move |event: &Arc<Event>, targets: &[RouteTarget]| {
            targets.iter().for_each(|target| activity.count_drop(target.sink));
            for sink in targets.iter().filter_map(|target| known_sinks.get(target.sink)) {
                drops.dropped(sink.reported(), event);
            }
        });
        let hooks = EngineHooks { accepted, dropped, ready };
        let engine: Arc<dyn Engine> = Arc::new(SledEngine::open(store.clone(), metrics.clone(), limits, hooks)?);

        let registry = Registry::default();
        let calls = Calls::new(registry.clone(), identity.clone(), metrics.clone(), phases.stopping.clone());
        let egress = Egress::new(&config.egress);
        let worker_services = WorkerServices {
            http: Arc::new(egress.clone()),
            kv: kv.clone(),
            caller: Arc::new(calls.clone()),
            libraries: Arc::new(scripts.clone()),
        };
        let command = WorkerCommand::this_program();
        let workers = LuaWorkers::new(&config.script, command, worker_services, metrics.clone());
        let workers = workers.map_err(ServicesError::Workers)?;
        let sink_context = sinks::SinkContext {
            egress,
            workers: workers.clone(),
            scripts: scripts.clone(),
            timeout: config.webhook.timeout.0,
        };
        let filters = EventFilters::new(workers.clone(), metrics.clone());
        let is_head = |sink, sequence| engine.queue_head(sink).is_some_and(|head| head.sequence == sequence);
        let running_attempts = RunningAttempts::open(store.directory(), is_head).map_err(ServicesError::Attempts)?;
        let deps = DelivererDeps {
            engine: engine.clone(),
            running_attempts,
            sinks: sinks.clone(),
            subscriptions: subscriptions.clone(),
            filters: filters.clone(),
            methods: Arc::new(calls.clone()),
            sink_context: sink_context.clone(),
            failures: failures.clone(),
            feed: feed.clone(),
            metrics: metrics.clone(),
        };
        let deliverer = Deliverer::new(&config.delivery, deps, phases.stopping.clone());
        let routes = Arc::new(Routes::new());
        deliver::sync_routes(&routes, &deliverer);
        let max_payload = config.limits.payload.bytes();
        let route_filters = Arc::new(filters.clone());
        let emitter = Arc::new(Emitter::new(&config.zone, routes, route_filters, engine.clone(), max_payload));
        let intake = SourceIntake {
            sources,
            letters,
            workers: workers.clone(),
            emitter: emitter.clone(),
            identity: identity.clone(),
            metrics: metrics.clone(),
        };
        let tools = ToolRunner {
            workers: workers.clone(),
            caller: Arc::new(calls.clone()),
            emitter: Arc::new(ToolEventEmitter::new(emitter.clone(), identity.clone())),
            arguments: ArgumentChecker::new(),
            run_limit: RunLimit::new(),
        };

        let templates = Templates::open(store.clone())?;
        let spaces = Spaces::open(store.clone(), identity.clone(), emitter.clone(), config.limits.spaces)?;
        let agents = AgentHub::new(AgentHubDeps {
            zone: config.zone.as_str().into(),
            max_payload,
            heartbeat: config.agent.heartbeat.0,
            scripts: scripts.clone(),
            identity: identity.clone(),
            spaces: spaces.clone(),
            registry: registry.clone(),
            sinks: sinks.clone(),
            subscriptions: subscriptions.clone(),
            workers: workers.clone(),
            emitter: emitter.clone(),
            deliverer: deliverer.clone(),
            shutdown: phases.links_ending.clone(),
        });
        let deps = mcp::EndpointDeps {
            registry: registry.clone(),
            identity: identity.clone(),
            calls: calls.clone(),
            scripts: scripts.clone(),
            tools: tools.clone(),
            shutdown: phases.stopping.clone(),
        };
        let mcp = mcp::Endpoint::new(&config.mcp, deps);

        let (config, audit) = (Arc::new(config), Audit::new(store.clone()));
        let services = Self {
            config,
            store,
            metrics,
            audit,
            kv,
            identity,
            emitter,
            engine,
            feed,
            registry,
            calls,
            sinks,
            intake,
            subscriptions,
            filters,
            failures,
            sink_context,
            deliverer,
            scripts,
            tools,
            workers,
            spaces,
            templates,
            agents,
            mcp,
        };
        Ok((services, ServiceInboxes { ready_queues, sinks_to_report }))
    }

    /// The services of the HTTP server, in one group per subject.
    pub fn http(&self) -> HttpServices {
        let user_limits = Arc::new(UserLimits::new(self.tools.run_limit.clone()));
        let zone: Arc<str> = self.config.zone.as_str().into();
        HttpServices {
            settings: HttpSettings {
                connections: self.config.limits.connections,
                body: self.config.limits.body.bytes(),
                trusted_proxies: self.config.http.trusted_proxies.clone(),
                metrics: self.config.http.metrics,
            },
            under_way: Default::default(),
            body_memory: Arc::new(BodyMemory::new(self.config.limits.body.bytes())),
            metrics: self.metrics.clone(),
            identity: self.identity.clone(),
            audit: self.audit.clone(),
            agents: self.agents.clone(),
            mcp: self.mcp.clone(),
            login: Arc::new(LoginServices {
                identity: self.identity.clone(),
                session_lifetime: self.config.auth.session.0,
                zone: zone.clone(),
            }),
            users: Arc::new(UserServices { identity: self.identity.clone(), records: self.user_records() }),
            events: Arc::new(EventServices {
                emitter: self.emitter.clone(),
                engine: self.engine.clone(),
                feed: self.feed.clone(),
                sinks: self.sinks.clone(),
                subscriptions: self.subscriptions.clone(),
                filters: self.filters.clone(),
                calls: self.calls.clone(),
                identity: self.identity.clone(),
                user_limits: user_limits.clone(),
                zone: zone.clone(),
            }),
            sinks: Arc::new(SinkServices {
                sinks: self.sinks.clone(),
                subscriptions: self.subscriptions.clone(),
                filters: self.filters.clone(),
                engine: self.engine.clone(),
                activity: self.feed.activity().clone(),
                scripts: self.scripts.clone(),
                failures: self.failures.clone(),
                sink_context: self.sink_context.clone(),
                deliverer: self.deliverer.clone(),
                user_limits: user_limits.clone(),
                zone: zone.clone(),
            }),
            sources: Arc::new(SourceServices {
                intake: self.intake.clone(),
                audit: self.audit.clone(),
                user_limits: user_limits.clone(),
            }),
            activity: Arc::new(ActivityServices::new(ActivityRecords {
                activity: self.feed.activity().clone(),
                sinks: self.sinks.clone(),
                subscriptions: self.subscriptions.clone(),
                engine: self.engine.clone(),
                spaces: self.spaces.clone(),
                sink_context: self.sink_context.clone(),
            })),
            subscriptions: Arc::new(SubscriptionServices {
                subscriptions: self.subscriptions.clone(),
                filters: self.filters.clone(),
                engine: self.engine.clone(),
                calls: self.calls.clone(),
            }),
            spaces: Arc::new(SpaceServices {
                spaces: self.spaces.clone(),
                registry: self.registry.clone(),
                templates: self.templates.clone(),
                identity: self.identity.clone(),
                scripts: self.scripts.clone(),
                workers: self.workers.clone(),
                records: self.user_records(),
            }),
            scripts: Arc::new(ScriptServices {
                scripts: self.scripts.clone(),
                sinks: self.sinks.clone(),
                spaces: self.spaces.clone(),
                templates: self.templates.clone(),
                workers: self.workers.clone(),
                user_limits: user_limits.clone(),
            }),
            script_runs: Arc::new(ScriptRunServices {
                scripts: self.scripts.clone(),
                tools: self.tools.clone(),
                workers: self.workers.clone(),
                engine: self.engine.clone(),
                user_limits,
                zone,
            }),
            methods: Arc::new(MethodServices {
                registry: self.registry.clone(),
                calls: self.calls.clone(),
                identity: self.identity.clone(),
                max_batch: self.config.limits.batch,
            }),
            status: Arc::new(StatusServices {
                store: self.store.clone(),
                metrics: self.metrics.clone(),
                engine: self.engine.clone(),
                sinks: self.sinks.clone(),
                subscriptions: self.subscriptions.clone(),
                spaces: self.spaces.clone(),
                mcp: self.mcp.clone(),
                workers: self.workers.clone(),
            }),
            backup: Arc::new(BackupServices {
                store: self.store.clone(),
                audit: self.audit.clone(),
                identity: self.identity.clone(),
            }),
        }
    }

    /// Access to everything that belongs to one user.
    pub fn user_records(&self) -> UserRecords {
        UserRecords {
            identity: self.identity.clone(),
            spaces: self.spaces.clone(),
            sinks: self.sinks.clone(),
            sources: self.intake.sources.clone(),
            scripts: self.scripts.clone(),
            kv: self.kv.clone(),
        }
    }
}
