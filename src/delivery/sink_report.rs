//! The reports about sinks, which are events of the service: `sink.failing`, `sink.held`, `sink.recovered` and
//! `sink.dropping`.
//!
//! [`super::sink_failures`] decides when there is one and keeps it until [`super::sink_report_emitter`] has emitted it.

use super::sink_failure::{FailureState, ReportedSink, SinkFailure};
use crate::{
    model::{
        event::{Actor, Event, EventType},
        id::{EventId, SpaceId, UserId},
        owner::{Owner, OwnerSpec},
        timestamp::Timestamp,
    },
    routing::emit::NewEvent,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};

/// The greatest length of a chain of reports, each caused by the delivery of the one before.
const MAX_DEPTH: u32 = 3;

/// A report that has not been emitted yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SinkReport {
    pub id: EventId,
    #[serde(rename = "type")]
    pub kind: EventType,
    raised_at: Timestamp,
    owner: Owner,
    payload: Box<RawValue>,
}

/// The event whose delivery, or loss, changed the state of a sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventCause {
    event_id: EventId,
    event_type: EventType,
    /// The length of the chain of reports that a report of this change ends.
    depth: u32,
}

impl EventCause {
    pub fn of(event: &Event) -> Self {
        #[derive(Deserialize)]
        struct ReportDepth {
            #[serde(default)]
            depth: u32,
        }
        let depth = match event.kind.is_report() {
            true => serde_json::from_str::<ReportDepth>(event.data.get()).map_or(0, |data| data.depth),
            false => 0,
        };
        Self { event_id: event.id, event_type: event.kind.clone(), depth: depth.saturating_add(1) }
    }

    /// Returns false for a change at the end of a chain, so that sinks which fail on each other's reports come to rest.
    pub fn may_report(&self) -> bool {
        self.depth <= MAX_DEPTH
    }
}

impl SinkReport {
    /// The report of a sink whose state was `previous`.
    pub fn changed(
        sink: ReportedSink<'_>,
        previous: Option<FailureState>,
        failure: Option<&SinkFailure>,
        cause: &EventCause,
    ) -> Self {
        let state = |state: Option<FailureState>| match state {
            None => "working",
            Some(FailureState::Failing) => "failing",
            Some(FailureState::Held) => "held",
        };
        let current = failure.map(|failure| failure.state);
        let kind = match current {
            None => "sink.recovered",
            Some(FailureState::Failing) => "sink.failing",
            Some(FailureState::Held) => "sink.held",
        };
        let mut payload = payload(sink, cause);
        payload["previous"] = state(previous).into();
        payload["current"] = state(current).into();
        if let Some(failure) = failure {
            payload["reason"] = failure.reason.as_str().into();
            payload["needs_change"] = failure.needs_change.into();
            payload["since"] = json!(failure.since);
        }
        Self::new(kind, sink.owner, &payload)
    }

    /// The report of a sink whose full queue dropped an event.
    pub fn dropping(sink: ReportedSink<'_>, cause: &EventCause) -> Self {
        Self::new("sink.dropping", sink.owner, &payload(sink, cause))
    }

    fn new(kind: &str, owner: Owner, payload: &Value) -> Self {
        Self {
            id: EventId::new(),
            kind: kind.parse().expect("the types of reports are legal"),
            raised_at: Timestamp::now(),
            owner,
            payload: RawValue::from_string(payload.to_string()).expect("a value prints as JSON"),
        }
    }

    /// The event in the form that the emitter takes. That of a global sink belongs to nobody and reaches global sinks.
    pub fn new_event(&self) -> NewEvent {
        NewEvent {
            id: Some(self.id),
            raised_at: Some(self.raised_at),
            kind: self.kind.clone(),
            space_id: SpaceId::NIL,
            space: None,
            user_id: match self.owner {
                Owner::User(user) => user,
                Owner::Global => UserId::NIL,
            },
            actor: Actor::system(),
            payload: self.payload.clone(),
        }
    }
}

fn payload(sink: ReportedSink<'_>, cause: &EventCause) -> Value {
    json!({
        "sink_id": sink.id,
        "sink_name": sink.name,
        "owner": OwnerSpec::from(sink.owner),
        "event_id": cause.event_id,
        "event_type": cause.event_type,
        "depth": cause.depth,
    })
}
