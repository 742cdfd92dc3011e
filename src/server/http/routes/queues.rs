//! Queues of sinks and subscriptions: dead letters, and their redelivery.

use super::{
    ownership::manages_sinks,
    sinks::{check_changeable, find, space_of_agent},
};
use crate::{
    model::{
        api::{
            list::{List, PageQuery},
            sinks::{RedeliverBody, RedeliverView},
        },
        failure_policy::OnFailure,
        id::SinkId,
    },
    routing::queue::{DeadLetter, DeadLetterFilter},
    server::{
        audit_entries::sink_object,
        http::{ApiError, ApiRequest, Json, Query, pagination, services::SinkServices},
    },
};
use std::sync::Arc;

/// The use that a request makes of a queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueAccess {
    Read,
    /// For an agent only on subscriptions of its space and sinks that it made.
    Change,
}

pub async fn dead_letters(
    services: Arc<SinkServices>,
    request: ApiRequest,
    Query(page): Query<PageQuery>,
) -> Result<Json<List<DeadLetter>>, ApiError> {
    let queue = find_queue(&services, &request, QueueAccess::Read)?;
    let after = pagination::cursor(page.cursor.as_deref())?.unwrap_or(0);
    let letters = services.engine.dead_letters(queue, after, pagination::fetch_count(page.limit))?;
    Ok(Json(List::of_fetched(letters, page.limit, |letter| letter.sequence, |letter| letter)))
}

pub async fn redeliver(
    services: Arc<SinkServices>,
    request: ApiRequest,
    body: Option<Json<RedeliverBody>>,
) -> Result<Json<RedeliverView>, ApiError> {
    let queue = find_queue(&services, &request, QueueAccess::Change)?;
    let which = match body.unwrap_or_else(|| Json(RedeliverBody::default())).0.event_ids {
        Some(ids) => DeadLetterFilter::Events(ids.into_iter().collect()),
        None => DeadLetterFilter::All,
    };
    let entry = request.caller().audit_entry("sink.redeliver", sink_object(queue));
    let done = services.engine.redeliver(queue, which, entry).await?;
    // A held event, behind which the letters come, may wait for an hour. Other sinks keep their backoff.
    let is_waiting = services.engine.queue_head(queue).is_some_and(|head| !head.wait.is_zero());
    let may_hold = services.sinks.get(queue).is_some_and(|sink| sink.active && sink.on_failure == OnFailure::Hold);
    let retried = is_waiting && may_hold;
    if retried {
        services.deliverer.retry_now(queue);
    }
    Ok(Json(RedeliverView { redelivered: done.queued, remaining: done.remaining, damaged: done.damaged, retried }))
}

/// The queue of the path: of a subscription of the caller's, or of a sink that the caller manages.
pub(super) fn find_queue(
    services: &SinkServices,
    request: &ApiRequest,
    access: QueueAccess,
) -> Result<SinkId, ApiError> {
    let (id, caller) = (request.id()?, request.caller());
    let subscription = services.subscriptions.get(id).filter(|subscription| subscription.owner == caller.user.id);
    if let Some(subscription) = subscription {
        let is_foreign = space_of_agent(caller).is_some_and(|space| space != subscription.space);
        if access == QueueAccess::Change && is_foreign {
            let message = "an agent's token changes only the queues of methods of its space: use a token of the user";
            return Err(ApiError::Forbidden(message.to_owned()));
        }
        return Ok(id);
    }
    if !manages_sinks(caller) {
        let reason = "this is no subscription of yours, and a sink needs the permission manage_own_event_sinks";
        return Err(ApiError::Forbidden(reason.to_owned()));
    }
    let sink = find(services, caller, id)?;
    if access == QueueAccess::Change {
        check_changeable(caller, &sink)?;
    }
    Ok(sink.id)
}
