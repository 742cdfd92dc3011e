//! Who is calling: the credential of a request, told apart once and turned into a [`Caller`].

use super::{Digest, Identity, IdentityError, Permissions, User, state::TOKENS};
use crate::{
    model::{
        event::Actor,
        id::{SpaceId, TokenId},
        permission::{Permission, TokenScope},
        timestamp::Timestamp,
    },
    platform::store::keys,
};
use hyper::header::{AUTHORIZATION, COOKIE, HeaderMap};
use std::{sync::Arc, time::Duration};

/// The name of the session cookie.
pub const COOKIE_NAME: &str = "svc_session";

/// A token's last use is written at most this often, in microseconds.
const SAVE_USE_EVERY: i64 = 60_000_000;

/// How long [`Identity::lapsed`] sleeps at most. Changes wake it; this only bounds the timer.
const LONGEST_SLEEP: Duration = Duration::from_secs(86_400);

/// The user behind a request, what it may do, and by which door it came.
#[derive(Clone, Debug)]
pub struct Caller {
    pub user: Arc<User>,
    pub permissions: Permissions,
    pub via: Via,
}

/// The door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Via {
    /// An API token. Empty scopes: all its user may do.
    Token { id: TokenId, scopes: Vec<TokenScope> },
    /// A login.
    Session { digest: Digest },
    /// The agent of a space, on behalf of the space's owner. The digest tells it from an agent with a later token.
    Agent { space: SpaceId, digest: Digest },
}

impl Caller {
    pub fn may(&self, permission: Permission) -> bool {
        self.permissions.contains(permission)
    }

    /// The caller as the audit log and events name it.
    pub fn actor(&self) -> Actor {
        match self.via {
            Via::Token { .. } | Via::Session { .. } => self.user.actor(),
            Via::Agent { .. } => self.user.agent_actor(),
        }
    }

    /// Refuses an agent what concerns credentials: whoever gets hold of a space's token must not come by another one
    /// that stays when the space is gone.
    ///
    /// # Errors
    ///
    /// [`IdentityError::AgentCredentials`] for an agent.
    pub fn handles_credentials(&self) -> Result<(), IdentityError> {
        match self.via {
            Via::Token { .. } | Via::Session { .. } => Ok(()),
            Via::Agent { .. } => Err(IdentityError::AgentCredentials),
        }
    }

    /// What the credential is limited to, if it is. Only API tokens can be (SPEC 5 rule 7).
    pub fn scopes(&self) -> &[TokenScope] {
        match &self.via {
            Via::Token { scopes, .. } => scopes,
            Via::Session { .. } | Via::Agent { .. } => &[],
        }
    }
}

impl Via {
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Token { .. } => "token",
            Self::Session { .. } => "session",
            Self::Agent { .. } => "agent",
        }
    }
}

impl Identity {
    /// The caller with these headers; `None` without a credential, and with one that is wrong, expired or revoked.
    ///
    /// An `Authorization` header decides alone: a bad token is not made good by a cookie beside it.
    pub fn authenticate(&self, headers: &HeaderMap) -> Option<Caller> {
        self.authenticate_at(headers, Timestamp::now())
    }

    pub(super) fn authenticate_at(&self, headers: &HeaderMap, now: Timestamp) -> Option<Caller> {
        match headers.get(AUTHORIZATION) {
            Some(value) => self.by_token(bearer(value.to_str().ok()?)?, now),
            None => self.by_session(session_cookie(headers)?, now),
        }
    }

    /// Resolves once the caller would not be let in again as it was: its credential or user is gone or has expired,
    /// or its permissions are others. What holds a connection open for long waits for this beside its work.
    pub async fn lapsed(&self, caller: &Caller) {
        // An agent's link asks for no permission, and should not break because its owner got another.
        let is_agent = matches!(caller.via, Via::Agent { .. });
        self.while_stands(caller, |now| is_agent || now == caller.permissions).await;
    }

    /// Resolves once the caller would not be let in again where this permission is asked for. Its other permissions may
    /// come and go: this is for what looks at them again whenever it matters.
    pub async fn barred(&self, caller: &Caller, permission: Permission) {
        self.while_stands(caller, |now| now.contains(permission)).await;
    }

    /// Resolves once the caller's credential or user is gone or has expired, or it has permissions that do not suffice.
    async fn while_stands(&self, caller: &Caller, suffice: impl Fn(Permissions) -> bool) {
        let mut changes = self.0.changed.subscribe();
        while let Some(expiry) = self.stands(caller, &suffice) {
            let wait = expiry.map_or(LONGEST_SLEEP, |expiry| expiry.from_now().min(LONGEST_SLEEP));
            tokio::select! {
                _ = changes.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    fn by_token(&self, presented: &str, now: Timestamp) -> Option<Caller> {
        let digest = Digest::of(presented);
        let state = self.state();
        if let Some(agent) = state.agents.find(&digest) {
            let account = state.accounts.get(&agent.owner).filter(|account| account.user.active)?;
            let (user, permissions) = (account.user.clone(), account.permissions);
            return Some(Caller { user, permissions, via: Via::Agent { space: agent.space, digest } });
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
                // The token may have been deleted meanwhile, and must not come back.
                let key = keys::key(keys::TOKENS, &[record.id.as_bytes()]);
                if matches!(batch.get(&key), Ok(Some(_))) {
                    TOKENS.put(batch, record.id.as_bytes(), &record);
                }
            });
        }
        Some(Caller {
            user: account.user.clone(),
            permissions: account.permissions,
            via: Via::Token { id: record.id, scopes: record.scopes.clone() },
        })
    }

    fn by_session(&self, presented: &str, now: Timestamp) -> Option<Caller> {
        let digest = Digest::of(presented);
        let state = self.state();
        let session = state.sessions.get(&digest).filter(|session| session.expires_at > now)?;
        let account = state.accounts.get(&session.user_id).filter(|account| account.user.active)?;
        let (user, permissions) = (account.user.clone(), account.permissions);
        Some(Caller { user, permissions, via: Via::Session { digest } })
    }

    /// `None` if the caller would be refused now; else when its credential expires, if ever.
    fn stands(&self, caller: &Caller, suffice: impl Fn(Permissions) -> bool) -> Option<Option<Timestamp>> {
        let state = self.state();
        let account = state.accounts.get(&caller.user.id)?;
        let expiry = match &caller.via {
            Via::Token { id, .. } => state.tokens.get(id)?.record().expires_at,
            Via::Session { digest } => Some(state.sessions.get(digest)?.expires_at),
            Via::Agent { digest, .. } => state.agents.find(digest).map(|_| None)?,
        };
        let suffices = suffice(account.permissions);
        let stands = account.user.active && suffices && expiry.is_none_or(|expiry| expiry > Timestamp::now());
        stands.then_some(expiry)
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
