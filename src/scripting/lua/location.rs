//! The source location (`file:line`) at which a run exceeds a limit, for the error message.
//!
//! The Lua stack is gone once a run has failed. So the location is recorded earlier: by the interrupt that stops the
//! run, when memory runs out, and before the run begins to wait.

use super::{error::ScriptError, limits::LimitExceeded};
use mlua::Lua;

/// The number of stack frames inspected. The innermost belong to the host, and are few.
const FRAMES: usize = 16;

/// The recorded location, in the state's app data.
struct RecordedLocation(String);

/// Records the current location, unless one is recorded.
pub(super) fn record(lua: &Lua) {
    if lua.app_data_ref::<RecordedLocation>().is_none()
        && let Some(location) = current(lua)
    {
        lua.set_app_data(RecordedLocation(location));
    }
}

/// Removes and returns the recorded location, because the run goes on.
pub(super) fn take(lua: &Lua) -> Option<String> {
    lua.remove_app_data::<RecordedLocation>().map(|RecordedLocation(location)| location)
}

/// The innermost `file:line` that the program's author wrote. Lua of the host has no line numbers.
pub(super) fn current(lua: &Lua) -> Option<String> {
    (0..FRAMES).find_map(|level| {
        lua.inspect_stack(level, |frame| {
            let line = frame.current_line().filter(|line| *line > 0)?;
            // mlua implements waiting partly in Lua of its own.
            let source = frame.source().short_src.filter(|source| !source.starts_with("__mlua"))?;
            Some(format!("{source}:{line}"))
        })
        .flatten()
    })
}

/// Adds the recorded location to an error about a limit. A cancelled or stopped run is not at fault and gets none.
pub(super) fn with_location(lua: &Lua, error: ScriptError) -> ScriptError {
    match (error, take(lua)) {
        (error @ ScriptError::Limit(LimitExceeded::Cancelled | LimitExceeded::Stopped), _) => error,
        (ScriptError::Limit(limit), Some(location)) => ScriptError::LimitAt { limit, location },
        (error, _) => error,
    }
}
