//! Users, roles, groups, tokens, logging in, and the caller itself.

use super::lenient::Lenient;
use crate::model::{
    event::{Actor, ActorKind},
    id::{GroupId, RoleId, TokenId, UserId},
    name::Name,
    permission::{Permission, TokenScope},
    permissions::Permissions,
    timestamp::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The user or program that emitted an event or made a change.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Actor")]
pub struct ActorView {
    /// The user's id; the nil UUID for the service itself
    pub id: uuid::Uuid,
    /// The name it had then
    pub username: String,
    /// The kind of caller
    pub kind: Lenient<ActorKind>,
}

/// A whole user, to make or to replace one.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UserBody {
    pub name: Name,
    /// At least 8 characters. Without one the user cannot log in.
    pub password: Option<String>,
    /// Names or ids.
    #[serde(default)]
    pub roles: Vec<String>,
    /// Names or ids.
    #[serde(default)]
    pub groups: Vec<String>,
    #[serde(default = "active_by_default")]
    pub active: bool,
}

/// All fields of a user that is replaced.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UserReplacement {
    pub name: Name,
    /// At least 8 characters. Without one the present password stays.
    pub password: Option<String>,
    /// Names or ids.
    #[serde(default)]
    pub roles: Vec<String>,
    /// Names or ids.
    #[serde(default)]
    pub groups: Vec<String>,
    #[serde(default = "active_by_default")]
    pub active: bool,
    /// Revokes the user's API tokens, except one that this request carries. Agent tokens of the user's spaces stay.
    #[serde(default)]
    pub revoke_tokens: bool,
}

/// Some fields of a user; absent ones stay.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UserPatch {
    pub name: Option<Name>,
    pub password: Option<String>,
    pub roles: Option<Vec<String>>,
    pub groups: Option<Vec<String>>,
    pub active: Option<bool>,
    /// Revokes the user's API tokens, except one that this request carries. Agent tokens of the user's spaces stay.
    #[serde(default)]
    pub revoke_tokens: bool,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "User")]
pub struct UserView {
    pub id: UserId,
    pub name: Name,
    pub roles: Vec<RoleName>,
    pub groups: Vec<GroupName>,
    pub active: bool,
    pub created_at: Timestamp,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RoleBody {
    pub name: Name,
    pub permissions: Permissions,
}

/// Some fields of a role; absent ones stay.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RolePatch {
    pub name: Option<Name>,
    pub permissions: Option<Permissions>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Role")]
pub struct RoleView {
    pub id: RoleId,
    pub name: Name,
    pub permissions: Vec<Lenient<Permission>>,
    pub created_at: Timestamp,
}

/// A role as it is mentioned elsewhere.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct RoleName {
    pub id: RoleId,
    pub name: Name,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupBody {
    pub name: Name,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Group")]
pub struct GroupView {
    pub id: GroupId,
    pub name: Name,
    pub created_at: Timestamp,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupDeletion {
    /// Deletes a group that methods are limited to as well. Its members do not see them any more.
    #[serde(default)]
    pub force: bool,
}

/// A group as it is mentioned elsewhere.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct GroupName {
    pub id: GroupId,
    pub name: Name,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    pub name: String,
    /// The limits of the token; empty or absent for all of the user's permissions.
    #[serde(default)]
    pub scopes: Vec<TokenScope>,
    /// The time at which it expires. A token made with an expiring token expires no later than that one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Token")]
pub struct TokenView {
    pub id: TokenId,
    pub name: String,
    pub scopes: Vec<Lenient<TokenScope>>,
    pub created_at: Timestamp,
    /// The time of its last use. A restart may lose the last minute of it.
    pub last_used_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub struct IssuedToken {
    #[serde(flatten)]
    pub record: TokenView,
    /// The token itself. It is not kept and cannot be shown again.
    pub token: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    pub name: String,
    pub password: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPassword {
    pub current: String,
    pub new: String,
    /// Revokes the caller's API tokens, except one that this request carries.
    #[serde(default)]
    pub revoke_tokens: bool,
}

/// The caller.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Whoami")]
pub struct WhoamiView {
    pub id: UserId,
    pub name: Name,
    pub roles: Vec<RoleName>,
    pub groups: Vec<GroupName>,
    pub permissions: Vec<Lenient<Permission>>,
    /// `token`, `session` or `agent`.
    pub via: String,
    /// The limits of the token; empty for all of the user's permissions.
    pub scopes: Vec<Lenient<TokenScope>>,
    /// Somebody else chose the password, so that the user should change it.
    #[serde(default)]
    pub has_first_password: bool,
    /// The time at which the session or token expires; null if it does not.
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
    /// The zone of the server, and its version.
    #[serde(default)]
    pub zone: String,
    #[serde(default)]
    pub version: String,
}

impl From<Actor> for ActorView {
    fn from(actor: Actor) -> Self {
        let Actor { id, username, kind } = actor;
        Self { id, username, kind: kind.into() }
    }
}

const fn active_by_default() -> bool {
    true
}
