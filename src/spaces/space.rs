//! The record of a space.

use crate::model::{
    event::EventSpace,
    id::{SpaceId, TemplateId, UserId},
    space_settings::{Driver, SpaceName, SpaceSettings},
    space_state::{SpaceHealth, SpaceState},
    timestamp::Timestamp,
};
use serde::{Deserialize, Serialize};

/// One space. It is stored as this JSON, beside the digest of its agent token and its pending events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Space {
    pub id: SpaceId,
    /// Unique among its owner's spaces. It never changes, because methods and scripts refer to it.
    pub name: SpaceName,
    pub owner: UserId,
    /// The template it was created from, which may have changed or been deleted since.
    pub template_id: Option<TemplateId>,
    pub driver: Driver,
    pub settings: SpaceSettings,
    pub state: SpaceState,
    /// For the driver `process`: true if the server runs the agent, now and after a restart.
    #[serde(default)]
    pub launched: bool,
    #[serde(default)]
    pub health: SpaceHealth,
    /// The machine of the last connected agent, by the name the agent gives it.
    #[serde(default)]
    pub node_id: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    #[serde(default)]
    pub stopped_at: Option<Timestamp>,
    /// The time at which `agent.lost` was raised; `None` once the agent is back or the space stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_lost_at: Option<Timestamp>,
}

impl Space {
    /// The URLs of its ports.
    pub fn urls(&self) -> Vec<String> {
        self.settings.urls()
    }

    /// The part of the space that its events carry.
    pub fn origin(&self) -> EventSpace {
        EventSpace { name: self.name.to_string(), urls: self.urls(), custom: self.settings.custom.clone() }
    }
}
