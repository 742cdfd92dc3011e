//! A user's API tokens. Each sees and deletes their own only; the token itself is shown once, when made.

use super::{
    Caller, Edit, Identity, IdentityError, Secret, Token, Via,
    state::{LiveToken, Write},
};
use crate::{
    model::{
        id::{TokenId, UserId},
        permission::TokenScope,
        timestamp::Timestamp,
    },
    platform::audit::Entry,
};
use serde_json::json;
use std::sync::Arc;

/// Tokens a user can have.
const MOST: usize = 100;

/// The longest name of a token, in characters.
const LONGEST_NAME: usize = 100;

impl Identity {
    /// A user's tokens, in order of making.
    pub fn tokens(&self, user: UserId) -> Vec<Token> {
        let mut tokens: Vec<_> = self.state().tokens_of(user).map(|token| token.token()).collect();
        tokens.sort_by_key(|token| token.id);
        tokens
    }

    /// A user's token; `None` for somebody else's.
    pub fn token(&self, user: UserId, id: TokenId) -> Option<Token> {
        self.state().tokens.get(&id).map(|token| token.token()).filter(|token| token.user_id == user)
    }

    /// Makes a token for the caller. Made by a token that expires, it expires no later: whoever gets hold of that one
    /// must not be able to keep what it opens.
    ///
    /// # Errors
    ///
    /// Fails if the name is empty or long, the expiry has passed, or the caller is an agent or has too many tokens.
    pub async fn create_token(
        &self,
        caller: &Caller,
        name: String,
        mut scopes: Vec<TokenScope>,
        expires_at: Option<Timestamp>,
    ) -> Result<(Token, Secret), IdentityError> {
        caller.handles_credentials()?;
        let length = name.chars().count();
        if !(1..=LONGEST_NAME).contains(&length) || name.chars().any(char::is_control) {
            let reason = format!("a token's name has 1 to {LONGEST_NAME} characters, none of them control characters");
            return Err(IdentityError::Invalid { field: "name", reason });
        }
        let now = Timestamp::now();
        if expires_at.is_some_and(|expiry| expiry <= now) {
            return Err(IdentityError::Invalid { field: "expires_at", reason: "has already passed".to_owned() });
        }
        scopes.sort_unstable();
        scopes.dedup();
        let caller = caller.clone();
        self.change(move |state| {
            let user_id = caller.user.id;
            if !state.accounts.contains_key(&user_id) {
                return Err(IdentityError::Missing("user"));
            }
            if state.tokens_of(user_id).count() >= MOST {
                return Err(IdentityError::TooManyTokens(MOST));
            }
            let parent = match &caller.via {
                Via::Token { id, .. } => {
                    state.tokens.get(id).ok_or(IdentityError::Missing("token"))?.record().expires_at
                }
                Via::Session { .. } | Via::Agent { .. } => None,
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
            let entry = Entry::new(Some(caller.actor()), "token.create", &token.name)
                .with(json!({"id": token.id, "scopes": token.scopes, "expires_at": token.expires_at}));
            let write = Write::Token(Arc::new(LiveToken::new(token.clone())));
            Ok(Edit { writes: vec![write], entry, value: (token, secret) })
        })
        .await
    }

    /// Deletes one of the caller's tokens, the one it calls with included.
    ///
    /// # Errors
    ///
    /// Fails if the caller has no such token, or is an agent.
    pub async fn delete_token(&self, caller: &Caller, id: TokenId) -> Result<(), IdentityError> {
        caller.handles_credentials()?;
        let caller = caller.clone();
        self.change(move |state| {
            let token = state.tokens.get(&id).map(|token| token.record());
            let own = token.filter(|token| token.user_id == caller.user.id);
            let token = own.ok_or(IdentityError::Missing("token"))?;
            let entry = Entry::new(Some(caller.actor()), "token.delete", &token.name).with(json!({"id": id}));
            Ok(Edit { writes: vec![Write::NoToken(id)], entry, value: () })
        })
        .await
    }
}
