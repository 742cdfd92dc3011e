//! The context of the present run, which its caller put into the state's app data.

use super::library_error::LibraryError;
use crate::scripting::lua::{
    host::{SpaceAgent, ToolContext},
    inputs::ProgramContext,
};
use mlua::{Lua, LuaString};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, path::PathBuf, sync::Arc};

/// The context of the present run of a space's program.
pub(super) fn program_context(lua: &Lua) -> Result<Arc<ProgramContext>, LibraryError> {
    let context = lua.app_data_ref::<Arc<ProgramContext>>().map(|context| context.clone());
    context.ok_or_else(|| LibraryError::Message("this is no program of a space".to_owned()))
}

/// The agent of the space that the present run is in.
pub(super) fn agent(lua: &Lua) -> Result<Arc<dyn SpaceAgent>, LibraryError> {
    Ok(program_context(lua)?.agent.clone())
}

/// The user that the present run of a tool acts as.
pub(super) fn tool_context(lua: &Lua) -> Result<ToolContext, LibraryError> {
    let context = lua.app_data_ref::<ToolContext>().map(|context| context.clone());
    context.ok_or_else(|| LibraryError::Message("no user is there to act as".to_owned()))
}

/// Resolves a path that a program wrote against the program's directory.
pub(super) fn resolve_path(lua: &Lua, path: &LuaString) -> Result<PathBuf, LibraryError> {
    let path = path.as_bytes();
    if path.is_empty() || path.contains(&0) {
        return Err(LibraryError::Message("this is no path".to_owned()));
    }
    Ok(program_context(lua)?.directory.join(OsStr::from_bytes(&path)))
}
