//! Events: emitting them, and reading them back with their deliveries.

use super::{
    ownership::{manages_sinks_of, sees_all_events},
    sample_event::{custom_type, empty_object, visible_record},
};
use crate::{
    identity::Caller,
    model::{
        api::{
            events::{EmitBody, EventView, HistoryQuery, ReceiptView, SinkRef},
            list::List,
            search_text::SearchText,
        },
        event::Event,
        id::{EventId, SinkId, SpaceId},
        owner::Owner,
    },
    routing::{
        emit::{EmitError, NewEvent},
        queue::{self, AcceptError, Attempt, AttemptFilter, Delivery, Receipt, Record, RouteTarget},
    },
    server::http::{Accepted, ApiError, ApiRequest, Json, Query, pagination, services::EventServices},
};
use std::{sync::Arc, time::Duration};

pub async fn emit(
    services: Arc<EventServices>,
    request: ApiRequest,
    Json(body): Json<EmitBody>,
) -> Result<Accepted<ReceiptView>, ApiError> {
    let caller = request.caller();
    let event = NewEvent {
        id: body.id,
        raised_at: None,
        kind: custom_type(&body.kind)?,
        space_id: SpaceId::NIL,
        space: None,
        user_id: caller.user.id,
        actor: caller.actor(),
        payload: body.payload.unwrap_or_else(empty_object),
    };
    Ok(Accepted(services.emitter.emit(event).await?.into()))
}

pub async fn history(
    services: Arc<EventServices>,
    request: ApiRequest,
    Query(query): Query<HistoryQuery>,
) -> Result<Json<List<EventView>>, ApiError> {
    let caller = request.caller();
    if query.attempt.is_none() && query.attempt_since.is_some() {
        return Err(ApiError::BadRequest("`attempt_since` goes with `attempt`: give both, or neither".to_owned()));
    }
    let is_managed_only = query.managed;
    let filter = queue::HistoryFilter {
        user: if sees_all_events(caller) { None } else { Some(caller.user.id) },
        pattern: query.pattern,
        sink: query.sink,
        state: query.state,
        attempt: query.attempt.map(|kind| AttemptFilter { kind, since: query.attempt_since }),
        since: query.since,
        until: query.until,
        text: query.text.and_then(SearchText::into_text),
        after: pagination::cursor(query.cursor.as_deref())?,
        limit: query.limit.get(),
    };
    let engine = services.engine.clone();
    let read = tokio::task::spawn_blocking(move || engine.history(&filter).map(|page| (page, filter)));
    let (mut page, filter) = read.await.map_err(|error| ApiError::Internal(error.to_string()))??;
    if is_managed_only {
        page.records.retain(|record| filter.selects_any(&managed_deliveries(&services, caller, record)));
    }
    // Deliveries that the caller does not see select no event, so that nothing is told about them.
    let views = page.records.into_iter().map(|record| view(&services, caller, record));
    let items = views.filter(|view| filter.selects_any(&view.deliveries)).collect();
    Ok(Json(List { items, next: page.next.map(|cursor| cursor.to_string()) }))
}

pub async fn show(services: Arc<EventServices>, request: ApiRequest) -> Result<Json<EventView>, ApiError> {
    let caller = request.caller();
    let record = visible_record(&*services.engine, caller, request.id::<EventId>()?)?;
    Ok(Json(view(&services, caller, record)))
}

/// The deliveries of an event whose queues the caller may change.
fn managed_deliveries(services: &EventServices, caller: &Caller, record: &Record) -> Vec<Delivery> {
    let is_managed = |delivery: &&Delivery| match services.subscriptions.get(delivery.sink_id) {
        Some(subscription) => subscription.owner == caller.user.id,
        None => services.sinks.get(delivery.sink_id).is_some_and(|sink| manages_sinks_of(caller, sink.owner)),
    };
    record.deliveries.iter().filter(is_managed).cloned().collect()
}

/// The event with those of its deliveries that the caller may see.
fn view(services: &EventServices, caller: &Caller, record: Record) -> EventView {
    let own = record.event.user_id == caller.user.id;
    let deliveries = record
        .deliveries
        .into_iter()
        .filter_map(|delivery| {
            match owner_of(services, delivery.sink_id) {
                Some(Owner::User(user)) if user == caller.user.id => Some(delivery),
                // Managing global sinks gives no access to other users' own sinks.
                Some(Owner::User(_)) => None,
                Some(Owner::Global) if sees_all_events(caller) => Some(delivery),
                // The owner of a deleted sink is unknown.
                Some(Owner::Global) | None => own.then(|| without_details(delivery)),
            }
        })
        .collect();
    let Event { id, kind, ts, zone, space_id, user_id, actor, data, .. } = Arc::unwrap_or_clone(record.event);
    let accepted_at = record.accepted_at;
    EventView { id, kind, ts, accepted_at, zone, space_id, user_id, actor: actor.into(), data, deliveries }
}

/// The owner of a sink or subscription; `None` if it was deleted.
fn owner_of(services: &EventServices, id: SinkId) -> Option<Owner> {
    let sink = services.sinks.get(id).map(|sink| sink.owner);
    sink.or_else(|| services.subscriptions.get(id).map(|subscription| subscription.event_owner()))
}

/// The delivery without the output of the sink's script and the receiver's response.
fn without_details(delivery: Delivery) -> Delivery {
    let bare = |attempt: Attempt| Attempt { error: None, response: None, log: Vec::new(), ..attempt };
    Delivery { attempts: delivery.attempts.into_iter().map(bare).collect(), ..delivery }
}

impl From<Receipt> for ReceiptView {
    fn from(receipt: Receipt) -> Self {
        let refs = |targets: Vec<RouteTarget>| {
            targets.into_iter().map(|target| SinkRef { sink_id: target.sink, name: target.name }).collect()
        };
        Self {
            event_id: receipt.event.id,
            event_type: receipt.event.kind.as_str().to_owned(),
            event_ts: receipt.event.ts,
            matched: refs(receipt.matched),
            dropped: refs(receipt.dropped),
        }
    }
}

impl From<EmitError> for ApiError {
    fn from(error: EmitError) -> Self {
        let message = error.to_string();
        match error {
            EmitError::NilId
            | EmitError::PayloadNotObject
            | EmitError::PayloadTooDeep
            | EmitError::PayloadUnreadable(_) => Self::BadRequest(message),
            EmitError::PayloadTooLarge { .. } => Self::PayloadTooLarge(message),
            EmitError::Accept(AcceptError::IdTaken(_)) => Self::Conflict(message),
            EmitError::Accept(AcceptError::UndeliveredFull { .. }) => {
                Self::TooManyRequests { message, wait: Duration::from_secs(60) }
            }
            EmitError::Accept(AcceptError::Store(error)) => error.into(),
        }
    }
}
