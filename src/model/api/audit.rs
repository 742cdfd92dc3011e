//! The audit log.

use super::{identity::ActorView, list::Limit};
use crate::model::{id::AuditId, timestamp::Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditQuery {
    /// The actor's name or id.
    pub actor: Option<String>,
    /// The action, or its beginning as `sink.*`.
    pub action: Option<String>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    #[serde(default)]
    pub limit: Limit,
    pub cursor: Option<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AuditEntry")]
pub struct AuditEntryView {
    pub id: AuditId,
    pub at: Timestamp,
    /// The actor; null if it is unknown, as at a failed login.
    pub actor: Option<ActorView>,
    pub action: String,
    pub object: String,
    pub detail: Value,
}
