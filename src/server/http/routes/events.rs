//! Events: raising them, explaining where one would go, reading back what became of them, watching.

use crate::{
    delivery::{
        sinks::Sink,
        subscriptions::{self, MethodGateway as _, Presence, Subscription},
    },
    identity::Caller,
    model::{
        api::{
            events::{
                DeliveryNotice, EmitBody, EventView, ExplainBody, ExplainedSink, Explanation, HistoryQuery,
                LaggedNotice, ReceiptView, SinkRef, StreamQuery,
            },
            list::List,
        },
        event::{Event, EventType},
        id::{EventId, SinkId, SpaceId, UserId},
        owner::Owner,
        pattern::Patterns,
        permission::Permission,
    },
    platform::keyed_limit::Share,
    routing::{
        emit::{EmitError, NewEvent},
        feed::{DeliveryUpdate, FeedItem},
        queue::{self, AcceptError, Attempt, Delivery, Receipt, Record, RouteTarget},
    },
    server::http::{Accepted, ApiError, Call, Events, Json, Query, pagination},
};
use futures_util::{StreamExt, stream};
use serde_json::value::RawValue;
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::sync::broadcast::{Receiver, error::RecvError};
use warp::sse;

/// How often a silent stream says that it is still there.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Somebody who watches. It takes a happening from the feed and makes text of it only when the client is ready for
/// more: what waits, waits in the feed, once for all watchers. A client that reads nothing is hung up on by the
/// connection, as any other.
struct Watcher {
    feed: Receiver<FeedItem>,
    caller: Caller,
    pattern: Option<Patterns>,
    _share: Share<UserId>,
}

pub async fn emit(call: Call, Json(body): Json<EmitBody>) -> Result<Accepted<ReceiptView>, ApiError> {
    let caller = call.caller();
    let raise = NewEvent {
        id: body.id,
        kind: custom(&body.kind)?,
        space_id: SpaceId::NIL,
        space: None,
        user_id: caller.user.id,
        actor: caller.actor(),
        payload: body.payload.unwrap_or_else(empty_object),
    };
    Ok(Accepted(call.app.emitter.emit(raise).await?.into()))
}

pub async fn explain(call: Call, Json(body): Json<ExplainBody>) -> Result<Json<Explanation>, ApiError> {
    let kind = custom(&body.kind)?;
    let owners = [Owner::User(call.caller().user.id), Owner::Global];
    let sinks = call.app.book.visible_to(&owners);
    let methods = call.app.subscriptions.of(call.caller().user.id);
    let methods = methods.iter().map(|subscription| explain_method(&call, subscription, &kind));
    let sinks = sinks.iter().map(|sink| explain_sink(sink, &kind)).chain(methods).collect();
    Ok(Json(Explanation { event_type: kind.as_str().to_owned(), sinks }))
}

pub async fn history(call: Call, Query(wanted): Query<HistoryQuery>) -> Result<Json<List<EventView>>, ApiError> {
    let after = pagination::cursor(wanted.cursor.as_deref())?;
    let caller = call.caller().clone();
    let query = queue::HistoryFilter {
        user: if sees_all(&caller) { None } else { Some(caller.user.id) },
        pattern: wanted.pattern,
        sink: wanted.sink,
        state: wanted.state,
        since: wanted.since,
        until: wanted.until,
        after,
        limit: wanted.limit.get(),
    };
    let app = call.app.clone();
    let page = tokio::task::spawn_blocking(move || app.engine.history(&query))
        .await
        .map_err(|error| ApiError::Internal(error.to_string()))??;
    let items = page.records.into_iter().map(|record| view(&call, &caller, record)).collect();
    Ok(Json(List { items, next: page.next.map(|cursor| cursor.to_string()) }))
}

pub async fn show(call: Call) -> Result<Json<EventView>, ApiError> {
    let id = call.id::<EventId>()?;
    let caller = call.caller();
    let record = call.app.engine.record(id)?;
    let record = record.filter(|record| record.event.user_id == caller.user.id || sees_all(caller));
    Ok(Json(view(&call, caller, record.ok_or_else(|| ApiError::missing("event"))?)))
}

pub async fn watch(call: Call, Query(wanted): Query<StreamQuery>) -> Result<Events, ApiError> {
    let caller = call.caller().clone();
    let share = call.app.rations.stream(caller.user.id)?;
    let (app, shutdown, watching) = (call.app.clone(), call.shutdown.clone(), caller.clone());
    let over = async move {
        tokio::select! {
            () = app.identity.wait_until_invalid(&watching) => {}
            () = shutdown.cancelled() => {}
        }
    };
    let watcher = Watcher { feed: call.app.feed.subscribe(), caller, pattern: wanted.pattern, _share: share };
    let told = stream::unfold(watcher, |mut watcher| async move {
        let event = watcher.next().await?;
        Some((Ok::<_, Infallible>(event), watcher))
    });
    let told = told.take_until(over);
    let reply = sse::reply(sse::keep_alive().interval(HEARTBEAT).stream(told));
    Ok(Events(warp::Reply::into_response(reply)))
}

impl Watcher {
    /// The next thing to tell; `None` once nothing more can happen.
    async fn next(&mut self) -> Option<sse::Event> {
        loop {
            let item = match self.feed.recv().await {
                Ok(item) => Ok(item),
                Err(RecvError::Lagged(missed)) => Err(missed),
                Err(RecvError::Closed) => return None,
            };
            if let Some(event) = tell(&self.caller, self.pattern.as_ref(), item) {
                return Some(event);
            }
        }
    }
}

/// What a watcher is told of a happening; nothing of what is not theirs.
fn tell(caller: &Caller, pattern: Option<&Patterns>, item: Result<FeedItem, u64>) -> Option<sse::Event> {
    let wanted = |kind: &EventType| pattern.is_none_or(|pattern| pattern.matches(kind.as_str()));
    let (name, data) = match item {
        Err(missed) => ("lagged", serde_json::to_string(&LaggedNotice { missed }).ok()?),
        Ok(FeedItem::Accepted(event)) => {
            if !wanted(&event.kind) || event.user_id != caller.user.id && !sees_all(caller) {
                return None;
            }
            ("event", serde_json::to_string(&*event).ok()?)
        }
        Ok(FeedItem::Delivery(update)) => {
            let theirs = update.user == caller.user.id || sees_all(caller) && update.owner == Owner::Global;
            if !wanted(&update.event_type) || !theirs {
                return None;
            }
            ("delivery", serde_json::to_string(&notice(caller, &update)).ok()?)
        }
    };
    Some(sse::Event::default().event(name).data(data))
}

/// The notice of an attempt. The error of a global sink is shown only to those who manage global sinks.
fn notice(caller: &Caller, update: &DeliveryUpdate) -> DeliveryNotice {
    let shows_error = update.owner != Owner::Global || sees_all(caller);
    DeliveryNotice {
        attempt: update.attempt,
        error: update.error.clone().filter(|_| shows_error),
        event_id: update.event_id,
        event_type: update.event_type.clone(),
        name: update.name.clone(),
        outcome: update.outcome,
        sequence: update.sequence,
        sink_id: update.sink_id,
        state: update.state,
        status: update.status,
    }
}

/// Whoever manages the global sinks sees what goes through them: every user's events.
fn sees_all(caller: &Caller) -> bool {
    caller.may(Permission::ManageGlobalEventSinks)
}

fn custom(name: &str) -> Result<EventType, ApiError> {
    EventType::custom(name).map_err(|error| ApiError::BadRequest(format!("`type`: {error}")))
}

/// `{}` for an event raised without a payload.
pub(super) fn empty_object() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).expect("an empty object is JSON")
}

fn explain_sink(sink: &Sink, kind: &EventType) -> ExplainedSink {
    let heard = heard(&sink.events, kind);
    let matches = heard.is_ok() && sink.receives_events();
    let reason = match (heard, sink.receives_events(), sink.active) {
        (_, false, _) => "a json-rpc sink only formats events for the methods that name it".to_owned(),
        (Err(why), true, _) | (Ok(why), true, true) => why,
        (Ok(why), true, false) => why + "; it is inactive, so the event would wait in its queue",
    };
    ExplainedSink {
        sink_id: sink.id,
        name: sink.name.clone(),
        owner: sink.owner.into(),
        events: sink.events.as_str().to_owned(),
        kind: sink.kind().to_string(),
        active: sink.active,
        matches,
        reason,
    }
}

fn explain_method(call: &Call, subscription: &Subscription, kind: &EventType) -> ExplainedSink {
    let heard = heard(&subscription.events, kind);
    let open = call.app.calls.presence(subscription.space, &subscription.method) == Presence::Ready;
    let matches = heard.is_ok();
    let reason = match heard {
        Err(why) => why,
        Ok(mut why) => {
            if let Some(sink) = subscriptions::formatter_for(&call.app.book, subscription, kind) {
                why += &format!("; the sink `{}` shapes it", sink.name);
            }
            if !open {
                why += "; its space is away, so the event would wait in its queue";
            }
            why
        }
    };
    ExplainedSink {
        sink_id: subscription.id,
        name: subscription.name(),
        owner: subscription.event_owner().into(),
        events: subscription.events.as_str().to_owned(),
        kind: "method".to_owned(),
        active: open,
        matches,
        reason,
    }
}

/// Why these patterns hear an event of this type, or why they do not.
fn heard(events: &Patterns, kind: &EventType) -> Result<String, String> {
    match events.iter().find(|pattern| pattern.matches(kind.as_str())) {
        Some(pattern) => Ok(format!("its pattern `{pattern}` matches")),
        None => Err(format!("none of its patterns `{}` matches `{kind}`", events.as_str())),
    }
}

/// Whose sink or subscription this is; `None` if it is gone.
fn owner_of(call: &Call, id: SinkId) -> Option<Owner> {
    let sink = call.app.book.get(id).map(|sink| sink.owner);
    sink.or_else(|| call.app.subscriptions.get(id).map(|subscription| subscription.event_owner()))
}

fn view(call: &Call, caller: &Caller, record: Record) -> EventView {
    let own = record.event.user_id == caller.user.id;
    let deliveries = record
        .deliveries
        .into_iter()
        .filter_map(|delivery| {
            match owner_of(call, delivery.sink_id) {
                Some(Owner::User(user)) if user == caller.user.id => Some(delivery),
                // The manager of global sinks is no party to what other users' own sinks do.
                Some(Owner::User(_)) => None,
                Some(Owner::Global) if sees_all(caller) => Some(delivery),
                // Of a sink that is gone nobody knows any more whose it was.
                Some(Owner::Global) | None => own.then(|| without_details(delivery)),
            }
        })
        .collect();
    let Event { id, kind, ts, zone, space_id, user_id, actor, data, .. } = Arc::unwrap_or_clone(record.event);
    EventView { id, kind, ts, zone, space_id, user_id, actor: actor.into(), data, deliveries }
}

/// How it went, without what the sink's script printed or its receiver answered.
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
            EmitError::Accept(AcceptError::Store(error)) => error.into(),
        }
    }
}
