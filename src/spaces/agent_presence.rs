//! The presence of the spaces' agents, in memory only: their links, the checks that failed in a row, and the last
//! result.

use super::{agent_process::AgentProcess, row::SpaceRow};
use crate::model::{health_check::CheckResult, id::SpaceId};
use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};
use tokio_util::task::AbortOnDropHandle;

/// The presence of every space's agent.
#[derive(Default)]
pub(super) struct AgentPresences {
    pub spaces: HashMap<SpaceId, AgentPresence>,
    /// Spaces whose events wait for room on the disk.
    pub emitting_later: HashSet<SpaceId>,
    /// The time after which an agent that is away is reported as lost; `None` reports none.
    pub lost_after: Option<Duration>,
    /// True before the start and during shutdown: missed checks of lost agents are not counted.
    pub paused: bool,
}

/// The presence of one space's agent.
#[derive(Default)]
pub(super) struct AgentPresence {
    /// Number of links; two for a moment, while a newer one replaces an older one.
    pub links: usize,
    /// Number of links that are being made. The agent is not there yet, and no missed check is counted.
    pub claims: usize,
    /// Checks that failed since one succeeded.
    pub failures: u32,
    pub last_check: Option<CheckResult>,
    /// The task that counts the checks a lost agent misses; dropping the handle ends it.
    pub silence: Option<AbortOnDropHandle<()>>,
    /// The agent was linked since the server started.
    pub was_linked: bool,
    /// The task that reports the agent as lost, if it stays away.
    pub loss: Option<AbortOnDropHandle<()>>,
    /// The agent's process, if the server runs it.
    pub running: Option<AgentProcess>,
}

/// The health of a space's agent as the API shows it.
#[derive(Clone, Debug, Default)]
pub struct SpaceStatus {
    /// True if its agent is linked.
    pub linked: bool,
    pub consecutive_failures: u32,
    pub last_check: Option<CheckResult>,
    /// The agent's process, if the server runs it.
    pub running: Option<AgentProcess>,
}

impl AgentPresence {
    /// True if the agent is neither there nor about to be.
    pub const fn is_lost(&self) -> bool {
        self.links + self.claims == 0
    }

    /// Resets the counts if the change gives the space another state or another check.
    pub fn follow(&mut self, before: &SpaceRow, after: &SpaceRow) {
        let same_check = after.space.settings.health_check == before.space.settings.health_check;
        if after.space.state != before.space.state || !same_check {
            (self.failures, self.last_check, self.silence) = (0, None, None);
        }
    }

    pub fn status(&self) -> SpaceStatus {
        SpaceStatus {
            linked: self.links > 0,
            consecutive_failures: self.failures,
            last_check: self.last_check.clone(),
            running: self.running.clone(),
        }
    }
}
