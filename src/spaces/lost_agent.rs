//! The timers of an agent that is away from a deployed space: one reports its loss, and one fails a check per interval.
//!
//! Each ends when the agent is back, or the space is not deployed any more.

use super::{
    error::SpaceError,
    records::{Spaces, SpacesState},
    space::Space,
    system_events::PendingEvent,
    transition::{CheckReporter, SpaceTransition},
};
use crate::{
    model::{health_check::CheckResult, id::SpaceId, space_state::SpaceState, timestamp::Timestamp},
    platform::task,
};
use std::{
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::task::AbortOnDropHandle;

/// The least time that agents have to come back after a start of the server: they try again every 15 s after a longer
/// outage.
const RETURN_TIME: Duration = Duration::from_secs(30);

impl SpacesState {
    /// Starts the timers of a deployed space whose agent is away, and ends those of every other.
    pub(super) fn watch_agent(self: &Arc<Self>, id: SpaceId) {
        let mut agents = self.agents.write();
        let (paused, lost_after) = (agents.paused, agents.lost_after);
        let Some(row) = self.row(id) else { return };
        let Some(agent) = agents.spaces.get_mut(&id) else { return };
        let lost = !paused && agent.is_lost() && row.space.state == SpaceState::Deployed;
        match lost_after.filter(|_| lost && row.space.agent_lost_at.is_none()) {
            Some(after) if agent.loss.is_none() => {
                let after = if agent.was_linked { after } else { after.max(RETURN_TIME) };
                let reporting = report_loss(Arc::downgrade(self), id, after);
                agent.loss = Some(AbortOnDropHandle::new(task::spawn(reporting)));
            }
            Some(_) => {}
            None => agent.loss = None,
        }
        match row.space.settings.health_check.as_ref().filter(|_| lost) {
            Some(check) if agent.silence.is_none() => {
                let counting = count_silence(Arc::downgrade(self), id, check.interval);
                agent.silence = Some(AbortOnDropHandle::new(task::spawn(counting)));
            }
            Some(_) => {}
            None => agent.silence = None,
        }
    }
}

/// Reports an agent that stays away.
async fn report_loss(state: Weak<SpacesState>, id: SpaceId, after: Duration) {
    let lost_at = Timestamp::now();
    tokio::time::sleep(after).await;
    let Some(state) = state.upgrade() else { return };
    // Another task: the change drops the handle of this one.
    task::spawn(async move {
        let spaces = Spaces(state);
        let reported = spaces.change(id, move |present| {
            let before = present.space.clone();
            // It may have come back while the report waited for its turn.
            let is_lost =
                present.agent.is_lost() && before.state == SpaceState::Deployed && before.agent_lost_at.is_none();
            if !is_lost {
                return Ok(SpaceTransition::to(Space::clone(&before), present));
            }
            let after = Space { agent_lost_at: Some(lost_at), ..Space::clone(&before) };
            let event = PendingEvent::agent_lost(&after, lost_at);
            Ok::<_, SpaceError>(SpaceTransition::to(after, present).emitting(event))
        });
        match reported.await {
            Ok(_) | Err(SpaceError::NotFound) => {}
            Err(error) => {
                log::warn!("the lost agent of space {id} is reported later: {error}");
                if let Some(agent) = spaces.0.agents.write().spaces.get_mut(&id) {
                    agent.loss = None;
                }
                spaces.0.watch_agent(id);
            }
        }
    });
}

/// Fails one check at the end of each interval, until the task is aborted.
async fn count_silence(state: Weak<SpacesState>, id: SpaceId, interval: Duration) {
    let mut turns = tokio::time::interval_at(Instant::now() + interval, interval);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let _ = turns.tick().await;
        let Some(state) = state.upgrade() else { return };
        let detail = Some("the agent is not connected".to_owned());
        let result = CheckResult { ok: false, detail, checked_at: Timestamp::now() };
        match Spaces(state).count_check(id, result, CheckReporter::Server).await {
            Ok(()) => {}
            Err(SpaceError::NotFound) => return,
            Err(error) => log::warn!("the lost agent of space {id} is not counted: {error}"),
        }
    }
}
