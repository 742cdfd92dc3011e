//! Ids. Each kind is its own type, so that a sink's id cannot be passed for an event's. All are UUIDs; generated ones
//! are version 7 and sort by time.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use uuid::Uuid;

/// The error for a text that is no id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an id is a UUID, such as 01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a77")]
pub struct InvalidId;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// Generates an id that sorts after every earlier one of this process.
            #[allow(clippy::new_without_default, reason = "a default id would not be a constant")]
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }

            /// The sixteen bytes that store keys are built from.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }

            /// The inverse of [`Self::as_bytes`]; `None` unless there are sixteen bytes.
            pub fn from_slice(bytes: &[u8]) -> Option<Self> {
                Uuid::from_slice(bytes).ok().map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self).map_err(|_| InvalidId)
            }
        }
    )*};
}

ids! {
    /// A person or service that calls the API.
    UserId
    /// A named set of permissions.
    RoleId
    /// A set of users that a shared method can be limited to.
    GroupId
    /// An API token's record; the secret itself is never an id.
    TokenId
    /// A destination of events.
    SinkId
    /// One event. Consumers de-duplicate by it.
    EventId
    /// A workspace that runs an agent.
    SpaceId
    /// A template of new spaces.
    TemplateId
    /// A script kept on the server.
    ScriptId
    /// An address that takes requests of other services.
    SourceId
    /// A request that a source could not turn into events.
    SourceLetterId
    /// A job that queues events of the history again.
    ReplayId
    /// One line of the audit log.
    AuditId
}

impl EventId {
    /// The id that follows from a text, the same for the same text. It is a UUID of version 8.
    pub fn derived(digest: &[u8; 32]) -> Self {
        let mut bytes = *digest.first_chunk::<16>().expect("a digest has 32 bytes");
        bytes[6] = bytes[6] & 0x0f | 0x80;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Self(Uuid::from_bytes(bytes))
    }

    /// The id of no event. An emitter cannot choose it.
    pub const NIL: Self = Self(Uuid::nil());
}

impl UserId {
    /// The user of events that belong to nobody, which reach global sinks alone.
    pub const NIL: Self = Self(Uuid::nil());
}

impl SpaceId {
    /// The space id of events that come from no space.
    pub const NIL: Self = Self(Uuid::nil());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_bytes_and_text() {
        let id = EventId::new();
        assert_eq!(EventId::from_slice(id.as_bytes()), Some(id));
        assert_eq!(id.to_string().parse::<EventId>(), Ok(id));
        assert_eq!(EventId::from_slice(b"short"), None);
    }

    #[test]
    fn the_nil_space_is_all_zeros() {
        assert_eq!(SpaceId::NIL.to_string(), "00000000-0000-0000-0000-000000000000");
    }
}
