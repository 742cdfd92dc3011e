//! Roles. Every user reads them; a change needs the permission manage_roles.

use crate::{
    identity::{Identity, Name, Permissions, Role},
    model::api::{
        identity::{RoleBody, RolePatch, RoleView},
        list::{List, PageQuery},
    },
    server::http::{ApiError, ApiRequest, Created, Json, NoContent, Query},
};

pub async fn list(
    identity: Identity,
    _: ApiRequest,
    Query(page): Query<PageQuery>,
) -> Result<Json<List<RoleView>>, ApiError> {
    List::page(identity.roles(), &page, |role| role.id, |role| RoleView::from(&*role)).map(Json)
}

pub async fn create(
    identity: Identity,
    request: ApiRequest,
    Json(body): Json<RoleBody>,
) -> Result<Created<RoleView>, ApiError> {
    let role = identity.create_role(request.caller(), body.name, body.permissions).await?;
    Ok(Created(RoleView::from(&*role)))
}

pub async fn show(identity: Identity, request: ApiRequest) -> Result<Json<RoleView>, ApiError> {
    let role = identity.role(request.id()?).ok_or_else(|| ApiError::missing("role"))?;
    Ok(Json(RoleView::from(&*role)))
}

pub async fn replace(
    identity: Identity,
    request: ApiRequest,
    Json(body): Json<RoleBody>,
) -> Result<Json<RoleView>, ApiError> {
    apply(&identity, &request, Some(body.name), Some(body.permissions)).await
}

pub async fn update(
    identity: Identity,
    request: ApiRequest,
    Json(patch): Json<RolePatch>,
) -> Result<Json<RoleView>, ApiError> {
    apply(&identity, &request, patch.name, patch.permissions).await
}

pub async fn delete(identity: Identity, request: ApiRequest) -> Result<NoContent, ApiError> {
    identity.delete_role(request.caller(), request.id()?).await?;
    Ok(NoContent)
}

async fn apply(
    identity: &Identity,
    request: &ApiRequest,
    name: Option<Name>,
    permissions: Option<Permissions>,
) -> Result<Json<RoleView>, ApiError> {
    let role = identity.update_role(request.caller(), request.id()?, name, permissions).await?;
    Ok(Json(RoleView::from(&*role)))
}

impl From<&Role> for RoleView {
    fn from(role: &Role) -> Self {
        let Role { id, name, permissions, created_at } = role.clone();
        Self { id, name, permissions: permissions.iter().map(Into::into).collect(), created_at }
    }
}
