//! Logging in and out. An unknown name and a wrong password look alike, take as long, and count alike.

use super::{
    Caller, Edit, Identity, IdentityError, Secret, Session, User, Via,
    state::{State, Write},
    users,
};
use crate::{
    model::{id::UserId, timestamp::Timestamp},
    platform::audit::Entry,
};
use serde_json::json;
use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

/// Sessions a user can have; the oldest makes room.
const MOST: usize = 20;

/// Characters of a name that are kept about a login. No name is longer, and a guesser's may be a megabyte.
const NAME_KEPT: usize = 64;

impl Identity {
    /// Starts a session and returns its caller and the cookie's value.
    ///
    /// # Errors
    ///
    /// Fails if name or password is wrong, the user is inactive or has no password, or there were too many failures.
    pub async fn login(&self, name: &str, password: String, from: IpAddr) -> Result<(Caller, Secret), IdentityError> {
        let user = self.check_password(name, password, from).await?;
        let span = self.0.session;
        let opened = self
            .change(move |state| {
                // Hashing took a while; the user may have changed meanwhile.
                let account = state.accounts.get(&user.id).filter(|account| account.user.active);
                let account = account.filter(|account| account.user.password == user.password);
                let account = account.ok_or(IdentityError::WrongPassword)?;
                let secret = Secret::new("");
                let session = open(user.id, &secret, span);
                let digest = session.digest;
                let mut writes = make_room(state, user.id);
                writes.push(Write::Session(Arc::new(session)));
                let (user, permissions) = (account.user.clone(), account.permissions);
                let entry = Entry::new(Some(user.actor()), "login.success", &user.name).with(json!({"from": from}));
                let caller = Caller { user, permissions, via: Via::Session { digest } };
                Ok(Edit { writes, entry, value: (caller, secret) })
            })
            .await?;
        self.0.throttle.forgive(kept_name(name), from);
        Ok(opened)
    }

    /// Ends the session the caller came by. A caller with a token has none to end.
    ///
    /// # Errors
    ///
    /// Fails only if the store cannot be written.
    pub async fn logout(&self, caller: &Caller) -> Result<(), IdentityError> {
        let Via::Session { digest } = caller.via else { return Ok(()) };
        let user = caller.user.clone();
        self.change(move |_| {
            let entry = Entry::new(Some(user.actor()), "logout", &user.name);
            Ok(Edit { writes: vec![Write::NoSession(digest)], entry, value: () })
        })
        .await
    }

    /// Changes the caller's own password and ends all its sessions but the one it calls with.
    ///
    /// # Errors
    ///
    /// Fails if the current password is wrong, the new one unfit, there were too many failures, or the caller is an agent.
    pub async fn change_own_password(
        &self,
        caller: &Caller,
        current: String,
        new: String,
        from: IpAddr,
    ) -> Result<(), IdentityError> {
        caller.handles_credentials()?;
        let name = caller.user.name.clone();
        let user = self.check_password(name.as_str(), current, from).await?;
        self.0.throttle.forgive(kept_name(name.as_str()), from);
        let password = self.hash(Some(new)).await?;
        let via = caller.via.clone();
        self.change(move |state| {
            let account = state.accounts.get(&user.id).ok_or(IdentityError::Missing("user"))?;
            let user = Arc::new(User { password, ..User::clone(&account.user) });
            let here = |write: &Write| {
                matches!((write, &via), (Write::NoSession(one), Via::Session { digest }) if one == digest)
            };
            let mut writes: Vec<_> = users::sessions(state, user.id).filter(|write| !here(write)).collect();
            writes.push(Write::User(user.clone()));
            let entry = Entry::new(Some(user.actor()), "user.update", &user.name)
                .with(json!({"id": user.id, "changed": ["password"]}));
            Ok(Edit { writes, entry, value: () })
        })
        .await
    }

    /// Forgets sessions that have expired; they open nothing any more in any case.
    pub async fn purge_sessions(&self) -> Result<(), IdentityError> {
        let now = Timestamp::now();
        let expired = |state: &State| -> Vec<Write> {
            let expired = state.sessions.values().filter(|session| session.expires_at <= now);
            expired.map(|session| Write::NoSession(session.digest)).collect()
        };
        let writes = expired(&self.state());
        if writes.is_empty() {
            return Ok(());
        }
        let entry = Entry::new(None, "session.expire", format_args!("{} sessions", writes.len()));
        self.change(move |_| Ok(Edit { writes, entry, value: () })).await
    }

    async fn check_password(&self, name: &str, password: String, from: IpAddr) -> Result<Arc<User>, IdentityError> {
        let admitted = self.0.throttle.admit(kept_name(name), from, Instant::now());
        tokio::time::sleep(admitted.map_err(IdentityError::Throttled)?).await;
        let user = self.state().user_named(name).map(|account| account.user.clone());
        let kept = user.as_ref().filter(|user| user.active).and_then(|user| user.password.clone());
        if self.0.passwords.verify(password, kept).await
            && let Some(user) = user
        {
            return Ok(user);
        }
        self.0.audit.note(Entry::new(None, "login.failure", kept_name(name)).with(json!({"from": from})));
        Err(IdentityError::WrongPassword)
    }
}

fn kept_name(name: &str) -> &str {
    name.char_indices().nth(NAME_KEPT).map_or(name, |(end, _)| &name[..end])
}

fn open(user_id: UserId, secret: &Secret, span: Duration) -> Session {
    let now = Timestamp::now();
    Session { digest: secret.digest(), user_id, created_at: now, expires_at: now.after(span) }
}

/// The writes that leave a user room for one more session.
fn make_room(state: &State, user: UserId) -> Vec<Write> {
    let mut sessions: Vec<_> = state.sessions_of(user).collect();
    sessions.sort_by_key(|session| session.created_at);
    let excess = (sessions.len() + 1).saturating_sub(MOST);
    sessions.iter().take(excess).map(|session| Write::NoSession(session.digest)).collect()
}
