//! Changes to a space that its owner makes: created, changed, started, stopped, given a new token, deleted.

use super::{
    error::SpaceError,
    records::Spaces,
    row::SpaceRow,
    space::Space,
    system_events::PendingEvent,
    transition::{SpaceTransition, audit_entry, written},
};
use crate::{
    identity::{AGENT_PREFIX, Secret},
    model::{
        event::Actor,
        id::{SpaceId, TemplateId, UserId},
        space_settings::{Driver, SpaceName, SpaceSettings},
        space_state::{SpaceHealth, SpaceState},
        timestamp::Timestamp,
    },
    platform::{
        collection::{Changes, Precondition},
        run_to_completion::run_to_completion,
        store::StoreError,
    },
};
use std::{sync::Arc, time::Duration};

/// A space to be made.
#[derive(Clone, Debug)]
pub struct NewSpace {
    pub name: SpaceName,
    pub owner: UserId,
    pub template_id: Option<TemplateId>,
    pub driver: Driver,
    pub settings: SpaceSettings,
}

impl Spaces {
    /// Emits the events that a crash left, and begins to count missed checks of every deployed space whose agent is not
    /// back. To be called once routes and listeners are in place.
    pub async fn resume(&self) {
        let left = self.0.records.page(None, usize::MAX, |row| !row.outbox.is_empty());
        if !left.is_empty() {
            log::info!("emitting the events of {} spaces that were left when the server ended", left.len());
        }
        for row in left {
            let _changing = self.0.changing.lock(&row.space.id).await;
            self.0.emit_pending(row.space.id).await;
        }
        self.0.agents.write().paused = false;
        for space in self.all() {
            self.0.watch_agent(space.id);
        }
    }

    /// Reports agents with `agent.lost` that are away for this long, of spaces that are deployed. To be called before
    /// [`Spaces::resume`].
    pub fn report_lost_agents(&self, after: Duration) {
        self.0.agents.write().lost_after = Some(after);
    }

    /// Stops counting missed checks of lost agents, for a server that is about to stop.
    pub fn pause(&self) {
        let mut agents = self.0.agents.write();
        agents.paused = true;
        for agent in agents.spaces.values_mut() {
            agent.silence = None;
            agent.loss = None;
        }
    }

    /// Makes a space, and its agent's token unless the server is to run the agent. Only the token's digest is stored.
    ///
    /// # Errors
    ///
    /// Fails if the settings are unfit, the owner has a space of that name or too many, or the store cannot be written.
    pub async fn create(&self, by: Actor, new: NewSpace) -> Result<(Arc<Space>, Option<Secret>), SpaceError> {
        let NewSpace { name, owner, template_id, driver, settings } = new;
        settings.check(driver)?;
        self.0.records.store().check_room()?;
        let secret = match driver {
            Driver::External => Some(Secret::new(AGENT_PREFIX)),
            Driver::Process => None,
        };
        let now = Timestamp::now();
        let space = Arc::new(Space {
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
            agent_lost_at: None,
        });
        let (state, token) = (self.0.clone(), secret.as_ref().map(Secret::digest));
        let created = run_to_completion(async move {
            let _changing = state.changing.lock(&space.id).await;
            let outbox = vec![PendingEvent::created(&space, by.clone())];
            let audit = audit_entry(by, "space.create", &space);
            let row = SpaceRow { space: space.clone(), token, outbox, deleted: false };
            state.records.create(row, written(Some(audit))).await?;
            state.emit_pending(space.id).await;
            Ok::<_, SpaceError>(space)
        });
        Ok((created.await?, secret))
    }

    /// Changes the settings of a space; `change` gets the space and returns the new settings.
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
        self.change(id, move |present| {
            let before = present.space.clone();
            let settings = change(&before)?;
            if settings == before.settings {
                return Ok(SpaceTransition::to(Space::clone(&before), present));
            }
            settings.check(before.driver).map_err(SpaceError::from)?;
            // Without a check the health is unknown.
            let health = if settings.health_check.is_some() { before.health } else { SpaceHealth::Unknown };
            let after = Space { settings, health, updated_at: Timestamp::now(), ..Space::clone(&before) };
            Ok(SpaceTransition::to(after, present).audited(by, "space.update"))
        })
        .await
    }

    /// Deletes a space: it is gone for everybody, and so is its agent's token.
    ///
    /// # Errors
    ///
    /// Fails if it is gone already, or the store cannot be written.
    pub async fn delete(&self, by: Actor, id: SpaceId) -> Result<Arc<Space>, SpaceError> {
        let state = self.0.clone();
        run_to_completion(async move {
            let _changing = state.changing.lock(&id).await;
            let (row, revision) = state.row_revision(id).ok_or(SpaceError::NotFound)?;
            let space = row.space.clone();
            let mut row = SpaceRow { deleted: true, token: None, ..SpaceRow::clone(&row) };
            row.outbox.push(PendingEvent::deleted(&space, by.clone(), Timestamp::now()));
            let audit = audit_entry(by, "space.delete", &space);
            let changes = Changes::new().put(row, Precondition::Revision(revision)).with(written(Some(audit)));
            state.records.commit(changes).await?;
            state.emit_pending(id).await;
            Ok(space)
        })
        .await
    }

    /// Gives the space's agent a new token, and makes the old one invalid.
    ///
    /// # Errors
    ///
    /// Fails if the space is gone, the server runs its agent, or the store cannot be written.
    pub async fn rotate_token(&self, by: Actor, id: SpaceId) -> Result<(Arc<Space>, Secret), SpaceError> {
        let secret = Secret::new(AGENT_PREFIX);
        let digest = secret.digest();
        let rotated = self.change(id, move |present| {
            let space = Space::clone(&present.space);
            if space.driver == Driver::Process {
                return Err(SpaceError::NoToken(space.name));
            }
            Ok(SpaceTransition::to(space, present).with_token(digest).audited(by, "space.token"))
        });
        Ok((rotated.await?, secret))
    }

    /// Has the server run the space's agent from now on. The space is deployed once the agent links.
    ///
    /// # Errors
    ///
    /// Fails if the space is gone, somebody else runs its agent, it is started already, or the store cannot be written.
    pub async fn start(&self, by: Actor, id: SpaceId) -> Result<Arc<Space>, SpaceError> {
        self.change(id, move |present| {
            let before = present.space.clone();
            let name = || before.name.clone();
            match (before.driver, before.state) {
                (Driver::External, SpaceState::Deployed) => return Err(SpaceError::AlreadyStarted(name())),
                (Driver::External, _) => return Err(SpaceError::StartExternal(name())),
                (Driver::Process, _) if before.launched => return Err(SpaceError::AlreadyStarted(name())),
                (Driver::Process, _) => {}
            }
            let after = Space { launched: true, updated_at: Timestamp::now(), ..Space::clone(&before) };
            Ok(SpaceTransition::to(after, present).audited(by, "space.start"))
        })
        .await
    }

    /// Stops a space, whether its agent is there or not.
    ///
    /// # Errors
    ///
    /// Fails if the space is gone or does not run, or the store cannot be written.
    pub async fn stop(&self, by: Actor, id: SpaceId) -> Result<Arc<Space>, SpaceError> {
        self.change(id, move |present| {
            let before = present.space.clone();
            match before.state {
                SpaceState::Deployed => Ok(SpaceTransition::to_stopped(present, by)),
                // Its agent was launched and never linked.
                SpaceState::Created | SpaceState::Stopped if before.launched => {
                    let after = Space { launched: false, updated_at: Timestamp::now(), ..Space::clone(&before) };
                    Ok(SpaceTransition::to(after, present).audited(by, "space.stop"))
                }
                SpaceState::Created | SpaceState::Stopped => Err(SpaceError::NotRunning(before.name.clone())),
            }
        })
        .await
    }
}
