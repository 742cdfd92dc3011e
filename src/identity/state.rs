//! All records of identity in memory, and the writes that change them.
//!
//! A write goes to the batch first ([`RecordWrite::put`]) and to memory once it is on disk ([`IdentityState::apply`]).

use super::{
    agent_tokens::AgentTokens,
    error::IdentityError,
    records::{Group, Role, Session, Token, User},
    secret::SecretDigest,
};
use crate::{
    model::{
        id::{GroupId, RoleId, TokenId, UserId},
        name::Name,
        permission::Permission,
        permissions::Permissions,
        timestamp::Timestamp,
    },
    platform::store::{Batch, Store, StoreError, Table, keys},
};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
};

pub(super) const USERS: Table<User> = Table::new(keys::USERS);
pub(super) const ROLES: Table<Role> = Table::new(keys::ROLES);
pub(super) const GROUPS: Table<Group> = Table::new(keys::GROUPS);
pub(super) const TOKENS: Table<Token> = Table::new(keys::TOKENS);
pub(super) const SESSIONS: Table<Session> = Table::new(keys::SESSIONS);

/// All records, with indexes for frequent lookups.
#[derive(Clone, Default)]
pub(super) struct IdentityState {
    pub accounts: HashMap<UserId, Account>,
    pub roles: HashMap<RoleId, Arc<Role>>,
    /// Each call of a shared method looks its owner up by name.
    user_names: HashMap<Name, UserId>,
    pub groups: HashMap<GroupId, Arc<Group>>,
    pub tokens: HashMap<TokenId, Arc<TrackedToken>>,
    pub by_digest: HashMap<SecretDigest, Arc<TrackedToken>>,
    pub sessions: HashMap<SecretDigest, Arc<Session>>,
    /// Stored with the spaces, not by identity.
    pub agents: AgentTokens,
}

/// A user with the union of its roles' permissions.
#[derive(Clone)]
pub(super) struct Account {
    pub user: Arc<User>,
    pub permissions: Permissions,
}

/// A token with the time of its last use, which changes too often to be written each time.
pub(super) struct TrackedToken {
    record: Token,
    /// Microseconds since 1970; 0 for never.
    used: AtomicI64,
    saved: AtomicI64,
}

/// One record to put or delete.
pub(super) enum RecordWrite {
    PutUser(Arc<User>),
    DeleteUser(UserId),
    PutRole(Arc<Role>),
    DeleteRole(RoleId),
    PutGroup(Arc<Group>),
    DeleteGroup(GroupId),
    PutToken(Arc<TrackedToken>),
    DeleteToken(TokenId),
    PutSession(Arc<Session>),
    DeleteSession(SecretDigest),
}

impl IdentityState {
    pub fn load(store: &Store) -> Result<Self, StoreError> {
        let mut state = Self::default();
        let roles = ROLES.all(store)?.into_iter().map(|role| RecordWrite::PutRole(Arc::new(role)));
        let groups = GROUPS.all(store)?.into_iter().map(|group| RecordWrite::PutGroup(Arc::new(group)));
        let users = USERS.all(store)?.into_iter().map(|user| RecordWrite::PutUser(Arc::new(user)));
        let tokens =
            TOKENS.all(store)?.into_iter().map(|token| RecordWrite::PutToken(Arc::new(TrackedToken::new(token))));
        let sessions = SESSIONS.all(store)?.into_iter().map(|session| RecordWrite::PutSession(Arc::new(session)));
        let writes: Vec<_> = roles.chain(groups).chain(users).chain(tokens).chain(sessions).collect();
        state.apply(&writes);
        Ok(state)
    }

    pub fn apply(&mut self, writes: &[RecordWrite]) {
        for write in writes {
            match write {
                RecordWrite::PutUser(user) => {
                    self.remove_user(user.id);
                    let account = Account { user: user.clone(), permissions: self.permissions_of(user) };
                    self.accounts.insert(user.id, account);
                    self.user_names.insert(user.name.clone(), user.id);
                }
                RecordWrite::DeleteUser(id) => self.remove_user(*id),
                RecordWrite::PutRole(role) => drop(self.roles.insert(role.id, role.clone())),
                RecordWrite::DeleteRole(id) => drop(self.roles.remove(id)),
                RecordWrite::PutGroup(group) => drop(self.groups.insert(group.id, group.clone())),
                RecordWrite::DeleteGroup(id) => drop(self.groups.remove(id)),
                RecordWrite::PutToken(token) => {
                    self.by_digest.insert(token.record.digest, token.clone());
                    self.tokens.insert(token.record.id, token.clone());
                }
                RecordWrite::DeleteToken(id) => {
                    if let Some(token) = self.tokens.remove(id) {
                        self.by_digest.remove(&token.record.digest);
                    }
                }
                RecordWrite::PutSession(session) => drop(self.sessions.insert(session.digest, session.clone())),
                RecordWrite::DeleteSession(digest) => drop(self.sessions.remove(digest)),
            }
        }
        if writes.iter().any(|write| matches!(write, RecordWrite::PutRole(_) | RecordWrite::DeleteRole(_))) {
            let permissions: Vec<_> =
                self.accounts.iter().map(|(id, account)| (*id, self.permissions_of(&account.user))).collect();
            for (id, permissions) in permissions {
                self.accounts.get_mut(&id).expect("it was just listed").permissions = permissions;
            }
        }
    }

    /// Returns true if these writes remove the last administrator: an active user who can repair users and roles.
    pub fn loses_last_administrator(&self, writes: &[RecordWrite]) -> bool {
        if !writes.iter().any(|write| {
            matches!(
                write,
                RecordWrite::PutUser(_)
                    | RecordWrite::DeleteUser(_)
                    | RecordWrite::PutRole(_)
                    | RecordWrite::DeleteRole(_)
            )
        }) {
            return false;
        }
        let mut after = Self { accounts: self.accounts.clone(), roles: self.roles.clone(), ..Self::default() };
        after.apply(writes);
        self.has_administrator() && !after.has_administrator()
    }

    fn has_administrator(&self) -> bool {
        self.accounts.values().any(|account| {
            account.user.active
                && account.permissions.contains(Permission::ManageUsers)
                && account.permissions.contains(Permission::ManageRoles)
        })
    }

    pub fn user_named(&self, name: &str) -> Option<&Account> {
        self.accounts.get(self.user_names.get(name)?)
    }

    fn remove_user(&mut self, id: UserId) {
        if let Some(account) = self.accounts.remove(&id) {
            self.user_names.remove(&account.user.name);
        }
    }

    pub fn role_named(&self, name: &str) -> Option<&Arc<Role>> {
        self.roles.values().find(|role| role.name.as_str() == name)
    }

    pub fn group_named(&self, name: &str) -> Option<&Arc<Group>> {
        self.groups.values().find(|group| group.name.as_str() == name)
    }

    /// The role of this name or id.
    pub fn role(&self, reference: &str) -> Option<&Arc<Role>> {
        let by_id = reference.parse().ok().and_then(|id| self.roles.get(&id));
        by_id.or_else(|| self.role_named(reference))
    }

    /// The group of this name or id.
    pub fn group(&self, reference: &str) -> Option<&Arc<Group>> {
        let by_id = reference.parse().ok().and_then(|id| self.groups.get(&id));
        by_id.or_else(|| self.group_named(reference))
    }

    pub fn tokens_of(&self, user: UserId) -> impl Iterator<Item = &Arc<TrackedToken>> {
        self.tokens.values().filter(move |token| token.record.user_id == user)
    }

    pub fn sessions_of(&self, user: UserId) -> impl Iterator<Item = &Arc<Session>> {
        self.sessions.values().filter(move |session| session.user_id == user)
    }

    fn permissions_of(&self, user: &User) -> Permissions {
        let roles = user.roles.iter().filter_map(|id| self.roles.get(id));
        roles.fold(Permissions::default(), |all, role| all.union(role.permissions))
    }
}

impl TrackedToken {
    pub fn new(record: Token) -> Self {
        let used = record.last_used_at.map_or(0, Timestamp::micros);
        Self { record, used: AtomicI64::new(used), saved: AtomicI64::new(used) }
    }

    /// The record with the current time of its last use.
    pub fn token(&self) -> Token {
        let used = self.used.load(Relaxed);
        let last_used_at = (used != 0).then(|| Timestamp::from_micros(used));
        Token { last_used_at, ..self.record.clone() }
    }

    /// The record as it was created; its last use may be outdated.
    pub fn record(&self) -> &Token {
        &self.record
    }

    /// Records a use. Returns true at most once in `every` microseconds; the caller then writes the record.
    pub fn use_at(&self, now: Timestamp, every: i64) -> bool {
        let now = now.micros();
        self.used.store(now, Relaxed);
        let saved = self.saved.load(Relaxed);
        now - saved >= every && self.saved.compare_exchange(saved, now, Relaxed, Relaxed).is_ok()
    }
}

impl RecordWrite {
    pub fn put(&self, batch: &mut Batch<'_>) {
        match self {
            Self::PutUser(user) => USERS.put(batch, user.id.as_bytes(), user),
            Self::DeleteUser(id) => USERS.delete(batch, id.as_bytes()),
            Self::PutRole(role) => ROLES.put(batch, role.id.as_bytes(), role),
            Self::DeleteRole(id) => ROLES.delete(batch, id.as_bytes()),
            Self::PutGroup(group) => GROUPS.put(batch, group.id.as_bytes(), group),
            Self::DeleteGroup(id) => GROUPS.delete(batch, id.as_bytes()),
            Self::PutToken(token) => TOKENS.put(batch, token.record.id.as_bytes(), &token.token()),
            Self::DeleteToken(id) => TOKENS.delete(batch, id.as_bytes()),
            Self::PutSession(session) => SESSIONS.put(batch, session.digest.as_bytes(), session),
            Self::DeleteSession(digest) => SESSIONS.delete(batch, digest.as_bytes()),
        }
    }
}

/// Checks that no record except `own` has this name, and that the name is no id: a reference to a record is its name or
/// its id, and must have one reading only.
pub(super) fn check_new_name<'a, I: PartialEq + 'a>(
    kind: &'static str,
    mut taken: impl Iterator<Item = (&'a I, &'a Name)>,
    name: &Name,
    own: Option<I>,
) -> Result<(), IdentityError> {
    match taken.find(|(_, other)| *other == name) {
        Some((id, _)) if own.as_ref() == Some(id) => Ok(()),
        Some(_) => Err(IdentityError::NameTaken { kind, name: name.clone() }),
        None if uuid::Uuid::parse_str(name.as_str()).is_ok() => {
            let reason = format!("a {kind}'s name is no UUID, which would be taken for an id: choose another one");
            Err(IdentityError::Invalid { field: "name", reason })
        }
        None => Ok(()),
    }
}
