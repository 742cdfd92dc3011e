//! `GET /api/activity`: the figures of the last hour, of the sinks that the caller manages, the caller's subscriptions and
//! the spaces that it sees.
//!
//! [`super::activity_figures`] computes those of all owners at once, for all callers of a second; here each gets its part.

use super::{
    activity_figures::{ActivityFigures, MAX_TROUBLED, UserFigures},
    ownership::{manages_sinks_of, sees_all_events},
};
use crate::{
    identity::Caller,
    model::{
        api::activity::{RecentActivityView, SinkTotals},
        owner::Owner,
        permission::Permission,
        timestamp::Timestamp,
    },
    routing::activity::MINUTES,
    server::http::{ApiError, ApiRequest, Json, services::ActivityServices},
};
use std::{sync::Arc, time::Duration};

pub async fn show(services: Arc<ActivityServices>, request: ApiRequest) -> Result<Json<RecentActivityView>, ApiError> {
    let computing = services.clone();
    let figures = services.figures.get(move || ActivityFigures::compute(&computing.records)).await;
    let figures = figures.ok_or_else(|| ApiError::Internal("the figures of activity were not computed".to_owned()))?;
    Ok(Json(view(&services, request.caller(), &figures)))
}

fn view(services: &ActivityServices, caller: &Caller, figures: &ActivityFigures) -> RecentActivityView {
    let (user, nothing) = (caller.user.id, UserFigures::default());
    let own = figures.users.get(&user).unwrap_or(&nothing);
    let mut queues = own.subscriptions.clone();
    let (mut totals, mut troubled) = (SinkTotals::default(), Vec::new());
    for (owner, sinks) in [(Owner::User(user), &own.sinks), (Owner::Global, &figures.global_sinks)] {
        if manages_sinks_of(caller, owner) {
            queues.merge(&sinks.queues);
            totals.add(&sinks.totals);
            troubled.extend(sinks.troubled.iter().cloned());
        }
    }
    troubled.sort_by_key(|sink| sink.sink_id);
    troubled.truncate(MAX_TROUBLED);
    let events = match sees_all_events(caller) {
        true => figures.events,
        false => services.records.activity.events(Some(user), figures.now),
    };
    let this_minute = Timestamp::from_micros(figures.now.seconds().div_euclid(60) * 60_000_000);
    let [delivered, failed, dropped] = queues.sums.map(Vec::from);
    RecentActivityView {
        from: this_minute.before(Duration::from_secs(60 * (MINUTES as u64 - 1))),
        events: events.into(),
        delivered,
        failed,
        dropped,
        queues: queues.totals,
        sinks: totals,
        troubled,
        spaces: if caller.may(Permission::ManageSpaces) { figures.spaces } else { own.spaces },
    }
}
