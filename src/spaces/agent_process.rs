//! The state of an agent process that the server supervises.

/// An agent process that the server supervises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentProcess {
    /// `None` between two launches.
    pub pid: Option<u32>,
    /// The number of launches since the space, or the server, was started.
    pub launches: u32,
    /// The reason the last launch ended.
    pub trouble: Option<String>,
}
