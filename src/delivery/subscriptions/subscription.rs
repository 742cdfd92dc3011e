//! A subscription, as it is stored.

use crate::model::{
    event_filter::EventFilter,
    id::{SinkId, SpaceId, UserId},
    owner::Owner,
    pattern::Patterns,
    timestamp::Timestamp,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A method of a space that is called for events. It is stored as this JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Subscription {
    /// The id of its queue. A method that is removed and registered again gets a new one: the events of its old queue
    /// are lost for good, and history must not mistake one queue for the other.
    pub id: SinkId,
    pub space: SpaceId,
    pub space_name: Arc<str>,
    /// The space's owner. The subscription receives the events of this user.
    pub owner: UserId,
    /// The canonical name.
    pub method: Arc<str>,
    pub events: Patterns,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<EventFilter>,
    /// The json-rpc sinks that may shape events for the method, in order of preference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub event_sinks: Vec<String>,
    pub created_at: Timestamp,
}

impl Subscription {
    /// Returns the name shown to people. No sink's name has a slash.
    pub fn name(&self) -> String {
        format!("{}/{}", self.space_name, self.method)
    }

    /// Returns the owner whose events the subscription receives.
    pub fn event_owner(&self) -> Owner {
        Owner::User(self.owner)
    }
}
