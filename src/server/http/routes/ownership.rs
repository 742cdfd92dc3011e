//! Rules for which records a caller sees and manages, by owner and permission.

use crate::{
    identity::Caller,
    model::{owner::Owner, permission::Permission},
    server::http::error::ApiError,
    spaces::Space,
};

/// Returns whether the caller manages the sinks of `owner`.
pub fn manages_sinks_of(caller: &Caller, owner: Owner) -> bool {
    match owner {
        Owner::Global => caller.may(Permission::ManageGlobalEventSinks),
        Owner::User(user) => user == caller.user.id && manages_sinks(caller),
    }
}

/// Returns whether the caller manages sinks at all. The permission for global ones includes the caller's own.
pub fn manages_sinks(caller: &Caller) -> bool {
    caller.may(Permission::ManageOwnEventSinks) || caller.may(Permission::ManageGlobalEventSinks)
}

/// Returns whether the caller sees every user's events, as managers of global sinks do, since those sinks receive them.
pub fn sees_all_events(caller: &Caller) -> bool {
    caller.may(Permission::ManageGlobalEventSinks)
}

/// Returns whether the caller sees the stored scripts of `owner`: its own and global ones.
pub fn sees_scripts_of(caller: &Caller, owner: Owner) -> bool {
    Owner::User(caller.user.id).can_use(owner)
}

/// Returns whether the caller manages stored scripts at all. The permission for global ones includes the caller's own.
pub fn manages_scripts(caller: &Caller) -> bool {
    caller.may(Permission::ManageOwnScripts) || caller.may(Permission::ManageGlobalScripts)
}

/// Refuses a change to a script of `owner`, which is the caller or global, unless the caller manages it.
pub fn check_manages_scripts_of(caller: &Caller, owner: Owner) -> Result<(), ApiError> {
    let allowed = match owner {
        Owner::Global => caller.may(Permission::ManageGlobalScripts),
        Owner::User(_) => manages_scripts(caller),
    };
    if allowed {
        return Ok(());
    }
    Err(ApiError::Forbidden("a global script needs the permission manage_global_scripts".to_owned()))
}

/// Returns whether the caller sees a space: its own, or any if it manages spaces.
pub fn sees_space(caller: &Caller, space: &Space) -> bool {
    space.owner == caller.user.id || caller.may(Permission::ManageSpaces)
}

/// Returns whether the caller sees templates.
pub fn sees_templates(caller: &Caller) -> bool {
    caller.may(Permission::UseSpaces) || caller.may(Permission::ManageSpaces)
}
