//! A space's way through its states: started and stopped by its owner, linked, checked and left by its agent, counted
//! against while the agent is lost. The record of it is in [`super::records`].

use super::{
    Change, Space, SpaceError, Spaces,
    index::Entry,
    outbox::Pending,
    records::{Shared, Step},
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

/// Characters kept of what a check found.
const DETAIL_KEPT: usize = 500;

/// How an agent comes to be linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It was just started.
    New,
    /// It was linked before, and lost its link. If its space was stopped meanwhile, that was meant for it.
    Returning,
}

/// Who says how a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Witness {
    Agent,
    /// The server, of an agent it has lost.
    Server,
}

/// A link that is being made. Dropped before it is kept, it was none.
struct Claim<'a> {
    spaces: &'a Spaces,
    id: SpaceId,
}

impl Spaces {
    /// Has the server run the space's agent from now on. The space is deployed once the agent links.
    ///
    /// # Errors
    ///
    /// Fails if the space is gone, somebody else runs its agent, it is started already, or the store cannot be written.
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
            let step = Step::new(after, entry).audited(by, "space.start");
            Ok(step.telling(|after| Change::Updated { before, after }))
        })
        .await
    }

    /// Stops a space, whether its agent is there or not.
    ///
    /// # Errors
    ///
    /// Fails if the space is gone or does not run, or the store cannot be written.
    pub async fn stop(&self, by: Actor, id: SpaceId) -> Result<Arc<Space>, SpaceError> {
        self.change(id, move |entry| {
            let before = entry.space.clone();
            match before.state {
                SpaceState::Deployed => Ok(Step::stopping(entry, by)),
                // Its agent was on its way, and never arrived.
                SpaceState::Created | SpaceState::Stopped if before.launched => {
                    let after = Space { launched: false, updated_at: Timestamp::now(), ..Space::clone(&before) };
                    let step = Step::new(after, entry).audited(by, "space.stop");
                    Ok(step.telling(|after| Change::Updated { before, after }))
                }
                SpaceState::Created | SpaceState::Stopped => Err(SpaceError::NotRunning(before.name.clone())),
            }
        })
        .await
    }

    /// A token for the agent that the server is about to run. It is good until the next one, or until the space stops.
    ///
    /// # Errors
    ///
    /// Fails if the space is gone or not to run.
    pub fn launch_token(&self, id: SpaceId) -> Result<Secret, SpaceError> {
        let shelf = self.0.read();
        let space = &shelf.spaces.get(&id).ok_or(SpaceError::NotFound)?.space;
        if !space.launched {
            return Err(SpaceError::NotLaunched(space.name.clone()));
        }
        let secret = Secret::new(AGENT_PREFIX);
        self.0.identity.admit_agent(secret.digest(), id, space.owner);
        Ok(secret)
    }

    /// The space's agent is linked, from a machine it calls `node_id`: the space is deployed, if it was not. Each
    /// `linked` that succeeds is followed by one [`Spaces::unlinked`] when that link is over.
    ///
    /// # Errors
    ///
    /// Fails if the space is gone, its agent is not to run or was stopped while it was away, or the store cannot be written. The agent is not linked then.
    pub async fn linked(&self, id: SpaceId, node_id: &str, arrival: Arrival) -> Result<Arc<Space>, SpaceError> {
        let (node_id, shared) = (node_id.to_owned(), self.0.clone());
        // From here on nothing is counted against it; a caller that goes away before the end makes no use of the link.
        let claim = Claim::new(self, id)?;
        let linked = self.change(id, move |entry| {
            let before = &entry.space;
            if before.driver == Driver::Process && !before.launched {
                return Err(SpaceError::NotLaunched(before.name.clone()));
            }
            if before.driver == Driver::External && before.state == SpaceState::Stopped && arrival == Arrival::Returning
            {
                return Err(SpaceError::WasStopped(before.name.clone()));
            }
            let mut after = Space { node_id: Some(node_id), ..Space::clone(before) };
            if before.state == SpaceState::Deployed {
                return Ok(Step::new(after, entry));
            }
            let now = Timestamp::now();
            after = Space { state: SpaceState::Deployed, started_at: Some(now), updated_at: now, ..after };
            let actor = shared.agent(after.owner);
            let event = Pending::started(&after, actor.clone());
            let step = Step::new(after, entry).raising(event);
            Ok(step.audited(actor, "space.deploy").telling(Change::Started))
        });
        linked.await?;
        claim.keep()
    }

    /// The space's agent ends of its own accord, its link not yet over: the space is stopped. It is not if the server
    /// runs the agent, and so starts it again, nor if another agent has taken its place: who restarts an agent may have
    /// the new one linked before the old one's last word is heard.
    ///
    /// # Errors
    ///
    /// Fails if the space is gone, or the store cannot be written.
    pub async fn goodbye(&self, id: SpaceId) -> Result<(), SpaceError> {
        let shared = self.0.clone();
        self.change(id, move |entry| {
            let (space, succeeded) = (&entry.space, entry.links > 1);
            if space.state != SpaceState::Deployed || space.launched || succeeded {
                return Ok(Step::new(Space::clone(space), entry));
            }
            let actor = shared.agent(space.owner);
            Ok::<_, SpaceError>(Step::stopping(entry, actor))
        })
        .await
        .map(drop)
    }

    /// A link of the space's agent is over. If it was the last, every interval until there is another counts as a
    /// failed check. To be called within a tokio runtime.
    pub fn unlinked(&self, id: SpaceId) {
        if let Some(entry) = self.0.write().spaces.get_mut(&id) {
            entry.links = entry.links.saturating_sub(1);
        }
        self.0.watch_silence(id);
    }

    /// The agent has checked its space. Only a change of health is written and raised; what is reported of a space that
    /// is not deployed, or has no check, is ignored.
    ///
    /// # Errors
    ///
    /// Fails if the space is gone, or the store cannot be written.
    pub async fn checked(&self, id: SpaceId, result: CheckResult) -> Result<(), SpaceError> {
        self.judge(id, result, Witness::Agent).await
    }

    async fn judge(&self, id: SpaceId, mut result: CheckResult, witness: Witness) -> Result<(), SpaceError> {
        if let Some(detail) = &mut result.detail
            && let Some((end, _)) = detail.char_indices().nth(DETAIL_KEPT)
        {
            detail.truncate(end);
        }
        let shared = self.0.clone();
        self.change(id, move |entry| {
            let space = &entry.space;
            let unchanged = |entry: &Entry| Ok::<_, SpaceError>(Step::new(Space::clone(&entry.space), entry));
            let Some(check) = space.settings.health_check.as_ref() else { return unchanged(entry) };
            // An agent may have come back while the count waited for its turn.
            let doubtful = witness == Witness::Server && !entry.is_lost();
            if space.state != SpaceState::Deployed || doubtful {
                return unchanged(entry);
            }
            let failures = if result.ok { 0 } else { entry.failures.saturating_add(1) };
            let (previous, verdict) = (space.health, check.verdict(space.health, failures));
            entry.failures = failures;
            entry.last_check = Some(result.clone());
            let Some(health) = verdict else { return unchanged(entry) };
            let after = Space { health, ..Space::clone(&entry.space) };
            let actor = match witness {
                Witness::Agent => shared.agent(after.owner),
                Witness::Server => Actor::system(),
            };
            let event = Pending::judged(&after, actor, previous, failures, &result);
            Ok(Step::new(after, entry).raising(event))
        })
        .await
        .map(drop)
    }
}

impl<'a> Claim<'a> {
    fn new(spaces: &'a Spaces, id: SpaceId) -> Result<Self, SpaceError> {
        let mut shelf = spaces.0.write();
        let entry = shelf.spaces.get_mut(&id).ok_or(SpaceError::NotFound)?;
        entry.claims += 1;
        entry.silence = None;
        Ok(Self { spaces, id })
    }

    /// The link is made.
    fn keep(self) -> Result<Arc<Space>, SpaceError> {
        let mut shelf = self.spaces.0.write();
        let entry = shelf.spaces.get_mut(&self.id).ok_or(SpaceError::NotFound)?;
        entry.links += 1;
        Ok(entry.space.clone())
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.spaces.0.write().spaces.get_mut(&self.id) {
            entry.claims -= 1;
        }
        self.spaces.0.watch_silence(self.id);
    }
}

impl Shared {
    /// Counts against a space if it is deployed, checked, and without its agent; and only then.
    pub(super) fn watch_silence(self: &Arc<Self>, id: SpaceId) {
        let mut shelf = self.write();
        let paused = shelf.paused;
        let Some(entry) = shelf.spaces.get_mut(&id) else { return };
        let lost = !paused && entry.is_lost() && entry.space.state == SpaceState::Deployed;
        match entry.space.settings.health_check.as_ref().filter(|_| lost) {
            Some(check) if entry.silence.is_none() => {
                let counting = count_silence(Arc::downgrade(self), id, check.interval);
                entry.silence = Some(AbortOnDropHandle::new(tokio::spawn(counting)));
            }
            Some(_) => {}
            None => entry.silence = None,
        }
    }
}

impl Step {
    /// From deployed to stopped.
    fn stopping(entry: &Entry, by: Actor) -> Self {
        let now = Timestamp::now();
        let after = Space {
            state: SpaceState::Stopped,
            launched: false,
            health: SpaceHealth::Unknown,
            stopped_at: Some(now),
            updated_at: now,
            ..Space::clone(&entry.space)
        };
        let event = Pending::stopped(&after, by.clone());
        let step = Self::new(after, entry).raising(event);
        step.audited(by, "space.stop").telling(Change::Stopped)
    }
}

/// Has one check fail at the end of each interval, for as long as it is let.
async fn count_silence(shared: Weak<Shared>, id: SpaceId, interval: Duration) {
    let mut turns = tokio::time::interval_at(Instant::now() + interval, interval);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let _ = turns.tick().await;
        let Some(shared) = shared.upgrade() else { return };
        let detail = Some("the agent is not connected".to_owned());
        let result = CheckResult { ok: false, detail, checked_at: Timestamp::now() };
        match Spaces(shared).judge(id, result, Witness::Server).await {
            Ok(()) => {}
            Err(SpaceError::NotFound) => return,
            Err(error) => log::warn!("the lost agent of space {id} is not counted: {error}"),
        }
    }
}
