//! What operators and their machines ask: alive, ready, counters.

use crate::{
    model::{api::health::HealthView, space_state::SpaceState},
    server::http::{
        Response,
        error::ApiError,
        request::{Call, Json, Output, Text, json},
    },
};
use crate::{
    model::{id::SinkId, owner::Owner},
    platform::metrics::{self, Depth},
};
use hyper::StatusCode;
use schemars::{Schema, SchemaGenerator};

/// [`HealthView`], with 503 if there is a reason against it.
pub struct Readiness(HealthView);

pub async fn health(_: Call) -> Result<Json<HealthView>, ApiError> {
    Ok(Json(HealthView { status: "ok", reason: None }))
}

pub async fn ready(call: Call) -> Result<Readiness, ApiError> {
    let store = &call.app.store;
    let reason = if let Some(failure) = store.failure() {
        Some(failure.to_string())
    } else if store.is_short_of_room() {
        Some("the disk under the data directory is almost full".to_owned())
    } else if call.shutdown.is_cancelled() {
        Some("the service is stopping".to_owned())
    } else {
        None
    };
    let status = if reason.is_none() { "ready" } else { "unavailable" };
    Ok(Readiness(HealthView { status, reason }))
}

pub async fn metrics(call: Call) -> Result<Text, ApiError> {
    let app = &call.app;
    let depth =
        |queue: SinkId, name: String| Depth { sink: queue.to_string(), name, queued: app.engine.depth(queue).queued };
    // Anybody may look here, and a user's sinks and methods are the user's business.
    let sinks = app.book.all().into_iter().filter(|sink| sink.receives_events()).map(|sink| {
        let name = if sink.owner == Owner::Global { sink.name.clone() } else { String::new() };
        depth(sink.id, name)
    });
    let methods = app.subscriptions.all().into_iter().map(|subscription| depth(subscription.id, String::new()));
    let mut text = app.metrics.render(sinks.chain(methods));
    let spaces = app.spaces.all();
    let states =
        SpaceState::ALL.map(|state| (state.as_str(), spaces.iter().filter(|space| space.state == state).count()));
    metrics::gauge(&mut text, "spaces", "Spaces by state.", "state", states);
    let linked = spaces.iter().filter(|space| app.spaces.vitals(space.id).linked).count();
    metrics::gauge(&mut text, "spaces_linked", "Spaces whose agent is connected.", "", [("", linked)]);
    metrics::gauge(&mut text, "mcp_streams", "Streams on which MCP clients listen.", "", [("", app.mcp.streams())]);
    Ok(Text(text))
}

impl Output for Readiness {
    const OTHER_STATUSES: &'static [StatusCode] = &[StatusCode::SERVICE_UNAVAILABLE];

    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<HealthView>())
    }

    fn into_response(self) -> Response {
        let status = if self.0.reason.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        json(status, &self.0)
    }
}
