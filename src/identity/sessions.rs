//! Login, logout and the change of one's own password.
//!
//! An unknown name and a wrong password get the same response after the same time, and count alike as failures.

use super::{
    caller::{Caller, Credential},
    error::IdentityError,
    handle::{DecidedChange, Identity},
    records::{Session, User},
    secret::Secret,
    state::{IdentityState, RecordWrite},
    users,
};
use crate::{
    model::{id::UserId, timestamp::Timestamp},
    platform::audit::AuditEntry,
};
use serde_json::json;
use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

/// The most sessions of a user; a new one replaces the oldest.
const MAX_SESSIONS: usize = 20;

/// The characters of a presented name that are recorded. No user's name is longer, and a request may send a megabyte.
const MAX_RECORDED_NAME: usize = 64;

/// A user's change of its own password.
pub struct PasswordChange {
    pub current: String,
    pub new: String,
    /// Revokes the user's API tokens.
    pub revoke_tokens: bool,
}

impl Identity {
    /// Starts a session and returns its caller and the cookie's value.
    pub async fn login(&self, name: &str, password: String, from: IpAddr) -> Result<(Caller, Secret), IdentityError> {
        let user = self.check_password(name, password, from).await?;
        let span = self.0.session;
        let opened = self
            .change(move |state| {
                // The user may have changed while the password was hashed.
                let account = state.accounts.get(&user.id).filter(|account| account.user.active);
                let account = account.filter(|account| account.user.password == user.password);
                let account = account.ok_or(IdentityError::WrongPassword)?;
                let secret = Secret::new("");
                let session = open(user.id, &secret, span);
                let digest = session.digest;
                let mut writes = make_room(state, user.id);
                writes.push(RecordWrite::PutSession(Arc::new(session)));
                let (user, permissions) = (account.user.clone(), account.permissions);
                let caller = Caller { user, permissions, via: Credential::Session { digest } };
                let entry = caller.audit_entry("login.success", &caller.user.name).with(json!({"from": from}));
                Ok(DecidedChange { writes, entry, value: (caller, secret) })
            })
            .await?;
        self.0.login_throttle.record_success(recorded_name(name), from);
        Ok(opened)
    }

    /// Ends the session the caller presented. Does nothing for a caller with a token.
    pub async fn logout(&self, caller: &Caller) -> Result<(), IdentityError> {
        let Credential::Session { digest } = caller.via else { return Ok(()) };
        let ended = self.change_as(caller, move |_, caller| {
            let entry = caller.audit_entry("logout", &caller.user.name);
            Ok(DecidedChange { writes: vec![RecordWrite::DeleteSession(digest)], entry, value: () })
        });
        match ended.await {
            // Another request has ended it meanwhile.
            Err(IdentityError::Revoked) => Ok(()),
            ended => ended,
        }
    }

    /// Changes the caller's own password, ends all its sessions, and revokes its tokens if that is asked for, except
    /// the credential it presented.
    pub async fn change_own_password(
        &self,
        caller: &Caller,
        change: PasswordChange,
        from: IpAddr,
    ) -> Result<(), IdentityError> {
        let PasswordChange { current, new, revoke_tokens } = change;
        caller.check_may_manage_credentials()?;
        let name = caller.user.name.clone();
        let user = self.check_password(name.as_str(), current, from).await?;
        self.0.login_throttle.record_success(recorded_name(name.as_str()), from);
        let password = self.hash("new", Some(new)).await?;
        self.change_as(caller, move |state, caller| {
            let account = state.accounts.get(&user.id).ok_or(IdentityError::Missing("user"))?;
            let user = Arc::new(User { password, has_first_password: false, ..User::clone(&account.user) });
            let here = |write: &RecordWrite| {
                matches!((write, &caller.via), (RecordWrite::DeleteSession(one), Credential::Session { digest }) if one == digest)
            };
            let mut writes: Vec<_> = users::sessions(state, user.id).filter(|write| !here(write)).collect();
            let mut detail = json!({"id": user.id, "changed": ["password"]});
            if revoke_tokens {
                let revoked = users::revocations(state, user.id, caller);
                detail["changed"] = json!(["password", "tokens"]);
                detail["tokens_revoked"] = json!(revoked.len());
                writes.extend(revoked);
            }
            writes.push(RecordWrite::PutUser(user.clone()));
            let entry = caller.audit_entry("user.update", &user.name).with(detail);
            Ok(DecidedChange { writes, entry, value: () })
        })
        .await
    }

    /// Deletes expired sessions. They no longer authenticate in any case.
    pub async fn purge_sessions(&self) -> Result<(), IdentityError> {
        let now = Timestamp::now();
        let expired = |state: &IdentityState| -> Vec<RecordWrite> {
            let expired = state.sessions.values().filter(|session| session.expires_at <= now);
            expired.map(|session| RecordWrite::DeleteSession(session.digest)).collect()
        };
        let writes = expired(&self.state());
        if writes.is_empty() {
            return Ok(());
        }
        let entry = AuditEntry::new(None, "session.expire", format_args!("{} sessions", writes.len()));
        self.change(move |_| Ok(DecidedChange { writes, entry, value: () })).await
    }

    async fn check_password(&self, name: &str, password: String, from: IpAddr) -> Result<Arc<User>, IdentityError> {
        let admitted = self.0.login_throttle.start_attempt(recorded_name(name), from, Instant::now());
        tokio::time::sleep(admitted.map_err(IdentityError::Throttled)?).await;
        let user = self.state().user_named(name).map(|account| account.user.clone());
        let kept = user.as_ref().filter(|user| user.active).and_then(|user| user.password.clone());
        let passwords = &self.0.passwords;
        let rank = passwords.queue.count_attempt(from);
        let Ok(fits) = passwords.verify(password, kept, rank).await else {
            self.0.login_throttle.withdraw(recorded_name(name), from);
            return Err(IdentityError::Overload);
        };
        if fits && let Some(user) = user {
            return Ok(user);
        }
        self.0.audit.note(AuditEntry::new(None, "login.failure", recorded_name(name)).with(json!({"from": from})));
        Err(IdentityError::WrongPassword)
    }
}

fn recorded_name(name: &str) -> &str {
    name.char_indices().nth(MAX_RECORDED_NAME).map_or(name, |(end, _)| &name[..end])
}

fn open(user_id: UserId, secret: &Secret, span: Duration) -> Session {
    let now = Timestamp::now();
    Session { digest: secret.digest(), user_id, created_at: now, expires_at: now.after(span) }
}

/// The deletions that make room for one more session of a user.
fn make_room(state: &IdentityState, user: UserId) -> Vec<RecordWrite> {
    let mut sessions: Vec<_> = state.sessions_of(user).collect();
    sessions.sort_by_key(|session| session.created_at);
    let excess = (sessions.len() + 1).saturating_sub(MAX_SESSIONS);
    sessions.iter().take(excess).map(|session| RecordWrite::DeleteSession(session.digest)).collect()
}
