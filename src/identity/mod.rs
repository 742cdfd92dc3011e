//! Who may call, and what they may do: users, roles, groups, API tokens, sessions and the agents of spaces.
//!
//! All of it is in memory; the store is read once, at [`Identity::open`]. A change is made by one at a time
//! ([`Identity::change`]): decided against memory, written with its audit entry in one batch, and visible once
//! it is on disk. Whoever is deleted or deactivated is out at that moment, since every request asks memory.
//!
//! [`caller`] tells who a request comes from; the other files each hold the changes to one kind of record.

mod agents;
mod caller;
mod first_start;
mod groups;
mod password;
mod record;
mod roles;
mod secret;
mod sessions;
mod state;
mod throttle;
mod tokens;
mod users;

pub use crate::model::{
    name::{Name, NameError},
    permissions::Permissions,
};
pub use agents::AGENT_PREFIX;
pub use caller::{COOKIE_NAME, Caller, Via};
pub use password::PasswordError;
pub use record::{Group, Role, Session, Token, User};
pub use secret::{Digest, Secret};
pub use throttle::network;
pub use users::{NewUser, UserChange};

use crate::{
    model::permission::Permission,
    platform::{
        audit::{Audit, Entry},
        store::{Store, StoreError},
    },
};
use parking_lot::{RwLock, RwLockReadGuard};
use password::Passwords;
use state::{State, Write};
use std::{io, path::PathBuf, sync::Arc, time::Duration};
use throttle::Throttle;
use tokio::sync::{Mutex, watch};

/// Everybody and everything that can identify itself. Cloning it is cheap.
#[derive(Clone)]
pub struct Identity(Arc<Shared>);

struct Shared {
    store: Store,
    audit: Audit,
    /// How long a login lasts.
    session: Duration,
    state: RwLock<State>,
    /// Held from the decision on a change until it is in memory.
    turn: Mutex<()>,
    changed: watch::Sender<()>,
    passwords: Passwords,
    throttle: Throttle,
}

/// A change decided on: what to write, what to say about it, and what to answer.
struct Edit<T> {
    writes: Vec<Write>,
    entry: Entry,
    value: T,
}

/// Why identity could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot write {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
}

/// Why a change was not made, or a login not granted.
#[derive(Debug, Clone, thiserror::Error)]
pub enum IdentityError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Somebody else's token looks the same as none.
    #[error("there is no such {0}")]
    Missing(&'static str),
    #[error("there is already a {kind} named `{name}`")]
    NameTaken { kind: &'static str, name: Name },
    #[error("`{field}`: there is no {kind} named `{reference}`, nor one with that id")]
    UnknownReference { field: String, kind: &'static str, reference: String },
    #[error("`{field}`: {reason}")]
    Invalid { field: &'static str, reason: String },
    #[error("this would leave no active user with both manage_users and manage_roles")]
    LastKeeper,
    #[error("`{0}` may do more than you: only somebody who may do as much, or has manage_roles, can change this user")]
    BeyondUser(Name),
    #[error("the role `{role}` allows `{permission}`, which you do not have: you cannot give it away")]
    BeyondRole { role: Name, permission: Permission },
    #[error("a user has at most {0} tokens: delete one first")]
    TooManyTokens(usize),
    #[error("an agent's token makes and takes no credentials: use a token or session of the user")]
    AgentCredentials,
    #[error("name or password is wrong")]
    WrongPassword,
    #[error("too many failed attempts: try again in {} s", .0.as_secs().max(1))]
    Throttled(Duration),
}

impl Identity {
    /// Reads all records, and makes the first ones if there are none.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read, or the first records and their files cannot be written.
    pub async fn open(store: Store, session: Duration) -> Result<Self, OpenError> {
        let state = State::load(&store)?;
        let identity = Self(Arc::new(Shared {
            audit: Audit::new(store.clone()),
            store,
            session,
            state: RwLock::new(state),
            turn: Mutex::new(()),
            changed: watch::Sender::new(()),
            passwords: Passwords::new(),
            throttle: Throttle::default(),
        }));
        if identity.state().accounts.is_empty() {
            identity.first_start().await?;
        }
        Ok(identity)
    }

    /// Makes a change: decides it with everything before it in sight, writes it, shows it.
    ///
    /// # Errors
    ///
    /// Whatever `edit` says; besides, a change that would lock everybody out is refused, and a store that cannot be
    /// written changes nothing.
    async fn change<T: Send + 'static>(
        &self,
        edit: impl FnOnce(&State) -> Result<Edit<T>, IdentityError> + Send + 'static,
    ) -> Result<T, IdentityError> {
        let identity = self.clone();
        // On a task of its own: a caller that hangs up must not leave the disk ahead of memory.
        let change = tokio::spawn(async move {
            let _turn = identity.0.turn.lock().await;
            let Edit { writes, entry, value } = {
                let state = identity.state();
                let edit = edit(&state)?;
                if state.loses_its_keeper(&edit.writes) {
                    return Err(IdentityError::LastKeeper);
                }
                edit
            };
            let written = identity.0.store.write(move |batch| {
                writes.iter().for_each(|write| write.put(batch));
                Audit::record(batch, &entry);
                writes
            });
            let writes = written.await?;
            identity.0.state.write().apply(&writes);
            identity.0.changed.send_replace(());
            Ok(value)
        });
        change.await.expect("a change neither panics nor is aborted")
    }

    /// Tells of every change to users, groups, roles and credentials.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.0.state.read()
    }
}

#[cfg(test)]
mod tests;
