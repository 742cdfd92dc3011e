//! Spaces: workspaces that run an agent each, from creation to deletion, and the system events that tell of it.
//!
//! [`settings`] and [`health`] are what an owner decides about a space, [`Space`] is its record, [`records`] holds all of
//! them, and [`lifecycle`] leads each from state to state: `created → deployed → stopped → deployed …`, deleted from any.
//! [`outbox`] sees to it that no transition loses its event to a crash. [`template`] is what new spaces can be made of, [`process_driver`] runs the
//! agents of those spaces that the server looks after itself.
//!
//! The server's end of an agent's link calls [`Spaces::linked`], [`Spaces::checked`], [`Spaces::goodbye`] and
//! [`Spaces::unlinked`]; whoever keeps something for a space listens to each [`Change`].

pub mod health;
mod index;
mod lifecycle;
mod outbox;
pub mod process_driver;
pub mod records;
pub mod settings;
pub mod template;
#[cfg(test)]
mod tests;

pub use health::{CheckResult, Health, HealthCheck, Probe};
pub use lifecycle::Arrival;
pub use process_driver::Supervisor;
pub use records::{Change, NewSpace, SpaceError, Spaces, Vitals};
pub use settings::{Driver, Host, Port, Protocol, Settings, SettingsError, SpaceName};
pub use template::{Template, TemplateError, TemplateSpec, Templates};

use crate::model::{
    event::Origin,
    id::{SpaceId, TemplateId, UserId},
    timestamp::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One space. It is stored as this JSON, with its agent's digest and its outbox beside it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Space {
    pub id: SpaceId,
    /// Unique among its owner's spaces, and for good: methods and scripts go by it.
    pub name: SpaceName,
    pub owner: UserId,
    /// What it was made of. The template may be another by now, or gone.
    pub template_id: Option<TemplateId>,
    pub driver: Driver,
    pub settings: Settings,
    pub state: State,
    /// For the driver `process`: whether the server is to run its agent, now and after a restart.
    #[serde(default)]
    pub launched: bool,
    #[serde(default)]
    pub health: Health,
    /// The machine its agent was last linked from, as the agent calls it.
    #[serde(default)]
    pub node_id: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    #[serde(default)]
    pub stopped_at: Option<Timestamp>,
}

/// How far a space has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Its agent has never been there.
    Created,
    /// Its agent runs, as far as anybody knows: a broken link alone changes nothing.
    Deployed,
    Stopped,
}

impl State {
    pub const ALL: [Self; 3] = [Self::Created, Self::Deployed, Self::Stopped];

    /// The word used in JSON and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Deployed => "deployed",
            Self::Stopped => "stopped",
        }
    }
}

impl Space {
    /// Where its ports are reached.
    pub fn urls(&self) -> Vec<String> {
        self.settings.urls()
    }

    /// What its events carry of it.
    pub fn origin(&self) -> Origin {
        Origin { name: self.name.to_string(), urls: self.urls(), custom: self.settings.custom.clone() }
    }
}
