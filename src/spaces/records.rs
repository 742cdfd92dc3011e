//! All spaces, as a [`Collection`] of their rows with the presence of their agents beside it. The changes are made in
//! [`super::transition`].
//!
//! Health transitions are events but no audit entries: nobody decided on them, and a flapping space would fill the log.

use super::{
    agent_presence::{AgentPresence, AgentPresences, SpaceStatus},
    agent_process::AgentProcess,
    error::SpaceError,
    row::{SpaceChange, SpaceRow},
    space::Space,
};
use crate::{
    identity::Identity,
    model::{
        event::{Actor, EventSpace},
        id::{SpaceId, UserId},
    },
    platform::{
        collection::{Change, Collection, CollectionError, Revision},
        keyed_mutex::KeyedMutex,
        store::{Store, StoreError},
    },
    routing::emit::Emitter,
};
use parking_lot::RwLock;
use std::sync::Arc;

/// Every space there is. Cloning the handle is cheap.
#[derive(Clone)]
pub struct Spaces(pub(super) Arc<SpacesState>);

pub(super) struct SpacesState {
    pub records: Collection<SpaceRow>,
    pub identity: Identity,
    pub emitter: Arc<Emitter>,
    pub agents: Arc<RwLock<AgentPresences>>,
    /// Held by the space's id over a whole change, from its decision until its event is emitted, so that the events of
    /// a space come in the order of its changes. It keeps out no writer of another server; for that, a row is put at
    /// the revision that was read.
    pub changing: KeyedMutex,
}

impl Spaces {
    /// Reads all spaces and accepts the tokens of their agents. No event is emitted and no missed check is counted
    /// before [`Spaces::resume`]. A user can have `most` spaces.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    pub fn open(store: Store, identity: Identity, emitter: Arc<Emitter>, most: usize) -> Result<Self, StoreError> {
        let records = Collection::<SpaceRow>::open(store, most)?;
        let mut presences = AgentPresences { paused: true, ..AgentPresences::default() };
        for row in records.page(None, usize::MAX, |row| !row.deleted) {
            if let Some(digest) = row.token {
                identity.admit_agent(digest, row.space.id, row.space.owner);
            }
            presences.spaces.insert(row.space.id, AgentPresence::default());
        }
        let agents = Arc::new(RwLock::new(presences));
        // The first listener, so that tokens and counts are right when the others are called.
        let (tokens, counts) = (identity.clone(), agents.clone());
        records.listen(move |change| follow(&tokens, &counts, change));
        Ok(Self(Arc::new(SpacesState { records, identity, emitter, agents, changing: KeyedMutex::new() })))
    }

    /// Calls `listener` with every change from now on, by the rules of [`Collection::listen`].
    pub fn listen(&self, listener: impl Fn(&SpaceChange) + Send + Sync + 'static) {
        self.0.records.listen(move |change| {
            if let Some(change) = SpaceChange::of(change) {
                listener(&change);
            }
        });
    }

    /// The description of the space that its events carry; `None` once it is gone.
    pub fn origin(&self, id: SpaceId) -> Option<EventSpace> {
        self.get(id).map(|space| space.origin())
    }

    pub fn get(&self, id: SpaceId) -> Option<Arc<Space>> {
        self.0.row(id).map(|row| row.space.clone())
    }

    /// The space of this owner with this name.
    pub fn find(&self, owner: UserId, name: &str) -> Option<Arc<Space>> {
        self.0.records.find(owner, name).map(|row| row.space.clone())
    }

    /// Up to `limit` of the spaces that are `wanted`, oldest first, beginning after `cursor`.
    pub fn page(&self, cursor: Option<SpaceId>, limit: usize, wanted: impl Fn(&Space) -> bool) -> Vec<Arc<Space>> {
        let rows = self.0.records.page(cursor, limit, |row| !row.deleted && wanted(&row.space));
        rows.iter().map(|row| row.space.clone()).collect()
    }

    /// Every space, oldest first.
    pub fn all(&self) -> Vec<Arc<Space>> {
        self.page(None, usize::MAX, |_| true)
    }

    /// Every space of this user, oldest first.
    pub fn of(&self, owner: UserId) -> Vec<Arc<Space>> {
        self.page(None, usize::MAX, |space| space.owner == owner)
    }

    /// The health of the space's agent at this moment.
    pub fn status(&self, id: SpaceId) -> SpaceStatus {
        self.0.agents.read().spaces.get(&id).map(AgentPresence::status).unwrap_or_default()
    }

    /// Notes the state of the process that the server runs for a space.
    pub(super) fn note_running(&self, id: SpaceId, running: Option<AgentProcess>) {
        if let Some(agent) = self.0.agents.write().spaces.get_mut(&id) {
            agent.running = running;
        }
    }
}

impl SpacesState {
    /// The row of a space that is not deleted.
    pub fn row(&self, id: SpaceId) -> Option<Arc<SpaceRow>> {
        self.records.get(id).filter(|row| !row.deleted)
    }

    /// The row of a space that is not deleted, and the revision to expect when it is put.
    pub fn row_revision(&self, id: SpaceId) -> Option<(Arc<SpaceRow>, Revision)> {
        self.records.get_revision(id).filter(|(row, _)| !row.deleted)
    }

    /// The agent of a space of this user, as the actor of an event.
    pub fn agent_actor(&self, owner: UserId) -> Actor {
        self.identity.user(owner).map_or_else(Actor::system, |user| user.agent_actor())
    }
}

/// Keeps the tokens that identity accepts and the presence of agents in line with the rows.
fn follow(identity: &Identity, agents: &RwLock<AgentPresences>, change: &Change<SpaceRow>) {
    match change {
        Change::Created(row) => {
            if let Some(digest) = row.token {
                identity.admit_agent(digest, row.space.id, row.space.owner);
            }
            agents.write().spaces.insert(row.space.id, AgentPresence::default());
        }
        Change::Updated { before, after } if after.deleted => {
            if !before.deleted {
                // In this order: `launch_token` holds the lock until it has admitted its token.
                agents.write().spaces.remove(&after.space.id);
                identity.revoke_agent(after.space.id);
            }
        }
        Change::Updated { before, after } => {
            let space = &after.space;
            if let Some(agent) = agents.write().spaces.get_mut(&space.id) {
                agent.follow(before, after);
            }
            if let Some(digest) = after.token.filter(|_| before.token != after.token) {
                identity.admit_agent(digest, space.id, space.owner);
            }
            if before.space.launched && !space.launched {
                identity.revoke_agent(space.id);
            }
        }
        Change::Deleted(_) => {}
    }
}

impl From<CollectionError<SpaceRow>> for SpaceError {
    fn from(error: CollectionError<SpaceRow>) -> Self {
        match error {
            CollectionError::NameTaken(other) => Self::NameTaken(other.space.name.clone()),
            CollectionError::QuotaReached(most) => Self::TooMany(most),
            CollectionError::NotFound(_) => Self::NotFound,
            CollectionError::Conflict(_) => Self::Conflict,
            CollectionError::Refused(never) => match never {},
            CollectionError::Store(error) => Self::Store(error),
        }
    }
}
