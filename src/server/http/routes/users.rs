//! Users, for callers with the permission manage_users. Every user reads itself.

use super::{
    tokens,
    views::{group_names, role_names},
};
use crate::{
    identity::{Identity, NewUser, User, UserChange},
    model::{
        api::{
            identity::{IssuedToken, NewToken, TokenView, UserBody, UserPatch, UserReplacement, UserView},
            list::{List, PageQuery},
        },
        id::UserId,
        permission::Permission,
    },
    platform::run_to_completion::run_to_completion,
    server::{
        http::{ApiError, ApiRequest, Created, Json, NoContent, Query, services::UserServices},
        user_records::UserRecordsError,
    },
};
use std::sync::Arc;

pub async fn list(
    identity: Identity,
    _: ApiRequest,
    Query(page): Query<PageQuery>,
) -> Result<Json<List<UserView>>, ApiError> {
    List::page(identity.users(), &page, |user| user.id, |user| view(&identity, &user)).map(Json)
}

pub async fn create(
    identity: Identity,
    request: ApiRequest,
    Json(body): Json<UserBody>,
) -> Result<Created<UserView>, ApiError> {
    let UserBody { name, password, roles, groups, active } = body;
    let new = NewUser { name, password, roles, groups, active };
    let user = identity.create_user(request.caller(), new).await?;
    Ok(Created(view(&identity, &user)))
}

/// Shows a user. To a caller who manages no users, every other user looks absent.
pub async fn show(identity: Identity, request: ApiRequest) -> Result<Json<UserView>, ApiError> {
    let id: UserId = request.id()?;
    let caller = request.caller();
    let visible = id == caller.user.id || caller.may(Permission::ManageUsers);
    let user = identity.user(id).filter(|_| visible).ok_or_else(|| ApiError::missing("user"))?;
    Ok(Json(view(&identity, &user)))
}

pub async fn replace(
    identity: Identity,
    request: ApiRequest,
    Json(body): Json<UserReplacement>,
) -> Result<Json<UserView>, ApiError> {
    let UserReplacement { name, password, roles, groups, active, revoke_tokens } = body;
    let change = UserChange {
        name: Some(name),
        password,
        roles: Some(roles),
        groups: Some(groups),
        active: Some(active),
        revoke_tokens,
    };
    apply(&identity, &request, change).await
}

pub async fn update(
    identity: Identity,
    request: ApiRequest,
    Json(patch): Json<UserPatch>,
) -> Result<Json<UserView>, ApiError> {
    let UserPatch { name, password, roles, groups, active, revoke_tokens } = patch;
    apply(&identity, &request, UserChange { name, password, roles, groups, active, revoke_tokens }).await
}

/// Lists the API tokens of a user, so that whoever manages users can revoke them.
pub async fn list_tokens(
    identity: Identity,
    request: ApiRequest,
    Query(page): Query<PageQuery>,
) -> Result<Json<List<TokenView>>, ApiError> {
    let tokens = identity.tokens(request.caller(), request.id()?)?;
    List::page(tokens, &page, |token| token.id, TokenView::from).map(Json)
}

/// Creates an API token for a user, who need not have a password.
pub async fn create_token(
    identity: Identity,
    request: ApiRequest,
    Json(new): Json<NewToken>,
) -> Result<Created<IssuedToken>, ApiError> {
    tokens::create_of(&identity, &request, request.id()?, new).await
}

/// Deletes the user first, so that a refusal costs nothing, and then everything that belongs to the user.
pub async fn delete(services: Arc<UserServices>, request: ApiRequest) -> Result<NoContent, ApiError> {
    let (id, caller): (UserId, _) = (request.id()?, request.caller().clone());
    run_to_completion(async move {
        services.identity.delete_user(&caller, id).await?;
        services.records.delete_of(&caller, id).await?;
        Ok(NoContent)
    })
    .await
}

async fn apply(identity: &Identity, request: &ApiRequest, change: UserChange) -> Result<Json<UserView>, ApiError> {
    let user = identity.update_user(request.caller(), request.id()?, change).await?;
    Ok(Json(view(identity, &user)))
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
            UserRecordsError::Source(error) => error.into(),
            UserRecordsError::Script(error) => error.into(),
            UserRecordsError::Store(error) => error.into(),
        }
    }
}
