//! The services that attempts at sinks use.

use crate::{
    platform::egress::Egress,
    scripting::{scripts::Scripts, workers::LuaWorkers},
};
use std::time::Duration;

/// The services that every attempt at a sink uses. Cloning it is cheap.
#[derive(Clone)]
pub struct SinkContext {
    pub egress: Egress,
    pub workers: LuaWorkers,
    /// The stored scripts that sinks name.
    pub scripts: Scripts,
    /// The limit of one webhook exchange, from resolving the host to the end of the response.
    pub timeout: Duration,
}
