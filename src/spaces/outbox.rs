//! Emits the system events of spaces so that none is lost: an event is stored with the state it reports, emitted
//! afterwards, and removed once it is emitted.
//!
//! Events that a crash leaves are emitted at the next start under the same id, so that the queue stores them once.

use super::records::SpacesShared;
use crate::{
    model::id::SpaceId,
    platform::store::StoreError,
    routing::{emit::EmitError, queue::AcceptError},
};
use std::{sync::Arc, time::Duration};

/// The delay before events are emitted again that a full disk held back.
const EMIT_AGAIN: Duration = Duration::from_secs(5);

impl SpacesShared {
    /// Emits the pending events of a space, oldest first, and removes the emitted ones. The caller holds the space's lock.
    pub(super) async fn emit_pending(self: &Arc<Self>, id: SpaceId) {
        let Some((owner, outbox)) = self.read().pending_events(id) else { return };
        let mut done = 0;
        for pending in &outbox {
            match self.emitter.emit(pending.new_event(id, owner)).await {
                Ok(_) => {}
                Err(EmitError::Accept(AcceptError::Store(error))) => {
                    log::warn!("{} of space {id} waits to be emitted: {error}", pending.kind);
                    match error {
                        StoreError::DiskFull | StoreError::Unreadable(_) => self.emit_later(id),
                        // The next start emits it.
                        StoreError::Stopped(_) | StoreError::Closing => {}
                        // An event of this id is stored already, so it was emitted before.
                        StoreError::Damaged { .. } => {
                            done += 1;
                            continue;
                        }
                    }
                    break;
                }
                // A retry would fail too, and later events must not wait for this one.
                Err(error) => log::error!("{} of space {id} cannot be emitted: {error}", pending.kind),
            }
            done += 1;
        }
        if done > 0 {
            self.write().remove_emitted(id, done, &self.store);
        }
    }

    fn emit_later(self: &Arc<Self>, id: SpaceId) {
        if !self.write().emitting_later.insert(id) {
            return;
        }
        let weak = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(EMIT_AGAIN).await;
            let Some(shared) = weak.upgrade() else { return };
            let _changing = shared.changing.lock(&id).await;
            shared.write().emitting_later.remove(&id);
            shared.emit_pending(id).await;
        });
    }
}
