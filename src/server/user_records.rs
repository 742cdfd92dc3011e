//! Deletion of everything that belongs to a user: spaces, sinks, sources, stored scripts and the scripts' key-value
//! data.
//!
//! A user's records are deleted after the user, so that a refused deletion of the user costs nothing. A crash between
//! the two leaves orphans, which [`UserRecords::delete_orphans`] finds later. Without this, agents would go on running
//! and queued events would be delivered in a name that no longer exists. The sinks that an agent made are deleted with
//! its space in the same way: a stolen agent token must gain nothing that outlives the space.

use super::audit_entries::{script_entry, sink_entry, source_entry};
use crate::{
    delivery::sinks::{Sinks, SinksError},
    identity::{Caller, Identity},
    model::{
        event::Actor,
        id::{SpaceId, UserId},
        owner::Owner,
    },
    platform::{
        audit::{Audit, AuditEntry, AuditRoom},
        kv::Kv,
        store::StoreError,
    },
    scripting::scripts::{Scripts, ScriptsError},
    sources::{Sources, SourcesError},
    spaces::{SpaceError, Spaces},
};
use serde_json::json;

/// Reasons of the deletion of an orphan.
const USER_DELETED: &str = "its user was deleted";
const SPACE_DELETED: &str = "its space was deleted";

/// The stores in which a user owns records.
#[derive(Clone)]
pub struct UserRecords {
    pub identity: Identity,
    pub spaces: Spaces,
    pub sinks: Sinks,
    pub sources: Sources,
    pub scripts: Scripts,
    pub kv: Kv,
}

/// Failure to delete a user's records.
#[derive(Debug, thiserror::Error)]
pub enum UserRecordsError {
    #[error(transparent)]
    Space(#[from] SpaceError),
    #[error(transparent)]
    Sink(#[from] SinksError),
    #[error(transparent)]
    Source(#[from] SourcesError),
    #[error(transparent)]
    Script(#[from] ScriptsError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl UserRecords {
    /// Deletes what belonged to a user whom `caller` has just deleted.
    ///
    /// # Errors
    ///
    /// Stops at the first record that cannot be deleted. The remaining ones are deleted later as orphans.
    pub async fn delete_of(&self, caller: &Caller, user: UserId) -> Result<(), UserRecordsError> {
        for space in self.spaces.of(user) {
            deleted(self.spaces.delete(caller.actor(), space.id).await)?;
        }
        for sink in self.sinks.visible_to(&[Owner::User(user)]) {
            let entry = sink_entry(caller.actor(), "sink.delete", &sink).in_room(caller.audit_room());
            deleted(self.sinks.delete(sink.id, move |batch| Audit::record(batch, &entry)).await)?;
        }
        for source in self.sources.of(Owner::User(user)) {
            let entry = source_entry(caller.actor(), "source.delete", &source).in_room(caller.audit_room());
            deleted(self.sources.delete(source.id, move |batch| Audit::record(batch, &entry)).await)?;
        }
        for script in self.scripts.of(Owner::User(user)) {
            let entry = script_entry(caller.actor(), "script.delete", &script).in_room(caller.audit_room());
            deleted(self.scripts.delete(script.id, move |batch| Audit::record(batch, &entry)).await)?;
        }
        // Last, when no script of the user is left to write to it. A run that has not ended yet may: orphans.
        self.kv.forget(Owner::User(user)).await?;
        Ok(())
    }

    /// Deletes a space, and then the sinks that its agent made.
    ///
    /// # Errors
    ///
    /// Stops at the first record that cannot be deleted. Remaining sinks are deleted later as orphans.
    pub async fn delete_space(&self, caller: &Caller, space: SpaceId) -> Result<(), UserRecordsError> {
        self.spaces.delete(caller.actor(), space).await?;
        for sink in self.sinks.all().into_iter().filter(|sink| sink.space == Some(space)) {
            let entry = sink_entry(caller.actor(), "sink.delete", &sink).in_room(caller.audit_room());
            deleted(self.sinks.delete(sink.id, move |batch| Audit::record(batch, &entry)).await)?;
        }
        Ok(())
    }

    /// Deletes spaces, sinks, sources, scripts and key-value data whose user, or whose space, does not exist any more.
    /// Failures are logged; the next run tries again.
    pub async fn delete_orphans(&self) {
        for space in self.spaces.all().into_iter().filter(|space| self.is_orphan(Owner::User(space.owner))) {
            if let Err(error) = self.spaces.delete(Actor::system(), space.id).await {
                log::warn!("space {} of a deleted user stays for now: {error}", space.id);
            }
        }
        for sink in self.sinks.all() {
            let (reason, room) = if self.is_orphan(sink.owner) {
                (USER_DELETED, AuditRoom::Administrative)
            } else if sink.space.is_some_and(|space| self.spaces.get(space).is_none()) {
                (SPACE_DELETED, AuditRoom::Ordinary)
            } else {
                continue;
            };
            let entry = orphan_entry("sink.delete", format!("sink:{}", sink.id), &sink.name, reason).in_room(room);
            if let Err(error) = self.sinks.delete(sink.id, move |batch| Audit::record(batch, &entry)).await {
                log::warn!("sink {} stays for now, although {reason}: {error}", sink.id);
            }
        }
        for source in self.sources.all().into_iter().filter(|source| self.is_orphan(source.owner)) {
            let entry = orphan_entry("source.delete", format!("source:{}", source.id), &source.slug, USER_DELETED);
            let entry = entry.in_room(AuditRoom::Administrative);
            if let Err(error) = self.sources.delete(source.id, move |batch| Audit::record(batch, &entry)).await {
                log::warn!("source {} of a deleted user stays for now: {error}", source.id);
            }
        }
        for script in self.scripts.all().into_iter().filter(|script| self.is_orphan(script.owner)) {
            let entry = orphan_entry("script.delete", format!("script:{}", script.id), &script.name, USER_DELETED);
            let entry = entry.in_room(AuditRoom::Administrative);
            if let Err(error) = self.scripts.delete(script.id, move |batch| Audit::record(batch, &entry)).await {
                log::warn!("script {} of a deleted user stays for now: {error}", script.id);
            }
        }
        for owner in self.kv.owners().into_iter().filter(|owner| self.is_orphan(*owner)) {
            if let Err(error) = self.kv.forget(owner).await {
                log::warn!("key-value data of a deleted user stay for now: {error}");
            }
        }
    }

    fn is_orphan(&self, owner: Owner) -> bool {
        matches!(owner, Owner::User(user) if self.identity.user(user).is_none())
    }
}

/// The outcome of a deletion. Somebody else may have deleted the record meanwhile.
fn deleted<T>(outcome: Result<T, impl Into<UserRecordsError>>) -> Result<(), UserRecordsError> {
    match outcome.map_err(Into::into) {
        Ok(_)
        | Err(
            UserRecordsError::Space(SpaceError::NotFound)
            | UserRecordsError::Sink(SinksError::NotFound(_))
            | UserRecordsError::Source(SourcesError::NotFound(_))
            | UserRecordsError::Script(ScriptsError::NotFound),
        ) => Ok(()),
        Err(error) => Err(error),
    }
}

fn orphan_entry(action: &str, object: String, name: &str, reason: &str) -> AuditEntry {
    AuditEntry::new(None, action, object).with(json!({"name": name, "reason": reason}))
}
