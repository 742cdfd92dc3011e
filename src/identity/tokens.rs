//! Changes to API tokens. Users see, make and delete only their own, and those who manage users also the tokens of the
//! users that they may change; the token itself is shown once, when it is created.

use super::{
    caller::{Caller, Credential},
    error::IdentityError,
    handle::{DecidedChange, Identity},
    records::{Token, User},
    secret::Secret,
    state::{IdentityState, RecordWrite, TrackedToken},
    users::find_changeable,
};
use crate::model::{
    id::{TokenId, UserId},
    permission::{Permission, TokenScope},
    timestamp::Timestamp,
};
use serde_json::json;
use std::sync::Arc;

/// The most tokens of a user.
const MAX_TOKENS: usize = 100;

/// The longest name of a token, in characters.
const MAX_NAME: usize = 100;

impl Identity {
    /// The caller's tokens, oldest first, or those of a user that the caller may change.
    pub fn tokens(&self, caller: &Caller, user: UserId) -> Result<Vec<Token>, IdentityError> {
        let state = self.state();
        check_holder(&state, user, caller)?;
        let mut tokens: Vec<_> = state.tokens_of(user).map(|token| token.token()).collect();
        tokens.sort_by_key(|token| token.id);
        Ok(tokens)
    }

    /// A token that the caller sees: its own, or one of a user that the caller may change.
    pub fn token(&self, caller: &Caller, id: TokenId) -> Option<Token> {
        let state = self.state();
        let token = state.tokens.get(&id)?.token();
        check_holder(&state, token.user_id, caller).ok().map(|_| token)
    }

    /// Creates a token for the caller, or for a user that the caller may change. A token created with an expiring token
    /// expires no later, so that a stolen token cannot extend its own access.
    pub async fn create_token(
        &self,
        caller: &Caller,
        user_id: UserId,
        name: String,
        mut scopes: Vec<TokenScope>,
        expires_at: Option<Timestamp>,
    ) -> Result<(Token, Secret), IdentityError> {
        caller.check_may_manage_credentials()?;
        let length = name.chars().count();
        if !(1..=MAX_NAME).contains(&length) || name.chars().any(char::is_control) {
            let reason = format!("a token's name has 1 to {MAX_NAME} characters, none of them control characters");
            return Err(IdentityError::Invalid { field: "name", reason });
        }
        let now = Timestamp::now();
        if expires_at.is_some_and(|expiry| expiry <= now) {
            return Err(IdentityError::Invalid { field: "expires_at", reason: "has already passed".to_owned() });
        }
        scopes.sort_unstable();
        scopes.dedup();
        self.change_as(caller, move |state, caller| {
            let other = check_holder(state, user_id, caller)?;
            if state.tokens_of(user_id).count() >= MAX_TOKENS {
                return Err(IdentityError::TooManyTokens(MAX_TOKENS));
            }
            let parent = match &caller.via {
                Credential::Token { id, .. } => {
                    state.tokens.get(id).ok_or(IdentityError::Missing("token"))?.record().expires_at
                }
                Credential::Session { .. } | Credential::Agent { .. } => None,
            };
            let expires_at = [expires_at, parent].into_iter().flatten().min();
            let secret = Secret::new("svc_");
            let token = Token {
                id: TokenId::new(),
                user_id,
                name,
                scopes,
                created_at: now,
                expires_at,
                last_used_at: None,
                digest: secret.digest(),
            };
            let mut detail = json!({"id": token.id, "scopes": token.scopes, "expires_at": token.expires_at});
            if let Some(other) = other {
                detail["user"] = json!(other.name);
            }
            let entry = caller.audit_entry("token.create", &token.name).with(detail);
            let write = RecordWrite::PutToken(Arc::new(TrackedToken::new(token.clone())));
            Ok(DecidedChange { writes: vec![write], entry, value: (token, secret) })
        })
        .await
    }

    /// Deletes one of the caller's tokens, possibly the one it presented, or one of a user that the caller may change.
    pub async fn delete_token(&self, caller: &Caller, id: TokenId) -> Result<(), IdentityError> {
        caller.check_may_manage_credentials()?;
        self.change_as(caller, move |state, caller| {
            let token = state.tokens.get(&id).map(|token| token.record()).ok_or(IdentityError::Missing("token"))?;
            let mut detail = json!({"id": id});
            let missing = |error| match error {
                IdentityError::Missing(_) | IdentityError::BeyondUser(_) => IdentityError::Missing("token"),
                error => error,
            };
            if let Some(other) = check_holder(state, token.user_id, caller).map_err(missing)? {
                detail["user"] = json!(other.name);
            }
            let entry = caller.audit_entry("token.delete", &token.name).with(detail);
            Ok(DecidedChange { writes: vec![RecordWrite::DeleteToken(id)], entry, value: () })
        })
        .await
    }
}

/// Checks that the caller may manage the tokens of this user. Returns the user if it is another than the caller.
fn check_holder(state: &IdentityState, user: UserId, caller: &Caller) -> Result<Option<Arc<User>>, IdentityError> {
    if user == caller.user.id && state.accounts.contains_key(&user) {
        return Ok(None);
    }
    if !caller.may(Permission::ManageUsers) {
        return Err(IdentityError::Missing("user"));
    }
    find_changeable(state, user, caller).map(Some)
}
