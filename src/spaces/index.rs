//! What memory holds of the spaces, and the row that the disk holds of each. The locks and the order of changes are
//! those of [`super::records`].

use super::{Space, SpaceError, outbox::Pending, process_driver::Running};
use crate::{
    identity::SecretDigest,
    model::{
        health_check::CheckResult,
        id::{SpaceId, UserId},
        space_settings::SpaceName,
    },
    platform::store::{Batch, Store, Table, keys},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};
use tokio_util::task::AbortOnDropHandle;

pub(super) const SPACES: Table<Row> = Table::new(keys::SPACES);

#[derive(Default)]
pub(super) struct Shelf {
    /// In order of creation, since ids are.
    pub spaces: BTreeMap<SpaceId, Entry>,
    /// Those of spaces that are being saved too: a name is taken from the moment a change begins.
    pub names: HashMap<UserId, HashMap<SpaceName, SpaceId>>,
    /// Deleted, but with events still to be raised. Nobody else sees them.
    pub departed: HashMap<SpaceId, Row>,
    /// Those whose events wait for room on the disk.
    pub raising_later: HashSet<SpaceId>,
    /// Whether nothing is counted against lost agents: before the start, and during the end.
    pub paused: bool,
}

/// A space and what is known of it at this moment.
pub(super) struct Entry {
    pub space: Arc<Space>,
    pub token: Option<SecretDigest>,
    pub outbox: Vec<Pending>,
    /// Agents linked. Two for a moment, while a newer link replaces an older one.
    pub links: usize,
    /// Links in the making: nothing is counted against the agent, but it is not there yet.
    pub claims: usize,
    /// Checks that failed since one succeeded.
    pub failures: u32,
    pub last_check: Option<CheckResult>,
    /// Counts the checks that a lost agent does not make, for as long as it lives.
    pub silence: Option<AbortOnDropHandle<()>>,
    /// Of a space whose agent the server runs.
    pub running: Option<Running>,
}

/// A space as it is stored.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Row {
    pub space: Space,
    /// Of the agent's token. `None` for the driver `process`, whose tokens live no longer than the server.
    pub token: Option<SecretDigest>,
    /// Events that may not have been raised yet, oldest first.
    #[serde(default)]
    pub outbox: Vec<Pending>,
    /// Kept only until its outbox is empty.
    #[serde(default)]
    pub deleted: bool,
}

impl Shelf {
    /// Takes a name for a space that is about to be saved.
    pub fn reserve_name(&mut self, space: &Space, most: usize) -> Result<(), SpaceError> {
        let names = self.names.entry(space.owner).or_default();
        if names.contains_key(&space.name) {
            return Err(SpaceError::NameTaken(space.name.clone()));
        }
        if names.len() >= most {
            return Err(SpaceError::TooMany(most));
        }
        names.insert(space.name.clone(), space.id);
        Ok(())
    }

    pub fn release_name(&mut self, space: &Space) {
        if let Some(names) = self.names.get_mut(&space.owner) {
            names.remove(&space.name);
            if names.is_empty() {
                self.names.remove(&space.owner);
            }
        }
    }

    pub fn put(&mut self, entry: Entry) {
        let space = &entry.space;
        self.names.entry(space.owner).or_default().insert(space.name.clone(), space.id);
        self.spaces.insert(space.id, entry);
    }

    pub fn take(&mut self, id: SpaceId) -> Option<Entry> {
        let entry = self.spaces.remove(&id)?;
        self.release_name(&entry.space);
        Some(entry)
    }

    /// Puts what was written into the place of what it replaces; gives what was there and what is there now.
    pub fn replace(&mut self, row: Row) -> (Before, Arc<Space>) {
        let entry = self.spaces.get_mut(&row.space.id).expect("it was there, and only its lane takes it away");
        let before = Before { space: entry.space.clone(), token: entry.token };
        let same_check = row.space.settings.health_check == before.space.settings.health_check;
        if row.space.state != before.space.state || !same_check {
            // What was counted was counted about something else.
            (entry.failures, entry.last_check, entry.silence) = (0, None, None);
        }
        (entry.space, entry.token, entry.outbox) = (Arc::new(row.space), row.token, row.outbox);
        (before, entry.space.clone())
    }

    /// The owner of a space and the events that are still to be raised about it.
    pub fn unraised(&self, id: SpaceId) -> Option<(UserId, Vec<Pending>)> {
        let here = self.spaces.get(&id).map(|entry| (entry.space.owner, &entry.outbox));
        let (owner, outbox) = here.or_else(|| self.departed.get(&id).map(|row| (row.space.owner, &row.outbox)))?;
        (!outbox.is_empty()).then(|| (owner, outbox.clone()))
    }

    /// Forgets the first `count` events of an outbox, and with the last one a deleted space. Nobody waits for the disk:
    /// what is raised again is stored once.
    pub fn forget_raised(&mut self, id: SpaceId, count: usize, store: &Store) {
        if let Some(entry) = self.spaces.get_mut(&id) {
            entry.outbox.drain(..count);
            let row = entry.row();
            store.write_soon(move |batch| row.put(batch));
        } else if let Some(row) = self.departed.get_mut(&id) {
            row.outbox.drain(..count);
            if row.outbox.is_empty() {
                self.departed.remove(&id);
                store.write_soon(move |batch| SPACES.delete(batch, id.as_bytes()));
            } else {
                let row = row.clone();
                store.write_soon(move |batch| row.put(batch));
            }
        }
    }
}

/// What a change replaced.
pub(super) struct Before {
    pub space: Arc<Space>,
    pub token: Option<SecretDigest>,
}

impl Entry {
    /// A space of which nothing is known yet but its record.
    pub fn new(row: Row) -> Self {
        Self {
            space: Arc::new(row.space),
            token: row.token,
            outbox: row.outbox,
            links: 0,
            claims: 0,
            failures: 0,
            last_check: None,
            silence: None,
            running: None,
        }
    }

    /// Whether its agent is neither there nor about to be.
    pub fn is_lost(&self) -> bool {
        self.links + self.claims == 0
    }

    pub fn row(&self) -> Row {
        Row { space: Space::clone(&self.space), token: self.token, outbox: self.outbox.clone(), deleted: false }
    }
}

impl Row {
    pub fn put(&self, batch: &mut Batch<'_>) {
        SPACES.put(batch, self.space.id.as_bytes(), self);
    }
}
