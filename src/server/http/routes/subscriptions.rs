//! The methods of the caller's spaces that are called for events. They come and go with registrations; what can be
//! done about their queues is done under `/api/event-sinks`, as for sinks.

use super::sinks::queue_view;
use crate::{
    delivery::subscriptions::{MethodGateway as _, Presence, Subscription},
    model::api::{
        list::{List, PageQuery},
        subscriptions::SubscriptionView,
    },
    server::http::{ApiError, Call, Json, Query},
};

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
        queue: queue_view(call, subscription.id),
        open: call.app.calls.presence(subscription.space, &subscription.method) == Presence::Ready,
    }
}
