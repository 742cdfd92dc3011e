//! Reading the audit log.

use crate::{
    model::{
        api::{
            audit::{AuditEntryView, AuditQuery},
            list::List,
        },
        id::AuditId,
    },
    platform::audit::{Audit, AuditEntry, AuditFilter},
    server::http::{ApiError, ApiRequest, Json, Query, pagination::cursor},
};

pub async fn list(
    audit: Audit,
    _: ApiRequest,
    Query(query): Query<AuditQuery>,
) -> Result<Json<List<AuditEntryView>>, ApiError> {
    let AuditQuery { actor, action, since, until, limit, cursor: from } = query;
    let from = cursor::<AuditId>(from.as_deref())?;
    let page = audit.list(AuditFilter { actor, action, since, until }, from, limit.get()).await?;
    let items = page.entries.into_iter().map(AuditEntryView::from).collect();
    Ok(Json(List { items, next: page.next.map(|next| next.to_string()) }))
}

impl From<AuditEntry> for AuditEntryView {
    fn from(entry: AuditEntry) -> Self {
        let AuditEntry { id, at, actor, action, object, detail, .. } = entry;
        Self { id, at, actor: actor.map(Into::into), action, object, detail }
    }
}
