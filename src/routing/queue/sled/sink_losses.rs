//! The events that a sink did not get: its dead letters, the numbers it was not told of, and the audit entries of the
//! minute.

use super::{audit_bursts::LossBursts, gaps::Gaps};
use std::collections::VecDeque;

/// The losses of one sink.
#[derive(Debug, Default)]
pub(super) struct SinkLosses {
    /// The sequence numbers of the dead letters, oldest first. Only the writer thread changes them.
    pub dead_letters: VecDeque<u64>,
    /// The numbers that the sink misses and was not told of.
    pub gaps: Gaps,
    /// Events that the sink has lost in the present minute.
    pub bursts: LossBursts,
}

impl SinkLosses {
    /// Those of a sink that has lost nothing.
    pub const NONE: &'static Self = &Self { dead_letters: VecDeque::new(), gaps: Gaps::NONE, bursts: LossBursts::NONE };
}
