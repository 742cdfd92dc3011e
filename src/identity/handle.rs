//! The [`Identity`] handle and the one way in which its records change.
//!
//! A change is decided against memory, written with its audit entry in one batch, and applied to memory once it is on
//! disk. Changes are made one at a time.

use super::{
    error::IdentityError,
    login_throttle::LoginThrottle,
    password::PasswordHashing,
    state::{IdentityState, RecordWrite},
};
use crate::platform::{
    audit::{Audit, AuditEntry},
    run_to_completion::run_to_completion,
    store::Store,
};
use parking_lot::{RwLock, RwLockReadGuard};
use std::{sync::Arc, time::Duration};
use tokio::sync::{Mutex, watch};

/// All users, roles, groups and credentials. Cloning the handle is cheap.
#[derive(Clone)]
pub struct Identity(pub(super) Arc<IdentityShared>);

pub(super) struct IdentityShared {
    pub store: Store,
    pub audit: Audit,
    /// The duration of a login.
    pub session: Duration,
    pub state: RwLock<IdentityState>,
    /// Held from the decision on a change until it is in memory.
    pub change_lock: Mutex<()>,
    pub changed: watch::Sender<()>,
    pub passwords: PasswordHashing,
    pub login_throttle: LoginThrottle,
}

/// A change that has been decided: the records to write, the audit entry, and the value to return to the caller.
pub(super) struct DecidedChange<T> {
    pub writes: Vec<RecordWrite>,
    pub entry: AuditEntry,
    pub value: T,
}

impl Identity {
    /// Makes one change: `decide` sees the result of every change before it; then the change is written and applied. A
    /// change without writes leaves no audit entry.
    ///
    /// # Errors
    ///
    /// Fails if `decide` does, if the change would leave no administrator, or if the store cannot be written; nothing
    /// changes then.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        decide: impl FnOnce(&IdentityState) -> Result<DecidedChange<T>, IdentityError> + Send + 'static,
    ) -> Result<T, IdentityError> {
        let identity = self.clone();
        run_to_completion(async move {
            let _lock = identity.0.change_lock.lock().await;
            let DecidedChange { writes, entry, value } = {
                let state = identity.state();
                let decided = decide(&state)?;
                if state.loses_last_administrator(&decided.writes) {
                    return Err(IdentityError::LastAdministrator);
                }
                decided
            };
            if writes.is_empty() {
                return Ok(value);
            }
            let written = identity.0.store.write(move |batch| {
                writes.iter().for_each(|write| write.put(batch));
                Audit::record(batch, &entry);
                writes
            });
            let writes = written.await?;
            identity.0.state.write().apply(&writes);
            identity.0.changed.send_replace(());
            Ok(value)
        })
        .await
    }

    /// A receiver that is notified of every change to users, groups, roles and credentials.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    pub(super) fn state(&self) -> RwLockReadGuard<'_, IdentityState> {
        self.0.state.read()
    }
}
