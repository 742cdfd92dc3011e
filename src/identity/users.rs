//! Changes to users.
//!
//! No user can extend its own permissions: granting a role requires the role's permissions, and changing a user
//! requires that user's. The permission to edit roles lifts both rules.

use super::{
    caller::{Caller, Credential},
    error::IdentityError,
    handle::{DecidedChange, Identity},
    password::{HashedPassword, PasswordError},
    records::User,
    state::{IdentityState, RecordWrite, check_new_name},
};
use crate::model::{
    id::{GroupId, RoleId, UserId},
    name::Name,
    permission::Permission,
    permissions::Permissions,
    timestamp::Timestamp,
};
use serde_json::json;
use std::sync::Arc;

/// A user to create. Roles and groups are names or ids.
#[derive(Debug)]
pub struct NewUser {
    pub name: Name,
    pub password: Option<String>,
    pub roles: Vec<String>,
    pub groups: Vec<String>,
    pub active: bool,
}

/// A change to a user; `None` leaves a field unchanged.
#[derive(Debug, Default)]
pub struct UserChange {
    pub name: Option<Name>,
    pub password: Option<String>,
    pub roles: Option<Vec<String>>,
    pub groups: Option<Vec<String>>,
    pub active: Option<bool>,
    /// Revokes the user's API tokens.
    pub revoke_tokens: bool,
}

impl Identity {
    /// All users, oldest first.
    pub fn users(&self) -> Vec<Arc<User>> {
        let mut users: Vec<_> = self.state().accounts.values().map(|account| account.user.clone()).collect();
        users.sort_by_key(|user| user.id);
        users
    }

    pub fn user(&self, id: UserId) -> Option<Arc<User>> {
        self.state().accounts.get(&id).map(|account| account.user.clone())
    }

    pub fn user_named(&self, name: &str) -> Option<Arc<User>> {
        self.state().user_named(name).map(|account| account.user.clone())
    }

    /// The union of a user's role permissions; none for an inactive user.
    pub fn permissions(&self, id: UserId) -> Permissions {
        let state = self.state();
        let active = state.accounts.get(&id).filter(|account| account.user.active);
        active.map_or(Permissions::default(), |account| account.permissions)
    }

    /// Returns whether a user may emit events now: for emitters that act in the name of a user long after a request of
    /// that user.
    pub fn may_emit(&self, id: UserId) -> bool {
        let permissions = self.permissions(id);
        permissions.contains(Permission::UseSpaces) || permissions.contains(Permission::ManageSpaces)
    }

    pub async fn create_user(&self, caller: &Caller, new: NewUser) -> Result<Arc<User>, IdentityError> {
        if new.password.is_some() {
            caller.check_may_manage_credentials()?;
        }
        let password = self.hash("password", new.password).await?;
        let authorized = caller.permissions;
        self.change_as(caller, move |state, caller| {
            caller.check_still_has(authorized)?;
            check_name(state, &new.name, None)?;
            let user = Arc::new(User {
                id: UserId::new(),
                roles: roles(state, &new.roles, caller, &[])?,
                groups: groups(state, &new.groups)?,
                name: new.name,
                has_first_password: password.is_some(),
                password,
                active: new.active,
                created_at: Timestamp::now(),
            });
            let entry = caller.audit_entry("user.create", &user.name).with(json!({"id": user.id}));
            Ok(DecidedChange { writes: vec![RecordWrite::PutUser(user.clone())], entry, value: user })
        })
        .await
    }

    /// Changes a user. A new password, and deactivation, end the user's sessions. Tokens stay valid unless they are
    /// revoked too; the one that the caller presented stays in any case.
    pub async fn update_user(
        &self,
        caller: &Caller,
        id: UserId,
        change: UserChange,
    ) -> Result<Arc<User>, IdentityError> {
        if change.password.is_some() || change.revoke_tokens {
            caller.check_may_manage_credentials()?;
        }
        let password = self.hash("password", change.password).await?;
        let authorized = caller.permissions;
        self.change_as(caller, move |state, caller| {
            caller.check_still_has(authorized)?;
            let mut user = User::clone(&*find_changeable(state, id, caller)?);
            let mut changed = Vec::new();
            if let Some(name) = change.name.filter(|name| *name != user.name) {
                check_name(state, &name, Some(id))?;
                user.name = name;
                changed.push("name");
            }
            if let Some(references) = change.roles {
                let roles = roles(state, &references, caller, &user.roles)?;
                if roles != user.roles {
                    user.roles = roles;
                    changed.push("roles");
                }
            }
            if let Some(references) = change.groups {
                let groups = groups(state, &references)?;
                if groups != user.groups {
                    user.groups = groups;
                    changed.push("groups");
                }
            }
            if let Some(active) = change.active.filter(|active| *active != user.active) {
                user.active = active;
                changed.push("active");
            }
            let mut writes = Vec::new();
            if password.is_some() {
                user.password = password;
                user.has_first_password = id != caller.user.id;
                changed.push("password");
            }
            if changed.contains(&"password") || !user.active {
                writes.extend(sessions(state, id));
            }
            let mut detail = json!({"id": id, "active": user.active});
            let revoked = if change.revoke_tokens { revocations(state, id, caller) } else { Vec::new() };
            if !revoked.is_empty() {
                changed.push("tokens");
                detail["tokens_revoked"] = json!(revoked.len());
                writes.extend(revoked);
            }
            detail["changed"] = json!(changed);
            let user = Arc::new(user);
            if !changed.is_empty() {
                writes.push(RecordWrite::PutUser(user.clone()));
            }
            let entry = caller.audit_entry("user.update", &user.name).with(detail);
            Ok(DecidedChange { writes, entry, value: user })
        })
        .await
    }

    /// Deletes a user with its tokens and sessions.
    pub async fn delete_user(&self, caller: &Caller, id: UserId) -> Result<(), IdentityError> {
        self.change_as(caller, move |state, caller| {
            let user = find_changeable(state, id, caller)?;
            let tokens = state.tokens_of(id).map(|token| RecordWrite::DeleteToken(token.record().id));
            let mut writes: Vec<_> = tokens.chain(sessions(state, id)).collect();
            writes.push(RecordWrite::DeleteUser(id));
            let entry = caller.audit_entry("user.delete", &user.name).with(json!({"id": id}));
            Ok(DecidedChange { writes, entry, value: () })
        })
        .await
    }

    /// Hashes a new password, which the request has in this field.
    pub(super) async fn hash(
        &self,
        field: &'static str,
        password: Option<String>,
    ) -> Result<Option<HashedPassword>, IdentityError> {
        let Some(password) = password else { return Ok(None) };
        let unfit = |error| match error {
            PasswordError::Overload => IdentityError::Overload,
            PasswordError::TooShort | PasswordError::TooLong => {
                IdentityError::Invalid { field, reason: error.to_string() }
            }
        };
        self.0.passwords.hash(password).await.map(Some).map_err(unfit)
    }
}

/// The deletions that end all of a user's sessions.
pub(super) fn sessions(state: &IdentityState, user: UserId) -> impl Iterator<Item = RecordWrite> {
    state.sessions_of(user).map(|session| RecordWrite::DeleteSession(session.digest))
}

/// The deletions that revoke a user's tokens, except the one that the caller presented.
pub(super) fn revocations(state: &IdentityState, user: UserId, caller: &Caller) -> Vec<RecordWrite> {
    let presented = match &caller.via {
        Credential::Token { id, .. } => Some(*id),
        Credential::Session { .. } | Credential::Agent { .. } => None,
    };
    let ids = state.tokens_of(user).map(|token| token.record().id).filter(|id| Some(*id) != presented);
    ids.map(RecordWrite::DeleteToken).collect()
}

/// Finds a user that the caller may change.
pub(super) fn find_changeable(state: &IdentityState, id: UserId, caller: &Caller) -> Result<Arc<User>, IdentityError> {
    let account = state.accounts.get(&id).ok_or(IdentityError::Missing("user"))?;
    if !caller.permissions.covers(account.permissions) && !caller.may(Permission::ManageRoles) {
        return Err(IdentityError::BeyondUser(account.user.name.clone()));
    }
    Ok(account.user.clone())
}

/// Resolves names or ids of roles. A role that the user already `held` needs no permission to stay.
fn roles(
    state: &IdentityState,
    references: &[String],
    caller: &Caller,
    held: &[RoleId],
) -> Result<Vec<RoleId>, IdentityError> {
    let mut roles = Vec::new();
    for (position, reference) in references.iter().enumerate() {
        let role = state.role(reference).ok_or_else(|| unknown("roles", position, "role", reference))?;
        let beyond = role.permissions.iter().find(|permission| !caller.may(*permission));
        if let Some(permission) = beyond
            && !held.contains(&role.id)
            && !caller.may(Permission::ManageRoles)
        {
            return Err(IdentityError::BeyondRole { role: role.name.clone(), permission });
        }
        if !roles.contains(&role.id) {
            roles.push(role.id);
        }
    }
    Ok(roles)
}

fn groups(state: &IdentityState, references: &[String]) -> Result<Vec<GroupId>, IdentityError> {
    let mut groups = Vec::new();
    for (position, reference) in references.iter().enumerate() {
        let group = state.group(reference).ok_or_else(|| unknown("groups", position, "group", reference))?;
        if !groups.contains(&group.id) {
            groups.push(group.id);
        }
    }
    Ok(groups)
}

fn unknown(field: &str, position: usize, kind: &'static str, reference: &str) -> IdentityError {
    IdentityError::UnknownReference { field: format!("{field}[{position}]"), kind, reference: reference.to_owned() }
}

fn check_name(state: &IdentityState, name: &Name, own: Option<UserId>) -> Result<(), IdentityError> {
    // `user.<name>.<method>` must have one reading only.
    if name.as_str().contains('.') {
        return Err(IdentityError::Invalid {
            field: "name",
            reason: "a user's name has no dots: use - or _".to_owned(),
        });
    }
    let taken = state.accounts.values().map(|account| (&account.user.id, &account.user.name));
    check_new_name("user", taken, name, own)
}
