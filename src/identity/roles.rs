//! Changes to roles. A user who may edit roles can grant itself every permission, so no rule limits the permissions
//! that it puts into a role: it is an administrator.

use super::{
    caller::Caller,
    error::IdentityError,
    handle::{DecidedChange, Identity},
    records::{Role, User},
    state::{IdentityState, RecordWrite, check_new_name},
};
use crate::model::{id::RoleId, name::Name, permissions::Permissions, timestamp::Timestamp};
use serde_json::json;
use std::sync::Arc;

impl Identity {
    /// All roles, oldest first.
    pub fn roles(&self) -> Vec<Arc<Role>> {
        let mut roles: Vec<_> = self.state().roles.values().cloned().collect();
        roles.sort_by_key(|role| role.id);
        roles
    }

    pub fn role(&self, id: RoleId) -> Option<Arc<Role>> {
        self.state().roles.get(&id).cloned()
    }

    pub async fn create_role(
        &self,
        caller: &Caller,
        name: Name,
        permissions: Permissions,
    ) -> Result<Arc<Role>, IdentityError> {
        self.change_as(caller, move |state, caller| {
            check_name(state, &name, None)?;
            let role = Arc::new(Role { id: RoleId::new(), name, permissions, created_at: Timestamp::now() });
            let detail = json!({"id": role.id, "permissions": role.permissions});
            let entry = caller.audit_entry("role.create", &role.name).with(detail);
            Ok(DecidedChange { writes: vec![RecordWrite::PutRole(role.clone())], entry, value: role })
        })
        .await
    }

    /// Changes a role for every user who has it; `None` leaves a field unchanged.
    pub async fn update_role(
        &self,
        caller: &Caller,
        id: RoleId,
        name: Option<Name>,
        permissions: Option<Permissions>,
    ) -> Result<Arc<Role>, IdentityError> {
        self.change_as(caller, move |state, caller| {
            let old = state.roles.get(&id).ok_or(IdentityError::Missing("role"))?;
            let name = name.unwrap_or_else(|| old.name.clone());
            check_name(state, &name, Some(id))?;
            let permissions = permissions.unwrap_or(old.permissions);
            let role = Arc::new(Role { name, permissions, ..Role::clone(old) });
            let entry = caller
                .audit_entry("role.update", &role.name)
                .with(json!({"id": id, "permissions": permissions, "before": old.permissions}));
            let is_same = role.name == old.name && role.permissions == old.permissions;
            let writes = if is_same { Vec::new() } else { vec![RecordWrite::PutRole(role.clone())] };
            Ok(DecidedChange { writes, entry, value: role })
        })
        .await
    }

    /// Deletes a role and removes it from every user who has it.
    pub async fn delete_role(&self, caller: &Caller, id: RoleId) -> Result<(), IdentityError> {
        self.change_as(caller, move |state, caller| {
            let role = state.roles.get(&id).ok_or(IdentityError::Missing("role"))?;
            let holders = state.accounts.values().filter(|account| account.user.roles.contains(&id));
            let mut writes: Vec<_> = holders
                .map(|account| {
                    let mut user = User::clone(&account.user);
                    user.roles.retain(|role| *role != id);
                    RecordWrite::PutUser(Arc::new(user))
                })
                .collect();
            let entry = caller.audit_entry("role.delete", &role.name).with(json!({"id": id, "users": writes.len()}));
            writes.push(RecordWrite::DeleteRole(id));
            Ok(DecidedChange { writes, entry, value: () })
        })
        .await
    }
}

fn check_name(state: &IdentityState, name: &Name, own: Option<RoleId>) -> Result<(), IdentityError> {
    check_new_name("role", state.roles.values().map(|role| (&role.id, &role.name)), name, own)
}
