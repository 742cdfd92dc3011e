//! Errors of identity. The HTTP API maps each [`IdentityError`] to a status.

use crate::{
    model::{name::Name, permission::Permission},
    platform::store::StoreError,
};
use std::{io, path::PathBuf, time::Duration};

/// The reason identity could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum IdentityOpenError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot write {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
}

/// The reason a change was not made, or a login was refused.
#[derive(Debug, Clone, thiserror::Error)]
pub enum IdentityError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Also for a token of another user, so that its existence does not show.
    #[error("there is no such {0}")]
    Missing(&'static str),
    #[error("there is already a {kind} named `{name}`")]
    NameTaken { kind: &'static str, name: Name },
    #[error("`{field}`: there is no {kind} named `{reference}`, nor one with that id")]
    UnknownReference { field: String, kind: &'static str, reference: String },
    #[error("`{field}`: {reason}")]
    Invalid { field: &'static str, reason: String },
    #[error("this would leave no active user with both manage_users and manage_roles")]
    LastAdministrator,
    #[error("`{0}` may do more than you: only somebody who may do as much, or has manage_roles, can change this user")]
    BeyondUser(Name),
    #[error("the role `{role}` allows `{permission}`, which you do not have: you cannot give it away")]
    BeyondRole { role: Name, permission: Permission },
    #[error("a user has at most {0} tokens: delete one first")]
    TooManyTokens(usize),
    #[error("an agent's token makes and takes no credentials: use a token or session of the user")]
    AgentCredentials,
    /// The credential was valid when the request arrived.
    #[error("the credential of this request has expired or was revoked meanwhile")]
    Revoked,
    /// The caller had more permissions when its request arrived.
    #[error("permissions were taken from you while this request was under way: nothing was changed")]
    PermissionsTaken,
    #[error("name or password is wrong")]
    WrongPassword,
    /// Nothing is wrong with the password.
    #[error("too many passwords are being checked: try again in a second")]
    Overload,
    #[error("too many failed attempts: try again in {} s", .0.as_secs().max(1))]
    Throttled(Duration),
}
