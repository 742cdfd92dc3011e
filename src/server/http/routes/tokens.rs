//! The caller's own API tokens.

use crate::{
    identity::Token,
    model::api::{
        identity::{IssuedToken, NewToken, TokenView},
        list::{List, PageQuery},
    },
    server::http::{
        error::ApiError,
        request::{Call, Created, Json, NoContent, Query},
    },
};

pub async fn list(call: Call, Query(page): Query<PageQuery>) -> Result<Json<List<TokenView>>, ApiError> {
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
        let scopes = scopes.into_iter().map(Into::into).collect();
        Self { id, name, scopes, created_at, last_used_at, expires_at }
    }
}
