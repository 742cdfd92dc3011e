//! Sinks: their queues, tests and previews, and redelivery. A [`SinkSpec`] makes one.

use super::{lenient::Lenient, list::Limit, schemas, search_text::SearchText};
use crate::model::{
    delivery::AttemptOutcome,
    id::{EventId, SinkId, SpaceId},
    json_input::{self, JsonFields},
    owner::OwnerSpec,
    sink_spec::SinkSpec,
    timestamp::Timestamp,
    units::Span,
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::IntoDeserializer as _};
use serde_json::value::RawValue;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SinkQuery {
    /// The sink of this name; two if the caller has one and there is a global one.
    pub name: Option<String>,
    pub owner: Option<OwnerSpec>,
    /// Words that must all be in the name, the description or the patterns, in any case.
    pub q: Option<SearchText>,
    /// A status, or several separated by commas.
    #[schemars(with = "Option<String>")]
    pub status: Option<SinkStatuses>,
    #[serde(default)]
    pub limit: Limit,
    pub cursor: Option<String>,
}

/// A whole sink, field by field, so that an absent field differs from one set to its default.
#[derive(Deserialize)]
#[serde(transparent)]
pub struct SinkFields(pub JsonFields);

/// The fields of a sink that are to change; a part such as `webhook` is replaced as a whole.
#[derive(Deserialize)]
#[serde(transparent)]
pub struct SinkPatch(pub JsonFields);

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Sink")]
pub struct SinkView {
    pub id: SinkId,
    #[serde(flatten)]
    pub spec: SinkSpec,
    /// The space whose agent made the sink. The sink is deleted with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space_id: Option<SpaceId>,
    pub queue: QueueView,
    /// Present while deliveries fail: from the moment that an event was given up or is held, until one is delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<SinkFailureView>,
    /// Present while attempts fail at once, because the sink's Lua ended its process several times in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<QuarantineView>,
    /// The end of the time for which requests are signed with the previous secret as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_secret_until: Option<Timestamp>,
    /// The errors of the filter since the server started or the filter was changed. Each counted as a match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter_errors: Option<FilterErrorsView>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Lenient<SinkStatus>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<SinkActivityView>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// The state of a sink. The first that applies is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SinkStatus {
    /// It is inactive; its events wait.
    Paused,
    /// Its Lua ended its process several times in a row, and attempts fail at once.
    Quarantined,
    /// Its last attempt failed.
    Failing,
    /// Its queue was full within the last five minutes, and events were dropped.
    Dropping,
    Active,
}

/// Statuses separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkStatuses(pub Vec<SinkStatus>);

impl<'de> Deserialize<'de> for SinkStatuses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let statuses = text.split(',').map(|name| SinkStatus::deserialize(name.trim().into_deserializer()));
        statuses.collect::<Result<_, _>>().map(Self)
    }
}

/// The last hour of a sink, since the server started.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SinkActivity")]
pub struct SinkActivityView {
    /// Attempts that delivered the event, or whose script declined it, by five minutes, oldest first.
    pub delivered: Vec<u32>,
    /// Attempts that failed, by five minutes.
    pub failed: Vec<u32>,
    /// Events that were lost because the queue was full, by five minutes.
    pub dropped: Vec<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<SinkErrorView>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SinkError")]
pub struct SinkErrorView {
    pub at: Timestamp,
    pub message: String,
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateSecretBody {
    /// The time for which requests are signed with the present secret as well; 24h if absent, at most 30d.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<Span>,
}

/// The public key of a webhook with `ed25519`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PublicKey")]
pub struct PublicKeyView {
    /// `whpk_` and the key in base64, as the libraries of Standard Webhooks take it.
    pub public_key: String,
    /// The key before the last rotation, while requests are signed with it as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<PreviousPublicKeyView>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PreviousPublicKey")]
pub struct PreviousPublicKeyView {
    pub public_key: String,
    pub until: Timestamp,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "FilterErrors")]
pub struct FilterErrorsView {
    pub count: u64,
    /// The last error.
    pub last: String,
    pub last_at: Timestamp,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SinkFailure")]
pub struct SinkFailureView {
    /// `failing`: its last event became a dead letter. `held`: it holds its first event. `paused`: the service made it
    /// inactive.
    pub state: String,
    pub reason: String,
    pub since: Timestamp,
    /// Attempts alone do not mend it: change the sink, its script or the egress policy.
    pub needs_change: bool,
    /// The number of attempts at the first event of the queue so far; absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// The time of the next attempt at it; absent if none is due, or the sink is inactive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Timestamp>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Quarantine")]
pub struct QuarantineView {
    /// The end of the quarantine. A change of the Lua ends it at once.
    pub until: Timestamp,
    /// The number of times in a row that the Lua ended its process.
    pub count: u32,
    /// The last reason.
    pub reason: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub struct QueueView {
    /// Undelivered events.
    pub depth: usize,
    /// The number the next event gets.
    pub next_sequence: u64,
    /// Dead letters.
    pub dead: usize,
    /// The time at which the oldest undelivered event was accepted; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_waiting_at: Option<Timestamp>,
}

/// The sample event of a test or preview of a sink.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Sample")]
pub struct SampleEvent {
    /// `sample` if absent; `custom.` is put in front.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "json_input::payload")]
    #[schemars(with = "schemas::AnyObject")]
    pub payload: Option<Box<RawValue>>,
    /// A recorded event that the caller may see, in place of `type` and `payload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<EventId>,
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PreviewBody {
    /// The definition of a sink, which need not be stored; or give `sink_id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sink: Option<SinkSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sink_id: Option<SinkId>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "json_input::payload")]
    #[schemars(with = "schemas::AnyObject")]
    pub payload: Option<Box<RawValue>>,
    /// A recorded event that the caller may see, in place of `type` and `payload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<EventId>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Preview")]
pub struct PreviewView {
    pub body: String,
    pub content_type: String,
}

/// The outcome of a test delivery.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct TestView {
    pub outcome: Lenient<AttemptOutcome>,
    pub duration_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// Lines that a script printed.
    pub log: Vec<String>,
    /// The body that was posted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<String>,
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RedeliverBody {
    /// All dead letters if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_ids: Option<Vec<EventId>>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub struct RedeliverView {
    pub redelivered: usize,
    /// Dead letters that stay: not named, without room in the queue, or damaged.
    pub remaining: usize,
    /// Dead letters that cannot be delivered again, because the letter or its event is damaged. Absent if there are
    /// none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub damaged: usize,
    /// An attempt that the sink's first event waited for is made now. Absent if none was waited for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retried: bool,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

schemas::described_by!(SinkSpec: SinkFields, SinkPatch);
