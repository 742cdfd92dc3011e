//! Where in its source a run is when it is stopped, which whoever wrote it wants to know.
//!
//! Once a run is over its limits, its stack is gone. So the place is noted before: by the interrupt that stops it,
//! when memory runs out, and before it begins to wait.

use super::{Limit, ScriptError};
use mlua::Lua;

/// Frames that are looked at. The innermost are ours, and few.
const FRAMES: usize = 16;

/// The place, as `file:line`.
struct Place(String);

/// Notes where the run is, unless it was noted.
pub(super) fn note(lua: &Lua) {
    if lua.app_data_ref::<Place>().is_none()
        && let Some(place) = find(lua)
    {
        lua.set_app_data(Place(place));
    }
}

/// Forgets the place, for the run goes on, and gives it.
pub(super) fn forget(lua: &Lua) -> Option<String> {
    lua.remove_app_data::<Place>().map(|Place(place)| place)
}

/// Where the run is now, as `file:line`.
pub(super) fn here(lua: &Lua) -> Option<String> {
    find(lua)
}

/// The error of a run that is over, with the place if it is about a limit. A run that others ended is not at fault.
pub(super) fn placed(lua: &Lua, error: ScriptError) -> ScriptError {
    match (error, lua.remove_app_data::<Place>()) {
        (error @ ScriptError::Limit(Limit::Cancelled | Limit::Stopped), _) => error,
        (ScriptError::Limit(limit), Some(Place(place))) => ScriptError::LimitAt { limit, place },
        (error, _) => error,
    }
}

/// The innermost line that its author wrote: ours are without numbers.
fn find(lua: &Lua) -> Option<String> {
    (0..FRAMES).find_map(|level| {
        lua.inspect_stack(level, |frame| {
            let line = frame.current_line().filter(|line| *line > 0)?;
            // Waiting is in part Lua of mlua's own.
            let source = frame.source().short_src.filter(|source| !source.starts_with("__mlua"))?;
            Some(format!("{source}:{line}"))
        })
        .flatten()
    })
}
