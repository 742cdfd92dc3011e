//! A sink that was checked, as it is stored.

use super::{
    Formatter, SinkScript, Webhook,
    webhook_secrets::{ClearSecrets, RotateError, WebhookSecrets},
    webhook_url::WebhookUrl,
};
use crate::{
    delivery::ReportedSink,
    model::{
        batch_spec::BatchSpec,
        event_filter::EventFilter,
        failure_policy::OnFailure,
        id::{ScriptId, SinkId, SpaceId},
        owner::Owner,
        pattern::Patterns,
        sink_spec::SinkKind,
        timestamp::Timestamp,
    },
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A checked sink. It is stored as this JSON.
#[derive(Debug, Serialize, Deserialize)]
pub struct Sink {
    pub id: SinkId,
    /// Unique among its owner's sinks.
    pub name: Box<str>,
    #[serde(default)]
    pub description: Box<str>,
    pub events: Patterns,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<EventFilter>,
    /// `*` among its patterns matches the service's own reports too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub internal: bool,
    #[serde(default, skip_serializing_if = "OnFailure::is_default")]
    pub on_failure: OnFailure,
    pub owner: Owner,
    /// The space whose agent made the sink, which is deleted with that space; `None` for a sink that a user made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<SpaceId>,
    /// An inactive sink keeps its queue and is not delivered to.
    pub active: bool,
    /// The reason for which the service itself made the sink inactive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Box<SinkPause>>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub target: SinkTarget,
}

/// The reason for which the service made a sink inactive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkPause {
    pub reason: String,
    pub at: Timestamp,
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
        self.with_secrets(self.webhook_secrets().and_then(|secrets| secrets.read().ok()).cloned())
    }

    /// The same sink with a new secret for its webhook; the present one stays beside it for `grace`.
    pub fn with_rotated_secret(&self, grace: Duration, now: Timestamp) -> Result<Self, RotateError> {
        let secrets = self.webhook_secrets().ok_or(RotateError::NoWebhook)?;
        let clear = secrets.read().map_err(|reason| RotateError::Lost(reason.clone()))?;
        let rotated = clear.rotated(grace, now)?;
        Ok(Self { updated_at: now, ..self.with_secrets(Some(rotated)) })
    }

    /// The same sink, inactive for this reason.
    pub fn paused(&self, reason: String, at: Timestamp) -> Self {
        Self {
            active: false,
            pause: Some(Box::new(SinkPause { reason, at })),
            updated_at: at,
            ..self.with_new_secrets()
        }
    }

    /// The same sink without a previous secret whose grace is over; `None` if it has none.
    pub(super) fn without_expired_secret(&self, now: Timestamp) -> Option<Self> {
        let clear = self.webhook_secrets()?.read().ok()?;
        let is_expired = clear.previous.is_some() && clear.valid_previous(now).is_none();
        is_expired.then(|| self.with_secrets(Some(ClearSecrets { previous: None, ..clear.clone() })))
    }

    /// The same sink with these secrets for its webhook, if it is one, to be encrypted.
    fn with_secrets(&self, clear: Option<ClearSecrets>) -> Self {
        let json = serde_json::to_vec(self).expect("records have string keys and no failing serializers");
        let mut copy: Self = serde_json::from_slice(&json).expect("a sink reads back as it was written");
        if let (SinkTarget::Webhook(webhook), Some(clear)) = (&mut copy.target, clear) {
            webhook.secrets = WebhookSecrets::new(clear);
        }
        copy
    }

    /// The end of the grace of the webhook's previous secret, if it has one.
    pub fn previous_secret_until(&self, now: Timestamp) -> Option<Timestamp> {
        Some(self.webhook_secrets()?.read().ok()?.valid_previous(now)?.until)
    }

    /// The public key of the webhook's asymmetric signatures, and the one before it with the end of its grace.
    pub fn public_keys(&self, now: Timestamp) -> Option<(String, Option<(String, Timestamp)>)> {
        let clear = self.webhook_secrets()?.read().ok()?;
        let previous = clear.valid_previous(now).and_then(|previous| {
            let key = previous.ed25519.as_ref()?;
            Some((key.public(), previous.until))
        });
        Some((clear.ed25519.as_ref()?.public(), previous))
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

    /// Returns the URL of a webhook, unless it is read for every delivery.
    pub fn url(&self) -> Option<&str> {
        match &self.target {
            SinkTarget::Webhook(Webhook { url: WebhookUrl::Own(url), .. }) => Some(url),
            SinkTarget::Webhook(_) | SinkTarget::Script(_) | SinkTarget::JsonRpc(_) => None,
        }
    }

    /// The batches of a webhook, if it has any.
    pub fn batch(&self) -> Option<BatchSpec> {
        match &self.target {
            SinkTarget::Webhook(webhook) => webhook.batch.as_deref().copied(),
            SinkTarget::Script(_) | SinkTarget::JsonRpc(_) => None,
        }
    }

    /// The sink as reports about it need it.
    pub fn reported(&self) -> ReportedSink<'_> {
        ReportedSink { id: self.id, name: &self.name, owner: self.owner }
    }

    pub fn kind(&self) -> SinkKind {
        match self.target {
            SinkTarget::Webhook(_) => SinkKind::Webhook,
            SinkTarget::Script(_) => SinkKind::Script,
            SinkTarget::JsonRpc(_) => SinkKind::JsonRpc,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sink_in_memory_stays_within_its_size_class_of_the_allocator() {
        // An `Arc` has two counters before its value, and jemalloc rounds up to 320 bytes. There may be 200,000 sinks.
        let room = 320 - 2 * size_of::<usize>();
        assert!(size_of::<Sink>() <= room, "{} bytes, and {room} fit", size_of::<Sink>());
    }
}
