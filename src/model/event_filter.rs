//! The filter of a sink or subscription: a Lua expression over an event that its patterns match.
//!
//! `scripting` compiles and runs it.

use super::lua_source::MAX_FILTER;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// The text of a filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EventFilter(Box<str>);

/// The reason that a text cannot be a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EventFilterError {
    #[error("write a Lua expression such as `event.data.branch == \"main\"`, or leave it out")]
    Empty,
    #[error("has more than {MAX_FILTER} bytes: shorten it, or decide in a script sink")]
    TooLong,
}

impl EventFilter {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for EventFilter {
    type Err = EventFilterError;

    fn from_str(text: &str) -> Result<Self, EventFilterError> {
        if text.trim().is_empty() {
            return Err(EventFilterError::Empty);
        }
        if text.len() > MAX_FILTER {
            return Err(EventFilterError::TooLong);
        }
        Ok(Self(text.into()))
    }
}
