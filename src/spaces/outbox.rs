//! The six system events (SPEC 6.1), and how none is lost: an event is written with the state it tells of, raised
//! after, and forgotten once it is raised. What a crash leaves is raised at the next start, under the same id, so that
//! raising it twice stores it once.

use super::{Space, records::Shared};
use crate::{
    model::{
        event::{Actor, EventSpace, EventType},
        health_check::CheckResult,
        id::{EventId, SpaceId, UserId},
        space_state::SpaceHealth,
        timestamp::Timestamp,
    },
    platform::store::StoreError,
    routing::{
        emit::{EmitError, NewEvent},
        queue::AcceptError,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};
use std::{sync::Arc, time::Duration};

/// When to raise again what could not be raised for want of room on the disk.
const RAISE_AGAIN: Duration = Duration::from_secs(5);

/// An event still to be raised, complete as it was when the state changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Pending {
    id: EventId,
    #[serde(rename = "type")]
    kind: EventType,
    actor: Actor,
    origin: EventSpace,
    payload: Box<RawValue>,
}

impl Pending {
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

    /// For a space whose health has just become what it is.
    pub fn judged(space: &Space, actor: Actor, previous: SpaceHealth, failures: u32, result: &CheckResult) -> Self {
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

    fn new(kind: &str, space: &Space, actor: Actor, payload: &Value) -> Self {
        Self {
            id: EventId::new(),
            kind: kind.parse().expect("our own types are legal"),
            actor,
            origin: space.origin(),
            payload: RawValue::from_string(payload.to_string()).expect("a value prints as JSON"),
        }
    }

    /// The event, for the emitter.
    fn raise(&self, space: SpaceId, owner: UserId) -> NewEvent {
        let Self { id, kind, actor, origin, payload } = self.clone();
        NewEvent { id: Some(id), kind, space_id: space, space: Some(origin), user_id: owner, actor, payload }
    }
}

impl Shared {
    /// Raises what the outbox of a space holds, oldest first, and forgets what was raised. The space's lane is held.
    pub(super) async fn raise_all(self: &Arc<Self>, id: SpaceId) {
        let Some((owner, outbox)) = self.read().unraised(id) else { return };
        let mut done = 0;
        for pending in &outbox {
            match self.emitter.emit(pending.raise(id, owner)).await {
                Ok(_) => {}
                Err(EmitError::Accept(AcceptError::Store(error))) => {
                    log::warn!("{} of space {id} waits to be raised: {error}", pending.kind);
                    match error {
                        StoreError::DiskFull | StoreError::Unreadable(_) => self.raise_later(id),
                        // The next start raises it.
                        StoreError::Stopped(_) | StoreError::Closing => {}
                        // An event of this id is stored already, so that it was raised before.
                        StoreError::Damaged { .. } => {
                            done += 1;
                            continue;
                        }
                    }
                    break;
                }
                // No later try would fare better, and what comes after must not wait for it.
                Err(error) => log::error!("{} of space {id} cannot be raised: {error}", pending.kind),
            }
            done += 1;
        }
        if done > 0 {
            self.write().forget_raised(id, done, &self.store);
        }
    }

    fn raise_later(self: &Arc<Self>, id: SpaceId) {
        if !self.write().raising_later.insert(id) {
            return;
        }
        let weak = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(RAISE_AGAIN).await;
            let Some(shared) = weak.upgrade() else { return };
            let _changing = shared.changing.turn(id.as_bytes()).await;
            shared.write().raising_later.remove(&id);
            shared.raise_all(id).await;
        });
    }
}
