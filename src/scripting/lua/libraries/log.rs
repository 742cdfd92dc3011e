//! `print` and `log`: what a run says, kept with it up to a bound, or told to whoever listens.

use crate::scripting::lua::space_program::{OutputWriter, ProgramOutput};
use mlua::{Function, Lua, LuaString};
use std::sync::Arc;

/// Lines kept of one run.
const MAX_LINES: usize = 200;

/// Bytes kept of one run.
const MAX_BYTES: usize = 16 << 10;

/// Stands where the rest would.
const TRUNCATED: &str = "… truncated";

/// What one run has said so far.
#[derive(Default)]
pub(in crate::scripting::lua) struct Log {
    lines: Vec<String>,
    bytes: usize,
    full: bool,
    listener: Option<Arc<dyn OutputWriter>>,
}

impl Log {
    pub fn of_voice(output: &ProgramOutput) -> Self {
        match output {
            ProgramOutput::Captured => Self::default(),
            ProgramOutput::Streamed(listener) => Self { listener: Some(listener.clone()), ..Self::default() },
        }
    }

    fn add(&mut self, line: &[u8]) {
        if self.full {
            return;
        }
        let room = MAX_BYTES - self.bytes;
        if self.lines.len() == MAX_LINES || line.len() > room {
            self.full = true;
            // What still fits of a long line may be all there is to see of it.
            if self.lines.len() < MAX_LINES && room > 0 {
                self.lines.push(String::from_utf8_lossy(&line[..room]).into_owned());
            }
            self.lines.push(TRUNCATED.to_owned());
            return;
        }
        self.bytes += line.len();
        self.lines.push(String::from_utf8_lossy(line).into_owned());
    }

    pub fn into_lines(self) -> Vec<String> {
        self.lines
    }
}

/// The function that `print` and `log` end in.
pub(super) fn function(lua: &Lua) -> mlua::Result<Function> {
    lua.create_function(|lua, (line, logged): (LuaString, Option<bool>)| {
        let Some(mut log) = lua.app_data_mut::<Log>() else { return Ok(()) };
        match (&log.listener, logged.unwrap_or(false)) {
            (None, _) => log.add(&line.as_bytes()),
            (Some(listener), true) => listener.logged(&line.as_bytes()),
            (Some(listener), false) => listener.printed(&line.as_bytes()),
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_kept_up_to_a_bound_and_then_one_says_so() {
        let mut log = Log::default();
        for _ in 0..1000 {
            log.add(b"x");
        }
        let lines = log.into_lines();
        assert_eq!((lines.len(), lines[199].as_str(), lines[200].as_str()), (201, "x", TRUNCATED));
    }

    #[test]
    fn bytes_are_kept_up_to_a_bound_too() {
        let mut log = Log::default();
        log.add(b"short");
        log.add(&vec![b'x'; 1 << 20]);
        log.add(b"never seen");
        let lines = log.into_lines();
        assert_eq!(lines.iter().map(String::len).collect::<Vec<_>>(), [5, MAX_BYTES - 5, TRUNCATED.len()]);
    }
}
