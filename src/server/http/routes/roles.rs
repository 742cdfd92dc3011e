//! Roles. Everybody may read them; changing one takes manage_roles.

use crate::{
    identity::{Identity, Name, Permissions, Role},
    model::{id::RoleId, timestamp::Timestamp},
    server::http::{
        error::ApiError,
        pagination::{List, Page},
        request::{Call, Created, Json, NoContent, Query},
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RoleBody {
    name: Name,
    permissions: Permissions,
}

/// Some fields of a role; what is absent stays.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RolePatch {
    name: Option<Name>,
    permissions: Option<Permissions>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Role")]
pub struct RoleView {
    id: RoleId,
    name: Name,
    permissions: Permissions,
    created_at: Timestamp,
}

/// A role as it is mentioned elsewhere.
#[derive(Serialize, JsonSchema)]
pub struct RoleName {
    id: RoleId,
    name: Name,
}

pub async fn list(call: Call, Query(page): Query<Page>) -> Result<Json<List<RoleView>>, ApiError> {
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
        Self { id, name, permissions, created_at }
    }
}

impl RoleName {
    pub fn of(identity: &Identity, ids: &[RoleId]) -> Vec<Self> {
        let roles = ids.iter().filter_map(|id| identity.role(*id));
        roles.map(|role| Self { id: role.id, name: role.name.clone() }).collect()
    }
}
