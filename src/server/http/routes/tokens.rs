//! API tokens: the caller's own, and single ones of other users for callers who manage users. [`super::users`] lists and makes those.

use crate::{
    identity::{Identity, Token},
    model::{
        api::{
            identity::{IssuedToken, NewToken, TokenView},
            list::{List, PageQuery},
        },
        id::UserId,
    },
    server::http::{ApiError, ApiRequest, Created, Json, NoContent, Query},
};

pub async fn list(
    identity: Identity,
    request: ApiRequest,
    Query(page): Query<PageQuery>,
) -> Result<Json<List<TokenView>>, ApiError> {
    let tokens = identity.tokens(request.caller(), request.caller().user.id)?;
    List::page(tokens, &page, |token| token.id, TokenView::from).map(Json)
}

pub async fn create(
    identity: Identity,
    request: ApiRequest,
    Json(new): Json<NewToken>,
) -> Result<Created<IssuedToken>, ApiError> {
    create_of(&identity, &request, request.caller().user.id, new).await
}

/// Creates a token for a user.
pub(super) async fn create_of(
    identity: &Identity,
    request: &ApiRequest,
    user: UserId,
    NewToken { name, scopes, expires_at }: NewToken,
) -> Result<Created<IssuedToken>, ApiError> {
    let (token, secret) = identity.create_token(request.caller(), user, name, scopes, expires_at).await?;
    Ok(Created(IssuedToken { record: token.into(), token: secret.reveal().to_owned() }))
}

pub async fn show(identity: Identity, request: ApiRequest) -> Result<Json<TokenView>, ApiError> {
    let token = identity.token(request.caller(), request.id()?);
    token.map(|token| Json(token.into())).ok_or_else(|| ApiError::missing("token"))
}

pub async fn delete(identity: Identity, request: ApiRequest) -> Result<NoContent, ApiError> {
    identity.delete_token(request.caller(), request.id()?).await?;
    Ok(NoContent)
}

impl From<Token> for TokenView {
    fn from(token: Token) -> Self {
        let Token { id, name, scopes, created_at, last_used_at, expires_at, .. } = token;
        let scopes = scopes.into_iter().map(Into::into).collect();
        Self { id, name, scopes, created_at, last_used_at, expires_at }
    }
}
