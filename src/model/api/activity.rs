//! Figures of the last hour: events, attempts and losses by minute, and what needs attention now.

use super::{lenient::Lenient, sinks::SinkStatus};
use crate::model::{id::SinkId, timestamp::Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The last hour since the server started, as far as the caller may see it. The figures may be a second old.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Activity")]
pub struct RecentActivityView {
    /// The start of the first minute that is counted.
    pub from: Timestamp,
    /// Accepted events by minute, oldest first, the present minute last.
    pub events: Vec<u32>,
    /// Attempts that delivered the event, or whose script declined it, by minute.
    pub delivered: Vec<u32>,
    /// Attempts that failed, by minute.
    pub failed: Vec<u32>,
    /// Events that sinks lost because their queue was full, by minute.
    pub dropped: Vec<u32>,
    pub queues: QueueTotals,
    pub sinks: SinkTotals,
    /// Sinks that are failing, dropping or in quarantine: at most 20 of them.
    pub troubled: Vec<TroubledSink>,
    pub spaces: SpaceTotals,
}

/// The queues of all sinks and subscriptions.
#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct QueueTotals {
    /// Undelivered events.
    pub depth: usize,
    pub dead: usize,
    /// The time at which the oldest undelivered event was accepted; null if there is none.
    pub oldest_waiting_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
pub struct SinkTotals {
    pub total: usize,
    pub paused: usize,
    pub quarantined: usize,
    pub failing: usize,
    pub dropping: usize,
}

/// A sink that needs attention.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub struct TroubledSink {
    pub sink_id: SinkId,
    pub name: String,
    pub status: Lenient<SinkStatus>,
    pub depth: usize,
    pub dead: usize,
    /// The last error of an attempt; null if there was none in the last hour.
    pub last_error: Option<String>,
}

#[derive(Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
pub struct SpaceTotals {
    pub total: usize,
    pub deployed: usize,
    pub unhealthy: usize,
    /// Deployed spaces whose agent is not connected.
    pub away: usize,
}

impl SinkTotals {
    pub fn add(&mut self, other: &Self) {
        let Self { total, paused, quarantined, failing, dropping } = other;
        self.total += total;
        self.paused += paused;
        self.quarantined += quarantined;
        self.failing += failing;
        self.dropping += dropping;
    }
}
