//! Conversions that the responses of several subjects share.

use crate::{
    delivery::{
        FailureState, SinkFailure, SinkFailures,
        filters::FilterErrors,
        sinks::{Sink, SinkPause},
    },
    identity::Identity,
    model::{
        api::{
            identity::{GroupName, RoleName},
            sinks::{FilterErrorsView, QueueView, SinkFailureView},
        },
        id::{GroupId, RoleId, SinkId},
        timestamp::Timestamp,
    },
    routing::queue::Engine,
};

/// The groups with these ids that exist, by name.
pub fn group_names(identity: &Identity, ids: &[GroupId]) -> Vec<GroupName> {
    let groups = ids.iter().filter_map(|id| identity.group(*id));
    groups.map(|group| GroupName { id: group.id, name: group.name.clone() }).collect()
}

/// The roles with these ids that exist, by name.
pub fn role_names(identity: &Identity, ids: &[RoleId]) -> Vec<RoleName> {
    let roles = ids.iter().filter_map(|id| identity.role(*id));
    roles.map(|role| RoleName { id: role.id, name: role.name.clone() }).collect()
}

pub fn queue_view(engine: &dyn Engine, queue: SinkId) -> QueueView {
    let depth = engine.depth(queue);
    QueueView {
        depth: depth.queued,
        next_sequence: depth.last_sequence + 1,
        dead: depth.dead,
        oldest_waiting_at: depth.oldest,
    }
}

/// The failure of a sink: its pause, or else what its deliveries say.
pub fn failure_view(engine: &dyn Engine, failures: &SinkFailures, sink: &Sink) -> Option<SinkFailureView> {
    let (state, reason, since, needs_change) = match (sink.pause.as_deref(), failures.get(sink.id)) {
        (Some(SinkPause { reason, at }), _) => ("paused", reason.clone(), *at, true),
        (None, Some(SinkFailure { state, reason, since, needs_change, .. })) => {
            let state = match state {
                FailureState::Failing => "failing",
                FailureState::Held => "held",
            };
            (state, reason, since, needs_change)
        }
        (None, None) => return None,
    };
    let head = engine.queue_head(sink.id).filter(|head| head.failures > 0);
    let waiting = head.filter(|head| sink.active && !head.wait.is_zero());
    Some(SinkFailureView {
        state: state.to_owned(),
        reason,
        since,
        needs_change,
        attempts: head.map(|head| head.failures),
        next_attempt_at: waiting.map(|head| Timestamp::now().after(head.wait)),
    })
}

pub fn filter_errors_view(FilterErrors { count, last, last_at }: FilterErrors) -> FilterErrorsView {
    FilterErrorsView { count, last, last_at }
}
