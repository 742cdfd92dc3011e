//! The status of a sink, and its last hour as the API shows it.

use crate::{
    delivery::sinks::{Sink, SinkContext, quarantine},
    model::{
        api::sinks::{SinkActivityView, SinkErrorView, SinkStatus},
        timestamp::Timestamp,
    },
    routing::{
        activity::{MINUTES, MinuteCounts, RecentActivity, SinkActivity},
        queue::Engine,
    },
};

/// The minutes of one count that is shown, and for which a drop counts as recent.
const STEP: usize = 5;

/// The status of a sink: the first of [`SinkStatus`] that applies.
pub fn sink_status(sink: &Sink, activity: &RecentActivity, engine: &dyn Engine, context: &SinkContext) -> SinkStatus {
    let recent = activity.sink(sink.id, Timestamp::now());
    if !sink.active {
        SinkStatus::Paused
    } else if quarantine(context, sink).is_some() {
        SinkStatus::Quarantined
    } else if recent.is_failing || engine.queue_head(sink.id).is_some_and(|head| head.failures > 0) {
        SinkStatus::Failing
    } else if recent.dropped[MINUTES - STEP..].iter().any(|count| *count > 0) {
        SinkStatus::Dropping
    } else {
        SinkStatus::Active
    }
}

pub fn sink_activity_view(activity: SinkActivity) -> SinkActivityView {
    let sums = |counts: MinuteCounts| counts.chunks(STEP).map(|minutes| minutes.iter().sum()).collect();
    SinkActivityView {
        delivered: sums(activity.delivered),
        failed: sums(activity.failed),
        dropped: sums(activity.dropped),
        last_error: activity.last_error.map(|error| SinkErrorView { at: error.at, message: error.message }),
    }
}
