//! The figures of the last hour of everyone, computed in one walk over sinks, subscriptions and spaces.
//!
//! They are kept by owner, so that [`super::activity`] shows each caller its part without a walk of its own.

use super::sink_status::sink_status;
use crate::{
    delivery::{
        sinks::{Sink, SinkContext, Sinks},
        subscriptions::Subscriptions,
    },
    model::{
        api::{
            activity::{QueueTotals, SinkTotals, SpaceTotals, TroubledSink},
            sinks::SinkStatus,
        },
        id::{SinkId, UserId},
        owner::Owner,
        space_state::{SpaceHealth, SpaceState},
        timestamp::Timestamp,
    },
    routing::{
        activity::{MINUTES, MinuteCounts, RecentActivity},
        queue::Engine,
    },
    spaces::{Space, Spaces},
};
use std::{collections::HashMap, sync::Arc};

/// Troubled sinks that are named.
pub const MAX_TROUBLED: usize = 20;

/// The records that have the figures.
pub struct ActivityRecords {
    pub activity: RecentActivity,
    pub sinks: Sinks,
    pub subscriptions: Subscriptions,
    pub engine: Arc<dyn Engine>,
    pub spaces: Spaces,
    /// Knows the sinks whose Lua is in quarantine.
    pub sink_context: SinkContext,
}

/// The figures of all owners at one time.
pub struct ActivityFigures {
    pub now: Timestamp,
    /// The events of all users.
    pub events: MinuteCounts,
    /// All spaces.
    pub spaces: SpaceTotals,
    pub global_sinks: SinkFigures,
    pub users: HashMap<UserId, UserFigures>,
}

/// The figures of what one user owns.
#[derive(Default)]
pub struct UserFigures {
    pub sinks: SinkFigures,
    pub subscriptions: QueueFigures,
    pub spaces: SpaceTotals,
}

/// The figures of the sinks of one owner.
#[derive(Default)]
pub struct SinkFigures {
    pub queues: QueueFigures,
    pub totals: SinkTotals,
    /// The oldest sinks that need attention.
    pub troubled: Vec<TroubledSink>,
}

/// Sums over queues.
#[derive(Clone)]
pub struct QueueFigures {
    pub totals: QueueTotals,
    /// Delivered, failed and dropped.
    pub sums: [MinuteCounts; 3],
}

impl ActivityFigures {
    /// Visits every sink, subscription and space, with no lock held over the walk.
    pub fn compute(records: &ActivityRecords) -> Self {
        let now = Timestamp::now();
        let mut figures = Self {
            now,
            events: records.activity.events(None, now),
            spaces: SpaceTotals::default(),
            global_sinks: SinkFigures::default(),
            users: HashMap::new(),
        };
        for sink in records.sinks.all() {
            match sink.owner {
                Owner::Global => figures.global_sinks.add(records, &sink, now),
                Owner::User(user) => figures.users.entry(user).or_default().sinks.add(records, &sink, now),
            }
        }
        for subscription in records.subscriptions.all() {
            let user = figures.users.entry(subscription.owner).or_default();
            user.subscriptions.add(records, subscription.id, now);
        }
        for space in records.spaces.all() {
            let is_linked = records.spaces.status(space.id).linked;
            count_space(&mut figures.spaces, &space, is_linked);
            count_space(&mut figures.users.entry(space.owner).or_default().spaces, &space, is_linked);
        }
        figures
    }
}

impl SinkFigures {
    fn add(&mut self, records: &ActivityRecords, sink: &Sink, now: Timestamp) {
        self.queues.add(records, sink.id, now);
        let status = sink_status(sink, &records.activity, &*records.engine, &records.sink_context);
        let totals = &mut self.totals;
        totals.total += 1;
        match status {
            SinkStatus::Active => return,
            SinkStatus::Paused => {
                totals.paused += 1;
                return;
            }
            SinkStatus::Quarantined => totals.quarantined += 1,
            SinkStatus::Failing => totals.failing += 1,
            SinkStatus::Dropping => totals.dropping += 1,
        }
        if self.troubled.len() < MAX_TROUBLED {
            self.troubled.push(troubled_sink(records, sink, status, now));
        }
    }
}

impl QueueFigures {
    fn add(&mut self, records: &ActivityRecords, queue: SinkId, now: Timestamp) {
        let depth = records.engine.depth(queue);
        let activity = records.activity.sink(queue, now);
        self.merge(&Self {
            totals: QueueTotals { depth: depth.queued, dead: depth.dead, oldest_waiting_at: depth.oldest },
            sums: [activity.delivered, activity.failed, activity.dropped],
        });
    }

    pub fn merge(&mut self, other: &Self) {
        let (totals, others) = (&mut self.totals, &other.totals);
        totals.depth += others.depth;
        totals.dead += others.dead;
        totals.oldest_waiting_at = [totals.oldest_waiting_at, others.oldest_waiting_at].into_iter().flatten().min();
        for (sums, counts) in self.sums.iter_mut().zip(&other.sums) {
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum = sum.saturating_add(*count));
        }
    }
}

impl Default for QueueFigures {
    fn default() -> Self {
        Self { totals: QueueTotals::default(), sums: [[0; MINUTES]; 3] }
    }
}

fn count_space(totals: &mut SpaceTotals, space: &Space, is_linked: bool) {
    let is_deployed = space.state == SpaceState::Deployed;
    totals.total += 1;
    totals.deployed += usize::from(is_deployed);
    totals.unhealthy += usize::from(space.health == SpaceHealth::Unhealthy);
    totals.away += usize::from(is_deployed && !is_linked);
}

fn troubled_sink(records: &ActivityRecords, sink: &Sink, status: SinkStatus, now: Timestamp) -> TroubledSink {
    let depth = records.engine.depth(sink.id);
    let last_error = records.activity.sink(sink.id, now).last_error.map(|error| error.message);
    TroubledSink {
        sink_id: sink.id,
        name: sink.name.to_string(),
        status: status.into(),
        depth: depth.queued,
        dead: depth.dead,
        last_error,
    }
}
