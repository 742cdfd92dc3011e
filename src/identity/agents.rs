//! The agents of spaces: which token opens the server to which. The records are the spaces' own; this is the index that
//! the space module fills when it opens and keeps in step with every change.

use super::{Digest, Identity};
use crate::model::id::{SpaceId, UserId};
use std::collections::HashMap;

/// What agents' tokens begin with.
pub const AGENT_PREFIX: &str = "sva_";

/// The tokens in force, at most one a space.
#[derive(Clone, Default)]
pub(super) struct Agents {
    by_digest: HashMap<Digest, Agent>,
    by_space: HashMap<SpaceId, Digest>,
}

/// Whom a token lets in.
#[derive(Clone, Copy)]
pub(super) struct Agent {
    pub space: SpaceId,
    pub owner: UserId,
}

impl Agents {
    pub fn find(&self, digest: &Digest) -> Option<&Agent> {
        self.by_digest.get(digest)
    }

    fn admit(&mut self, digest: Digest, agent: Agent) {
        self.revoke(agent.space);
        self.by_digest.insert(digest, agent);
        self.by_space.insert(agent.space, digest);
    }

    fn revoke(&mut self, space: SpaceId) {
        if let Some(digest) = self.by_space.remove(&space) {
            self.by_digest.remove(&digest);
        }
    }
}

impl Identity {
    /// Lets the agent of a space in by the token of this digest from now on, and by no earlier one. It acts as the
    /// owner.
    pub fn admit_agent(&self, digest: Digest, space: SpaceId, owner: UserId) {
        self.change_agents(|agents| agents.admit(digest, Agent { space, owner }));
    }

    /// Lets the agent of a space in no more.
    pub fn revoke_agent(&self, space: SpaceId) {
        self.change_agents(|agents| agents.revoke(space));
    }

    fn change_agents(&self, change: impl FnOnce(&mut Agents)) {
        change(&mut self.0.state.write().agents);
        self.0.changed.send_replace(());
    }
}
