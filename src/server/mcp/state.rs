//! State that all requests to the endpoint share.

use super::{
    catalog::Catalog,
    error::{EndpointError, STREAMS},
    in_flight::InFlightRequests,
    origin_check::OriginCheck,
    session,
};
use crate::{
    calls::{call::Calls, registry::Registry},
    identity::{Caller, Identity},
    model::{id::UserId, permission::Permission},
    platform::{
        config,
        keyed_limit::{KeyedLimit, KeyedPermit},
    },
    scripting::scripts::{Scripts, ToolRunner},
};
use http::{HeaderMap, HeaderName};
use tokio_util::sync::CancellationToken;

/// Header that carries the session's id.
pub static SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");

/// Services that the endpoint uses.
pub struct EndpointDeps {
    pub registry: Registry,
    pub identity: Identity,
    pub calls: Calls,
    pub scripts: Scripts,
    pub tools: ToolRunner,
    /// Ends all streams once it is cancelled.
    pub shutdown: CancellationToken,
}

/// Shared state of the endpoint.
pub struct EndpointState {
    pub origin_check: OriginCheck,
    pub catalog: Catalog,
    pub calls: Calls,
    pub tools: ToolRunner,
    pub in_flight: InFlightRequests,
    pub streams: KeyedLimit<UserId>,
    shutdown: CancellationToken,
}

impl EndpointState {
    pub fn new(config: &config::McpConfig, deps: EndpointDeps) -> Self {
        let EndpointDeps { registry, identity, calls, scripts, tools, shutdown } = deps;
        Self {
            origin_check: OriginCheck::new(config),
            catalog: Catalog::new(registry, identity, scripts),
            calls,
            tools,
            in_flight: InFlightRequests::default(),
            streams: KeyedLimit::new(STREAMS),
            shutdown,
        }
    }

    /// The session that the headers name; `None` if they name none.
    pub fn session<'h>(&self, caller: &Caller, headers: &'h HeaderMap) -> Result<Option<&'h str>, EndpointError> {
        let Some(id) = headers.get(&SESSION_HEADER) else { return Ok(None) };
        let id = id.to_str().ok().filter(|id| session::belongs_to(id, caller.user.id));
        id.map(Some).ok_or(EndpointError::UnknownSession)
    }

    /// A permit for one more stream of the caller.
    pub fn stream_permit(&self, caller: &Caller) -> Result<KeyedPermit<UserId>, EndpointError> {
        self.streams.take(caller.user.id).ok_or(EndpointError::TooManyStreams)
    }

    /// Resolves once the caller's streams must end: the server stops, or the caller would no longer be authorized.
    pub async fn streams_must_end(&self, caller: &Caller) {
        tokio::select! {
            () = self.calls.identity().wait_until_denied(caller, Permission::UseMcpServer) => {}
            () = self.shutdown.cancelled() => {}
        }
    }
}
