//! Events: emitting one, explaining its routes, the history, and the live stream.

use super::{identity::ActorView, lenient::Lenient, list::Limit, schemas, search_text::SearchText};
use crate::model::{
    delivery::{AttemptKind, AttemptOutcome, Delivery, DeliveryState},
    event::EventType,
    id::{EventId, SinkId, SpaceId, UserId},
    json_input,
    owner::OwnerSpec,
    pattern::Patterns,
    timestamp::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EmitBody {
    /// Segments of [A-Za-z0-9_-] separated by dots; `custom.` is put in front.
    #[serde(rename = "type")]
    pub kind: String,
    /// An object; `{}` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "json_input::payload")]
    #[schemars(with = "schemas::AnyObject")]
    pub payload: Option<Box<RawValue>>,
    /// Repeating an emit with its id stores nothing and answers as the first time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<EventId>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainBody {
    /// The type without `custom.`; or give `event_id`.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The payload that filters see; `{}` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "json_input::payload")]
    #[schemars(with = "schemas::AnyObject")]
    pub payload: Option<Box<RawValue>>,
    /// A recorded event, in place of `type` and `payload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<EventId>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HistoryQuery {
    /// Event patterns, as a sink has them.
    #[schemars(with = "Option<String>")]
    pub pattern: Option<Patterns>,
    /// Events routed to this sink or subscription.
    pub sink: Option<SinkId>,
    /// Events with a delivery in this state.
    pub state: Option<DeliveryState>,
    /// Events with an attempt of this kind, as the figures of `/api/activity` count them.
    pub attempt: Option<AttemptKind>,
    /// Of the attempts that `attempt` names, those at this time or later.
    pub attempt_since: Option<Timestamp>,
    /// For `sink`, `state` and `attempt`, only deliveries to sinks that the caller manages and to its own methods
    /// count, as in the figures of `/api/activity`.
    #[serde(default)]
    pub managed: bool,
    /// Events accepted at this time or later.
    pub since: Option<Timestamp>,
    /// Events accepted at this time or earlier.
    pub until: Option<Timestamp>,
    /// Events whose payload has this text, as it was sent, with upper and lower case told apart.
    pub text: Option<SearchText>,
    #[serde(default)]
    pub limit: Limit,
    pub cursor: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamQuery {
    /// Event patterns, as a sink has them.
    #[schemars(with = "Option<String>")]
    pub pattern: Option<Patterns>,
}

/// The answer to an accepted event.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Receipt")]
pub struct ReceiptView {
    pub event_id: EventId,
    pub event_type: String,
    pub event_ts: Timestamp,
    /// Every sink and subscribed method it matched.
    pub matched: Vec<SinkRef>,
    /// The matched sinks and methods whose queue was full, so that they lost it.
    pub dropped: Vec<SinkRef>,
}

/// A sink, or a subscribed method, as it is mentioned elsewhere.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct SinkRef {
    pub sink_id: SinkId,
    #[schemars(with = "String")]
    pub name: Arc<str>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    pub event_type: String,
    pub sinks: Vec<ExplainedSink>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub struct ExplainedSink {
    pub sink_id: SinkId,
    /// The name of the sink; `SPACE/METHOD` for a method.
    pub name: String,
    pub owner: OwnerSpec,
    /// Its patterns. They and the type are empty for a sink that the caller does not manage.
    pub events: String,
    /// The sink's type, or `method`.
    #[serde(rename = "type")]
    pub kind: String,
    /// True if events are delivered to it now: to a method, only while its space serves it.
    pub active: bool,
    pub matches: bool,
    pub reason: String,
}

/// An event with its deliveries, as far as the caller may see them.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Event")]
pub struct EventView {
    pub id: EventId,
    #[serde(rename = "type")]
    #[schemars(with = "String")]
    pub kind: EventType,
    pub ts: Timestamp,
    /// The time at which the server accepted it. The history is in this order, and `since` and `until` go by it.
    pub accepted_at: Timestamp,
    #[schemars(with = "String")]
    pub zone: Arc<str>,
    pub space_id: SpaceId,
    pub user_id: UserId,
    pub actor: ActorView,
    #[schemars(with = "schemas::AnyObject")]
    pub data: Box<RawValue>,
    pub deliveries: Vec<Delivery>,
}

/// `event: delivery` on the live stream: one attempt, and the state it left the delivery in. The fields are in the
/// order of their names, as clients of the stream know them.
#[derive(Serialize, Deserialize)]
pub struct DeliveryNotice {
    pub attempt: u32,
    /// Absent without an error, and for callers who may not see the errors of the sink.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub event_id: EventId,
    pub event_type: EventType,
    pub name: Arc<str>,
    pub outcome: Lenient<AttemptOutcome>,
    pub sequence: u64,
    pub sink_id: SinkId,
    /// `queued` while another attempt will follow.
    pub state: Lenient<DeliveryState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
}

/// `event: lagged` on the live stream: the watcher was too slow and missed this many notices.
#[derive(Serialize, Deserialize)]
pub struct LaggedNotice {
    pub missed: u64,
}

impl SinkRef {
    /// Returns true for a method, named SPACE/METHOD: no sink's name has a slash.
    pub fn is_method(&self) -> bool {
        self.name.contains('/')
    }
}
