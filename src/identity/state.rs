//! Everything identity knows, in memory, and the writes that change it. A write goes to the batch first
//! ([`Write::put`]) and to memory once it is on disk ([`State::apply`]).

use super::{Digest, Group, Name, Permissions, Role, Session, Token, User, agents::Agents};
use crate::{
    model::{
        id::{GroupId, RoleId, TokenId, UserId},
        permission::Permission,
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

/// All records, with what is looked up often beside them.
#[derive(Clone, Default)]
pub(super) struct State {
    pub accounts: HashMap<UserId, Account>,
    pub roles: HashMap<RoleId, Arc<Role>>,
    /// Every shared method is called by its owner's name.
    user_names: HashMap<Name, UserId>,
    pub groups: HashMap<GroupId, Arc<Group>>,
    pub tokens: HashMap<TokenId, Arc<LiveToken>>,
    pub by_digest: HashMap<Digest, Arc<LiveToken>>,
    pub sessions: HashMap<Digest, Arc<Session>>,
    /// Not on disk here: the spaces keep their tokens' digests themselves.
    pub agents: Agents,
}

/// A user and what all its roles allow together.
#[derive(Clone)]
pub(super) struct Account {
    pub user: Arc<User>,
    pub permissions: Permissions,
}

/// A token and when it was used, which changes too often to be written each time.
pub(super) struct LiveToken {
    record: Token,
    /// Microseconds since 1970; 0 for never.
    used: AtomicI64,
    saved: AtomicI64,
}

/// One record put or removed.
pub(super) enum Write {
    User(Arc<User>),
    NoUser(UserId),
    Role(Arc<Role>),
    NoRole(RoleId),
    Group(Arc<Group>),
    NoGroup(GroupId),
    Token(Arc<LiveToken>),
    NoToken(TokenId),
    Session(Arc<Session>),
    NoSession(Digest),
}

impl State {
    pub fn load(store: &Store) -> Result<Self, StoreError> {
        let mut state = Self::default();
        let roles = ROLES.all(store)?.into_iter().map(|role| Write::Role(Arc::new(role)));
        let groups = GROUPS.all(store)?.into_iter().map(|group| Write::Group(Arc::new(group)));
        let users = USERS.all(store)?.into_iter().map(|user| Write::User(Arc::new(user)));
        let tokens = TOKENS.all(store)?.into_iter().map(|token| Write::Token(Arc::new(LiveToken::new(token))));
        let sessions = SESSIONS.all(store)?.into_iter().map(|session| Write::Session(Arc::new(session)));
        let writes: Vec<_> = roles.chain(groups).chain(users).chain(tokens).chain(sessions).collect();
        state.apply(&writes);
        Ok(state)
    }

    pub fn apply(&mut self, writes: &[Write]) {
        for write in writes {
            match write {
                Write::User(user) => {
                    self.forget_user(user.id);
                    let account = Account { user: user.clone(), permissions: self.permissions_of(user) };
                    self.accounts.insert(user.id, account);
                    self.user_names.insert(user.name.clone(), user.id);
                }
                Write::NoUser(id) => self.forget_user(*id),
                Write::Role(role) => drop(self.roles.insert(role.id, role.clone())),
                Write::NoRole(id) => drop(self.roles.remove(id)),
                Write::Group(group) => drop(self.groups.insert(group.id, group.clone())),
                Write::NoGroup(id) => drop(self.groups.remove(id)),
                Write::Token(token) => {
                    self.by_digest.insert(token.record.digest, token.clone());
                    self.tokens.insert(token.record.id, token.clone());
                }
                Write::NoToken(id) => {
                    if let Some(token) = self.tokens.remove(id) {
                        self.by_digest.remove(&token.record.digest);
                    }
                }
                Write::Session(session) => drop(self.sessions.insert(session.digest, session.clone())),
                Write::NoSession(digest) => drop(self.sessions.remove(digest)),
            }
        }
        if writes.iter().any(|write| matches!(write, Write::Role(_) | Write::NoRole(_))) {
            let permissions: Vec<_> =
                self.accounts.iter().map(|(id, account)| (*id, self.permissions_of(&account.user))).collect();
            for (id, permissions) in permissions {
                self.accounts.get_mut(&id).expect("it was just listed").permissions = permissions;
            }
        }
    }

    /// Whether these writes would take the last active user away who can repair users and roles.
    pub fn loses_its_keeper(&self, writes: &[Write]) -> bool {
        if !writes
            .iter()
            .any(|write| matches!(write, Write::User(_) | Write::NoUser(_) | Write::Role(_) | Write::NoRole(_)))
        {
            return false;
        }
        let mut after = Self { accounts: self.accounts.clone(), roles: self.roles.clone(), ..Self::default() };
        after.apply(writes);
        self.has_keeper() && !after.has_keeper()
    }

    fn has_keeper(&self) -> bool {
        self.accounts.values().any(|account| {
            account.user.active
                && account.permissions.contains(Permission::ManageUsers)
                && account.permissions.contains(Permission::ManageRoles)
        })
    }

    pub fn user_named(&self, name: &str) -> Option<&Account> {
        self.accounts.get(self.user_names.get(name)?)
    }

    fn forget_user(&mut self, id: UserId) {
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
        self.role_named(reference).or_else(|| self.roles.get(&reference.parse().ok()?))
    }

    /// The group of this name or id.
    pub fn group(&self, reference: &str) -> Option<&Arc<Group>> {
        self.group_named(reference).or_else(|| self.groups.get(&reference.parse().ok()?))
    }

    pub fn tokens_of(&self, user: UserId) -> impl Iterator<Item = &Arc<LiveToken>> {
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

impl LiveToken {
    pub fn new(record: Token) -> Self {
        let used = record.last_used_at.map_or(0, Timestamp::micros);
        Self { record, used: AtomicI64::new(used), saved: AtomicI64::new(used) }
    }

    /// The record, with its last use as of now.
    pub fn token(&self) -> Token {
        let used = self.used.load(Relaxed);
        let last_used_at = (used != 0).then(|| Timestamp::from_micros(used));
        Token { last_used_at, ..self.record.clone() }
    }

    /// The record as it was made; its last use may be old.
    pub fn record(&self) -> &Token {
        &self.record
    }

    /// Notes a use. True once in `every` microseconds: then the caller writes the record.
    pub fn use_at(&self, now: Timestamp, every: i64) -> bool {
        let now = now.micros();
        self.used.store(now, Relaxed);
        let saved = self.saved.load(Relaxed);
        now - saved >= every && self.saved.compare_exchange(saved, now, Relaxed, Relaxed).is_ok()
    }
}

impl Write {
    pub fn put(&self, batch: &mut Batch<'_>) {
        match self {
            Self::User(user) => USERS.put(batch, user.id.as_bytes(), user),
            Self::NoUser(id) => USERS.delete(batch, id.as_bytes()),
            Self::Role(role) => ROLES.put(batch, role.id.as_bytes(), role),
            Self::NoRole(id) => ROLES.delete(batch, id.as_bytes()),
            Self::Group(group) => GROUPS.put(batch, group.id.as_bytes(), group),
            Self::NoGroup(id) => GROUPS.delete(batch, id.as_bytes()),
            Self::Token(token) => TOKENS.put(batch, token.record.id.as_bytes(), &token.token()),
            Self::NoToken(id) => TOKENS.delete(batch, id.as_bytes()),
            Self::Session(session) => SESSIONS.put(batch, session.digest.as_bytes(), session),
            Self::NoSession(digest) => SESSIONS.delete(batch, digest.as_bytes()),
        }
    }
}

/// Whether `name` is free among users, except for the one that has it already.
pub(super) fn is_free<'a, I: PartialEq + 'a>(
    mut taken: impl Iterator<Item = (&'a I, &'a Name)>,
    name: &Name,
    own: Option<I>,
) -> bool {
    !taken.any(|(id, other)| other == name && own.as_ref() != Some(id))
}
