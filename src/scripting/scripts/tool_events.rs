//! Emits the events of tools, as the user who runs the tool and under the rules of the HTTP API: the user needs the
//! permission to use spaces, and the type becomes `custom.…`.

use crate::{
    identity::Identity,
    model::{event::EventType, id::SpaceId, owner::Owner},
    routing::emit::{Emitter, NewEvent},
    scripting::lua::EventEmitter,
};
use futures_util::{FutureExt, future::BoxFuture};
use serde_json::{json, value::RawValue};
use std::sync::Arc;

/// Emits events for tools. Cloning it is cheap.
#[derive(Clone)]
pub struct ToolEventEmitter {
    emitter: Arc<Emitter>,
    identity: Identity,
}

impl ToolEventEmitter {
    pub fn new(emitter: Arc<Emitter>, identity: Identity) -> Self {
        Self { emitter, identity }
    }

    async fn emit_as(&self, owner: Owner, kind: &str, payload: Box<RawValue>) -> Result<Box<RawValue>, String> {
        let user = match owner {
            Owner::User(user) => self.identity.user(user).ok_or("the user is gone")?,
            Owner::Global => return Err("an event needs a user, and no user runs this".to_owned()),
        };
        if !self.identity.may_emit(user.id) {
            return Err("raising an event needs the permission use_spaces".to_owned());
        }
        let event = NewEvent {
            id: None,
            raised_at: None,
            kind: EventType::custom(kind).map_err(|error| format!("the type: {error}"))?,
            space_id: SpaceId::NIL,
            space: None,
            user_id: user.id,
            actor: user.actor(),
            payload,
        };
        let receipt = self.emitter.emit(event).await.map_err(|error| error.to_string())?;
        let event = &receipt.event;
        let description = json!({"event_id": event.id, "event_type": event.kind.as_str(), "event_ts": event.ts});
        Ok(serde_json::value::to_raw_value(&description).expect("ids, names and timestamps are JSON"))
    }
}

impl EventEmitter for ToolEventEmitter {
    fn emit(
        &self,
        owner: Owner,
        kind: &str,
        payload: Box<RawValue>,
    ) -> BoxFuture<'static, Result<Box<RawValue>, String>> {
        let (this, kind) = (self.clone(), kind.to_owned());
        async move { this.emit_as(owner, &kind, payload).await }.boxed()
    }
}
