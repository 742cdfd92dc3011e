//! Changes to groups.

use super::{
    caller::Caller,
    error::IdentityError,
    handle::{DecidedChange, Identity},
    records::{Group, User},
    state::{IdentityState, RecordWrite, check_new_name},
};
use crate::model::{id::GroupId, name::Name, timestamp::Timestamp};
use serde_json::json;
use std::sync::Arc;

impl Identity {
    /// All groups, oldest first.
    pub fn groups(&self) -> Vec<Arc<Group>> {
        let mut groups: Vec<_> = self.state().groups.values().cloned().collect();
        groups.sort_by_key(|group| group.id);
        groups
    }

    /// The group of this name or id.
    pub fn find_group(&self, reference: &str) -> Option<Arc<Group>> {
        self.state().group(reference).cloned()
    }

    pub fn group(&self, id: GroupId) -> Option<Arc<Group>> {
        self.state().groups.get(&id).cloned()
    }

    pub async fn create_group(&self, caller: &Caller, name: Name) -> Result<Arc<Group>, IdentityError> {
        self.change_as(caller, move |state, caller| {
            check_name(state, &name, None)?;
            let group = Arc::new(Group { id: GroupId::new(), name, created_at: Timestamp::now() });
            let entry = caller.audit_entry("group.create", &group.name).with(json!({"id": group.id}));
            Ok(DecidedChange { writes: vec![RecordWrite::PutGroup(group.clone())], entry, value: group })
        })
        .await
    }

    pub async fn rename_group(&self, caller: &Caller, id: GroupId, name: Name) -> Result<Arc<Group>, IdentityError> {
        self.change_as(caller, move |state, caller| {
            let old = state.groups.get(&id).ok_or(IdentityError::Missing("group"))?;
            check_name(state, &name, Some(id))?;
            let group = Arc::new(Group { name, ..Group::clone(old) });
            let entry = caller.audit_entry("group.update", &group.name).with(json!({"id": id, "before": old.name}));
            let is_same = group.name == old.name;
            let writes = if is_same { Vec::new() } else { vec![RecordWrite::PutGroup(group.clone())] };
            Ok(DecidedChange { writes, entry, value: group })
        })
        .await
    }

    /// Deletes a group and removes it from its members.
    pub async fn delete_group(&self, caller: &Caller, id: GroupId) -> Result<(), IdentityError> {
        self.change_as(caller, move |state, caller| {
            let group = state.groups.get(&id).ok_or(IdentityError::Missing("group"))?;
            let members = state.accounts.values().filter(|account| account.user.groups.contains(&id));
            let mut writes: Vec<_> = members
                .map(|account| {
                    let mut user = User::clone(&account.user);
                    user.groups.retain(|group| *group != id);
                    RecordWrite::PutUser(Arc::new(user))
                })
                .collect();
            let entry = caller.audit_entry("group.delete", &group.name).with(json!({"id": id, "users": writes.len()}));
            writes.push(RecordWrite::DeleteGroup(id));
            Ok(DecidedChange { writes, entry, value: () })
        })
        .await
    }
}

fn check_name(state: &IdentityState, name: &Name, own: Option<GroupId>) -> Result<(), IdentityError> {
    check_new_name("group", state.groups.values().map(|group| (&group.id, &group.name)), name, own)
}
