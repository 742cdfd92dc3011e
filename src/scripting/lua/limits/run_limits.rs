//! The limits of one run, from the settings `script.wall`, `script.cpu` and `script.memory`.

use crate::{
    model::units::{Size, Span},
    platform::config,
};
use mlua::Lua;
use std::{fmt, time::Duration};

/// The most that one run may use.
#[derive(Clone, Copy, Debug)]
pub(in crate::scripting) struct RunLimits {
    /// Wall-clock time, waiting included.
    pub wall: Duration,
    /// Processor time.
    pub cpu: Duration,
    /// Bytes that the Lua state may hold; 0 for no limit.
    pub memory: usize,
}

/// The limit that a run exceeded, or the reason it was ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitExceeded {
    Wall(Duration),
    Cpu(Duration),
    /// The memory limit, in bytes.
    Memory(usize),
    /// The caller no longer waits for the run.
    Cancelled,
    /// The runtime shuts down.
    Stopped,
}

impl RunLimits {
    /// Sets the memory limit of a Lua state. Lua's allocator enforces it from then on.
    pub fn limit_memory(self, lua: &Lua) -> mlua::Result<()> {
        lua.set_memory_limit(self.memory).map(drop)
    }
}

impl From<&config::ScriptConfig> for RunLimits {
    fn from(config: &config::ScriptConfig) -> Self {
        Self { wall: config.wall.0, cpu: config.cpu.0, memory: config.memory.bytes() }
    }
}

impl fmt::Display for LimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wall(limit) => write!(f, "took longer than {}", Span(*limit)),
            Self::Cpu(limit) => write!(f, "took more than {} of processor time", Span(*limit)),
            Self::Memory(limit) => write!(f, "needed more than {} of memory", Size(*limit as u64)),
            Self::Cancelled => f.write_str("was cancelled"),
            Self::Stopped => f.write_str("was stopped: the server shuts down"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_reads_as_a_sentence_about_the_run() {
        assert_eq!(LimitExceeded::Cpu(Duration::from_secs(1)).to_string(), "took more than 1s of processor time");
        assert_eq!(LimitExceeded::Memory(32 << 20).to_string(), "needed more than 32MiB of memory");
    }
}
