//! What is kept about users, roles, groups, tokens and sessions: the records as they are on disk.

use super::{Digest, Permissions, password::Hash};
use crate::model::{
    event::{Actor, ActorKind},
    id::{GroupId, RoleId, TokenId, UserId},
    permission::Scope,
    timestamp::Timestamp,
};
use serde::{Deserialize, Deserializer, Serialize, de};
use std::{fmt, str::FromStr};

/// The longest name, in bytes.
const LONGEST_NAME: usize = 64;

/// The name of a user, a role or a group. It is part of method names and of command lines, hence so plain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Name(String);

/// Why a text is no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a name is 1 to {LONGEST_NAME} of [A-Za-z0-9_.-] and begins with a letter or digit")]
pub struct NameError;

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
    pub scopes: Vec<Scope>,
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

impl Name {
    pub fn as_str(&self) -> &str {
        &self.0
    }
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
        Actor { id, username: self.name.0.clone(), kind }
    }
}

/// So that a map with names for keys can be asked for a text.
impl std::borrow::Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let starts = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
        if starts && plain && text.len() <= LONGEST_NAME { Ok(Self(text.to_owned())) } else { Err(NameError) }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_plain_and_short() {
        for good in ["a", "9", "ada.lovelace_2-x", &"a".repeat(64)] {
            assert!(good.parse::<Name>().is_ok(), "{good}");
        }
        for bad in ["", ".a", "-a", "_a", "a b", "é", "a/b", &"a".repeat(65)] {
            assert_eq!(bad.parse::<Name>(), Err(NameError), "{bad}");
        }
    }
}
