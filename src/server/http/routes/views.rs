//! Conversions that the responses of several subjects share.

use crate::{
    delivery::filters::FilterErrors,
    identity::Identity,
    model::{
        api::{
            identity::{GroupName, RoleName},
            sinks::{FilterErrorsView, QueueView},
        },
        id::{GroupId, RoleId, SinkId},
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

pub fn filter_errors_view(FilterErrors { count, last, last_at }: FilterErrors) -> FilterErrorsView {
    FilterErrorsView { count, last, last_at }
}
