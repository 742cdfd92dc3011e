//! Replays: jobs that queue events of the history for a sink, or a subscription, again.

use super::queues::{QueueAccess, find_queue};
use crate::{
    model::{
        api::{
            list::{List, PageQuery},
            replays::{MAX_RANGES, MAX_RATE, ReplayBody, ReplayView},
        },
        id::ReplayId,
        replay::{ReplayChange, ReplayedState},
    },
    routing::queue::{NewReplay, ReplayError},
    server::{
        audit_entries::sink_object,
        http::{ApiError, ApiRequest, Created, Json, Query, pagination, services::SinkServices},
    },
};
use std::sync::Arc;

/// The jobs of a queue, newest first.
pub async fn list(
    services: Arc<SinkServices>,
    request: ApiRequest,
    Query(page): Query<PageQuery>,
) -> Result<Json<List<ReplayView>>, ApiError> {
    let queue = find_queue(&services, &request, QueueAccess::Read)?;
    let after: Option<ReplayId> = pagination::cursor(page.cursor.as_deref())?;
    let jobs = services.engine.replays(queue).into_iter().filter(|job| after.is_none_or(|after| job.id < after));
    Ok(Json(List::of_fetched(jobs, page.limit, |job| job.id, ReplayView::from)))
}

pub async fn start(
    services: Arc<SinkServices>,
    request: ApiRequest,
    body: Option<Json<ReplayBody>>,
) -> Result<Created<ReplayView>, ApiError> {
    let queue = find_queue(&services, &request, QueueAccess::Change)?;
    let new = checked(body.map(|Json(body)| body).unwrap_or_default())?;
    let entry = request.caller().audit_entry("sink.replay", sink_object(queue));
    Ok(Created(services.engine.start_replay(queue, new, entry).await?.into()))
}

pub async fn pause(services: Arc<SinkServices>, request: ApiRequest) -> Result<Json<ReplayView>, ApiError> {
    change(&services, &request, ReplayChange::Pause, "sink.pause_replay").await
}

pub async fn resume(services: Arc<SinkServices>, request: ApiRequest) -> Result<Json<ReplayView>, ApiError> {
    change(&services, &request, ReplayChange::Resume, "sink.resume_replay").await
}

pub async fn cancel(services: Arc<SinkServices>, request: ApiRequest) -> Result<Json<ReplayView>, ApiError> {
    change(&services, &request, ReplayChange::Cancel, "sink.cancel_replay").await
}

async fn change(
    services: &SinkServices,
    request: &ApiRequest,
    change: ReplayChange,
    action: &str,
) -> Result<Json<ReplayView>, ApiError> {
    let queue = find_queue(services, request, QueueAccess::Change)?;
    let entry = request.caller().audit_entry(action, sink_object(queue));
    Ok(Json(services.engine.change_replay(queue, change, entry).await?.into()))
}

fn checked(body: ReplayBody) -> Result<NewReplay, ApiError> {
    let refused = |message: &str| Err(ApiError::BadRequest(message.to_owned()));
    let ReplayBody { since, until, kind, states, sequences, rate } = body;
    if since.zip(until).is_some_and(|(since, until)| since > until) {
        return refused("`until` must not be before `since`");
    }
    let states = states.unwrap_or_else(|| ReplayedState::LOST.to_vec());
    if states.is_empty() {
        return refused("`states` is empty: give dropped, dead or delivered, or leave it out for dropped and dead");
    }
    if sequences.as_ref().is_some_and(Vec::is_empty) {
        return refused("`sequences` is empty: leave it out for all numbers");
    }
    let sequences = sequences.unwrap_or_default();
    if sequences.len() > MAX_RANGES {
        return refused(&format!("`sequences` has more than {MAX_RANGES} ranges: join neighbours, such as \"17-19\""));
    }
    if rate.is_some_and(|rate| !(1..=MAX_RATE).contains(&rate)) {
        return refused(&format!("`rate` must be from 1 to {MAX_RATE} events a second; leave it out for no limit"));
    }
    Ok(NewReplay { since, until, kind, states, sequences, rate })
}

impl From<ReplayError> for ApiError {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::UnderWay | ReplayError::TooMany(_) | ReplayError::NoneUnderWay | ReplayError::NoQueue => {
                Self::Conflict(error.to_string())
            }
            ReplayError::Store(error) => error.into(),
        }
    }
}
