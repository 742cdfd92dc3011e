//! The caller's own API tokens.

use crate::{
    identity::Token,
    model::{id::TokenId, permission::Scope, timestamp::Timestamp},
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
pub struct NewToken {
    name: String,
    /// What the token is limited to; empty or absent for all of the user's permissions.
    #[serde(default)]
    scopes: Vec<Scope>,
    /// Made with a token that expires, it expires no later than that.
    expires_at: Option<Timestamp>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Token")]
pub struct TokenView {
    id: TokenId,
    name: String,
    scopes: Vec<Scope>,
    created_at: Timestamp,
    /// To the minute across a restart.
    last_used_at: Option<Timestamp>,
    expires_at: Option<Timestamp>,
}

#[derive(Serialize, JsonSchema)]
pub struct IssuedToken {
    #[serde(flatten)]
    record: TokenView,
    /// The token itself. It is not kept and cannot be shown again.
    token: String,
}

pub async fn list(call: Call, Query(page): Query<Page>) -> Result<Json<List<TokenView>>, ApiError> {
    let tokens = call.app.identity.tokens(call.caller().user.id);
    List::page(tokens, &page, |token| token.id, TokenView::from).map(Json)
}

pub async fn create(call: Call, Json(new): Json<NewToken>) -> Result<Created<IssuedToken>, ApiError> {
    let identity = &call.app.identity;
    let (token, secret) = identity.create_token(call.caller(), new.name, new.scopes, new.expires_at).await?;
    Ok(Created(IssuedToken { record: token.into(), token: secret.reveal().to_owned() }))
}

pub async fn show(call: Call) -> Result<Json<TokenView>, ApiError> {
    let token = call.app.identity.token(call.caller().user.id, call.id()?);
    token.map(|token| Json(token.into())).ok_or_else(|| ApiError::missing("token"))
}

pub async fn delete(call: Call) -> Result<NoContent, ApiError> {
    call.app.identity.delete_token(call.caller(), call.id()?).await?;
    Ok(NoContent)
}

impl From<Token> for TokenView {
    fn from(token: Token) -> Self {
        let Token { id, name, scopes, created_at, last_used_at, expires_at, .. } = token;
        Self { id, name, scopes, created_at, last_used_at, expires_at }
    }
}
