//! `POST /api/events/explain`: the sinks and methods an event would reach, and the reasons. Nothing is emitted.

use super::sample_event::custom_type;
use crate::{
    delivery::{
        sinks::Sink,
        subscriptions::{self, MethodGateway as _, Presence, Subscription},
    },
    model::{
        api::events::{ExplainBody, ExplainedSink, Explanation},
        event::EventType,
        owner::Owner,
        pattern::Patterns,
    },
    server::http::{ApiError, ApiRequest, Json, services::EventServices},
};
use std::sync::Arc;

pub async fn explain(
    services: Arc<EventServices>,
    request: ApiRequest,
    Json(body): Json<ExplainBody>,
) -> Result<Json<Explanation>, ApiError> {
    let kind = custom_type(&body.kind)?;
    let user = request.caller().user.id;
    let sinks = services.sinks.visible_to(&[Owner::User(user), Owner::Global]);
    let methods = services.subscriptions.of(user);
    let methods = methods.iter().map(|subscription| explain_method(&services, subscription, &kind));
    let sinks = sinks.iter().map(|sink| explain_sink(sink, &kind)).chain(methods).collect();
    Ok(Json(Explanation { event_type: kind.as_str().to_owned(), sinks }))
}

fn explain_sink(sink: &Sink, kind: &EventType) -> ExplainedSink {
    let matched = match_patterns(&sink.events, kind);
    let matches = matched.is_ok() && sink.receives_events();
    let reason = match (matched, sink.receives_events(), sink.active) {
        (_, false, _) => "a json-rpc sink only formats events for the methods that name it".to_owned(),
        (Err(reason), true, _) | (Ok(reason), true, true) => reason,
        (Ok(reason), true, false) => reason + "; it is inactive, so the event would wait in its queue",
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

fn explain_method(services: &EventServices, subscription: &Subscription, kind: &EventType) -> ExplainedSink {
    let matched = match_patterns(&subscription.events, kind);
    let open = services.calls.presence(subscription.space, &subscription.method) == Presence::Ready;
    let matches = matched.is_ok();
    let reason = match matched {
        Err(reason) => reason,
        Ok(mut reason) => {
            if let Some(sink) = subscriptions::formatter_for(&services.sinks, subscription, kind) {
                reason += &format!("; the sink `{}` shapes it", sink.name);
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

/// The reason why the patterns match an event of this type, or as an error the reason why they do not.
fn match_patterns(events: &Patterns, kind: &EventType) -> Result<String, String> {
    match events.iter().find(|pattern| pattern.matches(kind.as_str())) {
        Some(pattern) => Ok(format!("its pattern `{pattern}` matches")),
        None => Err(format!("none of its patterns `{}` matches `{kind}`", events.as_str())),
    }
}
