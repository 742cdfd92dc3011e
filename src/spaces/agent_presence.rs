//! What is known of the agents of spaces at this moment and kept in memory alone: whether one is linked, how many checks
//! have failed in a row, what the last one found.

use super::{agent_process::AgentProcess, row::SpaceRow};
use crate::model::{health_check::CheckResult, id::SpaceId};
use std::collections::{HashMap, HashSet};
use tokio_util::task::AbortOnDropHandle;

/// The presence of every space's agent.
#[derive(Default)]
pub(super) struct AgentPresences {
    pub spaces: HashMap<SpaceId, AgentPresence>,
    /// Spaces whose events wait for room on the disk.
    pub emitting_later: HashSet<SpaceId>,
    /// Nothing is counted against lost agents: before the start, and during shutdown.
    pub paused: bool,
}

/// The presence of one space's agent.
#[derive(Default)]
pub(super) struct AgentPresence {
    /// Agents linked. Two for a moment, while a newer link replaces an older one.
    pub links: usize,
    /// Links in the making: nothing is counted against the agent, but it is not there yet.
    pub claims: usize,
    /// Checks that failed since one succeeded.
    pub failures: u32,
    pub last_check: Option<CheckResult>,
    /// Counts the checks that a lost agent does not make, for as long as the handle lives.
    pub silence: Option<AbortOnDropHandle<()>>,
    /// Of a space whose agent the server runs.
    pub running: Option<AgentProcess>,
}

/// The health of a space's agent as the API shows it.
#[derive(Clone, Debug, Default)]
pub struct SpaceStatus {
    /// True if its agent is linked.
    pub linked: bool,
    pub consecutive_failures: u32,
    pub last_check: Option<CheckResult>,
    /// Of a space whose agent the server runs.
    pub running: Option<AgentProcess>,
}

impl AgentPresence {
    /// True if the agent is neither there nor about to be.
    pub const fn is_lost(&self) -> bool {
        self.links + self.claims == 0
    }

    /// Forgets the counts if the change makes them be about something else.
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
