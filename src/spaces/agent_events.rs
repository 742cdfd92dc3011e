//! Changes to a space that come from its agent: linked, checked, ended of its own accord, lost.

use super::{
    error::SpaceError,
    records::Spaces,
    space::Space,
    system_events::PendingEvent,
    transition::{CheckReporter, SpaceTransition},
};
use crate::{
    identity::{AGENT_PREFIX, Secret},
    model::{
        health_check::CheckResult, id::SpaceId, space_settings::Driver, space_state::SpaceState, timestamp::Timestamp,
    },
};
use std::sync::Arc;

/// The way in which an agent comes to be linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentConnect {
    /// It was just started.
    Started,
    /// It was connected before and lost the connection. A stop of the space in between is meant for it.
    Reconnected,
}

/// A link that is being made, and is given up if this is dropped before [`Claim::keep`].
struct Claim<'a> {
    spaces: &'a Spaces,
    id: SpaceId,
}

impl Spaces {
    /// Makes a token for the agent that the server is about to run. It is valid until the next one is made, or until
    /// the space stops.
    ///
    /// # Errors
    ///
    /// Fails if the space is gone or not to run.
    pub fn launch_token(&self, id: SpaceId) -> Result<Secret, SpaceError> {
        // Held until the token is admitted: a stop or delete takes this lock before it revokes the token.
        let _agents = self.0.agents.read();
        let space = self.get(id).ok_or(SpaceError::NotFound)?;
        if !space.launched {
            return Err(SpaceError::NotLaunched(space.name.clone()));
        }
        let secret = Secret::new(AGENT_PREFIX);
        self.0.identity.admit_agent(secret.digest(), id, space.owner);
        Ok(secret)
    }

    /// Notes that the space's agent has linked, from the machine `node_id`, and deploys the space if it was not. The
    /// caller calls [`Spaces::unlinked`] once when a successful link is over.
    ///
    /// # Errors
    ///
    /// Fails if the space is gone, its agent is not to run or was stopped while it was away, or the store cannot be
    /// written. The agent is not linked then.
    pub async fn linked(&self, id: SpaceId, node_id: &str, arrival: AgentConnect) -> Result<Arc<Space>, SpaceError> {
        let (node_id, state) = (node_id.to_owned(), self.0.clone());
        // From here on no missed check is counted; a caller that is dropped before the end gives the claim up.
        let claim = Claim::new(self, id)?;
        let linked = self.change(id, move |present| {
            let before = &present.space;
            if before.driver == Driver::Process && !before.launched {
                return Err(SpaceError::NotLaunched(before.name.clone()));
            }
            if before.driver == Driver::External
                && before.state == SpaceState::Stopped
                && arrival == AgentConnect::Reconnected
            {
                return Err(SpaceError::WasStopped(before.name.clone()));
            }
            let mut after = Space { node_id: Some(node_id), agent_lost_at: None, ..Space::clone(before) };
            if before.state == SpaceState::Deployed {
                return Ok(SpaceTransition::to(after, present));
            }
            let now = Timestamp::now();
            after = Space { state: SpaceState::Deployed, started_at: Some(now), updated_at: now, ..after };
            let actor = state.agent_actor(after.owner);
            let event = PendingEvent::started(&after, actor.clone());
            Ok(SpaceTransition::to(after, present).emitting(event).audited(actor, "space.deploy"))
        });
        linked.await?;
        claim.keep()
    }

    /// Stops the space because its agent said goodbye, before its link is over. The space stays deployed if the server
    /// runs the agent, since it restarts it, or if a newer agent is linked: after a restart of an agent the new one may
    /// link before the goodbye of the old one arrives.
    ///
    /// # Errors
    ///
    /// Fails if the space is gone, or the store cannot be written.
    pub async fn goodbye(&self, id: SpaceId) -> Result<(), SpaceError> {
        let state = self.0.clone();
        self.change(id, move |present| {
            let (space, succeeded) = (&present.space, present.agent.links > 1);
            if space.state != SpaceState::Deployed || space.launched || succeeded {
                return Ok(SpaceTransition::to(Space::clone(space), present));
            }
            let actor = state.agent_actor(space.owner);
            Ok::<_, SpaceError>(SpaceTransition::to_stopped(present, actor))
        })
        .await
        .map(drop)
    }

    /// Notes that a link of the space's agent is over. If it was the last, every interval without a link counts as a
    /// failed check. To be called within a tokio runtime.
    pub fn unlinked(&self, id: SpaceId) {
        if let Some(agent) = self.0.agents.write().spaces.get_mut(&id) {
            agent.links = agent.links.saturating_sub(1);
        }
        self.0.watch_agent(id);
    }

    /// Counts the result of a health check that the agent made. Only a change of health is written and emitted; a
    /// result for a space that is not deployed, or has no check, is ignored.
    ///
    /// # Errors
    ///
    /// Fails if the space is gone, or the store cannot be written.
    pub async fn checked(&self, id: SpaceId, result: CheckResult) -> Result<(), SpaceError> {
        self.count_check(id, result, CheckReporter::Agent).await
    }
}

impl<'a> Claim<'a> {
    fn new(spaces: &'a Spaces, id: SpaceId) -> Result<Self, SpaceError> {
        let mut agents = spaces.0.agents.write();
        let agent = agents.spaces.get_mut(&id).ok_or(SpaceError::NotFound)?;
        agent.claims += 1;
        (agent.silence, agent.loss) = (None, None);
        Ok(Self { spaces, id })
    }

    /// Turns the claim into a link.
    fn keep(self) -> Result<Arc<Space>, SpaceError> {
        let mut agents = self.spaces.0.agents.write();
        let agent = agents.spaces.get_mut(&self.id).ok_or(SpaceError::NotFound)?;
        agent.links += 1;
        agent.was_linked = true;
        self.spaces.get(self.id).ok_or(SpaceError::NotFound)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Some(agent) = self.spaces.0.agents.write().spaces.get_mut(&self.id) {
            agent.claims -= 1;
        }
        self.spaces.0.watch_agent(self.id);
    }
}
