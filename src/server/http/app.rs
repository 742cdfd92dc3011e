//! The services that HTTP handlers work with.

use super::UserLimits;
use crate::{
    calls::{call::Calls, registry::Registry},
    delivery::{
        sinks::{self, Book},
        subscriptions::Subscriptions,
    },
    identity::Identity,
    platform::{audit::Audit, config::Config, metrics::Metrics, store::Store},
    routing::{emit::Emitter, feed::Feed, queue::Engine},
    scripting::scripts::{Scripts, ToolRunner},
    server::{agent_hub::AgentHub, mcp, user_records::UserRecords},
    spaces::{Spaces, Templates},
};
use std::sync::Arc;

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
    pub scripts: Scripts,
    /// Runs the tools among them.
    pub toolbox: ToolRunner,
    pub spaces: Spaces,
    pub templates: Templates,
    pub subscriptions: Subscriptions,
    /// For deliveries outside any queue: tests and previews.
    pub context: sinks::SinkContext,
    pub feed: Feed,
    pub rations: UserLimits,
    pub registry: Registry,
    pub calls: Calls,
    pub mcp: mcp::Endpoint,
    pub agents: AgentHub,
    pub user_records: UserRecords,
}
