//! Spaces: workspaces that run an agent each, from creation to deletion, and the system events that tell of it.
//!
//! [`crate::model::space_settings`] holds what an owner decides about a space; [`Space`] is its record, [`records`] holds all of
//! them, and [`lifecycle`] leads each from state to state: `created → deployed → stopped → deployed …`, deleted from any.
//! [`outbox`] sees to it that no transition loses its event to a crash. [`template`] is what new spaces can be made of, [`process_driver`] runs the
//! agents of those spaces that the server looks after itself.
//!
//! The server's end of an agent's link calls [`Spaces::linked`], [`Spaces::checked`], [`Spaces::goodbye`] and
//! [`Spaces::unlinked`]; whoever keeps something for a space listens to each [`Change`].

mod index;
mod lifecycle;
mod outbox;
pub mod process_driver;
pub mod records;
pub mod template;
#[cfg(test)]
mod tests;

pub use lifecycle::Arrival;
pub use process_driver::Supervisor;
pub use records::{Change, NewSpace, SpaceError, Spaces, Vitals};
pub use template::{Template, TemplateError, Templates};

use crate::model::{
    event::EventSpace,
    id::{SpaceId, TemplateId, UserId},
    space_settings::{Driver, SpaceName, SpaceSettings},
    space_state::{SpaceHealth, SpaceState},
    timestamp::Timestamp,
};
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
    pub settings: SpaceSettings,
    pub state: SpaceState,
    /// For the driver `process`: whether the server is to run its agent, now and after a restart.
    #[serde(default)]
    pub launched: bool,
    #[serde(default)]
    pub health: SpaceHealth,
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

impl Space {
    /// Where its ports are reached.
    pub fn urls(&self) -> Vec<String> {
        self.settings.urls()
    }

    /// What its events carry of it.
    pub fn origin(&self) -> EventSpace {
        EventSpace { name: self.name.to_string(), urls: self.urls(), custom: self.settings.custom.clone() }
    }
}
