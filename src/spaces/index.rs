//! The index of spaces in memory, and the row that is stored for each. [`super::records`] holds the locks and orders the
//! changes.

use super::{agent_process::AgentProcess, error::SpaceError, space::Space, system_events::PendingEvent};
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

pub(super) const SPACES: Table<SpaceRow> = Table::new(keys::SPACES);

#[derive(Default)]
pub(super) struct SpaceIndex {
    /// In order of creation, like the ids.
    pub spaces: BTreeMap<SpaceId, SpaceEntry>,
    /// Includes the names of spaces that are being saved: a name is taken from the moment a change begins.
    pub names: HashMap<UserId, HashMap<SpaceName, SpaceId>>,
    /// Deleted spaces with pending events. They are invisible to everything else.
    pub deleted: HashMap<SpaceId, SpaceRow>,
    /// Spaces whose events wait for room on the disk.
    pub emitting_later: HashSet<SpaceId>,
    /// True before the start and during shutdown: missed checks are not counted then.
    pub paused: bool,
}

/// A space with its transient status.
pub(super) struct SpaceEntry {
    pub space: Arc<Space>,
    pub token: Option<SecretDigest>,
    pub outbox: Vec<PendingEvent>,
    /// Connected agents. Two for a moment, while a newer connection replaces an older one.
    pub links: usize,
    /// Connections being established: the agent is not absent, but not connected yet.
    pub connecting: usize,
    /// Failed checks since the last success.
    pub failures: u32,
    pub last_check: Option<CheckResult>,
    /// The task that counts missed checks while the agent is absent.
    pub absence: Option<AbortOnDropHandle<()>>,
    /// The agent process, for a space whose agent the server runs.
    pub running: Option<AgentProcess>,
}

/// A space as it is stored.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct SpaceRow {
    pub space: Space,
    /// The digest of the agent token. `None` for the driver `process`, whose tokens live no longer than the server.
    pub token: Option<SecretDigest>,
    /// Events that may not have been emitted yet, oldest first.
    #[serde(default)]
    pub outbox: Vec<PendingEvent>,
    /// A deleted space is kept only until its outbox is empty.
    #[serde(default)]
    pub deleted: bool,
}

impl SpaceIndex {
    /// Reserves the name of a space that is about to be saved.
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

    pub fn put(&mut self, entry: SpaceEntry) {
        let space = &entry.space;
        self.names.entry(space.owner).or_default().insert(space.name.clone(), space.id);
        self.spaces.insert(space.id, entry);
    }

    pub fn take(&mut self, id: SpaceId) -> Option<SpaceEntry> {
        let entry = self.spaces.remove(&id)?;
        self.release_name(&entry.space);
        Some(entry)
    }

    /// Applies a written row and returns the replaced and the new space.
    pub fn replace(&mut self, row: SpaceRow) -> (ReplacedSpace, Arc<Space>) {
        let entry = self.spaces.get_mut(&row.space.id).expect("the space exists while its lock is held");
        let before = ReplacedSpace { space: entry.space.clone(), token: entry.token };
        let same_check = row.space.settings.health_check == before.space.settings.health_check;
        if row.space.state != before.space.state || !same_check {
            // The counts were about another state or check.
            (entry.failures, entry.last_check, entry.absence) = (0, None, None);
        }
        (entry.space, entry.token, entry.outbox) = (Arc::new(row.space), row.token, row.outbox);
        (before, entry.space.clone())
    }

    /// The owner and the pending events of a space, if it has any.
    pub fn pending_events(&self, id: SpaceId) -> Option<(UserId, Vec<PendingEvent>)> {
        let here = self.spaces.get(&id).map(|entry| (entry.space.owner, &entry.outbox));
        let (owner, outbox) = here.or_else(|| self.deleted.get(&id).map(|row| (row.space.owner, &row.outbox)))?;
        (!outbox.is_empty()).then(|| (owner, outbox.clone()))
    }

    /// Removes the first `count` events of an outbox, and with the last one a deleted space. The write is not awaited: an event
    /// that is emitted again is stored once.
    pub fn remove_emitted(&mut self, id: SpaceId, count: usize, store: &Store) {
        if let Some(entry) = self.spaces.get_mut(&id) {
            entry.outbox.drain(..count);
            let row = entry.row();
            store.write_soon(move |batch| row.put(batch));
        } else if let Some(row) = self.deleted.get_mut(&id) {
            row.outbox.drain(..count);
            if row.outbox.is_empty() {
                self.deleted.remove(&id);
                store.write_soon(move |batch| SPACES.delete(batch, id.as_bytes()));
            } else {
                let row = row.clone();
                store.write_soon(move |batch| row.put(batch));
            }
        }
    }
}

/// The part of a space that a change replaced.
pub(super) struct ReplacedSpace {
    pub space: Arc<Space>,
    pub token: Option<SecretDigest>,
}

impl SpaceEntry {
    /// An entry without transient status.
    pub fn new(row: SpaceRow) -> Self {
        Self {
            space: Arc::new(row.space),
            token: row.token,
            outbox: row.outbox,
            links: 0,
            connecting: 0,
            failures: 0,
            last_check: None,
            absence: None,
            running: None,
        }
    }

    /// Returns true if no agent is connected or connecting.
    pub fn is_absent(&self) -> bool {
        self.links + self.connecting == 0
    }

    pub fn row(&self) -> SpaceRow {
        SpaceRow { space: Space::clone(&self.space), token: self.token, outbox: self.outbox.clone(), deleted: false }
    }
}

impl SpaceRow {
    pub fn put(&self, batch: &mut Batch<'_>) {
        SPACES.put(batch, self.space.id.as_bytes(), self);
    }
}
