//! A set of permissions in one word, so that a caller carries its own by value.

use crate::model::permission::Permission;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Some of [`Permission::ALL`]. In JSON, the list of their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permissions(u32);

impl Permissions {
    /// Every permission there is.
    pub fn all() -> Self {
        Permission::ALL.iter().copied().collect()
    }

    pub const fn contains(self, permission: Permission) -> bool {
        self.0 & bit(permission) != 0
    }

    /// Returns true if the set has at least one of `wanted`.
    pub fn contains_any(self, wanted: &[Permission]) -> bool {
        wanted.iter().any(|permission| self.contains(*permission))
    }

    /// Returns true if the set has all of `other`.
    pub const fn covers(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns true if the set has a permission over things of others.
    pub fn is_administrative(self) -> bool {
        self.contains_any(&[
            Permission::ManageSpaces,
            Permission::ManageGlobalEventSinks,
            Permission::ManageGlobalScripts,
            Permission::ManageUsers,
            Permission::ManageGroups,
            Permission::ManageRoles,
            Permission::ViewAuditLog,
        ])
    }

    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub fn iter(self) -> impl Iterator<Item = Permission> {
        Permission::ALL.iter().copied().filter(move |permission| self.contains(*permission))
    }
}

const fn bit(permission: Permission) -> u32 {
    1 << permission as u32
}

impl FromIterator<Permission> for Permissions {
    fn from_iter<I: IntoIterator<Item = Permission>>(permissions: I) -> Self {
        Self(permissions.into_iter().fold(0, |set, permission| set | bit(permission)))
    }
}

impl Serialize for Permissions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Permissions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Vec::<Permission>::deserialize(deserializer)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_covers_its_parts_and_reads_back_as_names() {
        let some: Permissions = [Permission::UseSpaces, Permission::ViewAuditLog].into_iter().collect();
        assert!(Permissions::all().covers(some) && !some.covers(Permissions::all()));
        assert!(some.contains_any(&[Permission::ManageUsers, Permission::ViewAuditLog]));
        let json = serde_json::to_string(&some).unwrap();
        assert_eq!(json, r#"["use_spaces","view_audit_log"]"#);
        assert_eq!(serde_json::from_str::<Permissions>(&json).unwrap(), some);
    }
}
