//! Whose a thing is: everybody's or one user's. Routes, sandboxes and stored values are kept apart by it.

use crate::model::id::UserId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// The two kinds of owner (SPEC 2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// Fires for all spaces and every user's events.
    Global,
    /// Fires for this user's spaces and events only.
    User(UserId),
}

/// Whose a thing shall be, as a caller says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OwnerSpec {
    #[default]
    Me,
    Global,
}

impl OwnerSpec {
    /// Whose it is if `user` says so.
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
    /// Whether what belongs to `other` can be used by what belongs to this owner: its own, and what is everybody's.
    pub fn can_use(self, other: Self) -> bool {
        other == Self::Global || other == self
    }

    /// Whether an event of `user` concerns this owner's sinks.
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
