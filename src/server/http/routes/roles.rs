//! Roles. Everybody may read them; changing one takes manage_roles.

use crate::{
    identity::{Identity, Name, Permissions, Role},
    model::{
        api::{
            identity::{RoleBody, RoleName, RolePatch, RoleView},
            list::{List, PageQuery},
        },
        id::RoleId,
    },
    server::http::{
        error::ApiError,
        request::{Call, Created, Json, NoContent, Query},
    },
};

pub async fn list(call: Call, Query(page): Query<PageQuery>) -> Result<Json<List<RoleView>>, ApiError> {
    List::page(call.app.identity.roles(), &page, |role| role.id, |role| RoleView::from(&*role)).map(Json)
}

pub async fn create(call: Call, Json(body): Json<RoleBody>) -> Result<Created<RoleView>, ApiError> {
    let role = call.app.identity.create_role(call.caller(), body.name, body.permissions).await?;
    Ok(Created(RoleView::from(&*role)))
}

pub async fn show(call: Call) -> Result<Json<RoleView>, ApiError> {
    let role = call.app.identity.role(call.id()?).ok_or_else(|| ApiError::missing("role"))?;
    Ok(Json(RoleView::from(&*role)))
}

pub async fn replace(call: Call, Json(body): Json<RoleBody>) -> Result<Json<RoleView>, ApiError> {
    apply(&call, Some(body.name), Some(body.permissions)).await
}

pub async fn update(call: Call, Json(patch): Json<RolePatch>) -> Result<Json<RoleView>, ApiError> {
    apply(&call, patch.name, patch.permissions).await
}

pub async fn delete(call: Call) -> Result<NoContent, ApiError> {
    call.app.identity.delete_role(call.caller(), call.id()?).await?;
    Ok(NoContent)
}

async fn apply(call: &Call, name: Option<Name>, permissions: Option<Permissions>) -> Result<Json<RoleView>, ApiError> {
    let role = call.app.identity.update_role(call.caller(), call.id()?, name, permissions).await?;
    Ok(Json(RoleView::from(&*role)))
}

impl From<&Role> for RoleView {
    fn from(role: &Role) -> Self {
        let Role { id, name, permissions, created_at } = role.clone();
        Self { id, name, permissions: permissions.iter().map(Into::into).collect(), created_at }
    }
}

/// The roles with these ids that exist, by name.
pub(super) fn role_names(identity: &Identity, ids: &[RoleId]) -> Vec<RoleName> {
    let roles = ids.iter().filter_map(|id| identity.role(*id));
    roles.map(|role| RoleName { id: role.id, name: role.name.clone() }).collect()
}
