//! The outbox of a space: events that are written with the change that they tell of, and removed once they are emitted,
//! so that a crash loses none.
//!
//! They are emitted in their order. One that finds no room holds up those behind it, and is emitted again after a
//! while.

use super::{records::SpacesState, row::SpaceRow, system_events::PendingEvent};
use crate::{
    model::id::SpaceId,
    platform::{
        collection::{Changes, Precondition},
        task,
    },
    routing::emit::EmitRetry,
};
use std::{sync::Arc, time::Duration};

/// Pause before events that found no room on the disk are emitted again.
const EMIT_AGAIN: Duration = Duration::from_secs(5);

/// Events of one space that wait for room. Beyond that, the oldest change of its health is left out, or the oldest
/// event if none of them is one: those after it tell the present state.
const MAX_OUTBOX: usize = 100;

/// The events of a space that wait, with a further one.
pub(super) fn with_event(outbox: &[PendingEvent], event: Option<PendingEvent>) -> Vec<PendingEvent> {
    let mut waiting = outbox.to_vec();
    let Some(event) = event else { return waiting };
    if waiting.len() >= MAX_OUTBOX {
        let oldest = waiting.iter().position(PendingEvent::is_about_health).unwrap_or(0);
        let left_out = waiting.remove(oldest);
        log::warn!("{} of a space is left out: {MAX_OUTBOX} events of it wait for room", left_out.kind);
    }
    waiting.push(event);
    waiting
}

impl SpacesState {
    /// Emits the events in the outbox of a space, oldest first, and removes those that were emitted. The space is
    /// locked.
    pub(super) async fn emit_pending(self: &Arc<Self>, id: SpaceId) {
        let pending = self.records.get_revision(id).filter(|(row, _)| !row.outbox.is_empty());
        let Some((row, revision)) = pending else { return };
        let mut emitted = 0;
        for pending in &row.outbox {
            if let Err(error) = self.emitter.emit(pending.new_event(id, row.space.owner)).await {
                let retry = error.retry();
                if retry != EmitRetry::Never {
                    log::warn!("{} of space {id} waits to be emitted: {error}", pending.kind);
                    // After a restart, the start emits it.
                    if retry != EmitRetry::AfterRestart {
                        self.emit_later(id);
                    }
                    break;
                }
                // The events after it must not wait for it.
                log::error!("{} of space {id} cannot be emitted: {error}", pending.kind);
            }
            emitted += 1;
        }
        if emitted == 0 {
            return;
        }
        let outbox = row.outbox[emitted..].to_vec();
        let read = Precondition::Revision(revision);
        let changes = if row.deleted && outbox.is_empty() {
            Changes::new().delete(id, read)
        } else {
            Changes::new().put(SpaceRow { outbox, ..SpaceRow::clone(&row) }, read)
        };
        // Nobody waits for the disk: an event that is emitted again is stored once.
        if let Err(error) = self.records.commit_soon(changes).await {
            log::warn!("the emitted events of space {id} are not removed from its outbox: {error}");
        }
    }

    fn emit_later(self: &Arc<Self>, id: SpaceId) {
        if !self.agents.write().emitting_later.insert(id) {
            return;
        }
        let weak = Arc::downgrade(self);
        task::spawn(async move {
            tokio::time::sleep(EMIT_AGAIN).await;
            let Some(state) = weak.upgrade() else { return };
            let _changing = state.changing.lock(&id).await;
            state.agents.write().emitting_later.remove(&id);
            state.emit_pending(id).await;
        });
    }
}
