//! Permissions of users, and scopes that limit API tokens.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! named_values {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant,)* }

        impl $name {
            /// All values.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name used in JSON, TOML and on the command line.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

named_values! {
    /// One permission that a role grants.
    Permission {
        UseSpaces = "use_spaces",
        ManageSpaces = "manage_spaces",
        UseMethods = "use_methods",
        UseMcpServer = "use_mcp_server",
        ManageOwnEventSinks = "manage_own_event_sinks",
        /// Includes the user's own sinks.
        ManageGlobalEventSinks = "manage_global_event_sinks",
        ManageOwnScripts = "manage_own_scripts",
        ManageGlobalScripts = "manage_global_scripts",
        ManageUsers = "manage_users",
        ManageGroups = "manage_groups",
        ManageRoles = "manage_roles",
        ViewAuditLog = "view_audit_log",
    }
}

named_values! {
    /// A set of routes that a scoped API token reaches. A token without scopes reaches every route its user does.
    TokenScope {
        Methods = "methods",
        Mcp = "mcp",
    }
}
