//! Users, roles, groups, API tokens, sessions and agent tokens: authentication and permissions.
//!
//! All [`records`] are in memory ([`state`]); the store is read once, by [`open`]. [`handle`] is the one way to change
//! them. Every request is authenticated against memory, so a deleted or deactivated user is locked out at once.
//!
//! [`caller`] resolves a request's credential to a [`Caller`]. [`users`], [`roles`], [`groups`], [`tokens`],
//! [`sessions`] and [`agents`] each hold the changes to one kind of record. [`secret`] makes the secrets of tokens and
//! sessions; [`agent_tokens`] finds the space of one. A login goes through the [`login_throttle`] and the
//! [`hashing_queue`] to the hash of its [`password`].

mod agent_tokens;
mod agents;
mod caller;
mod error;
mod groups;
mod handle;
mod hashing_queue;
mod login_throttle;
mod open;
mod password;
mod records;
mod roles;
mod secret;
mod sessions;
mod state;
#[cfg(test)]
mod tests;
mod tokens;
mod users;

pub use crate::model::{
    name::{Name, NameError},
    permissions::Permissions,
};
pub use agent_tokens::AGENT_PREFIX;
pub use caller::{COOKIE_NAME, Caller, Credential};
pub use error::{IdentityError, IdentityOpenError};
pub use handle::Identity;
pub use login_throttle::network;
pub use password::PasswordError;
pub use records::{Group, Role, Session, Token, User};
pub use secret::{Secret, SecretDigest};
pub use sessions::PasswordChange;
pub use users::{NewUser, UserChange};
