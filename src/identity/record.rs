//! What is kept about users, roles, groups, tokens and sessions: the records as they are on disk.

use super::{Digest, Name, Permissions, password::Hash};
use crate::model::{
    event::{Actor, ActorKind},
    id::{GroupId, RoleId, TokenId, UserId},
    permission::TokenScope,
    timestamp::Timestamp,
};
use serde::{Deserialize, Serialize};

/// A person or a service that calls us.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct User {
    pub id: UserId,
    pub name: Name,
    /// Without one there is no login, only tokens made earlier.
    pub(super) password: Option<Hash>,
    pub roles: Vec<RoleId>,
    pub groups: Vec<GroupId>,
    /// An inactive user is kept, and so are the tokens, but neither opens anything.
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

/// A set of users that a shared method can be limited to; its members are on the users' side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Group {
    pub id: GroupId,
    pub name: Name,
    pub created_at: Timestamp,
}

/// An API token. The token itself is nowhere, only its digest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Token {
    pub id: TokenId,
    pub user_id: UserId,
    pub name: String,
    /// Empty: all its user may do.
    pub scopes: Vec<TokenScope>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
    pub(super) digest: Digest,
}

/// A login, carried by a cookie.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Session {
    pub(super) digest: Digest,
    pub user_id: UserId,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

impl User {
    /// This user as the one who raised an event or changed something.
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
