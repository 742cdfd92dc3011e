//! The services that HTTP handlers use, in groups by subject.
//!
//! A handler names the group it uses as its first argument and gets it through [`FromServices`], so that its signature
//! says what it can touch. The groups are filled in `server/services.rs`.

use super::{
    body_memory::BodyMemory,
    routes::activity_figures::{ActivityFigures, ActivityRecords},
    shared_computation::SharedComputation,
    user_limits::UserLimits,
};
use crate::{
    calls::{call::Calls, registry::Registry},
    delivery::{
        SinkFailures,
        deliver::Deliverer,
        filters::EventFilters,
        sinks::{self, Sinks},
        subscriptions::Subscriptions,
    },
    identity::Identity,
    platform::{
        audit::Audit,
        config::{AddressRange, MetricsAccess},
        metrics::Metrics,
        store::Store,
    },
    routing::{activity::RecentActivity, emit::Emitter, feed::Feed, queue::Engine},
    scripting::{
        scripts::{Scripts, ToolRunner},
        workers::LuaWorkers,
    },
    server::{agent_hub::AgentHub, mcp, user_records::UserRecords},
    sources::SourceIntake,
    spaces::{Spaces, Templates},
};
use std::{sync::Arc, time::Duration};
use tokio_util::task::TaskTracker;

/// The age up to which computed figures of activity are shown.
const FIGURES_AGE: Duration = Duration::from_secs(1);

/// Everything that the HTTP server uses.
pub struct HttpServices {
    pub settings: HttpSettings,
    /// The requests that are being answered.
    pub under_way: TaskTracker,
    pub body_memory: Arc<BodyMemory>,
    pub metrics: Arc<Metrics>,
    /// Authenticates requests, and serves the routes of roles, groups and tokens.
    pub identity: Identity,
    pub audit: Audit,
    pub agents: AgentHub,
    pub mcp: mcp::Endpoint,
    pub login: Arc<LoginServices>,
    pub users: Arc<UserServices>,
    pub events: Arc<EventServices>,
    pub sinks: Arc<SinkServices>,
    pub sources: Arc<SourceServices>,
    pub activity: Arc<ActivityServices>,
    pub subscriptions: Arc<SubscriptionServices>,
    pub spaces: Arc<SpaceServices>,
    pub scripts: Arc<ScriptServices>,
    pub script_runs: Arc<ScriptRunServices>,
    pub methods: Arc<MethodServices>,
    pub status: Arc<StatusServices>,
    pub backup: Arc<BackupServices>,
}

/// Settings of the HTTP server as a whole.
pub struct HttpSettings {
    /// Connections at once.
    pub connections: usize,
    /// Largest request body in bytes.
    pub body: usize,
    /// Proxies whose forwarding headers count.
    pub trusted_proxies: Vec<AddressRange>,
    pub metrics: MetricsAccess,
}

/// First argument of a handler: the services it uses. Extraction costs no more than clones of handles.
pub trait FromServices: Send + 'static {
    fn from_services(services: &HttpServices) -> Self;
}

/// Services of logging in.
pub struct LoginServices {
    pub identity: Identity,
    pub session_lifetime: Duration,
    pub zone: Arc<str>,
}

/// Services of the routes of users.
pub struct UserServices {
    pub identity: Identity,
    /// Deleted together with a user.
    pub records: UserRecords,
}

/// Services of the routes of events.
pub struct EventServices {
    pub emitter: Arc<Emitter>,
    pub engine: Arc<dyn Engine>,
    pub feed: Feed,
    pub sinks: Sinks,
    pub subscriptions: Subscriptions,
    pub filters: EventFilters,
    pub calls: Calls,
    /// Ends the streams of a caller whose credential lapses.
    pub identity: Identity,
    pub user_limits: Arc<UserLimits>,
    /// Zone of sample events.
    pub zone: Arc<str>,
}

/// Services of the routes of sinks and their queues.
pub struct SinkServices {
    pub sinks: Sinks,
    pub subscriptions: Subscriptions,
    pub filters: EventFilters,
    pub engine: Arc<dyn Engine>,
    pub activity: RecentActivity,
    pub scripts: Scripts,
    /// The services that attempts at sinks use.
    pub sink_context: sinks::SinkContext,
    pub failures: SinkFailures,
    pub deliverer: Deliverer,
    pub user_limits: Arc<UserLimits>,
    /// Zone of sample events.
    pub zone: Arc<str>,
}

/// Services of the routes of sources, and of the requests at them.
pub struct SourceServices {
    pub intake: SourceIntake,
    pub audit: Audit,
    pub user_limits: Arc<UserLimits>,
}

/// Services of the figures of the last hour.
pub struct ActivityServices {
    pub records: ActivityRecords,
    /// One computation serves all callers of a second.
    pub figures: SharedComputation<ActivityFigures>,
}

impl ActivityServices {
    pub fn new(records: ActivityRecords) -> Self {
        Self { records, figures: SharedComputation::new(FIGURES_AGE) }
    }
}

/// Services of the routes of subscriptions.
pub struct SubscriptionServices {
    pub subscriptions: Subscriptions,
    pub filters: EventFilters,
    pub engine: Arc<dyn Engine>,
    pub calls: Calls,
}

/// Services of the routes of spaces and templates.
pub struct SpaceServices {
    pub spaces: Spaces,
    pub registry: Registry,
    pub templates: Templates,
    pub identity: Identity,
    pub scripts: Scripts,
    /// Compiles the Lua of health checks.
    pub workers: LuaWorkers,
    /// Deletes a space together with the sinks that its agent made.
    pub records: UserRecords,
}

/// Services of the routes of stored scripts. Sinks, spaces and templates are searched for references to a script.
pub struct ScriptServices {
    pub scripts: Scripts,
    pub sinks: Sinks,
    pub spaces: Spaces,
    pub templates: Templates,
    /// Compiles scripts.
    pub workers: LuaWorkers,
    pub user_limits: Arc<UserLimits>,
}

/// Services of running a stored script.
pub struct ScriptRunServices {
    pub scripts: Scripts,
    pub tools: ToolRunner,
    pub workers: LuaWorkers,
    /// Has the recorded events.
    pub engine: Arc<dyn Engine>,
    pub user_limits: Arc<UserLimits>,
    /// Zone of sample events.
    pub zone: Arc<str>,
}

/// Services of the routes of methods.
pub struct MethodServices {
    pub registry: Registry,
    pub calls: Calls,
    pub identity: Identity,
    /// Requests in one JSON-RPC batch.
    pub max_batch: usize,
}

/// Services of health, readiness and metrics.
pub struct StatusServices {
    pub store: Store,
    pub metrics: Arc<Metrics>,
    pub engine: Arc<dyn Engine>,
    pub sinks: Sinks,
    pub subscriptions: Subscriptions,
    pub spaces: Spaces,
    pub mcp: mcp::Endpoint,
    pub workers: LuaWorkers,
}

/// Services of making a backup.
pub struct BackupServices {
    pub store: Store,
    pub audit: Audit,
    /// Ends the backup of a caller whose credential lapses.
    pub identity: Identity,
}

/// Lets handlers take these fields of [`HttpServices`].
macro_rules! from_services {
    ($($type:ty: $field:ident;)*) => {$(
        impl FromServices for $type {
            fn from_services(services: &HttpServices) -> Self {
                services.$field.clone()
            }
        }
    )*};
}

from_services! {
    Identity: identity;
    Audit: audit;
    mcp::Endpoint: mcp;
    Arc<LoginServices>: login;
    Arc<UserServices>: users;
    Arc<EventServices>: events;
    Arc<SinkServices>: sinks;
    Arc<SourceServices>: sources;
    Arc<ActivityServices>: activity;
    Arc<SubscriptionServices>: subscriptions;
    Arc<SpaceServices>: spaces;
    Arc<ScriptServices>: scripts;
    Arc<ScriptRunServices>: script_runs;
    Arc<MethodServices>: methods;
    Arc<StatusServices>: status;
    Arc<BackupServices>: backup;
}
