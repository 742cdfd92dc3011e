//! Events: a checked type, an envelope with actor and space, and the payload as the raw JSON it arrived in, which is
//! never parsed again.

use crate::model::{
    id::{EventId, SpaceId, UserId},
    timestamp::Timestamp,
};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::value::RawValue;
use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc};

/// The longest event type, in bytes, the `custom.` prefix included.
pub const MAX_TYPE_BYTES: usize = 255;

/// A dot-separated event type such as `custom.deploy.done`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct EventType(Arc<str>);

/// The rule that a text breaks as an event type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EventTypeError {
    #[error("an event type must not be empty")]
    Empty,
    #[error("an event type has at most {MAX_TYPE_BYTES} bytes with its `custom.` prefix; this one has {0}")]
    TooLong(usize),
    #[error("empty segment at position {0}: an event type is segments of [A-Za-z0-9_-] separated by single dots")]
    EmptySegment(usize),
    #[error(
        "`{found}` at position {position} is not allowed: an event type is segments of [A-Za-z0-9_-] separated by dots"
    )]
    BadCharacter { found: char, position: usize },
}

impl EventType {
    /// The type of a user's event: `custom.` is always prepended, even to a name that starts with it. Positions in
    /// errors count from 1 within `name`.
    pub fn custom(name: &str) -> Result<Self, EventTypeError> {
        check_type(name)?;
        let full = format!("custom.{name}");
        if full.len() > MAX_TYPE_BYTES {
            return Err(EventTypeError::TooLong(full.len()));
        }
        Ok(Self(full.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Tells the service's own reports about sinks, sources and agents. The pattern `*` alone does not match them.
    pub fn is_report(&self) -> bool {
        matches!(self.segments().next(), Some("sink" | "source" | "agent"))
    }

    /// The parts between the dots, along which the matcher walks.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.0.split('.')
    }
}

impl FromStr for EventType {
    type Err = EventTypeError;

    fn from_str(text: &str) -> Result<Self, EventTypeError> {
        check_type(text)?;
        Ok(Self(text.into()))
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for EventType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// The user, agent or service that emitted an event or made a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// The user's id; the nil UUID for the service itself.
    pub id: uuid::Uuid,
    pub username: String,
    pub kind: ActorKind,
}

impl Actor {
    /// The service itself.
    pub fn system() -> Self {
        Self { id: uuid::Uuid::nil(), username: "svc".to_owned(), kind: ActorKind::System }
    }
}

/// The kind of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActorKind {
    /// A user, through an API token or a session.
    User,
    /// An agent, on behalf of its space's owner.
    Agent,
    /// The service itself.
    System,
}

impl ActorKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Agent => "agent",
            Self::System => "system",
        }
    }
}

impl fmt::Display for ActorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The part of an event's space that templates and scripts read, as it was when the event was emitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventSpace {
    pub name: String,
    #[serde(default)]
    pub urls: Vec<String>,
    /// The custom fields of the space's template.
    #[serde(default)]
    pub custom: BTreeMap<String, String>,
}

/// One event with id and time, ready to route. It is stored as this JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Event {
    pub id: EventId,
    #[serde(rename = "type")]
    pub kind: EventType,
    pub ts: Timestamp,
    pub zone: Arc<str>,
    /// [`SpaceId::NIL`] for events emitted through the server's API.
    pub space_id: SpaceId,
    /// The owner: the event reaches this user's sinks and the global ones.
    pub user_id: UserId,
    pub actor: Actor,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<EventSpace>,
    /// The payload, a JSON object, byte for byte as it was emitted.
    pub data: Box<RawValue>,
}

fn check_type(text: &str) -> Result<(), EventTypeError> {
    if text.is_empty() {
        return Err(EventTypeError::Empty);
    }
    if text.len() > MAX_TYPE_BYTES {
        return Err(EventTypeError::TooLong(text.len()));
    }
    let mut after_dot = true;
    for (position, found) in text.chars().enumerate() {
        match found {
            '.' if after_dot => return Err(EventTypeError::EmptySegment(position + 1)),
            '.' => after_dot = true,
            'A'..='Z' | 'a'..='z' | '0'..='9' | '_' | '-' => after_dot = false,
            _ => return Err(EventTypeError::BadCharacter { found, position: position + 1 }),
        }
    }
    if after_dot {
        return Err(EventTypeError::EmptySegment(text.chars().count() + 1));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn custom_is_prepended_even_to_a_name_that_starts_with_it() {
        assert_eq!(EventType::custom("space.created").unwrap().as_str(), "custom.space.created");
        assert_eq!(EventType::custom("custom.a").unwrap().as_str(), "custom.custom.a");
    }

    #[test]
    fn a_type_outside_the_rules_is_refused_with_its_position() {
        for (text, error) in [
            ("", EventTypeError::Empty),
            (".a", EventTypeError::EmptySegment(1)),
            ("a..b", EventTypeError::EmptySegment(3)),
            ("a.", EventTypeError::EmptySegment(3)),
            ("a.é", EventTypeError::BadCharacter { found: 'é', position: 3 }),
            ("a b", EventTypeError::BadCharacter { found: ' ', position: 2 }),
            ("a.*", EventTypeError::BadCharacter { found: '*', position: 3 }),
        ] {
            assert_eq!(EventType::custom(text), Err(error), "{text}");
        }
    }

    #[test]
    fn a_type_holds_255_bytes_with_its_prefix_and_no_more() {
        assert!(EventType::custom(&"a".repeat(248)).is_ok());
        assert_eq!(EventType::custom(&"a".repeat(249)), Err(EventTypeError::TooLong(256)));
    }
}
