//! The health of a method server, as its agent reports it and the server and the API show it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// State of a method server.
///
/// An agent reports only `Running` and `Restarting`; the other two are known on one side of the link alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MethodServerHealth {
    Running,
    /// It died and is started again soon. Calls fail at once meanwhile.
    Restarting {
        reason: String,
    },
    /// It was stopped for good, with all of its process group. Known to the agent.
    #[serde(skip_deserializing)]
    Stopped,
    /// Its agent is not connected. Known to the server.
    #[serde(skip_deserializing)]
    Unlinked,
}

/// The word for a method server's health in both APIs; its reason is a field beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MethodServerState {
    Running,
    Restarting,
    Unlinked,
}

impl MethodServerHealth {
    /// The health as an agent reports it: a stopped server counts as one that is restarting.
    pub fn reported(&self) -> Self {
        match self {
            Self::Stopped => Self::Restarting { reason: "it was stopped".to_owned() },
            other => other.clone(),
        }
    }

    /// The word for it in the API. As in [`Self::reported`], a stopped server counts as one that is restarting.
    pub const fn state(&self) -> MethodServerState {
        match self {
            Self::Running => MethodServerState::Running,
            Self::Restarting { .. } | Self::Stopped => MethodServerState::Restarting,
            Self::Unlinked => MethodServerState::Unlinked,
        }
    }

    /// The reason why it does not run, if there is one to show.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Restarting { reason } => Some(reason),
            Self::Running | Self::Stopped | Self::Unlinked => None,
        }
    }
}

impl fmt::Display for MethodServerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Running => "running",
            Self::Restarting => "restarting",
            Self::Unlinked => "unlinked",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_reports_running_and_restarting_and_nothing_else() {
        let restarting = MethodServerHealth::Restarting { reason: "it exited".to_owned() };
        for (health, json) in
            [(MethodServerHealth::Running, r#""running""#), (restarting, r#"{"restarting":{"reason":"it exited"}}"#)]
        {
            assert_eq!(serde_json::to_string(&health).unwrap(), json);
            assert_eq!(serde_json::from_str::<MethodServerHealth>(json).unwrap(), health);
        }
        for json in [r#""stopped""#, r#""unlinked""#] {
            assert!(serde_json::from_str::<MethodServerHealth>(json).is_err(), "{json}");
        }
        let reported = MethodServerHealth::Stopped.reported();
        assert_eq!((reported.state(), reported.reason()), (MethodServerState::Restarting, Some("it was stopped")));
    }
}
