//! Sources: their state, trials and dead letters, and the answer to a request at one. A [`SourceSpec`] makes one.

use super::{list::Limit, schemas, sinks::QuarantineView};
use crate::model::{
    id::{EventId, SourceId, SourceLetterId},
    json_input::JsonFields,
    owner::OwnerSpec,
    source_spec::SourceSpec,
    timestamp::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceQuery {
    /// The source with this slug.
    pub slug: Option<String>,
    pub owner: Option<OwnerSpec>,
    #[serde(default)]
    pub limit: Limit,
    pub cursor: Option<String>,
}

/// A whole source, field by field, so that an absent field differs from one set to its default.
#[derive(Deserialize)]
#[serde(transparent)]
pub struct SourceFields(pub JsonFields);

/// The fields of a source that are to change; `verify` is replaced as a whole.
#[derive(Deserialize)]
#[serde(transparent)]
pub struct SourcePatch(pub JsonFields);

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Source")]
pub struct SourceView {
    pub id: SourceId,
    #[serde(flatten)]
    pub spec: SourceSpec,
    /// The address that takes its requests.
    pub path: String,
    /// The ends of the validity of replaced secrets.
    pub former_secrets: Vec<Timestamp>,
    pub dead_letters: usize,
    pub activity: ActivityView,
    /// Present while every request becomes a dead letter at once, because the Lua ended its process several times in a
    /// row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<QuarantineView>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// The requests since the server started.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SourceActivity")]
pub struct ActivityView {
    /// Requests whose events are stored.
    pub accepted: u64,
    /// Requests that were not verified, over the limit, or not JSON.
    pub refused: u64,
    /// Requests that became dead letters.
    pub failed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_refusal: Option<SourceRefusalView>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SourceRefusal")]
pub struct SourceRefusalView {
    pub at: Timestamp,
    pub reason: String,
}

/// A request that is given to the transform of a source without verification. Nothing is emitted.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceTestBody {
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The query string, without the question mark.
    #[serde(default)]
    pub query: String,
    #[serde(default)]
    pub body: String,
}

/// The result of a test: the events that would be emitted, or the error.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct SourceTestView {
    pub events: Vec<TestedEvent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<TestedResponse>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Lines that the transform printed.
    pub log: Vec<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub struct TestedEvent {
    #[serde(rename = "type")]
    pub kind: String,
    #[schemars(with = "schemas::AnyObject")]
    pub payload: Box<RawValue>,
    /// Absent if the event gets an id when it is emitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<EventId>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub struct TestedResponse {
    pub status: u16,
    pub content_type: String,
    pub body: String,
}

/// A request that did not become events.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SourceLetter")]
pub struct SourceLetterView {
    pub id: SourceLetterId,
    pub received_at: Timestamp,
    pub reason: String,
    /// Lines that the transform printed.
    pub log: Vec<String>,
    /// The provider's id of the delivery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_id: Option<String>,
    pub headers: BTreeMap<String, String>,
    pub query: BTreeMap<String, String>,
    /// Bytes that are no text are replaced.
    pub body: String,
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceRedeliverBody {
    /// All dead letters if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub letter_ids: Option<Vec<SourceLetterId>>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub struct SourceRedeliverView {
    pub redelivered: usize,
    /// Dead letters that failed again.
    pub failed: usize,
    /// All dead letters that stay.
    pub remaining: usize,
}

/// The answer to a request that was accepted, unless the transform chose another.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SourceIntake")]
pub struct IntakeView {
    /// The ids of the stored events.
    pub events: Vec<EventId>,
    /// The request was kept, because the transform failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<SourceLetterId>,
}

schemas::described_by!(SourceSpec: SourceFields, SourcePatch);
