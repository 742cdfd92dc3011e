//! The index of agent tokens: the space and owner that each token stands for.
//!
//! The digests are stored with the spaces. [`crate::spaces`] fills this index when it opens and updates it with every
//! change, through the methods in [`super::agents`].

use super::secret::SecretDigest;
use crate::model::id::{SpaceId, UserId};
use std::collections::HashMap;

/// The prefix of agent tokens.
pub const AGENT_PREFIX: &str = "sva_";

/// The valid agent tokens, at most one per space.
#[derive(Clone, Default)]
pub(super) struct AgentTokens {
    by_digest: HashMap<SecretDigest, AgentToken>,
    by_space: HashMap<SpaceId, SecretDigest>,
}

/// The space that a token belongs to, and the user it acts as.
#[derive(Clone, Copy)]
pub(super) struct AgentToken {
    pub space: SpaceId,
    pub owner: UserId,
}

impl AgentTokens {
    pub fn find(&self, digest: &SecretDigest) -> Option<&AgentToken> {
        self.by_digest.get(digest)
    }

    pub fn admit(&mut self, digest: SecretDigest, agent: AgentToken) {
        self.revoke(agent.space);
        self.by_digest.insert(digest, agent);
        self.by_space.insert(agent.space, digest);
    }

    pub fn revoke(&mut self, space: SpaceId) {
        if let Some(digest) = self.by_space.remove(&space) {
            self.by_digest.remove(&digest);
        }
    }
}
