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
        queue::{self, AcceptError, Attempt, AttemptFilter, Delivery, DeliverySelection, Receipt, Record, RouteTarget},
    },
    server::http::{Accepted, ApiError, ApiRequest, Json, Query, pagination, services::EventServices},
};
use std::{sync::Arc, time::Duration};

/// The part of a delivery that a caller sees.
#[derive(PartialEq, Eq)]
enum DeliverySight {
    Whole,
    /// Without the output of the sink's script and the receiver's response.
    WithoutDetails,
    Hidden,
}

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
    let filter = queue::HistoryFilter {
        user: if sees_all_events(caller) { None } else { Some(caller.user.id) },
        pattern: query.pattern,
        sink: query.sink,
        state: query.state,
        attempt: query.attempt.map(|kind| AttemptFilter { kind, since: query.attempt_since }),
        deliveries: Some(selection(&services, caller, query.managed)),
        since: query.since,
        until: query.until,
        text: query.text.and_then(SearchText::into_text),
        after: pagination::cursor(query.cursor.as_deref())?,
        limit: query.limit.get(),
    };
    let engine = services.engine.clone();
    let read = tokio::task::spawn_blocking(move || engine.history(&filter));
    let page = read.await.map_err(|error| ApiError::Internal(error.to_string()))??;
    let items = page.records.into_iter().map(|record| view(&services, caller, record)).collect();
    Ok(Json(List { items, next: page.next.map(|cursor| cursor.to_string()) }))
}

pub async fn show(services: Arc<EventServices>, request: ApiRequest) -> Result<Json<EventView>, ApiError> {
    let caller = request.caller();
    let record = visible_record(&*services.engine, caller, request.id::<EventId>()?)?;
    Ok(Json(view(&services, caller, record)))
}

/// The deliveries that select an event for the caller: those it may see, or only those whose queues it may change. Others
/// select none, not even for the end of a page, so that nothing is told about them.
fn selection(services: &Arc<EventServices>, caller: &Caller, is_managed_only: bool) -> DeliverySelection {
    let (services, caller) = (services.clone(), caller.clone());
    DeliverySelection::new(move |event, sink| match is_managed_only {
        true => manages(&services, &caller, sink),
        false => sight(&services, &caller, event, sink) != DeliverySight::Hidden,
    })
}

/// Returns true if the caller may change the queue of this sink or subscription.
fn manages(services: &EventServices, caller: &Caller, sink: SinkId) -> bool {
    match services.subscriptions.get(sink) {
        Some(subscription) => subscription.owner == caller.user.id,
        None => services.sinks.get(sink).is_some_and(|sink| manages_sinks_of(caller, sink.owner)),
    }
}

/// Decides what the caller sees of a delivery.
fn sight(services: &EventServices, caller: &Caller, event: &Event, sink: SinkId) -> DeliverySight {
    match owner_of(services, sink) {
        Some(Owner::User(user)) if user == caller.user.id => DeliverySight::Whole,
        // Managing global sinks gives no access to other users' own sinks.
        Some(Owner::User(_)) => DeliverySight::Hidden,
        Some(Owner::Global) if sees_all_events(caller) => DeliverySight::Whole,
        // The owner of a deleted sink is unknown.
        Some(Owner::Global) | None if event.user_id == caller.user.id => DeliverySight::WithoutDetails,
        Some(Owner::Global) | None => DeliverySight::Hidden,
    }
}

/// The event with those of its deliveries that the caller may see.
fn view(services: &EventServices, caller: &Caller, record: Record) -> EventView {
    let seen = |delivery: Delivery| match sight(services, caller, &record.event, delivery.sink_id) {
        DeliverySight::Whole => Some(delivery),
        DeliverySight::WithoutDetails => Some(without_details(delivery)),
        DeliverySight::Hidden => None,
    };
    let deliveries = record.deliveries.into_iter().filter_map(seen).collect();
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
