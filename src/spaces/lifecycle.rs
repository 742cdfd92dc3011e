//! The transitions of a space: started and stopped by its owner, connected, checked and left by its agent, and counted as
//! failing while its agent is absent. [`super::records`] stores the result.

use super::{
    error::SpaceError,
    index::SpaceEntry,
    records::{SpaceChange, SpaceTransition, Spaces, SpacesShared},
    space::Space,
    system_events::PendingEvent,
};
use crate::{
    identity::{AGENT_PREFIX, Secret},
    model::{
        event::Actor,
        health_check::CheckResult,
        id::SpaceId,
        space_settings::Driver,
        space_state::{SpaceHealth, SpaceState},
        timestamp::Timestamp,
    },
};
use std::{
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::task::AbortOnDropHandle;

/// The longest stored detail of a check, in characters.
const MAX_DETAIL: usize = 500;

/// The circumstances in which an agent connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentConnect {
    /// It was just started.
    Started,
    /// It was connected before and lost the connection. A stop of the space in between is meant for it.
    Reconnected,
}

/// The reporter of a check result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckReporter {
    Agent,
    /// The server, on behalf of an absent agent.
    Server,
}

/// A connection that is being established. Dropping it before [`ConnectionAttempt::keep`] abandons it.
struct ConnectionAttempt<'a> {
    spaces: &'a Spaces,
    id: SpaceId,
}

impl Spaces {
    /// Makes the server run the space's agent. The space is deployed once the agent connects.
    pub async fn start(&self, by: Actor, id: SpaceId) -> Result<Arc<Space>, SpaceError> {
        self.change(id, move |entry| {
            let before = entry.space.clone();
            let name = || before.name.clone();
            match (before.driver, before.state) {
                (Driver::External, SpaceState::Deployed) => return Err(SpaceError::AlreadyStarted(name())),
                (Driver::External, _) => return Err(SpaceError::StartExternal(name())),
                (Driver::Process, _) if before.launched => return Err(SpaceError::AlreadyStarted(name())),
                (Driver::Process, _) => {}
            }
            let after = Space { launched: true, updated_at: Timestamp::now(), ..Space::clone(&before) };
            let step = SpaceTransition::new(after, entry).audited(by, "space.start");
            Ok(step.notifying(|after| SpaceChange::Updated { before, after }))
        })
        .await
    }

    /// Stops a space, with or without a connected agent.
    pub async fn stop(&self, by: Actor, id: SpaceId) -> Result<Arc<Space>, SpaceError> {
        self.change(id, move |entry| {
            let before = entry.space.clone();
            match before.state {
                SpaceState::Deployed => Ok(SpaceTransition::stopping(entry, by)),
                // The agent was launched and never connected.
                SpaceState::Created | SpaceState::Stopped if before.launched => {
                    let after = Space { launched: false, updated_at: Timestamp::now(), ..Space::clone(&before) };
                    let step = SpaceTransition::new(after, entry).audited(by, "space.stop");
                    Ok(step.notifying(|after| SpaceChange::Updated { before, after }))
                }
                SpaceState::Created | SpaceState::Stopped => Err(SpaceError::NotRunning(before.name.clone())),
            }
        })
        .await
    }

    /// Issues a token for the agent that the server is about to launch. It is valid until the next one is issued or the
    /// space stops.
    pub fn launch_token(&self, id: SpaceId) -> Result<Secret, SpaceError> {
        let index = self.0.read();
        let space = &index.spaces.get(&id).ok_or(SpaceError::NotFound)?.space;
        if !space.launched {
            return Err(SpaceError::NotLaunched(space.name.clone()));
        }
        let secret = Secret::new(AGENT_PREFIX);
        self.0.identity.admit_agent(secret.digest(), id, space.owner);
        Ok(secret)
    }

    /// Records that the space's agent connected from the machine `node_id`, and deploys the space if it was not deployed.
    /// The caller calls [`Spaces::unlinked`] once for each success, when the connection ends.
    pub async fn linked(&self, id: SpaceId, node_id: &str, connect: AgentConnect) -> Result<Arc<Space>, SpaceError> {
        let (node_id, shared) = (node_id.to_owned(), self.0.clone());
        // From here on the agent does not count as absent. A caller that is dropped before the end abandons the attempt.
        let attempt = ConnectionAttempt::new(self, id)?;
        let linked = self.change(id, move |entry| {
            let before = &entry.space;
            if before.driver == Driver::Process && !before.launched {
                return Err(SpaceError::NotLaunched(before.name.clone()));
            }
            if before.driver == Driver::External
                && before.state == SpaceState::Stopped
                && connect == AgentConnect::Reconnected
            {
                return Err(SpaceError::WasStopped(before.name.clone()));
            }
            let mut after = Space { node_id: Some(node_id), ..Space::clone(before) };
            if before.state == SpaceState::Deployed {
                return Ok(SpaceTransition::new(after, entry));
            }
            let now = Timestamp::now();
            after = Space { state: SpaceState::Deployed, started_at: Some(now), updated_at: now, ..after };
            let actor = shared.agent(after.owner);
            let event = PendingEvent::started(&after, actor.clone());
            let step = SpaceTransition::new(after, entry).emitting(event);
            Ok(step.audited(actor, "space.deploy").notifying(SpaceChange::Started))
        });
        linked.await?;
        attempt.keep()
    }

    /// Stops the space because its agent announced its end over a connection that is still open.
    ///
    /// The space stays deployed if the server runs the agent and so restarts it, or if another agent is connected: after a
    /// manual restart the new agent may connect before the goodbye of the old one arrives.
    pub async fn goodbye(&self, id: SpaceId) -> Result<(), SpaceError> {
        let shared = self.0.clone();
        self.change(id, move |entry| {
            let (space, succeeded) = (&entry.space, entry.links > 1);
            if space.state != SpaceState::Deployed || space.launched || succeeded {
                return Ok(SpaceTransition::new(Space::clone(space), entry));
            }
            let actor = shared.agent(space.owner);
            Ok::<_, SpaceError>(SpaceTransition::stopping(entry, actor))
        })
        .await
        .map(drop)
    }

    /// Records the end of a connection of the space's agent. After the last one, every interval without a connection counts
    /// as a failed check. Must be called within a tokio runtime.
    pub fn unlinked(&self, id: SpaceId) {
        if let Some(entry) = self.0.write().spaces.get_mut(&id) {
            entry.links = entry.links.saturating_sub(1);
        }
        self.0.watch_absence(id);
    }

    /// Records a check result from the agent. Only a change of health is written and emitted. Results are ignored for a space
    /// that is not deployed or has no check.
    pub async fn checked(&self, id: SpaceId, result: CheckResult) -> Result<(), SpaceError> {
        self.apply_check(id, result, CheckReporter::Agent).await
    }

    async fn apply_check(
        &self,
        id: SpaceId,
        mut result: CheckResult,
        reporter: CheckReporter,
    ) -> Result<(), SpaceError> {
        if let Some(detail) = &mut result.detail
            && let Some((end, _)) = detail.char_indices().nth(MAX_DETAIL)
        {
            detail.truncate(end);
        }
        let shared = self.0.clone();
        self.change(id, move |entry| {
            let space = &entry.space;
            let unchanged =
                |entry: &SpaceEntry| Ok::<_, SpaceError>(SpaceTransition::new(Space::clone(&entry.space), entry));
            let Some(check) = space.settings.health_check.as_ref() else { return unchanged(entry) };
            // The agent may have reconnected while this change waited for the lock.
            let doubtful = reporter == CheckReporter::Server && !entry.is_absent();
            if space.state != SpaceState::Deployed || doubtful {
                return unchanged(entry);
            }
            let failures = if result.ok { 0 } else { entry.failures.saturating_add(1) };
            let (previous, verdict) = (space.health, check.verdict(space.health, failures));
            entry.failures = failures;
            entry.last_check = Some(result.clone());
            let Some(health) = verdict else { return unchanged(entry) };
            let after = Space { health, ..Space::clone(&entry.space) };
            let actor = match reporter {
                CheckReporter::Agent => shared.agent(after.owner),
                CheckReporter::Server => Actor::system(),
            };
            let event = PendingEvent::health_changed(&after, actor, previous, failures, &result);
            Ok(SpaceTransition::new(after, entry).emitting(event))
        })
        .await
        .map(drop)
    }
}

impl<'a> ConnectionAttempt<'a> {
    fn new(spaces: &'a Spaces, id: SpaceId) -> Result<Self, SpaceError> {
        let mut index = spaces.0.write();
        let entry = index.spaces.get_mut(&id).ok_or(SpaceError::NotFound)?;
        entry.connecting += 1;
        entry.absence = None;
        Ok(Self { spaces, id })
    }

    /// Completes the attempt.
    fn keep(self) -> Result<Arc<Space>, SpaceError> {
        let mut index = self.spaces.0.write();
        let entry = index.spaces.get_mut(&self.id).ok_or(SpaceError::NotFound)?;
        entry.links += 1;
        Ok(entry.space.clone())
    }
}

impl Drop for ConnectionAttempt<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.spaces.0.write().spaces.get_mut(&self.id) {
            entry.connecting -= 1;
        }
        self.spaces.0.watch_absence(self.id);
    }
}

impl SpacesShared {
    /// Starts or stops the count of missed checks: it runs while a deployed space with a check has no agent.
    pub(super) fn watch_absence(self: &Arc<Self>, id: SpaceId) {
        let mut index = self.write();
        let paused = index.paused;
        let Some(entry) = index.spaces.get_mut(&id) else { return };
        let lost = !paused && entry.is_absent() && entry.space.state == SpaceState::Deployed;
        match entry.space.settings.health_check.as_ref().filter(|_| lost) {
            Some(check) if entry.absence.is_none() => {
                let counting = count_absence(Arc::downgrade(self), id, check.interval);
                entry.absence = Some(AbortOnDropHandle::new(tokio::spawn(counting)));
            }
            Some(_) => {}
            None => entry.absence = None,
        }
    }
}

impl SpaceTransition {
    /// The transition from deployed to stopped.
    fn stopping(entry: &SpaceEntry, by: Actor) -> Self {
        let now = Timestamp::now();
        let after = Space {
            state: SpaceState::Stopped,
            launched: false,
            health: SpaceHealth::Unknown,
            stopped_at: Some(now),
            updated_at: now,
            ..Space::clone(&entry.space)
        };
        let event = PendingEvent::stopped(&after, by.clone());
        let step = Self::new(after, entry).emitting(event);
        step.audited(by, "space.stop").notifying(SpaceChange::Stopped)
    }
}

/// Records a failed check at the end of each interval, until the task is aborted.
async fn count_absence(shared: Weak<SpacesShared>, id: SpaceId, interval: Duration) {
    let mut turns = tokio::time::interval_at(Instant::now() + interval, interval);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let _ = turns.tick().await;
        let Some(shared) = shared.upgrade() else { return };
        let detail = Some("the agent is not connected".to_owned());
        let result = CheckResult { ok: false, detail, checked_at: Timestamp::now() };
        match Spaces(shared).apply_check(id, result, CheckReporter::Server).await {
            Ok(()) => {}
            Err(SpaceError::NotFound) => return,
            Err(error) => log::warn!("cannot record the missed check of space {id}: {error}"),
        }
    }
}
