//! The methods of the caller's spaces that are called for events. They come and go with registrations; what can be
//! done about their queues is done under `/api/event-sinks`, as for sinks.

use super::sinks::QueueView;
use crate::{
    delivery::subscriptions::{Door as _, Presence, Subscription},
    model::api::list::{List, PageQuery},
    model::id::{SinkId, SpaceId},
    server::http::{ApiError, Call, Json, Query},
};
use schemars::JsonSchema;
use serde::Serialize;

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Subscription")]
pub struct SubscriptionView {
    /// Stands for a sink's id wherever one is asked for: its dead letters, history.
    id: SinkId,
    space_id: SpaceId,
    /// The space's name.
    space: String,
    /// The method's canonical name.
    method: String,
    events: String,
    /// The json-rpc sinks that may shape events for it, in the order they are asked.
    event_sinks: Vec<String>,
    queue: QueueView,
    /// Whether the space serves the method now. While it does not, events wait.
    open: bool,
}

pub async fn list(call: Call, Query(page): Query<PageQuery>) -> Result<Json<List<SubscriptionView>>, ApiError> {
    let own = call.app.subscriptions.of(call.caller().user.id);
    List::page(own, &page, |subscription| subscription.id, |subscription| view(&call, &subscription)).map(Json)
}

fn view(call: &Call, subscription: &Subscription) -> SubscriptionView {
    SubscriptionView {
        id: subscription.id,
        space_id: subscription.space,
        space: subscription.space_name.to_string(),
        method: subscription.method.to_string(),
        events: subscription.events.as_str().to_owned(),
        event_sinks: subscription.event_sinks.clone(),
        queue: QueueView::of(call, subscription.id),
        open: call.app.calls.presence(subscription.space, &subscription.method) == Presence::Ready,
    }
}
