//! `GET /api/activity`: the figures of the last hour, of the sinks that the caller manages, the caller's subscriptions and
//! the spaces that it sees.

use super::{
    ownership::{manages_sinks_of, sees_all_events, sees_space},
    sink_status::sink_status,
};
use crate::{
    delivery::sinks::Sink,
    model::{
        api::{
            activity::{QueueTotals, RecentActivityView, SinkTotals, SpaceTotals, TroubledSink},
            sinks::SinkStatus,
        },
        id::SinkId,
        space_state::{SpaceHealth, SpaceState},
        timestamp::Timestamp,
    },
    routing::activity::{MINUTES, MinuteCounts},
    server::http::{ApiError, ApiRequest, Json, services::ActivityServices},
};
use std::{sync::Arc, time::Duration};

/// Troubled sinks that are named.
const MAX_TROUBLED: usize = 20;

pub async fn show(services: Arc<ActivityServices>, request: ApiRequest) -> Result<Json<RecentActivityView>, ApiError> {
    let (caller, now) = (request.caller(), Timestamp::now());
    let user = if sees_all_events(caller) { None } else { Some(caller.user.id) };
    let mut figures = QueueFigures { now, queues: QueueTotals::default(), sums: [[0; MINUTES]; 3] };
    let (mut totals, mut troubled) = (SinkTotals::default(), Vec::new());
    for sink in services.sinks.page(None, usize::MAX, |sink| manages_sinks_of(caller, sink.owner)) {
        figures.add(&services, sink.id);
        let status = sink_status(&sink, &services.activity, &*services.engine, &services.delivery);
        totals.total += 1;
        match status {
            SinkStatus::Active => continue,
            SinkStatus::Paused => {
                totals.paused += 1;
                continue;
            }
            SinkStatus::Quarantined => totals.quarantined += 1,
            SinkStatus::Failing => totals.failing += 1,
            SinkStatus::Dropping => totals.dropping += 1,
        }
        if troubled.len() < MAX_TROUBLED {
            troubled.push(troubled_sink(&services, &sink, status, now));
        }
    }
    for subscription in services.subscriptions.of(caller.user.id) {
        figures.add(&services, subscription.id);
    }
    let mut spaces = SpaceTotals::default();
    for space in services.spaces.page(None, usize::MAX, |space| sees_space(caller, space)) {
        let is_deployed = space.state == SpaceState::Deployed;
        spaces.total += 1;
        spaces.deployed += usize::from(is_deployed);
        spaces.unhealthy += usize::from(space.health == SpaceHealth::Unhealthy);
        spaces.away += usize::from(is_deployed && !services.spaces.status(space.id).linked);
    }
    let this_minute = Timestamp::from_micros(now.seconds().div_euclid(60) * 60_000_000);
    let [delivered, failed, dropped] = figures.sums.map(Vec::from);
    Ok(Json(RecentActivityView {
        from: this_minute.before(Duration::from_secs(60 * (MINUTES as u64 - 1))),
        events: services.activity.events(user, now).into(),
        delivered,
        failed,
        dropped,
        queues: figures.queues,
        sinks: totals,
        troubled,
        spaces,
    }))
}

/// Sums over queues.
struct QueueFigures {
    now: Timestamp,
    queues: QueueTotals,
    /// Delivered, failed and dropped.
    sums: [MinuteCounts; 3],
}

impl QueueFigures {
    fn add(&mut self, services: &ActivityServices, queue: SinkId) {
        let depth = services.engine.depth(queue);
        let queues = &mut self.queues;
        queues.depth += depth.queued;
        queues.dead += depth.dead;
        queues.oldest_waiting_at = [queues.oldest_waiting_at, depth.oldest].into_iter().flatten().min();
        let activity = services.activity.sink(queue, self.now);
        for (sum, counts) in self.sums.iter_mut().zip([activity.delivered, activity.failed, activity.dropped]) {
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum = sum.saturating_add(count));
        }
    }
}

fn troubled_sink(services: &ActivityServices, sink: &Sink, status: SinkStatus, now: Timestamp) -> TroubledSink {
    let depth = services.engine.depth(sink.id);
    let last_error = services.activity.sink(sink.id, now).last_error.map(|error| error.message);
    TroubledSink {
        sink_id: sink.id,
        name: sink.name.clone(),
        status: status.into(),
        depth: depth.queued,
        dead: depth.dead,
        last_error,
    }
}
