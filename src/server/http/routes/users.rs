//! Users, for those who manage them.

use super::{groups::GroupName, roles::RoleName};
use crate::{
    identity::{Identity, Name, NewUser, User, UserChange},
    model::{id::UserId, permission::Permission, timestamp::Timestamp},
    server::{
        http::{
            error::ApiError,
            pagination::{List, Page},
            request::{Call, Created, Json, NoContent, Query},
        },
        user_records::UserRecordsError,
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A whole user, to make or to replace one.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UserBody {
    name: Name,
    /// At least 8 characters. Without one the user cannot log in.
    password: Option<String>,
    /// Names or ids.
    #[serde(default)]
    roles: Vec<String>,
    /// Names or ids.
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default = "yes")]
    active: bool,
}

/// Some fields of a user; what is absent stays.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UserPatch {
    name: Option<Name>,
    password: Option<String>,
    roles: Option<Vec<String>>,
    groups: Option<Vec<String>>,
    active: Option<bool>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "User")]
pub struct UserView {
    id: UserId,
    name: Name,
    roles: Vec<RoleName>,
    groups: Vec<GroupName>,
    active: bool,
    created_at: Timestamp,
}

pub async fn list(call: Call, Query(page): Query<Page>) -> Result<Json<List<UserView>>, ApiError> {
    let identity = &call.app.identity;
    List::page(identity.users(), &page, |user| user.id, |user| UserView::of(identity, &user)).map(Json)
}

pub async fn create(call: Call, Json(body): Json<UserBody>) -> Result<Created<UserView>, ApiError> {
    let UserBody { name, password, roles, groups, active } = body;
    let new = NewUser { name, password, roles, groups, active };
    let user = call.app.identity.create_user(call.caller(), new).await?;
    Ok(Created(UserView::of(&call.app.identity, &user)))
}

pub async fn show(call: Call) -> Result<Json<UserView>, ApiError> {
    let id: UserId = call.id()?;
    let caller = call.caller();
    // Who manages no users sees only itself; the others are as good as absent.
    let visible = id == caller.user.id || caller.may(Permission::ManageUsers);
    let user = call.app.identity.user(id).filter(|_| visible).ok_or_else(|| ApiError::missing("user"))?;
    Ok(Json(UserView::of(&call.app.identity, &user)))
}

pub async fn replace(call: Call, Json(body): Json<UserBody>) -> Result<Json<UserView>, ApiError> {
    let UserBody { name, password, roles, groups, active } = body;
    let change =
        UserChange { name: Some(name), password, roles: Some(roles), groups: Some(groups), active: Some(active) };
    apply(&call, change).await
}

pub async fn update(call: Call, Json(patch): Json<UserPatch>) -> Result<Json<UserView>, ApiError> {
    let UserPatch { name, password, roles, groups, active } = patch;
    apply(&call, UserChange { name, password, roles, groups, active }).await
}

/// Deletes the user first, so that a refusal costs nothing, and then everything that belongs to the user.
pub async fn delete(call: Call) -> Result<NoContent, ApiError> {
    let id: UserId = call.id()?;
    call.app.identity.delete_user(call.caller(), id).await?;
    call.app.user_records.delete_of(&call.caller().actor(), id).await?;
    Ok(NoContent)
}

async fn apply(call: &Call, change: UserChange) -> Result<Json<UserView>, ApiError> {
    let user = call.app.identity.update_user(call.caller(), call.id()?, change).await?;
    Ok(Json(UserView::of(&call.app.identity, &user)))
}

impl UserView {
    fn of(identity: &Identity, user: &User) -> Self {
        Self {
            id: user.id,
            name: user.name.clone(),
            roles: RoleName::of(identity, &user.roles),
            groups: GroupName::of(identity, &user.groups),
            active: user.active,
            created_at: user.created_at,
        }
    }
}

impl From<UserRecordsError> for ApiError {
    fn from(error: UserRecordsError) -> Self {
        match error {
            UserRecordsError::Space(error) => error.into(),
            UserRecordsError::Sink(error) => error.into(),
            UserRecordsError::Script(error) => error.into(),
            UserRecordsError::Store(error) => error.into(),
        }
    }
}

const fn yes() -> bool {
    true
}
