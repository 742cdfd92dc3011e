//! The records of users, roles, groups, tokens and sessions, in the form in which they are stored.

use super::{password::HashedPassword, secret::SecretDigest};
use crate::model::{
    event::{Actor, ActorKind},
    id::{GroupId, RoleId, TokenId, UserId},
    name::Name,
    permission::TokenScope,
    permissions::Permissions,
    timestamp::Timestamp,
};
use serde::{Deserialize, Serialize};

/// A person or service that calls the API.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct User {
    pub id: UserId,
    pub name: Name,
    /// `None` disables login; existing tokens stay valid.
    pub(super) password: Option<HashedPassword>,
    /// Somebody else chose the password, so that the user should change it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_first_password: bool,
    pub roles: Vec<RoleId>,
    pub groups: Vec<GroupId>,
    /// An inactive user and its tokens are kept but do not authenticate.
    pub active: bool,
    pub created_at: Timestamp,
}

/// A named set of permissions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Role {
    pub id: RoleId,
    pub name: Name,
    pub permissions: Permissions,
    pub created_at: Timestamp,
}

/// A set of users that a shared method can be limited to. The membership is stored in the users' records.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Group {
    pub id: GroupId,
    pub name: Name,
    pub created_at: Timestamp,
}

/// An API token. Only its digest is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Token {
    pub id: TokenId,
    pub user_id: UserId,
    pub name: String,
    /// Empty: everything its user may do.
    pub scopes: Vec<TokenScope>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
    pub(super) digest: SecretDigest,
}

/// A login, carried by a cookie.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Session {
    pub(super) digest: SecretDigest,
    pub user_id: UserId,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

impl User {
    /// This user as the actor of an event or an audit entry.
    pub fn actor(&self) -> Actor {
        self.actor_of_kind(ActorKind::User)
    }

    /// An agent that acts for this user.
    pub fn agent_actor(&self) -> Actor {
        self.actor_of_kind(ActorKind::Agent)
    }

    fn actor_of_kind(&self, kind: ActorKind) -> Actor {
        let id = uuid::Uuid::from_bytes(*self.id.as_bytes());
        Actor { id, username: self.name.to_string(), kind }
    }
}
