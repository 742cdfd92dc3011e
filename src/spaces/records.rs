//! All spaces, in memory and on disk. A change is decided, written with its audit entry and
//! its event, shown, told to the listeners, and its event raised, in this order and one change to a space at a time; so
//! the events of a space come in the order of its transitions. It is carried through even if its caller goes away.
//!
//! What concerns the moment only is in memory alone: whether an agent is linked, how many checks have failed in a row, what
//! the last one found. A check that changes nothing writes nothing.
//!
//! SpaceHealth transitions are events but no audit entries: nobody decided on them, and a flapping space would fill the log.

use super::{
    Space,
    index::{Entry, Row, SPACES, Shelf},
    outbox::Pending,
    process_driver::Running,
};
use crate::{
    identity::{AGENT_PREFIX, Identity, Secret, SecretDigest},
    model::{
        event::{Actor, EventSpace},
        health_check::CheckResult,
        id::{SpaceId, TemplateId, UserId},
        space_settings::{Driver, SpaceName, SpaceSettings, SpaceSettingsError},
        space_state::{SpaceHealth, SpaceState},
        timestamp::Timestamp,
    },
    platform::{
        audit::{Audit, Entry as AuditEntry},
        store::{Lanes, Store, StoreError, carried_through},
    },
    routing::emit::Emitter,
};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use serde_json::json;
use std::{ops::Bound, sync::Arc};

/// Every space there is. Cloning the handle is cheap.
#[derive(Clone)]
pub struct Spaces(pub(super) Arc<Shared>);

pub(super) struct Shared {
    pub store: Store,
    pub identity: Identity,
    pub emitter: Arc<Emitter>,
    /// Spaces a user can have.
    most: usize,
    shelf: RwLock<Shelf>,
    /// One is held over a whole change, chosen by the space's id.
    pub(super) changing: Lanes,
    listeners: RwLock<Vec<Listener>>,
}

type Listener = Box<dyn Fn(&Change) + Send + Sync>;

/// A space to be made.
#[derive(Clone, Debug)]
pub struct NewSpace {
    pub name: SpaceName,
    pub owner: UserId,
    pub template_id: Option<TemplateId>,
    pub driver: Driver,
    pub settings: SpaceSettings,
}

/// What happened to a space, told once it is on disk and before its event is raised.
#[derive(Clone, Debug)]
pub enum Change {
    Created(Arc<Space>),
    /// New settings, or the server is to run its agent or not. Neither is a transition.
    Updated {
        before: Arc<Space>,
        after: Arc<Space>,
    },
    /// It is deployed, and was not before.
    Started(Arc<Space>),
    /// Its agent, if it is still there, is to end.
    Stopped(Arc<Space>),
    Deleted(Arc<Space>),
    /// Its agent's former token opens nothing any more.
    TokenRotated(Arc<Space>),
}

/// What is known of a space at this moment and kept nowhere.
#[derive(Clone, Debug, Default)]
pub struct Vitals {
    /// Whether its agent is there.
    pub linked: bool,
    pub consecutive_failures: u32,
    pub last_check: Option<CheckResult>,
    /// Of a space whose agent the server runs.
    pub running: Option<Running>,
}

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum SpaceError {
    #[error("there is no such space")]
    NotFound,
    #[error("you already have a space named `{0}`: choose another name, or delete that one")]
    NameTaken(SpaceName),
    #[error("a user has at most {0} spaces: delete one first, or have `limits.spaces` raised")]
    TooMany(usize),
    #[error(transparent)]
    Invalid(#[from] SpaceSettingsError),
    #[error(
        "the driver of `{0}` is external: run `svc agent start` with its agent token where the space is, and it is \
         started"
    )]
    StartExternal(SpaceName),
    #[error("`{0}` is started already: stop it first to start it anew")]
    AlreadyStarted(SpaceName),
    #[error("`{0}` is not running: there is nothing to stop")]
    NotRunning(SpaceName),
    #[error("the server runs the agent of `{0}` and hands it its token itself: there is none to give out")]
    NoToken(SpaceName),
    /// An agent that was away when its space was stopped.
    #[error("`{0}` was stopped")]
    WasStopped(SpaceName),
    /// An agent of a space that the server is not running now.
    #[error("`{0}` is not to run: start it with `svc space start {0}`")]
    NotLaunched(SpaceName),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A change decided on.
pub(super) struct Step {
    after: Space,
    token: Option<SecretDigest>,
    event: Option<Pending>,
    audit: Option<AuditEntry>,
    telling: Option<Telling>,
}

/// Says what the listeners are told, of the space as it is then.
type Telling = Box<dyn FnOnce(Arc<Space>) -> Change + Send>;

impl Spaces {
    /// Reads all spaces and lets their agents in. Nothing is raised, counted or told before [`Spaces::resume`]. A user
    /// can have `most` spaces.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    pub fn open(store: Store, identity: Identity, emitter: Arc<Emitter>, most: usize) -> Result<Self, StoreError> {
        let mut shelf = Shelf { paused: true, ..Shelf::default() };
        for row in SPACES.all(&store)? {
            if row.deleted {
                shelf.departed.insert(row.space.id, row);
                continue;
            }
            if let Some(digest) = row.token {
                identity.admit_agent(digest, row.space.id, row.space.owner);
            }
            shelf.put(Entry::new(row));
        }
        let changing = Lanes::new();
        let (shelf, listeners) = (RwLock::new(shelf), RwLock::default());
        Ok(Self(Arc::new(Shared { store, identity, emitter, most, shelf, changing, listeners })))
    }

    /// Raises what a crash left unraised, and begins to count against every deployed space whose agent is not back.
    /// To be called once routes and listeners are in place.
    pub async fn resume(&self) {
        let left: Vec<SpaceId> = {
            let shelf = self.0.read();
            let waiting = shelf.spaces.values().filter(|entry| !entry.outbox.is_empty()).map(|entry| entry.space.id);
            waiting.chain(shelf.departed.keys().copied()).collect()
        };
        if !left.is_empty() {
            log::info!("raising the events of {} spaces that an earlier end of the server left", left.len());
        }
        for id in left {
            let _changing = self.0.changing.turn(id.as_bytes()).await;
            self.0.raise_all(id).await;
        }
        self.0.write().paused = false;
        for space in self.all() {
            self.0.watch_silence(space.id);
        }
    }

    /// Stops counting against lost agents, for a server that is about to stop.
    pub fn pause(&self) {
        let mut shelf = self.0.write();
        shelf.paused = true;
        for entry in shelf.spaces.values_mut() {
            entry.silence = None;
        }
    }

    /// Has `listener` told of every change from now on, before the change's caller hears of it and in order for each
    /// space. It must neither block nor wait for a change to the same space.
    pub fn listen(&self, listener: impl Fn(&Change) + Send + Sync + 'static) {
        self.0.listeners.write().push(Box::new(listener));
    }

    /// Makes a space, and its agent's token unless the server is to run the agent. The token is nowhere else.
    ///
    /// # Errors
    ///
    /// Fails if the settings are unfit, the owner has a space of that name or too many, or the store cannot be written.
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
        let space = carried_through(async move {
            let _changing = shared.changing.turn(space.id.as_bytes()).await;
            shared.write().reserve_name(&space, shared.most)?;
            let outbox = vec![Pending::created(&space, by.clone())];
            let audit = audited(by, "space.create", &space);
            let row = Row { space, token, outbox, deleted: false };
            let written = shared.write_row(row.clone(), Some(audit)).await;
            if let Err(error) = written {
                shared.write().release_name(&row.space);
                return Err(SpaceError::from(error));
            }
            if let Some(digest) = token {
                shared.identity.admit_agent(digest, row.space.id, owner);
            }
            let entry = Entry::new(row);
            let space = entry.space.clone();
            shared.write().put(entry);
            shared.tell(&Change::Created(space.clone()));
            shared.raise_all(space.id).await;
            Ok(space)
        });
        Ok((space.await?, secret))
    }

    /// Gives a space the settings that `change` makes of those it has.
    ///
    /// # Errors
    ///
    /// Fails if the space is gone, `change` does, the settings are unfit, or the store cannot be written.
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
            // Without a check there is nothing to be known.
            let health = if settings.health_check.is_some() { before.health } else { SpaceHealth::Unknown };
            let after = Space { settings, health, updated_at: Timestamp::now(), ..Space::clone(&before) };
            let step = Step::new(after, entry).audited(by, "space.update");
            Ok(step.telling(|after| Change::Updated { before, after }))
        })
        .await
    }

    /// Deletes a space: it is gone for everybody, and so is its agent's token.
    ///
    /// # Errors
    ///
    /// Fails if it is gone already, or the store cannot be written.
    pub async fn delete(&self, by: Actor, id: SpaceId) -> Result<Arc<Space>, SpaceError> {
        let shared = self.0.clone();
        carried_through(async move {
            let _changing = shared.changing.turn(id.as_bytes()).await;
            let row = {
                let shelf = shared.read();
                let entry = shelf.spaces.get(&id).ok_or(SpaceError::NotFound)?;
                let mut row = Row { deleted: true, token: None, ..entry.row() };
                row.outbox.push(Pending::deleted(&row.space, by.clone(), Timestamp::now()));
                row
            };
            let audit = audited(by, "space.delete", &row.space);
            shared.write_row(row.clone(), Some(audit)).await?;
            shared.identity.revoke_agent(id);
            let space = {
                let mut shelf = shared.write();
                shelf.departed.insert(id, row);
                shelf.take(id).ok_or(SpaceError::NotFound)?.space
            };
            shared.tell(&Change::Deleted(space.clone()));
            shared.raise_all(id).await;
            Ok(space)
        })
        .await
    }

    /// Gives the space's agent a new token, and takes the old one away.
    ///
    /// # Errors
    ///
    /// Fails if the space is gone, the server runs its agent, or the store cannot be written.
    pub async fn rotate_token(&self, by: Actor, id: SpaceId) -> Result<(Arc<Space>, Secret), SpaceError> {
        let secret = Secret::new(AGENT_PREFIX);
        let digest = secret.digest();
        let rotated = self.change(id, move |entry| {
            let space = Space::clone(&entry.space);
            if space.driver == Driver::Process {
                return Err(SpaceError::NoToken(space.name));
            }
            let step = Step { token: Some(digest), ..Step::new(space, entry) };
            Ok(step.audited(by, "space.token").telling(Change::TokenRotated))
        });
        Ok((rotated.await?, secret))
    }

    /// What events raised in the space carry of it; `None` once it is gone.
    pub fn origin(&self, id: SpaceId) -> Option<EventSpace> {
        self.get(id).map(|space| space.origin())
    }

    pub fn get(&self, id: SpaceId) -> Option<Arc<Space>> {
        self.0.read().spaces.get(&id).map(|entry| entry.space.clone())
    }

    /// The space of this owner with this name.
    pub fn find(&self, owner: UserId, name: &str) -> Option<Arc<Space>> {
        let shelf = self.0.read();
        let id = shelf.names.get(&owner)?.get(&name.parse().ok()?)?;
        shelf.spaces.get(id).map(|entry| entry.space.clone())
    }

    /// Up to `limit` of the spaces that are `wanted`, oldest first, beginning after `cursor`.
    pub fn page(&self, cursor: Option<SpaceId>, limit: usize, wanted: impl Fn(&Space) -> bool) -> Vec<Arc<Space>> {
        let start = cursor.map_or(Bound::Unbounded, Bound::Excluded);
        let shelf = self.0.read();
        let after = shelf.spaces.range((start, Bound::Unbounded)).map(|(_, entry)| &entry.space);
        after.filter(|space| wanted(space)).take(limit).cloned().collect()
    }

    /// Every space, oldest first.
    pub fn all(&self) -> Vec<Arc<Space>> {
        self.page(None, usize::MAX, |_| true)
    }

    /// Every space of this user, oldest first.
    pub fn of(&self, owner: UserId) -> Vec<Arc<Space>> {
        self.page(None, usize::MAX, |space| space.owner == owner)
    }

    /// What is known of a space at this moment.
    pub fn vitals(&self, id: SpaceId) -> Vitals {
        let shelf = self.0.read();
        let Some(entry) = shelf.spaces.get(&id) else { return Vitals::default() };
        Vitals {
            linked: entry.links > 0,
            consecutive_failures: entry.failures,
            last_check: entry.last_check.clone(),
            running: entry.running.clone(),
        }
    }

    /// Notes how it stands with the agent that the server runs for a space.
    pub(super) fn note_running(&self, id: SpaceId, running: Option<Running>) {
        if let Some(entry) = self.0.write().spaces.get_mut(&id) {
            entry.running = running;
        }
    }

    /// Makes a change to one space: decides it with everything before it in sight, writes it unless it changes nothing,
    /// shows it, tells of it and raises its event.
    pub(super) async fn change<E: From<SpaceError> + From<StoreError> + Send + 'static>(
        &self,
        id: SpaceId,
        decide: impl FnOnce(&mut Entry) -> Result<Step, E> + Send + 'static,
    ) -> Result<Arc<Space>, E> {
        let shared = self.0.clone();
        carried_through(async move {
            let _changing = shared.changing.turn(id.as_bytes()).await;
            let (step, row) = {
                let mut shelf = shared.write();
                let entry = shelf.spaces.get_mut(&id).ok_or(SpaceError::NotFound)?;
                let mut step = decide(entry)?;
                if step.after == *entry.space && step.token == entry.token {
                    return Ok(entry.space.clone());
                }
                let mut row = Row { space: step.after.clone(), token: step.token, ..entry.row() };
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
            if let Some(telling) = step.telling {
                shared.tell(&telling(space.clone()));
            }
            shared.watch_silence(id);
            shared.raise_all(id).await;
            Ok(space)
        })
        .await
    }
}

impl Shared {
    async fn write_row(&self, row: Row, audit: Option<AuditEntry>) -> Result<(), StoreError> {
        let write = self.store.write(move |batch| {
            row.put(batch);
            if let Some(audit) = audit {
                Audit::record(batch, &audit);
            }
        });
        write.await
    }

    fn tell(&self, change: &Change) {
        for listener in &*self.listeners.read() {
            listener(change);
        }
    }

    /// The agent of a space of this user, as one who does something.
    pub fn agent(&self, owner: UserId) -> Actor {
        self.identity.user(owner).map_or_else(Actor::system, |user| user.agent_actor())
    }

    pub fn read(&self) -> RwLockReadGuard<'_, Shelf> {
        self.shelf.read()
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, Shelf> {
        self.shelf.write()
    }
}

impl Step {
    /// To this space, without a word about it.
    pub fn new(after: Space, entry: &Entry) -> Self {
        Self { after, token: entry.token, event: None, audit: None, telling: None }
    }

    pub fn raising(self, event: Pending) -> Self {
        Self { event: Some(event), ..self }
    }

    pub fn audited(self, by: Actor, action: &str) -> Self {
        let audit = audited(by, action, &self.after);
        Self { audit: Some(audit), ..self }
    }

    pub fn telling(self, change: impl FnOnce(Arc<Space>) -> Change + Send + 'static) -> Self {
        Self { telling: Some(Box::new(change)), ..self }
    }
}

impl Change {
    /// The space it is about, as it is now.
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
