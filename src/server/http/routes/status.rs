//! Health, readiness and metrics, for operators and their monitoring.

use crate::{
    model::{api::health::HealthView, id::SinkId, owner::Owner, space_state::SpaceState},
    platform::metrics::{self, Depth},
    server::http::{
        ApiError, ApiRequest, Response,
        response::{IntoResponse, PlainText, json},
        services::StatusServices,
    },
};
use hyper::StatusCode;
use schemars::{Schema, SchemaGenerator};
use std::sync::Arc;

/// A [`HealthView`], with 503 if it has a reason against readiness.
pub struct Readiness(HealthView);

pub async fn health(services: Arc<StatusServices>, _: ApiRequest) -> Result<Readiness, ApiError> {
    let reason = services.store.failure().map(|failure| failure.to_string());
    let status = if reason.is_none() { "ok" } else { "failed" };
    Ok(Readiness(HealthView { status, reason }))
}

pub async fn ready(services: Arc<StatusServices>, request: ApiRequest) -> Result<Readiness, ApiError> {
    let store = &services.store;
    let reason = if let Some(failure) = store.failure() {
        Some(failure.to_string())
    } else if store.is_short_of_room() {
        Some("the disk under the data directory is almost full".to_owned())
    } else if request.shutdown.is_cancelled() {
        Some("the service is stopping".to_owned())
    } else {
        None
    };
    let status = if reason.is_none() { "ready" } else { "unavailable" };
    Ok(Readiness(HealthView { status, reason }))
}

pub async fn metrics(services: Arc<StatusServices>, _: ApiRequest) -> Result<PlainText, ApiError> {
    Ok(render_metrics(&services))
}

/// The metrics as Prometheus reads them.
pub fn render_metrics(services: &StatusServices) -> PlainText {
    let StatusServices { metrics, engine, sinks, subscriptions, spaces, mcp, .. } = services;
    let depth =
        |queue: SinkId, name: String| Depth { sink: queue.to_string(), name, queued: engine.depth(queue).queued };
    // The metrics may be open to anybody, so only global sinks are shown by name.
    let sinks = sinks.all().into_iter().filter(|sink| sink.receives_events()).map(|sink| {
        let name = if sink.owner == Owner::Global { sink.name.to_string() } else { String::new() };
        depth(sink.id, name)
    });
    let methods = subscriptions.all().into_iter().map(|subscription| depth(subscription.id, String::new()));
    let mut text = metrics.render(sinks.chain(methods));
    let all = spaces.all();
    let states = SpaceState::ALL.map(|state| (state.as_str(), all.iter().filter(|space| space.state == state).count()));
    metrics::gauge(&mut text, "spaces", "Spaces by state.", "state", states);
    let linked = all.iter().filter(|space| spaces.status(space.id).linked).count();
    metrics::gauge(&mut text, "spaces_linked", "Spaces whose agent is connected.", "", [("", linked)]);
    let sizes = services.store.sizes();
    metrics::gauge(&mut text, "store_live_bytes", "Size of all stored records.", "", [("", sizes.live.all as usize)]);
    metrics::gauge(&mut text, "store_file_bytes", "Size of the database file.", "", [("", sizes.file as usize)]);
    metrics::gauge(&mut text, "mcp_streams", "Streams on which MCP clients listen.", "", [("", mcp.streams())]);
    let (running, quarantined) = services.workers.counts();
    metrics::gauge(&mut text, "lua_workers", "Worker processes for Lua.", "", [("", running)]);
    metrics::gauge(&mut text, "lua_quarantined", "Programs in quarantine.", "", [("", quarantined)]);
    PlainText(text)
}

impl IntoResponse for Readiness {
    const OTHER_STATUSES: &'static [StatusCode] = &[StatusCode::SERVICE_UNAVAILABLE];

    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<HealthView>())
    }

    fn into_response(self) -> Response {
        let status = if self.0.reason.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        json(status, &self.0)
    }
}
