//! All spaces, in memory and on disk.
//!
//! A change is decided, written with its audit entry and its event, applied to memory, passed to the listeners, and its
//! event emitted, in this order. Changes to one space are made one at a time, so its events come in the order of its
//! transitions. A change is completed even if its caller disconnects.
//!
//! Transient facts are in memory alone: connected agents, failures in a row, the last check result. A check that changes
//! nothing writes nothing.
//!
//! Health transitions are events but no audit entries: no user decided on them, and a flapping space would fill the log.

use super::{
    agent_process::AgentProcess,
    error::SpaceError,
    index::{SPACES, SpaceEntry, SpaceIndex, SpaceRow},
    space::Space,
    system_events::PendingEvent,
};
use crate::{
    identity::{AGENT_PREFIX, Identity, Secret, SecretDigest},
    model::{
        event::{Actor, EventSpace},
        health_check::CheckResult,
        id::{SpaceId, TemplateId, UserId},
        space_settings::{Driver, SpaceName, SpaceSettings},
        space_state::{SpaceHealth, SpaceState},
        timestamp::Timestamp,
    },
    platform::{
        audit::{Audit, AuditEntry},
        keyed_mutex::KeyedMutex,
        run_to_completion::run_to_completion,
        store::{Store, StoreError},
    },
    routing::emit::Emitter,
};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use serde_json::json;
use std::{ops::Bound, sync::Arc};

/// All spaces. Cloning the handle is cheap.
#[derive(Clone)]
pub struct Spaces(pub(super) Arc<SpacesShared>);

pub(super) struct SpacesShared {
    pub store: Store,
    pub identity: Identity,
    pub emitter: Arc<Emitter>,
    /// The most spaces of a user.
    most: usize,
    index: RwLock<SpaceIndex>,
    /// One lock per space id, held over a whole change.
    pub(super) changing: KeyedMutex,
    listeners: RwLock<Vec<Listener>>,
}

type Listener = Box<dyn Fn(&SpaceChange) + Send + Sync>;

/// A space to create.
#[derive(Clone, Debug)]
pub struct NewSpace {
    pub name: SpaceName,
    pub owner: UserId,
    pub template_id: Option<TemplateId>,
    pub driver: Driver,
    pub settings: SpaceSettings,
}

/// A change to a space, passed to the listeners once it is on disk and before its event is emitted.
#[derive(Clone, Debug)]
pub enum SpaceChange {
    Created(Arc<Space>),
    /// New settings, or a start or stop of the supervised agent. Neither is a transition.
    Updated {
        before: Arc<Space>,
        after: Arc<Space>,
    },
    /// The space became deployed.
    Started(Arc<Space>),
    /// A connected agent must end.
    Stopped(Arc<Space>),
    Deleted(Arc<Space>),
    /// The former agent token is no longer valid.
    TokenRotated(Arc<Space>),
}

/// The transient status of a space, which is not stored.
#[derive(Clone, Debug, Default)]
pub struct SpaceStatus {
    /// True while an agent is connected.
    pub linked: bool,
    pub consecutive_failures: u32,
    pub last_check: Option<CheckResult>,
    /// The agent process, for a space whose agent the server runs.
    pub running: Option<AgentProcess>,
}

/// A change that has been decided.
pub(super) struct SpaceTransition {
    after: Space,
    token: Option<SecretDigest>,
    event: Option<PendingEvent>,
    audit: Option<AuditEntry>,
    notifying: Option<ChangeNotice>,
}

/// Makes the notice for the listeners from the changed space.
type ChangeNotice = Box<dyn FnOnce(Arc<Space>) -> SpaceChange + Send>;

impl Spaces {
    /// Reads all spaces and makes their agent tokens valid. Events, missed checks and notices wait for [`Spaces::resume`].
    /// A user can have `most` spaces.
    pub fn open(store: Store, identity: Identity, emitter: Arc<Emitter>, most: usize) -> Result<Self, StoreError> {
        let mut index = SpaceIndex { paused: true, ..SpaceIndex::default() };
        for row in SPACES.all(&store)? {
            if row.deleted {
                index.deleted.insert(row.space.id, row);
                continue;
            }
            if let Some(digest) = row.token {
                identity.admit_agent(digest, row.space.id, row.space.owner);
            }
            index.put(SpaceEntry::new(row));
        }
        let changing = KeyedMutex::new();
        let (index, listeners) = (RwLock::new(index), RwLock::default());
        Ok(Self(Arc::new(SpacesShared { store, identity, emitter, most, index, changing, listeners })))
    }

    /// Emits the events that a crash left pending, and starts to count missed checks of deployed spaces whose agent is
    /// absent. Must be called once routes and listeners are in place.
    pub async fn resume(&self) {
        let left: Vec<SpaceId> = {
            let index = self.0.read();
            let waiting = index.spaces.values().filter(|entry| !entry.outbox.is_empty()).map(|entry| entry.space.id);
            waiting.chain(index.deleted.keys().copied()).collect()
        };
        if !left.is_empty() {
            log::info!("emitting the pending events of {} spaces from before the last shutdown", left.len());
        }
        for id in left {
            let _changing = self.0.changing.lock(&id).await;
            self.0.emit_pending(id).await;
        }
        self.0.write().paused = false;
        for space in self.all() {
            self.0.watch_absence(space.id);
        }
    }

    /// Stops counting missed checks, for a server that is about to stop.
    pub fn pause(&self) {
        let mut index = self.0.write();
        index.paused = true;
        for entry in index.spaces.values_mut() {
            entry.absence = None;
        }
    }

    /// Calls `listener` with every later change, in order for each space and before the change's caller gets its result. The
    /// listener must neither block nor wait for a change to the same space.
    pub fn listen(&self, listener: impl Fn(&SpaceChange) + Send + Sync + 'static) {
        self.0.listeners.write().push(Box::new(listener));
    }

    /// Creates a space, and its agent token unless the server runs the agent. The returned token is not stored.
    pub async fn create(&self, by: Actor, new: NewSpace) -> Result<(Arc<Space>, Option<Secret>), SpaceError> {
        let NewSpace { name, owner, template_id, driver, settings } = new;
        settings.check(driver)?;
        self.0.store.check_room()?;
        let secret = match driver {
            Driver::External => Some(Secret::new(AGENT_PREFIX)),
            Driver::Process => None,
        };
        let now = Timestamp::now();
        let space = Space {
            id: SpaceId::new(),
            name,
            owner,
            template_id,
            driver,
            settings,
            state: SpaceState::Created,
            launched: false,
            health: SpaceHealth::Unknown,
            node_id: None,
            created_at: now,
            updated_at: now,
            started_at: None,
            stopped_at: None,
        };
        let (shared, token) = (self.0.clone(), secret.as_ref().map(Secret::digest));
        let space = run_to_completion(async move {
            let _changing = shared.changing.lock(&space.id).await;
            shared.write().reserve_name(&space, shared.most)?;
            let outbox = vec![PendingEvent::created(&space, by.clone())];
            let audit = audited(by, "space.create", &space);
            let row = SpaceRow { space, token, outbox, deleted: false };
            let written = shared.write_row(row.clone(), Some(audit)).await;
            if let Err(error) = written {
                shared.write().release_name(&row.space);
                return Err(SpaceError::from(error));
            }
            if let Some(digest) = token {
                shared.identity.admit_agent(digest, row.space.id, owner);
            }
            let entry = SpaceEntry::new(row);
            let space = entry.space.clone();
            shared.write().put(entry);
            shared.tell(&SpaceChange::Created(space.clone()));
            shared.emit_pending(space.id).await;
            Ok(space)
        });
        Ok((space.await?, secret))
    }

    /// Replaces the settings of a space by the result of `change`.
    pub async fn update<E: From<SpaceError> + From<StoreError> + Send + 'static>(
        &self,
        by: Actor,
        id: SpaceId,
        change: impl FnOnce(&Space) -> Result<SpaceSettings, E> + Send + 'static,
    ) -> Result<Arc<Space>, E> {
        self.change(id, move |entry| {
            let before = entry.space.clone();
            let settings = change(&before)?;
            settings.check(before.driver).map_err(SpaceError::from)?;
            // Without a check the health is unknown.
            let health = if settings.health_check.is_some() { before.health } else { SpaceHealth::Unknown };
            let after = Space { settings, health, updated_at: Timestamp::now(), ..Space::clone(&before) };
            let step = SpaceTransition::new(after, entry).audited(by, "space.update");
            Ok(step.notifying(|after| SpaceChange::Updated { before, after }))
        })
        .await
    }

    /// Deletes a space and its agent token.
    pub async fn delete(&self, by: Actor, id: SpaceId) -> Result<Arc<Space>, SpaceError> {
        let shared = self.0.clone();
        run_to_completion(async move {
            let _changing = shared.changing.lock(&id).await;
            let row = {
                let index = shared.read();
                let entry = index.spaces.get(&id).ok_or(SpaceError::NotFound)?;
                let mut row = SpaceRow { deleted: true, token: None, ..entry.row() };
                row.outbox.push(PendingEvent::deleted(&row.space, by.clone(), Timestamp::now()));
                row
            };
            let audit = audited(by, "space.delete", &row.space);
            shared.write_row(row.clone(), Some(audit)).await?;
            shared.identity.revoke_agent(id);
            let space = {
                let mut index = shared.write();
                index.deleted.insert(id, row);
                index.take(id).ok_or(SpaceError::NotFound)?.space
            };
            shared.tell(&SpaceChange::Deleted(space.clone()));
            shared.emit_pending(id).await;
            Ok(space)
        })
        .await
    }

    /// Replaces the agent token of a space. The old token is no longer valid.
    pub async fn rotate_token(&self, by: Actor, id: SpaceId) -> Result<(Arc<Space>, Secret), SpaceError> {
        let secret = Secret::new(AGENT_PREFIX);
        let digest = secret.digest();
        let rotated = self.change(id, move |entry| {
            let space = Space::clone(&entry.space);
            if space.driver == Driver::Process {
                return Err(SpaceError::NoToken(space.name));
            }
            let step = SpaceTransition { token: Some(digest), ..SpaceTransition::new(space, entry) };
            Ok(step.audited(by, "space.token").notifying(SpaceChange::TokenRotated))
        });
        Ok((rotated.await?, secret))
    }

    /// The part of the space that its events carry; `None` for a deleted space.
    pub fn origin(&self, id: SpaceId) -> Option<EventSpace> {
        self.get(id).map(|space| space.origin())
    }

    pub fn get(&self, id: SpaceId) -> Option<Arc<Space>> {
        self.0.read().spaces.get(&id).map(|entry| entry.space.clone())
    }

    /// The space of this owner with this name.
    pub fn find(&self, owner: UserId, name: &str) -> Option<Arc<Space>> {
        let index = self.0.read();
        let id = index.names.get(&owner)?.get(&name.parse().ok()?)?;
        index.spaces.get(id).map(|entry| entry.space.clone())
    }

    /// Up to `limit` of the `wanted` spaces, oldest first, after `cursor`.
    pub fn page(&self, cursor: Option<SpaceId>, limit: usize, wanted: impl Fn(&Space) -> bool) -> Vec<Arc<Space>> {
        let start = cursor.map_or(Bound::Unbounded, Bound::Excluded);
        let index = self.0.read();
        let after = index.spaces.range((start, Bound::Unbounded)).map(|(_, entry)| &entry.space);
        after.filter(|space| wanted(space)).take(limit).cloned().collect()
    }

    /// All spaces, oldest first.
    pub fn all(&self) -> Vec<Arc<Space>> {
        self.page(None, usize::MAX, |_| true)
    }

    /// All spaces of this user, oldest first.
    pub fn of(&self, owner: UserId) -> Vec<Arc<Space>> {
        self.page(None, usize::MAX, |space| space.owner == owner)
    }

    /// The transient status of a space.
    pub fn status(&self, id: SpaceId) -> SpaceStatus {
        let index = self.0.read();
        let Some(entry) = index.spaces.get(&id) else { return SpaceStatus::default() };
        SpaceStatus {
            linked: entry.links > 0,
            consecutive_failures: entry.failures,
            last_check: entry.last_check.clone(),
            running: entry.running.clone(),
        }
    }

    /// Records the state of the agent process that the server runs for a space.
    pub(super) fn note_running(&self, id: SpaceId, running: Option<AgentProcess>) {
        if let Some(entry) = self.0.write().spaces.get_mut(&id) {
            entry.running = running;
        }
    }

    /// Makes one change to a space: `decide` sees the result of every change before it. The change is written unless it changes
    /// nothing, applied to memory, passed to the listeners, and its event emitted.
    pub(super) async fn change<E: From<SpaceError> + From<StoreError> + Send + 'static>(
        &self,
        id: SpaceId,
        decide: impl FnOnce(&mut SpaceEntry) -> Result<SpaceTransition, E> + Send + 'static,
    ) -> Result<Arc<Space>, E> {
        let shared = self.0.clone();
        run_to_completion(async move {
            let _changing = shared.changing.lock(&id).await;
            let (step, row) = {
                let mut index = shared.write();
                let entry = index.spaces.get_mut(&id).ok_or(SpaceError::NotFound)?;
                let mut step = decide(entry)?;
                if step.after == *entry.space && step.token == entry.token {
                    return Ok(entry.space.clone());
                }
                let mut row = SpaceRow { space: step.after.clone(), token: step.token, ..entry.row() };
                row.outbox.extend(step.event.take());
                (step, row)
            };
            shared.write_row(row.clone(), step.audit).await.map_err(SpaceError::from)?;
            let (before, space) = shared.write().replace(row);
            if let Some(digest) = step.token.filter(|_| before.token != step.token) {
                shared.identity.admit_agent(digest, id, space.owner);
            }
            if before.space.launched && !space.launched {
                shared.identity.revoke_agent(id);
            }
            if let Some(notifying) = step.notifying {
                shared.tell(&notifying(space.clone()));
            }
            shared.watch_absence(id);
            shared.emit_pending(id).await;
            Ok(space)
        })
        .await
    }
}

impl SpacesShared {
    async fn write_row(&self, row: SpaceRow, audit: Option<AuditEntry>) -> Result<(), StoreError> {
        let write = self.store.write(move |batch| {
            row.put(batch);
            if let Some(audit) = audit {
                Audit::record(batch, &audit);
            }
        });
        write.await
    }

    fn tell(&self, change: &SpaceChange) {
        for listener in &*self.listeners.read() {
            listener(change);
        }
    }

    /// The agent of this user's space as the actor of an event.
    pub fn agent(&self, owner: UserId) -> Actor {
        self.identity.user(owner).map_or_else(Actor::system, |user| user.agent_actor())
    }

    pub fn read(&self) -> RwLockReadGuard<'_, SpaceIndex> {
        self.index.read()
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, SpaceIndex> {
        self.index.write()
    }
}

impl SpaceTransition {
    /// A transition without event, audit entry and notice.
    pub fn new(after: Space, entry: &SpaceEntry) -> Self {
        Self { after, token: entry.token, event: None, audit: None, notifying: None }
    }

    pub fn emitting(self, event: PendingEvent) -> Self {
        Self { event: Some(event), ..self }
    }

    pub fn audited(self, by: Actor, action: &str) -> Self {
        let audit = audited(by, action, &self.after);
        Self { audit: Some(audit), ..self }
    }

    pub fn notifying(self, change: impl FnOnce(Arc<Space>) -> SpaceChange + Send + 'static) -> Self {
        Self { notifying: Some(Box::new(change)), ..self }
    }
}

impl SpaceChange {
    /// The space after the change.
    pub const fn space(&self) -> &Arc<Space> {
        match self {
            Self::Created(space)
            | Self::Updated { after: space, .. }
            | Self::Started(space)
            | Self::Stopped(space)
            | Self::Deleted(space)
            | Self::TokenRotated(space) => space,
        }
    }
}

fn audited(by: Actor, action: &str, space: &Space) -> AuditEntry {
    AuditEntry::new(Some(by), action, format!("space:{}", space.id))
        .with(json!({"name": space.name, "owner": space.owner}))
}
