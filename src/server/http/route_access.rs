//! The callers that a route admits.

use super::error::ApiError;
use crate::{
    identity::Caller,
    model::{permission::Permission, permissions::Permissions},
};

/// Callers that a route admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteAccess {
    /// Anybody, without a credential.
    Open,
    /// Anybody, or every authenticated user, or nobody here: by the setting `http.metrics`.
    Metrics,
    /// Every authenticated user. The handler decides what the user sees.
    User,
    /// Users with at least one of these permissions.
    AnyOf(&'static [Permission]),
    /// Users with all permissions there are, and no agents.
    AllPermissions,
}

impl RouteAccess {
    /// Checks that the caller has the permissions for the route.
    pub fn check_permissions(self, caller: &Caller) -> Result<(), ApiError> {
        match self {
            Self::AnyOf(permissions) if !caller.permissions.contains_any(permissions) => {
                let names: Vec<_> = permissions.iter().map(|permission| permission.as_str()).collect();
                Err(ApiError::Forbidden(format!("this needs the permission {}", names.join(" or "))))
            }
            Self::AllPermissions if !caller.permissions.covers(Permissions::all()) => {
                Err(ApiError::Forbidden("this needs all permissions, as the role admin has them".to_owned()))
            }
            _ => Ok(()),
        }
    }
}
