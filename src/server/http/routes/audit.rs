//! Reading the audit log.

use crate::{
    model::{event::Actor, id::AuditId, timestamp::Timestamp},
    platform::audit::{Entry, Filter},
    server::http::{
        error::ApiError,
        pagination::{Limit, List, cursor},
        request::{Call, Json, Query},
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditQuery {
    /// The actor's name or id.
    actor: Option<String>,
    /// The action, or its beginning as `sink.*`.
    action: Option<String>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    #[serde(default)]
    limit: Limit,
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AuditEntry")]
pub struct EntryView {
    id: AuditId,
    at: Timestamp,
    /// Null when nobody could be named.
    actor: Option<Actor>,
    action: String,
    object: String,
    detail: Value,
}

pub async fn list(call: Call, Query(query): Query<AuditQuery>) -> Result<Json<List<EntryView>>, ApiError> {
    let AuditQuery { actor, action, since, until, limit, cursor: from } = query;
    let from = cursor::<AuditId>(from.as_deref())?;
    let page = call.app.audit.list(Filter { actor, action, since, until }, from, limit.get()).await?;
    let items = page.entries.into_iter().map(EntryView::from).collect();
    Ok(Json(List { items, next: page.next.map(|next| next.to_string()) }))
}

impl From<Entry> for EntryView {
    fn from(entry: Entry) -> Self {
        let Entry { id, at, actor, action, object, detail } = entry;
        Self { id, at, actor, action, object, detail }
    }
}
