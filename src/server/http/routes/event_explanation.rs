//! `POST /api/events/explain`: the sinks and methods an event would reach, and the reasons. Nothing is emitted.

use super::{ownership::manages_sinks_of, sample_event::sample_input};
use crate::{
    delivery::{
        sinks::Sink,
        subscriptions::{self, MethodGateway as _, Presence, Subscription},
    },
    model::{
        api::{
            events::{ExplainBody, ExplainedSink, Explanation},
            sinks::SampleEvent,
        },
        event::{Event, EventType},
        event_filter::EventFilter,
        id::{SinkId, UserId},
        owner::Owner,
        pattern::{Pattern, Patterns},
    },
    scripting::lua::FilterVerdict,
    server::http::{ApiError, ApiRequest, Json, services::EventServices},
};
use serde::Deserialize;
use std::{collections::HashMap, sync::Arc};

pub async fn explain(
    services: Arc<EventServices>,
    request: ApiRequest,
    Json(body): Json<ExplainBody>,
) -> Result<Json<Explanation>, ApiError> {
    let caller = request.caller();
    if body.kind.is_none() && body.event_id.is_none() {
        return Err(ApiError::BadRequest("`type` is required, or `event_id`".to_owned()));
    }
    let sample = SampleEvent { kind: body.kind, payload: body.payload, event_id: body.event_id };
    let event = sample_input(caller, &services.zone, &*services.engine, sample)?.event;
    let (kind, user) = (&event.kind, caller.user.id);
    // A recorded event of another user reaches nothing of the caller's own.
    let (sinks, methods) = match event.user_id == user {
        true => (services.sinks.visible_to(&[Owner::User(user), Owner::Global]), services.subscriptions.of(user)),
        false => (services.sinks.visible_to(&[Owner::Global]), Vec::new()),
    };
    let filters = run_filters(&services, user, &event, &sinks, &methods).await?;
    let methods = methods.iter().map(|subscription| {
        explain_method(
            &services,
            subscription,
            kind,
            explain_filter(&subscription.filter, filters.get(&subscription.id)),
        )
    });
    let explained = sinks.iter().filter_map(|sink| {
        let is_managed = manages_sinks_of(caller, sink.owner);
        let shown = sink.filter.as_ref().filter(|_| is_managed).cloned();
        let explained = explain_sink(sink, &event, explain_filter(&shown, filters.get(&sink.id)));
        // An emit tells the id and the name of sinks of others that get the event, and nothing else.
        match (is_managed, explained.matches) {
            (true, _) => Some(explained),
            (false, true) => Some(ExplainedSink {
                events: String::new(),
                kind: String::new(),
                active: true,
                reason: "it gets the event".to_owned(),
                ..explained
            }),
            (false, false) => None,
        }
    });
    let sinks = explained.chain(methods).collect();
    Ok(Json(Explanation { event_type: kind.as_str().to_owned(), sinks }))
}

/// Runs the filters of the sinks and subscriptions whose patterns match. It counts as a test.
async fn run_filters(
    services: &EventServices,
    user: UserId,
    event: &Arc<Event>,
    sinks: &[Arc<Sink>],
    methods: &[Arc<Subscription>],
) -> Result<HashMap<SinkId, FilterVerdict>, ApiError> {
    let filtered = |sink: &&Arc<Sink>| sink.receives_events() && sink.filter.is_some();
    let sinks = sinks.iter().filter(filtered).filter(|sink| match_sink(sink, event).is_ok());
    let methods = methods.iter().filter(|method| method.filter.is_some());
    let methods = methods.filter(|method| match_method(method, &event.kind).is_ok());
    let filtered: Vec<SinkId> = sinks.map(|sink| sink.id).chain(methods.map(|method| method.id)).collect();
    if filtered.is_empty() {
        return Ok(HashMap::new());
    }
    let _permit = services.user_limits.test_run(user)?;
    Ok(services.filters.verdicts(event, filtered).await)
}

/// An addition to the reason of a match, or as an error the reason why there is none. `shown` is the filter if the caller may
/// see it.
fn explain_filter(shown: &Option<EventFilter>, verdict: Option<&FilterVerdict>) -> Result<String, String> {
    match (verdict, shown) {
        (None, _) => Ok(String::new()),
        (Some(FilterVerdict::Match), _) => Ok("; its filter lets the event pass".to_owned()),
        (Some(FilterVerdict::Refuse), Some(filter)) => {
            Err(format!("filtered: its filter `{}` refuses the event", filter.as_str()))
        }
        (Some(FilterVerdict::Refuse), None) => Err("filtered: its filter refuses the event".to_owned()),
        (Some(FilterVerdict::Failed(why)), Some(_)) => {
            Ok(format!("; its filter fails, which counts as a match: {why}"))
        }
        (Some(FilterVerdict::Failed(_)), None) => Ok("; its filter fails, which counts as a match".to_owned()),
    }
}

fn explain_sink(sink: &Sink, event: &Event, filter: Result<String, String>) -> ExplainedSink {
    let matched = match_sink(sink, event).and_then(|reason| Ok(reason + &filter?));
    let matches = matched.is_ok() && sink.receives_events();
    let reason = match (matched, sink.receives_events(), sink.active) {
        (_, false, _) => "a json-rpc sink only formats events for the methods that name it".to_owned(),
        (Err(reason), true, _) | (Ok(reason), true, true) => reason,
        (Ok(reason), true, false) => reason + "; it is inactive, so the event would wait in its queue",
    };
    ExplainedSink {
        sink_id: sink.id,
        name: sink.name.to_string(),
        owner: sink.owner.into(),
        events: sink.events.as_str().to_owned(),
        kind: sink.kind().to_string(),
        active: sink.active,
        matches,
        reason,
    }
}

fn explain_method(
    services: &EventServices,
    subscription: &Subscription,
    kind: &EventType,
    filter: Result<String, String>,
) -> ExplainedSink {
    let matched = match_method(subscription, kind).and_then(|reason| Ok(reason + &filter?));
    let open = services.calls.presence(subscription.space, &subscription.method) == Presence::Ready;
    let matches = matched.is_ok();
    let reason = match matched {
        Err(reason) => reason,
        Ok(mut reason) => {
            if let Some(sink) = subscriptions::formatters_for(&services.sinks, subscription, kind).next() {
                let unless = if sink.filter.is_some() { ", unless its filter refuses the event" } else { "" };
                reason += &format!("; the sink `{}` shapes it{unless}", sink.name);
            }
            if !open {
                reason += "; its space is away, so the event would wait in its queue";
            }
            reason
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

/// The reason why an event is for a sink by its patterns, or as an error the reason why it is not.
fn match_sink(sink: &Sink, event: &Event) -> Result<String, String> {
    if reported_sink(event) == Some(sink.id) {
        return Err("a sink gets no reports about itself".to_owned());
    }
    let by_all = if sink.internal { Ok(()) } else { Err(", unless the sink has `internal = true`") };
    match_patterns(&sink.events, &event.kind, by_all)
}

/// The same for a subscribed method, which hears reports by patterns that name them.
fn match_method(subscription: &Subscription, kind: &EventType) -> Result<String, String> {
    match_patterns(&subscription.events, kind, Err(""))
}

/// The sink of which a report tells; `None` for every other event.
fn reported_sink(event: &Event) -> Option<SinkId> {
    #[derive(Deserialize)]
    struct ToldSink {
        sink_id: SinkId,
    }
    if event.kind.segments().next() != Some("sink") {
        return None;
    }
    serde_json::from_str::<ToldSink>(event.data.get()).ok().map(|told| told.sink_id)
}

/// The reason why the patterns match an event of this type, or as an error the reason why they do not. `by_all` tells if `*`
/// matches reports, or as an error what to add where it does not.
fn match_patterns(events: &Patterns, kind: &EventType, by_all: Result<(), &str>) -> Result<String, String> {
    let refused = by_all.err().filter(|_| kind.is_report());
    let mut matching = events.iter().filter(|pattern| pattern.matches(kind.as_str()));
    match (matching.find(|pattern| refused.is_none() || *pattern != Pattern::All), refused) {
        (Some(pattern), _) => Ok(format!("its pattern `{pattern}` matches")),
        (None, Some(unless)) if events.iter().any(|pattern| pattern == Pattern::All) => {
            Err(format!("its pattern `*` does not match `{kind}`, a report of the service{unless}"))
        }
        (None, _) => Err(format!("none of its patterns `{}` matches `{kind}`", events.as_str())),
    }
}
