//! Users, for those who manage them.

use super::{groups::group_names, roles::role_names};
use crate::{
    identity::{Identity, NewUser, User, UserChange},
    model::{
        api::{
            identity::{UserBody, UserPatch, UserView},
            list::{List, PageQuery},
        },
        id::UserId,
        permission::Permission,
    },
    server::{
        http::{
            error::ApiError,
            request::{Call, Created, Json, NoContent, Query},
        },
        user_records::UserRecordsError,
    },
};

pub async fn list(call: Call, Query(page): Query<PageQuery>) -> Result<Json<List<UserView>>, ApiError> {
    let identity = &call.app.identity;
    List::page(identity.users(), &page, |user| user.id, |user| view(identity, &user)).map(Json)
}

pub async fn create(call: Call, Json(body): Json<UserBody>) -> Result<Created<UserView>, ApiError> {
    let UserBody { name, password, roles, groups, active } = body;
    let new = NewUser { name, password, roles, groups, active };
    let user = call.app.identity.create_user(call.caller(), new).await?;
    Ok(Created(view(&call.app.identity, &user)))
}

pub async fn show(call: Call) -> Result<Json<UserView>, ApiError> {
    let id: UserId = call.id()?;
    let caller = call.caller();
    // Who manages no users sees only itself; the others are as good as absent.
    let visible = id == caller.user.id || caller.may(Permission::ManageUsers);
    let user = call.app.identity.user(id).filter(|_| visible).ok_or_else(|| ApiError::missing("user"))?;
    Ok(Json(view(&call.app.identity, &user)))
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
    Ok(Json(view(&call.app.identity, &user)))
}

fn view(identity: &Identity, user: &User) -> UserView {
    UserView {
        id: user.id,
        name: user.name.clone(),
        roles: role_names(identity, &user.roles),
        groups: group_names(identity, &user.groups),
        active: user.active,
        created_at: user.created_at,
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
