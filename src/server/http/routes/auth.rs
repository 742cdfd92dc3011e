//! Logging in and out, and who one is.

use super::{groups::group_names, roles::role_names};
use crate::{
    identity::{COOKIE_NAME, Caller, Identity, Secret},
    model::api::identity::{Credentials, NewPassword, WhoamiView},
    server::http::{
        Response,
        error::ApiError,
        request::{Call, Json, NoContent, Output, Transport, json},
    },
};
use hyper::{
    StatusCode,
    header::{HeaderValue, SET_COOKIE},
};
use schemars::{Schema, SchemaGenerator};

/// A login's answer, with its cookie.
pub struct LoggedIn {
    whoami: WhoamiView,
    cookie: HeaderValue,
}

/// A logout's answer, which takes the cookie back.
pub struct LoggedOut;

pub async fn login(call: Call, Json(credentials): Json<Credentials>) -> Result<LoggedIn, ApiError> {
    let identity = &call.app.identity;
    let client = call.client();
    let (caller, secret) = identity.login(&credentials.name, credentials.password, client.address).await?;
    let age = call.app.config.auth.session.0.as_secs();
    Ok(LoggedIn { whoami: whoami_of(identity, &caller), cookie: cookie(&secret, age, client.scheme) })
}

pub async fn logout(call: Call) -> Result<LoggedOut, ApiError> {
    call.app.identity.logout(call.caller()).await?;
    Ok(LoggedOut)
}

pub async fn password(call: Call, Json(passwords): Json<NewPassword>) -> Result<NoContent, ApiError> {
    let NewPassword { current, new } = passwords;
    call.app.identity.change_own_password(call.caller(), current, new, call.client().address).await?;
    Ok(NoContent)
}

pub async fn whoami(call: Call) -> Result<Json<WhoamiView>, ApiError> {
    Ok(Json(whoami_of(&call.app.identity, call.caller())))
}

fn whoami_of(identity: &Identity, caller: &Caller) -> WhoamiView {
    let user = &caller.user;
    WhoamiView {
        id: user.id,
        name: user.name.clone(),
        roles: role_names(identity, &user.roles),
        groups: group_names(identity, &user.groups),
        permissions: caller.permissions.iter().map(Into::into).collect(),
        via: caller.via.as_str().to_owned(),
        scopes: caller.scopes().iter().copied().map(Into::into).collect(),
    }
}

fn cookie(secret: &Secret, age: u64, transport: Transport) -> HeaderValue {
    let secure = match transport {
        Transport::Http => "",
        Transport::Https => "; Secure",
    };
    let text = format!("{COOKIE_NAME}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age={age}{secure}", secret.reveal());
    let mut cookie = HeaderValue::try_from(text).expect("base64url and plain words");
    cookie.set_sensitive(true);
    cookie
}

impl Output for LoggedIn {
    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<WhoamiView>())
    }

    fn into_response(self) -> Response {
        let mut response = json(StatusCode::OK, &self.whoami);
        response.headers_mut().insert(SET_COOKIE, self.cookie);
        response
    }
}

impl Output for LoggedOut {
    const STATUS: StatusCode = StatusCode::NO_CONTENT;

    fn schema(_: &mut SchemaGenerator) -> Option<Schema> {
        None
    }

    fn into_response(self) -> Response {
        let mut response = NoContent.into_response();
        let text = format!("{COOKIE_NAME}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
        response.headers_mut().insert(SET_COOKIE, HeaderValue::try_from(text).expect("plain words"));
        response
    }
}
