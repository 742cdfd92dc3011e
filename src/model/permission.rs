//! What a user may do, and what an API token may be limited to.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant,)* }

        impl $name {
            /// Every value there is.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The word used in JSON, TOML and on the command line.
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

words! {
    /// One thing a role allows.
    Permission {
        UseSpaces = "use_spaces",
        ManageSpaces = "manage_spaces",
        UseMethods = "use_methods",
        UseMcpServer = "use_mcp_server",
        ManageOwnEventSinks = "manage_own_event_sinks",
        /// Own sinks included: SPEC 6.6 says "additionally".
        ManageGlobalEventSinks = "manage_global_event_sinks",
        ManageOwnScripts = "manage_own_scripts",
        ManageGlobalScripts = "manage_global_scripts",
        ManageUsers = "manage_users",
        ManageGroups = "manage_groups",
        ManageRoles = "manage_roles",
        ViewAuditLog = "view_audit_log",
    }
}

words! {
    /// What a scoped API token reaches; a token without scopes reaches all its user does.
    TokenScope {
        Methods = "methods",
        Mcp = "mcp",
    }
}
