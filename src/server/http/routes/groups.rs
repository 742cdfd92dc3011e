//! Groups. Every user reads them; a change needs the permission manage_groups.

use crate::{
    identity::{Group, Identity},
    model::api::{
        identity::{GroupBody, GroupView},
        list::{List, PageQuery},
    },
    server::http::{ApiError, ApiRequest, Created, Json, NoContent, Query},
};

pub async fn list(
    identity: Identity,
    _: ApiRequest,
    Query(page): Query<PageQuery>,
) -> Result<Json<List<GroupView>>, ApiError> {
    List::page(identity.groups(), &page, |group| group.id, |group| GroupView::from(&*group)).map(Json)
}

pub async fn create(
    identity: Identity,
    request: ApiRequest,
    Json(body): Json<GroupBody>,
) -> Result<Created<GroupView>, ApiError> {
    let group = identity.create_group(request.caller(), body.name).await?;
    Ok(Created(GroupView::from(&*group)))
}

pub async fn show(identity: Identity, request: ApiRequest) -> Result<Json<GroupView>, ApiError> {
    let group = identity.group(request.id()?).ok_or_else(|| ApiError::missing("group"))?;
    Ok(Json(GroupView::from(&*group)))
}

/// Replaces or changes a group, which is the same, since a group has nothing but its name.
pub async fn rename(
    identity: Identity,
    request: ApiRequest,
    Json(body): Json<GroupBody>,
) -> Result<Json<GroupView>, ApiError> {
    let group = identity.rename_group(request.caller(), request.id()?, body.name).await?;
    Ok(Json(GroupView::from(&*group)))
}

pub async fn delete(identity: Identity, request: ApiRequest) -> Result<NoContent, ApiError> {
    identity.delete_group(request.caller(), request.id()?).await?;
    Ok(NoContent)
}

impl From<&Group> for GroupView {
    fn from(group: &Group) -> Self {
        let Group { id, name, created_at } = group.clone();
        Self { id, name, created_at }
    }
}
