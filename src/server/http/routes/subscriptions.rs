//! Subscriptions: methods of the caller's spaces that are called for events. They come and go with registrations; their
//! queues are reached under `/api/event-sinks`, like those of sinks.

use super::views::{filter_errors_view, queue_view};
use crate::{
    delivery::subscriptions::{MethodGateway as _, Presence, Subscription},
    model::api::{
        list::{List, PageQuery},
        subscriptions::SubscriptionView,
    },
    server::http::{ApiError, ApiRequest, Json, Query, services::SubscriptionServices},
};
use std::sync::Arc;

pub async fn list(
    services: Arc<SubscriptionServices>,
    request: ApiRequest,
    Query(page): Query<PageQuery>,
) -> Result<Json<List<SubscriptionView>>, ApiError> {
    let own = services.subscriptions.of(request.caller().user.id);
    List::page(own, &page, |subscription| subscription.id, |subscription| view(&services, &subscription)).map(Json)
}

fn view(services: &SubscriptionServices, subscription: &Subscription) -> SubscriptionView {
    SubscriptionView {
        id: subscription.id,
        space_id: subscription.space,
        space: subscription.space_name.to_string(),
        method: subscription.method.to_string(),
        events: subscription.events.as_str().to_owned(),
        filter: subscription.filter.as_ref().map(|filter| filter.as_str().to_owned()),
        filter_errors: services.filters.errors(subscription.id).map(filter_errors_view),
        event_sinks: subscription.event_sinks.clone(),
        queue: queue_view(&*services.engine, subscription.id),
        open: services.calls.presence(subscription.space, &subscription.method) == Presence::Ready,
    }
}
