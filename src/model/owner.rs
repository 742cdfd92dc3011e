//! Owners: a record belongs to one user or is global. Routes, sandboxes and stored values are separated by owner.

use crate::model::id::UserId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// The owner of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// Applies to all spaces and every user's events.
    Global,
    /// Applies to this user's spaces and events only.
    User(UserId),
}

/// An owner as a caller writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OwnerSpec {
    #[default]
    Me,
    Global,
}

impl OwnerSpec {
    /// The owner that `user` means by this.
    pub const fn of(self, user: UserId) -> Owner {
        match self {
            Self::Me => Owner::User(user),
            Self::Global => Owner::Global,
        }
    }
}

impl OwnerSpec {
    /// The name used in JSON and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Me => "me",
            Self::Global => "global",
        }
    }
}

impl fmt::Display for OwnerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for OwnerSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = [Self::Me, Self::Global].into_iter().find(|owner| owner.as_str() == text);
        known.ok_or_else(|| "expected me or global".to_owned())
    }
}

impl From<Owner> for OwnerSpec {
    fn from(owner: Owner) -> Self {
        match owner {
            Owner::Global => Self::Global,
            Owner::User(_) => Self::Me,
        }
    }
}

impl Owner {
    /// Returns true if records of this owner can use a record of `other`: its own and global ones.
    pub fn can_use(self, other: Self) -> bool {
        other == Self::Global || other == self
    }

    /// Returns true if this owner's sinks receive events of `user`.
    pub fn receives_events_of(self, user: UserId) -> bool {
        match self {
            Self::Global => true,
            Self::User(owner) => owner == user,
        }
    }

    /// A byte key for the store: one fixed length, so that no owner's key is a prefix of another's.
    pub fn key(self) -> [u8; 17] {
        let mut key = [0; 17];
        if let Self::User(user) = self {
            key[0] = 1;
            key[1..].copy_from_slice(user.as_bytes());
        }
        key
    }
}
