//! Reading the audit log.

use crate::{
    model::{
        api::{
            audit::{AuditEntryView, AuditQuery},
            list::List,
        },
        id::AuditId,
    },
    platform::audit::{Entry, Filter},
    server::http::{
        error::ApiError,
        pagination::cursor,
        request::{Call, Json, Query},
    },
};

pub async fn list(call: Call, Query(query): Query<AuditQuery>) -> Result<Json<List<AuditEntryView>>, ApiError> {
    let AuditQuery { actor, action, since, until, limit, cursor: from } = query;
    let from = cursor::<AuditId>(from.as_deref())?;
    let page = call.app.audit.list(Filter { actor, action, since, until }, from, limit.get()).await?;
    let items = page.entries.into_iter().map(AuditEntryView::from).collect();
    Ok(Json(List { items, next: page.next.map(|next| next.to_string()) }))
}

impl From<Entry> for AuditEntryView {
    fn from(entry: Entry) -> Self {
        let Entry { id, at, actor, action, object, detail } = entry;
        Self { id, at, actor: actor.map(Into::into), action, object, detail }
    }
}
