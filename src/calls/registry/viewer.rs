//! The rules of visibility: who sees a method, and under which name.
//!
//! Owners see their own methods by their canonical names. Others see a shared method as `user.OWNER.NAME`, if they may use
//! shared methods and are in one of its groups, or it has none.

use super::published::PublishedMethod;
use crate::{
    identity::{Caller, Identity},
    model::{
        id::{GroupId, UserId},
        method::MethodScope,
        owner::Owner,
        permission::Permission,
    },
};

/// A user or a global script that looks for methods.
#[derive(Clone, Debug)]
pub struct Viewer {
    /// `None` for a global script, which has no methods of its own.
    user: Option<UserId>,
    groups: Vec<GroupId>,
    /// True if it may use methods that others share.
    uses_shared: bool,
}

impl Viewer {
    pub fn of_caller(caller: &Caller) -> Self {
        Self {
            user: Some(caller.user.id),
            groups: caller.user.groups.clone(),
            uses_shared: caller.may(Permission::UseMethods),
        }
    }

    /// The viewer of a script: its user, or for a global script one that sees what is shared with everybody.
    pub fn of_owner(owner: Owner, identity: &Identity) -> Self {
        let user = match owner {
            Owner::Global => return Self { user: None, groups: vec![], uses_shared: true },
            Owner::User(user) => user,
        };
        let record = identity.user(user).filter(|user| user.active);
        Self {
            user: Some(user),
            groups: record.map_or_else(Vec::new, |user| user.groups.clone()),
            uses_shared: identity.permissions(user).contains(Permission::UseMethods),
        }
    }

    pub fn user(&self) -> Option<UserId> {
        self.user
    }

    /// Returns whether the viewer sees the method.
    pub fn sees(&self, method: &PublishedMethod) -> bool {
        if self.user == Some(method.owner) {
            return true;
        }
        let definition = &method.method.definition;
        let in_group =
            definition.groups.is_empty() || definition.groups.iter().any(|group| self.groups.contains(group));
        definition.scope == MethodScope::Shared && self.uses_shared && in_group
    }

    /// The owner and the canonical name of the method that the viewer means by this name.
    pub(super) fn owner_and_name<'a>(&self, name: &'a str, identity: &Identity) -> Option<(UserId, &'a str)> {
        match name.strip_prefix("user.") {
            None => Some((self.user?, name)),
            Some(qualified) => {
                // User names have no dots, so the first one ends the name.
                let (owner, name) = qualified.split_once('.')?;
                let owner = identity.user_named(owner)?.id;
                Some((Some(owner).filter(|owner| self.user != Some(*owner))?, name))
            }
        }
    }

    /// The name under which the viewer sees the method of `owner_name`.
    pub fn name_of(&self, method: &PublishedMethod, owner_name: &str) -> String {
        if self.user == Some(method.owner) {
            return method.method.name.to_string();
        }
        format!("user.{owner_name}.{}", method.method.name)
    }
}
