//! The lifecycle state and the health of a space.
//!
//! States go `created → deployed → stopped → deployed …`; health goes `unknown → healthy ⇄ unhealthy`.
//! [`crate::spaces`] makes the transitions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The lifecycle state of a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "State")]
pub enum SpaceState {
    /// The agent has never connected.
    Created,
    /// The agent is running as far as the server knows: a broken connection alone does not change the state.
    Deployed,
    Stopped,
}

/// The health of a space, as its checks report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Health")]
pub enum SpaceHealth {
    /// The space has no check, is not deployed, or has too few results for a verdict.
    #[default]
    Unknown,
    Healthy,
    Unhealthy,
}

impl SpaceState {
    pub const ALL: [Self; 3] = [Self::Created, Self::Deployed, Self::Stopped];

    /// The name used in JSON and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Deployed => "deployed",
            Self::Stopped => "stopped",
        }
    }
}

impl SpaceHealth {
    /// The name used in JSON and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Healthy => "healthy",
            Self::Unhealthy => "unhealthy",
        }
    }
}

impl fmt::Display for SpaceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for SpaceHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for SpaceState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|known| known.to_string() == text);
        known.ok_or_else(|| format!("expected one of {}", Self::ALL.map(Self::as_str).join(", ")))
    }
}
