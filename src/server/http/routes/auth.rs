//! Logging in and out, and who one is.

use super::{groups::GroupName, roles::RoleName};
use crate::{
    identity::{COOKIE_NAME, Caller, Identity, Name, Permissions, Secret},
    model::{id::UserId, permission::Scope},
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
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    name: String,
    password: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPassword {
    current: String,
    new: String,
}

/// The caller.
#[derive(Serialize, JsonSchema)]
pub struct Whoami {
    id: UserId,
    name: Name,
    roles: Vec<RoleName>,
    groups: Vec<GroupName>,
    permissions: Permissions,
    /// `token`, `session` or `agent`.
    via: &'static str,
    /// What the token is limited to; empty for all of the user's permissions.
    scopes: Vec<Scope>,
}

/// A login's answer, with its cookie.
pub struct LoggedIn {
    whoami: Whoami,
    cookie: HeaderValue,
}

/// A logout's answer, which takes the cookie back.
pub struct LoggedOut;

pub async fn login(call: Call, Json(credentials): Json<Credentials>) -> Result<LoggedIn, ApiError> {
    let identity = &call.app.identity;
    let client = call.client();
    let (caller, secret) = identity.login(&credentials.name, credentials.password, client.address).await?;
    let age = call.app.config.auth.session.0.as_secs();
    Ok(LoggedIn { whoami: whoami_of(identity, &caller), cookie: cookie(&secret, age, client.transport) })
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

pub async fn whoami(call: Call) -> Result<Json<Whoami>, ApiError> {
    Ok(Json(whoami_of(&call.app.identity, call.caller())))
}

fn whoami_of(identity: &Identity, caller: &Caller) -> Whoami {
    let user = &caller.user;
    Whoami {
        id: user.id,
        name: user.name.clone(),
        roles: RoleName::of(identity, &user.roles),
        groups: GroupName::of(identity, &user.groups),
        permissions: caller.permissions,
        via: caller.via.as_str(),
        scopes: caller.scopes().to_vec(),
    }
}

fn cookie(secret: &Secret, age: u64, transport: Transport) -> HeaderValue {
    let secure = match transport {
        Transport::Plain => "",
        Transport::Encrypted => "; Secure",
    };
    let text = format!("{COOKIE_NAME}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age={age}{secure}", secret.reveal());
    let mut cookie = HeaderValue::try_from(text).expect("base64url and plain words");
    cookie.set_sensitive(true);
    cookie
}

impl Output for LoggedIn {
    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<Whoami>())
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
