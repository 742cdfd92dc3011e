//! The six system events of a space's lifecycle: created, started, stopped, deleted, healthy and unhealthy; and the
//! internal event of an agent that is lost.
//!
//! An event is complete when its state changes and is stored with the new state; [`super::transition`] emits it
//! afterwards.

use super::space::Space;
use crate::{
    model::{
        event::{Actor, EventSpace, EventType},
        health_check::CheckResult,
        id::{EventId, SpaceId, UserId},
        space_state::SpaceHealth,
        timestamp::Timestamp,
    },
    routing::emit::NewEvent,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};

/// An event that has not been emitted yet, as it was when the state changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PendingEvent {
    id: EventId,
    /// Absent in records of older versions.
    #[serde(default)]
    raised_at: Option<Timestamp>,
    #[serde(rename = "type")]
    pub kind: EventType,
    actor: Actor,
    origin: EventSpace,
    payload: Box<RawValue>,
}

impl PendingEvent {
    /// Returns true if the event tells of a change of the space's health.
    pub fn is_about_health(&self) -> bool {
        matches!(self.kind.as_str(), "space.healthy" | "space.unhealthy")
    }

    pub fn created(space: &Space, actor: Actor) -> Self {
        let payload = json!({
            "space_name": space.name,
            "space_id": space.id,
            "space_urls": space.urls(),
            "template_id": space.template_id,
            "startup_script_id": space.settings.startup_script_id,
        });
        Self::new("space.created", space, actor, &payload)
    }

    pub fn started(space: &Space, actor: Actor) -> Self {
        let payload = json!({
            "space_name": space.name,
            "space_id": space.id,
            "space_urls": space.urls(),
            "node_id": space.node_id,
            "started_at": space.started_at,
        });
        Self::new("space.started", space, actor, &payload)
    }

    pub fn stopped(space: &Space, actor: Actor) -> Self {
        let payload = json!({"space_name": space.name, "space_id": space.id, "stopped_at": space.stopped_at});
        Self::new("space.stopped", space, actor, &payload)
    }

    pub fn deleted(space: &Space, actor: Actor, at: Timestamp) -> Self {
        let payload = json!({"space_name": space.name, "space_id": space.id, "deleted_at": at});
        Self::new("space.deleted", space, actor, &payload)
    }

    /// The event of a space whose health has just changed from `previous`.
    pub fn health_changed(
        space: &Space,
        actor: Actor,
        previous: SpaceHealth,
        failures: u32,
        result: &CheckResult,
    ) -> Self {
        let mut payload = json!({
            "space_name": space.name,
            "space_id": space.id,
            "previous": previous,
            "current": space.health,
            "checked_at": result.checked_at,
        });
        if space.health == SpaceHealth::Unhealthy {
            payload["consecutive_failures"] = failures.into();
            return Self::new("space.unhealthy", space, actor, &payload);
        }
        Self::new("space.healthy", space, actor, &payload)
    }

    /// The event of a space whose agent is away since `lost_at`.
    pub fn agent_lost(space: &Space, lost_at: Timestamp) -> Self {
        let payload = json!({
            "space_name": space.name,
            "space_id": space.id,
            "node_id": space.node_id,
            "lost_at": lost_at,
        });
        Self::new("agent.lost", space, Actor::system(), &payload)
    }

    fn new(kind: &str, space: &Space, actor: Actor, payload: &Value) -> Self {
        Self {
            id: EventId::new(),
            raised_at: Some(Timestamp::now()),
            kind: kind.parse().expect("the types of system events are legal"),
            actor,
            origin: space.origin(),
            payload: RawValue::from_string(payload.to_string()).expect("a value prints as JSON"),
        }
    }

    /// The event in the form that the emitter takes.
    pub fn new_event(&self, space: SpaceId, owner: UserId) -> NewEvent {
        let Self { id, raised_at, kind, actor, origin, payload } = self.clone();
        NewEvent { id: Some(id), raised_at, kind, space_id: space, space: Some(origin), user_id: owner, actor, payload }
    }
}
