//! Subscriptions: methods that are called for events.

use super::sinks::{FilterErrorsView, QueueView};
use crate::model::id::{SinkId, SpaceId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Subscription")]
pub struct SubscriptionView {
    /// Used like a sink's id, for dead letters and in history.
    pub id: SinkId,
    pub space_id: SpaceId,
    /// The space's name.
    pub space: String,
    /// The method's canonical name.
    pub method: String,
    pub events: String,
    /// The Lua expression that decides which of these events it gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// The errors of the filter since the server started or the filter was changed. Each counted as a match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter_errors: Option<FilterErrorsView>,
    /// The json-rpc sinks that may shape events for it, in order of preference.
    pub event_sinks: Vec<String>,
    pub queue: QueueView,
    /// True if the space serves the method now. While it does not, events wait.
    pub open: bool,
}

impl SubscriptionView {
    /// SPACE/METHOD, the name of the subscription wherever sinks are named.
    pub fn name(&self) -> String {
        format!("{}/{}", self.space, self.method)
    }
}
