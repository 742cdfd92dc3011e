//! Subscriptions: methods that are called for events.

use super::sinks::QueueView;
use crate::model::id::{SinkId, SpaceId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Subscription")]
pub struct SubscriptionView {
    /// Stands for a sink's id wherever one is asked for: its dead letters, history.
    pub id: SinkId,
    pub space_id: SpaceId,
    /// The space's name.
    pub space: String,
    /// The method's canonical name.
    pub method: String,
    pub events: String,
    /// The json-rpc sinks that may shape events for it, in the order they are asked.
    pub event_sinks: Vec<String>,
    pub queue: QueueView,
    /// Whether the space serves the method now. While it does not, events wait.
    pub open: bool,
}

impl SubscriptionView {
    /// SPACE/METHOD, the name of the subscription wherever sinks are named.
    pub fn name(&self) -> String {
        format!("{}/{}", self.space, self.method)
    }
}
