//! Logging in and out, the caller's own password, and the caller itself.

use super::views::{group_names, role_names};
use crate::{
    identity::{COOKIE_NAME, Caller, Identity, PasswordChange, Secret},
    model::api::identity::{Credentials, NewPassword, WhoamiView},
    server::http::{
        ApiError, ApiRequest, Json, NoContent, Response,
        client_info::Scheme,
        response::{IntoResponse, json},
        services::LoginServices,
    },
};
use hyper::{
    StatusCode,
    header::{HeaderValue, SET_COOKIE},
};
use schemars::{Schema, SchemaGenerator};
use std::{sync::Arc, time::Duration};

/// Response to a login, with the session's cookie.
pub struct LoggedIn {
    whoami: WhoamiView,
    cookie: HeaderValue,
}

/// Response to a logout, which deletes the cookie.
pub struct LoggedOut;

pub async fn login(
    services: Arc<LoginServices>,
    request: ApiRequest,
    Json(credentials): Json<Credentials>,
) -> Result<LoggedIn, ApiError> {
    let LoginServices { identity, session_lifetime, .. } = &*services;
    let client = request.client();
    let (caller, secret) = identity.login(&credentials.name, credentials.password, client.address).await?;
    let cookie = cookie(&secret, *session_lifetime, client.scheme);
    Ok(LoggedIn { whoami: whoami_view(&services, &caller), cookie })
}

pub async fn logout(identity: Identity, request: ApiRequest) -> Result<LoggedOut, ApiError> {
    identity.logout(request.caller()).await?;
    Ok(LoggedOut)
}

pub async fn password(
    identity: Identity,
    request: ApiRequest,
    Json(passwords): Json<NewPassword>,
) -> Result<NoContent, ApiError> {
    let NewPassword { current, new, revoke_tokens } = passwords;
    let change = PasswordChange { current, new, revoke_tokens };
    identity.change_own_password(request.caller(), change, request.client().address).await?;
    Ok(NoContent)
}

pub async fn whoami(services: Arc<LoginServices>, request: ApiRequest) -> Result<Json<WhoamiView>, ApiError> {
    Ok(Json(whoami_view(&services, request.caller())))
}

fn whoami_view(services: &LoginServices, caller: &Caller) -> WhoamiView {
    let (identity, user) = (&services.identity, &caller.user);
    WhoamiView {
        id: user.id,
        name: user.name.clone(),
        roles: role_names(identity, &user.roles),
        groups: group_names(identity, &user.groups),
        permissions: caller.permissions.iter().map(Into::into).collect(),
        via: caller.via.as_str().to_owned(),
        scopes: caller.scopes().iter().copied().map(Into::into).collect(),
        has_first_password: user.has_first_password,
        expires_at: identity.expiry(caller),
        zone: services.zone.to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

fn cookie(secret: &Secret, lifetime: Duration, scheme: Scheme) -> HeaderValue {
    let secure = match scheme {
        Scheme::Http => "",
        Scheme::Https => "; Secure",
    };
    let (secret, max_age) = (secret.reveal(), lifetime.as_secs());
    let text = format!("{COOKIE_NAME}={secret}; Path=/; HttpOnly; SameSite=Strict; Max-Age={max_age}{secure}");
    let mut cookie = HeaderValue::try_from(text).expect("a cookie of base64url and plain words is a header");
    cookie.set_sensitive(true);
    cookie
}

impl IntoResponse for LoggedIn {
    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<WhoamiView>())
    }

    fn into_response(self) -> Response {
        let mut response = json(StatusCode::OK, &self.whoami);
        response.headers_mut().insert(SET_COOKIE, self.cookie);
        response
    }
}

impl IntoResponse for LoggedOut {
    const STATUS: StatusCode = StatusCode::NO_CONTENT;

    fn schema(_: &mut SchemaGenerator) -> Option<Schema> {
        None
    }

    fn into_response(self) -> Response {
        let mut response = NoContent.into_response();
        let text = format!("{COOKIE_NAME}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
        let cookie = HeaderValue::try_from(text).expect("a cookie of plain words is a header");
        response.headers_mut().insert(SET_COOKIE, cookie);
        response
    }
}
