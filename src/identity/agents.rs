//! Changes to agent tokens, made by [`crate::spaces`].

use super::{
    agent_tokens::{AgentToken, AgentTokens},
    handle::Identity,
    secret::SecretDigest,
};
use crate::model::id::{SpaceId, UserId};

impl Identity {
    /// Makes the token with this digest the only valid one of the space. Its agent acts as the owner.
    pub fn admit_agent(&self, digest: SecretDigest, space: SpaceId, owner: UserId) {
        self.change_agents(|agents| agents.admit(digest, AgentToken { space, owner }));
    }

    /// Makes the token of a space invalid.
    pub fn revoke_agent(&self, space: SpaceId) {
        self.change_agents(|agents| agents.revoke(space));
    }

    fn change_agents(&self, change: impl FnOnce(&mut AgentTokens)) {
        change(&mut self.0.state.write().agents);
        self.0.changed.send_replace(());
    }
}
