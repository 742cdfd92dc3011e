//! A sink that was checked, as it is stored.

use super::{Formatter, SinkScript, Webhook, webhook_secrets::WebhookSecrets};
use crate::model::{
    event_filter::EventFilter,
    id::{ScriptId, SinkId, SpaceId},
    owner::Owner,
    pattern::Patterns,
    sink_spec::SinkKind,
    timestamp::Timestamp,
};
use serde::{Deserialize, Serialize};

/// A checked sink. It is stored as this JSON.
#[derive(Debug, Serialize, Deserialize)]
pub struct Sink {
    pub id: SinkId,
    /// Unique among its owner's sinks.
    pub name: String,
    #[serde(default)]
    pub description: String,
    pub events: Patterns,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<EventFilter>,
    pub owner: Owner,
    /// The space whose agent made the sink, which is deleted with that space; `None` for a sink that a user made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<SpaceId>,
    /// An inactive sink keeps its queue and is not delivered to.
    pub active: bool,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub target: SinkTarget,
}

/// The destination of a sink, by kind.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SinkTarget {
    Webhook(Webhook),
    Script(SinkScript),
    JsonRpc(Formatter),
}

impl Sink {
    /// The same sink with its webhook's secrets to be encrypted anew, if they can be read.
    pub(super) fn with_new_secrets(&self) -> Self {
        let json = serde_json::to_vec(self).expect("records have string keys and no failing serializers");
        let mut copy: Self = serde_json::from_slice(&json).expect("a sink reads back as it was written");
        if let (SinkTarget::Webhook(webhook), SinkTarget::Webhook(new)) = (&self.target, &mut copy.target)
            && let Ok(clear) = webhook.secrets.read()
        {
            new.secrets = WebhookSecrets::new(clear.clone());
        }
        copy
    }

    /// Tells if events are queued for the sink. A formatter only shapes events for methods.
    pub fn receives_events(&self) -> bool {
        match self.target {
            SinkTarget::Webhook(_) | SinkTarget::Script(_) => true,
            SinkTarget::JsonRpc(_) => false,
        }
    }

    /// Returns the id of the stored script that the sink runs, if it runs one.
    pub fn script_id(&self) -> Option<ScriptId> {
        match self.target {
            SinkTarget::Script(SinkScript::Stored(id)) => Some(id),
            SinkTarget::Script(SinkScript::Source(_)) | SinkTarget::Webhook(_) | SinkTarget::JsonRpc(_) => None,
        }
    }

    /// Returns the URL of a webhook.
    pub fn url(&self) -> Option<&str> {
        match &self.target {
            SinkTarget::Webhook(webhook) => Some(&webhook.url),
            SinkTarget::Script(_) | SinkTarget::JsonRpc(_) => None,
        }
    }

    pub fn kind(&self) -> SinkKind {
        match self.target {
            SinkTarget::Webhook(_) => SinkKind::Webhook,
            SinkTarget::Script(_) => SinkKind::Script,
            SinkTarget::JsonRpc(_) => SinkKind::JsonRpc,
        }
    }
}
