//! Who sees a method, and under which name (SPEC V1 to V6).

use super::{Published, Registry};
use crate::{
    identity::{Caller, Identity},
    model::{
        id::{GroupId, UserId},
        method::MethodScope,
        owner::Owner,
        permission::Permission,
    },
};
use std::sync::Arc;

/// Whoever looks for methods.
#[derive(Clone, Debug)]
pub struct Viewer {
    /// `None` for what belongs to everybody, which has no methods of its own.
    user: Option<UserId>,
    groups: Vec<GroupId>,
    /// Whether it may use what others share.
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

    /// What a script of this owner sees: what the user would, or for a global one what is shared with everybody.
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

    /// Whether the viewer sees the method at all.
    pub fn sees(&self, method: &Published) -> bool {
        if self.user == Some(method.owner) {
            return true;
        }
        let definition = &method.method.definition;
        let among = definition.groups.is_empty() || definition.groups.iter().any(|group| self.groups.contains(group));
        definition.scope == MethodScope::Shared && self.uses_shared && among
    }

    /// The method that the viewer calls by this name; `None` for one that is hidden as for one that is not there.
    pub fn resolve(&self, name: &str, registry: &Registry, identity: &Identity) -> Option<Arc<Published>> {
        let (owner, name) = match name.strip_prefix("user.") {
            None => (self.user?, name),
            Some(qualified) => {
                // User names have no dots, so that the first one ends the name.
                let (owner, name) = qualified.split_once('.')?;
                let owner = identity.user_named(owner)?.id;
                (Some(owner).filter(|owner| self.user != Some(*owner))?, name)
            }
        };
        registry.find(owner, name).filter(|method| self.sees(method))
    }

    /// The name under which the viewer sees the method of `owner_name`.
    pub fn name_of(&self, method: &Published, owner_name: &str) -> String {
        if self.user == Some(method.owner) {
            return method.method.name.to_string();
        }
        format!("user.{owner_name}.{}", method.method.name)
    }
}
