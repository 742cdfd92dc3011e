//! Changes to users. Nobody raises themselves: giving a role away takes its permissions, and changing a user takes
//! that user's, unless one may edit roles anyway.

use super::{
    Caller, Edit, Identity, IdentityError, Name, Permissions, User,
    password::{Hash, PasswordError},
    state::{State, Write, is_free},
};
use crate::{
    model::{
        id::{GroupId, RoleId, UserId},
        permission::Permission,
        timestamp::Timestamp,
    },
    platform::audit::Entry,
};
use serde_json::json;
use std::sync::Arc;

/// A user to be made. Roles and groups are names or ids.
#[derive(Debug)]
pub struct NewUser {
    pub name: Name,
    pub password: Option<String>,
    pub roles: Vec<String>,
    pub groups: Vec<String>,
    pub active: bool,
}

/// What to change about a user; `None` leaves it as it is.
#[derive(Debug, Default)]
pub struct UserChange {
    pub name: Option<Name>,
    pub password: Option<String>,
    pub roles: Option<Vec<String>>,
    pub groups: Option<Vec<String>>,
    pub active: Option<bool>,
}

impl Identity {
    /// Every user, in order of making.
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

    /// What a user's roles allow together, while it is active.
    pub fn permissions(&self, id: UserId) -> Permissions {
        let state = self.state();
        let active = state.accounts.get(&id).filter(|account| account.user.active);
        active.map_or(Permissions::default(), |account| account.permissions)
    }

    /// # Errors
    ///
    /// Fails if the name is taken, a role or group does not exist, the password is unfit or given by an agent, or a role
    /// is beyond the caller.
    pub async fn create_user(&self, caller: &Caller, new: NewUser) -> Result<Arc<User>, IdentityError> {
        if new.password.is_some() {
            caller.handles_credentials()?;
        }
        let password = self.hash(new.password).await?;
        let caller = caller.clone();
        self.change(move |state| {
            check_name(state, &new.name, None)?;
            let user = Arc::new(User {
                id: UserId::new(),
                roles: roles(state, &new.roles, &caller, &[])?,
                groups: groups(state, &new.groups)?,
                name: new.name,
                password,
                active: new.active,
                created_at: Timestamp::now(),
            });
            let entry = Entry::new(Some(caller.actor()), "user.create", &user.name).with(json!({"id": user.id}));
            Ok(Edit { writes: vec![Write::User(user.clone())], entry, value: user })
        })
        .await
    }

    /// Changes a user. A new password, and being made inactive, end the user's sessions.
    ///
    /// # Errors
    ///
    /// As [`Identity::create_user`]; besides, if the user may do more than the caller, or is the last keeper.
    pub async fn update_user(
        &self,
        caller: &Caller,
        id: UserId,
        change: UserChange,
    ) -> Result<Arc<User>, IdentityError> {
        if change.password.is_some() {
            caller.handles_credentials()?;
        }
        let password = self.hash(change.password).await?;
        let caller = caller.clone();
        self.change(move |state| {
            let mut user = User::clone(&*reach(state, id, &caller)?);
            let mut changed = Vec::new();
            if let Some(name) = change.name {
                check_name(state, &name, Some(id))?;
                user.name = name;
                changed.push("name");
            }
            if let Some(references) = change.roles {
                user.roles = roles(state, &references, &caller, &user.roles)?;
                changed.push("roles");
            }
            if let Some(references) = change.groups {
                user.groups = groups(state, &references)?;
                changed.push("groups");
            }
            if let Some(active) = change.active {
                user.active = active;
                changed.push("active");
            }
            let mut writes = Vec::new();
            if password.is_some() {
                user.password = password;
                changed.push("password");
            }
            if changed.contains(&"password") || !user.active {
                writes.extend(sessions(state, id));
            }
            let user = Arc::new(user);
            writes.push(Write::User(user.clone()));
            let entry = Entry::new(Some(caller.actor()), "user.update", &user.name)
                .with(json!({"id": id, "changed": changed, "active": user.active}));
            Ok(Edit { writes, entry, value: user })
        })
        .await
    }

    /// Deletes a user with its tokens and sessions.
    ///
    /// # Errors
    ///
    /// Fails if there is no such user, it may do more than the caller, or it is the last keeper.
    pub async fn delete_user(&self, caller: &Caller, id: UserId) -> Result<(), IdentityError> {
        let caller = caller.clone();
        self.change(move |state| {
            let user = reach(state, id, &caller)?;
            let tokens = state.tokens_of(id).map(|token| Write::NoToken(token.record().id));
            let mut writes: Vec<_> = tokens.chain(sessions(state, id)).collect();
            writes.push(Write::NoUser(id));
            let entry = Entry::new(Some(caller.actor()), "user.delete", &user.name).with(json!({"id": id}));
            Ok(Edit { writes, entry, value: () })
        })
        .await
    }

    pub(super) async fn hash(&self, password: Option<String>) -> Result<Option<Hash>, IdentityError> {
        let Some(password) = password else { return Ok(None) };
        let unfit = |error: PasswordError| IdentityError::Invalid { field: "password", reason: error.to_string() };
        self.0.passwords.hash(password).await.map(Some).map_err(unfit)
    }
}

/// The writes that end all of a user's sessions.
pub(super) fn sessions(state: &State, user: UserId) -> impl Iterator<Item = Write> {
    state.sessions_of(user).map(|session| Write::NoSession(session.digest))
}

/// The user, if the caller may change it.
fn reach(state: &State, id: UserId, caller: &Caller) -> Result<Arc<User>, IdentityError> {
    let account = state.accounts.get(&id).ok_or(IdentityError::Missing("user"))?;
    if !caller.permissions.covers(account.permissions) && !caller.may(Permission::ManageRoles) {
        return Err(IdentityError::BeyondUser(account.user.name.clone()));
    }
    Ok(account.user.clone())
}

/// The roles meant by `references`. One the user already `held` needs no permission to stay.
fn roles(state: &State, references: &[String], caller: &Caller, held: &[RoleId]) -> Result<Vec<RoleId>, IdentityError> {
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

fn groups(state: &State, references: &[String]) -> Result<Vec<GroupId>, IdentityError> {
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

fn check_name(state: &State, name: &Name, own: Option<UserId>) -> Result<(), IdentityError> {
    // `user.<name>.<method>` (SPEC V6) must be readable in one way only.
    if name.as_str().contains('.') {
        return Err(IdentityError::Invalid {
            field: "name",
            reason: "a user's name has no dots: use - or _".to_owned(),
        });
    }
    let taken = state.accounts.values().map(|account| (&account.user.id, &account.user.name));
    if is_free(taken, name, own) {
        return Ok(());
    }
    Err(IdentityError::NameTaken { kind: "user", name: name.clone() })
}
