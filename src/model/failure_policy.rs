//! The choices of a sink for deliveries that fail: what becomes of the event, and of a receiver that says it is gone.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// The consequence of the last failed attempt at an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// The event becomes a dead letter, and the sink continues with the next.
    #[default]
    DeadLetter,
    /// The event stays at the head of the queue and is attempted until it is delivered.
    Hold,
}

/// The consequence of the status 410 of a webhook's receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnGone {
    /// The attempt failed like any other.
    #[default]
    Retry,
    /// The sink becomes inactive, and keeps its events.
    Pause,
}

impl OnFailure {
    /// Tells a choice that need not be written down.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl OnGone {
    /// Tells a choice that need not be written down.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for OnFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DeadLetter => "dead-letter",
            Self::Hold => "hold",
        })
    }
}

impl fmt::Display for OnGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Retry => "retry",
            Self::Pause => "pause",
        })
    }
}

impl FromStr for OnFailure {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = [Self::DeadLetter, Self::Hold].into_iter().find(|known| known.to_string() == text);
        known.ok_or_else(|| "expected dead-letter or hold".to_owned())
    }
}

impl FromStr for OnGone {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = [Self::Retry, Self::Pause].into_iter().find(|known| known.to_string() == text);
        known.ok_or_else(|| "expected retry or pause".to_owned())
    }
}
