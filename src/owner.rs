//! Whose a thing is: everybody's or one user's. Routes, sandboxes and stored values are kept apart by it.

use crate::id::UserId;
use serde::{Deserialize, Serialize};

/// The two kinds of owner (SPEC 2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// Fires for all spaces and every user's events.
    Global,
    /// Fires for this user's spaces and events only.
    User(UserId),
}

impl Owner {
    /// Whether an event of `user` concerns this owner's sinks.
    pub fn hears(self, user: UserId) -> bool {
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
