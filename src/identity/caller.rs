//! Resolves a request's credential to a [`Caller`], watches that it stays valid, and checks it again with each change
//! that the caller makes.

use super::{
    error::IdentityError,
    handle::{DecidedChange, Identity},
    records::User,
    secret::SecretDigest,
    state::{Account, IdentityState, TOKENS},
};
use crate::{
    model::{
        event::Actor,
        id::{SpaceId, TokenId},
        permission::{Permission, TokenScope},
        permissions::Permissions,
        timestamp::Timestamp,
    },
    platform::{
        audit::{AuditEntry, AuditRoom},
        store::keys,
    },
};
use hyper::header::{AUTHORIZATION, COOKIE, HeaderMap};
use std::{sync::Arc, time::Duration};

/// The name of the session cookie.
pub const COOKIE_NAME: &str = "svc_session";

/// A token's last use is written at most this often, in microseconds.
const SAVE_USE_EVERY: i64 = 60_000_000;

/// The longest sleep of [`Identity::wait_until_invalid`]. Changes wake it earlier; this only bounds the timer.
const LONGEST_SLEEP: Duration = Duration::from_secs(86_400);

/// The user behind a request, its permissions, and the credential it presented.
#[derive(Clone, Debug)]
pub struct Caller {
    pub user: Arc<User>,
    pub permissions: Permissions,
    pub via: Credential,
}

/// The kind of credential that a request presented.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// An API token. Empty scopes: everything its user may do.
    Token { id: TokenId, scopes: Vec<TokenScope> },
    /// A login.
    Session { digest: SecretDigest },
    /// The agent of a space, on behalf of the space's owner. The digest distinguishes it from an agent with a later
    /// token.
    Agent { space: SpaceId, digest: SecretDigest },
}

impl Caller {
    /// Tells if the user's roles grant the permission. Token scopes are not looked at: `server::http` checks those per
    /// route.
    pub fn may(&self, permission: Permission) -> bool {
        self.permissions.contains(permission)
    }

    /// The caller as the audit log and events name it.
    pub fn actor(&self) -> Actor {
        match self.via {
            Credential::Token { .. } | Credential::Session { .. } => self.user.actor(),
            Credential::Agent { .. } => self.user.agent_actor(),
        }
    }

    /// An audit entry of an action of this caller.
    pub fn audit_entry(&self, action: &str, object: impl ToString) -> AuditEntry {
        AuditEntry::new(Some(self.actor()), action, object).in_room(self.audit_room())
    }

    /// The room of the audit log for entries of this caller. An agent's token is handed to programs, so that its
    /// entries are not those of an administrator.
    pub fn audit_room(&self) -> AuditRoom {
        let is_agent = matches!(self.via, Credential::Agent { .. });
        if self.permissions.is_administrative() && !is_agent { AuditRoom::Administrative } else { AuditRoom::Ordinary }
    }

    /// Fails with [`IdentityError::AgentCredentials`] for an agent: a stolen agent token must not create a credential
    /// that outlives its space.
    pub fn check_may_manage_credentials(&self) -> Result<(), IdentityError> {
        match self.via {
            Credential::Token { .. } | Credential::Session { .. } => Ok(()),
            Credential::Agent { .. } => Err(IdentityError::AgentCredentials),
        }
    }

    /// The scopes of an API token, which limit it to the routes that name one of them; empty for an unlimited token and
    /// for every other credential. They grant nothing: the user needs the permissions too.
    pub fn scopes(&self) -> &[TokenScope] {
        match &self.via {
            Credential::Token { scopes, .. } => scopes,
            Credential::Session { .. } | Credential::Agent { .. } => &[],
        }
    }
}

impl Caller {
    /// Checks that this caller still has the permissions with which its request was authorized.
    pub(super) fn check_still_has(&self, authorized: Permissions) -> Result<(), IdentityError> {
        if self.permissions.covers(authorized) { Ok(()) } else { Err(IdentityError::PermissionsTaken) }
    }
}

impl Credential {
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Token { .. } => "token",
            Self::Session { .. } => "session",
            Self::Agent { .. } => "agent",
        }
    }
}

impl Identity {
    /// The caller with these headers; `None` without a credential, or with one that is wrong, expired or revoked.
    ///
    /// An `Authorization` header takes precedence: a valid cookie beside an invalid token does not authenticate.
    pub fn authenticate(&self, headers: &HeaderMap) -> Option<Caller> {
        self.authenticate_at(headers, Timestamp::now())
    }

    pub(super) fn authenticate_at(&self, headers: &HeaderMap, now: Timestamp) -> Option<Caller> {
        match headers.get(AUTHORIZATION) {
            Some(value) => self.by_token(bearer(value.to_str().ok()?)?, now),
            None => self.by_session(session_cookie(headers)?, now),
        }
    }

    /// Resolves once the caller would no longer authenticate with the same permissions: its credential or user is
    /// deleted or has expired, or its permissions changed. Long-lived connections select on this.
    pub async fn wait_until_invalid(&self, caller: &Caller) {
        self.wait_until_rejected(caller, |now| now == caller.permissions).await;
    }

    /// Resolves once the caller's credential or user is deleted or has expired. Its permissions may change: callers of
    /// this check them at each use.
    pub async fn wait_until_revoked(&self, caller: &Caller) {
        self.wait_until_rejected(caller, |_| true).await;
    }

    /// Resolves once the caller no longer authenticates with this permission. Its other permissions may change: callers
    /// of this check those at each use.
    pub async fn wait_until_denied(&self, caller: &Caller, permission: Permission) {
        self.wait_until_rejected(caller, |now| now.contains(permission)).await;
    }

    /// Resolves once the caller's credential or user is deleted or has expired, or its permissions no longer suffice.
    async fn wait_until_rejected(&self, caller: &Caller, suffice: impl Fn(Permissions) -> bool) {
        let mut changes = self.0.changed.subscribe();
        while let Some(expiry) = self.validity(caller, &suffice) {
            let wait = expiry.map_or(LONGEST_SLEEP, |expiry| expiry.from_now().min(LONGEST_SLEEP));
            tokio::select! {
                _ = changes.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    fn by_token(&self, presented: &str, now: Timestamp) -> Option<Caller> {
        let digest = SecretDigest::of(presented);
        let state = self.state();
        if let Some(agent) = state.agents.find(&digest) {
            let account = state.accounts.get(&agent.owner).filter(|account| account.user.active)?;
            let (user, permissions) = (account.user.clone(), account.permissions);
            return Some(Caller { user, permissions, via: Credential::Agent { space: agent.space, digest } });
        }
        let token = state.by_digest.get(&digest)?;
        let record = token.record();
        if record.expires_at.is_some_and(|expiry| expiry <= now) {
            return None;
        }
        let account = state.accounts.get(&record.user_id).filter(|account| account.user.active)?;
        if token.use_at(now, SAVE_USE_EVERY) {
            let record = token.token();
            self.0.store.write_soon(move |batch| {
                // The token may have been deleted meanwhile; this write must not restore it.
                let key = keys::key(keys::TOKENS, &[record.id.as_bytes()]);
                if matches!(batch.get(&key), Ok(Some(_))) {
                    TOKENS.put(batch, record.id.as_bytes(), &record);
                }
            });
        }
        Some(Caller {
            user: account.user.clone(),
            permissions: account.permissions,
            via: Credential::Token { id: record.id, scopes: record.scopes.clone() },
        })
    }

    fn by_session(&self, presented: &str, now: Timestamp) -> Option<Caller> {
        let digest = SecretDigest::of(presented);
        let state = self.state();
        let session = state.sessions.get(&digest).filter(|session| session.expires_at > now)?;
        let account = state.accounts.get(&session.user_id).filter(|account| account.user.active)?;
        let (user, permissions) = (account.user.clone(), account.permissions);
        Some(Caller { user, permissions, via: Credential::Session { digest } })
    }

    /// The time at which the caller's credential expires, if it does.
    pub fn expiry(&self, caller: &Caller) -> Option<Timestamp> {
        self.validity(caller, |_| true).flatten()
    }

    /// The caller as it is now, with the user and the permissions of this moment; `None` if it would be rejected.
    pub fn current(&self, caller: &Caller) -> Option<Caller> {
        self.state().current(caller)
    }

    /// Makes one change for a caller. Its credential and its permissions are those of the moment of the decision: what
    /// it was when the request arrived may have been taken from it since, while its body was read or a password was
    /// hashed.
    ///
    /// # Errors
    ///
    /// As [`Identity::change`], and if the credential no longer authenticates.
    pub(super) async fn change_as<T: Send + 'static>(
        &self,
        caller: &Caller,
        decide: impl FnOnce(&IdentityState, &Caller) -> Result<DecidedChange<T>, IdentityError> + Send + 'static,
    ) -> Result<T, IdentityError> {
        let caller = caller.clone();
        self.change(move |state| {
            let current = state.current(&caller).ok_or(IdentityError::Revoked)?;
            decide(state, &current)
        })
        .await
    }

    /// `None` if the caller would be rejected now; otherwise the time its credential expires, if it does.
    fn validity(&self, caller: &Caller, suffice: impl Fn(Permissions) -> bool) -> Option<Option<Timestamp>> {
        let state = self.state();
        let (account, expiry) = state.valid_credential(caller)?;
        suffice(account.permissions).then_some(expiry)
    }
}

impl IdentityState {
    /// See [`Identity::current`].
    pub(super) fn current(&self, caller: &Caller) -> Option<Caller> {
        let (account, _) = self.valid_credential(caller)?;
        let (user, permissions) = (account.user.clone(), account.permissions);
        Some(Caller { user, permissions, via: caller.via.clone() })
    }

    /// The account behind a caller's credential, and the time the credential expires, if it does; `None` if the
    /// credential no longer authenticates.
    fn valid_credential(&self, caller: &Caller) -> Option<(&Account, Option<Timestamp>)> {
        let account = self.accounts.get(&caller.user.id).filter(|account| account.user.active)?;
        let expiry = match &caller.via {
            Credential::Token { id, .. } => self.tokens.get(id)?.record().expires_at,
            Credential::Session { digest } => Some(self.sessions.get(digest)?.expires_at),
            Credential::Agent { digest, .. } => self.agents.find(digest).map(|_| None)?,
        };
        expiry.is_none_or(|expiry| expiry > Timestamp::now()).then_some((account, expiry))
    }
}

/// The token of an `Authorization: Bearer` header; the scheme's case does not matter.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn session_cookie(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE_NAME).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_token_is_read_whatever_the_case_of_its_scheme() {
        assert_eq!(bearer("Bearer svc_x"), Some("svc_x"));
        assert_eq!(bearer("bearer  svc_x"), Some("svc_x"));
        assert_eq!(bearer("Basic svc_x"), None);
        assert_eq!(bearer("svc_x"), None);
    }

    #[test]
    fn the_session_cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, "theme=dark; xsvc_session=no".parse().unwrap());
        headers.append(COOKIE, "a=b;svc_session=yes; c=d".parse().unwrap());
        assert_eq!(session_cookie(&headers), Some("yes"));
    }
}
