//! The log of a run: the lines of `print` and `log`, kept up to a bound or streamed to a writer.

use crate::scripting::lua::host::{OutputWriter, ProgramOutput};
use mlua::{Function, Lua, LuaString};
use std::sync::Arc;

/// The most lines kept of one run.
const MAX_LINES: usize = 200;

/// The most bytes kept of one run.
const MAX_BYTES: usize = 16 << 10;

/// The last line of a log that was cut.
const TRUNCATED: &str = "… truncated";

/// The lines of one run so far.
#[derive(Default)]
pub(in crate::scripting::lua) struct RunLog {
    lines: Vec<String>,
    bytes: usize,
    full: bool,
    writer: Option<Arc<dyn OutputWriter>>,
}

impl RunLog {
    pub fn new(output: &ProgramOutput) -> Self {
        match output {
            ProgramOutput::Captured => Self::default(),
            ProgramOutput::Streamed(writer) => Self { writer: Some(writer.clone()), ..Self::default() },
        }
    }

    pub fn add(&mut self, line: &[u8]) {
        if self.full {
            return;
        }
        let room = MAX_BYTES - self.bytes;
        let mut text = String::from_utf8_lossy(&line[..line.len().min(room + 1)]).into_owned();
        if self.lines.len() == MAX_LINES || text.len() > room {
            self.full = true;
            // The beginning of a long line may be all there is of it.
            if self.lines.len() < MAX_LINES && room > 0 {
                text.truncate(text.floor_char_boundary(room));
                self.lines.push(text);
            }
            self.lines.push(TRUNCATED.to_owned());
            return;
        }
        self.bytes += text.len();
        self.lines.push(text);
    }

    pub fn into_lines(self) -> Vec<String> {
        self.lines
    }
}

/// The lines of a log that are kept. The log of a run within its bounds stays as it is.
pub(in crate::scripting) fn bounded_log(lines: &[String]) -> Vec<String> {
    let (mut log, was_cut) = (RunLog::default(), lines.last().is_some_and(|line| line == TRUNCATED));
    lines[..lines.len() - usize::from(was_cut)].iter().for_each(|line| log.add(line.as_bytes()));
    if was_cut && !log.full {
        log.lines.push(TRUNCATED.to_owned());
    }
    log.into_lines()
}

/// The function behind `print` and `log`; its second argument is true for `log`.
pub(super) fn function(lua: &Lua) -> mlua::Result<Function> {
    lua.create_function(|lua, (line, logged): (LuaString, Option<bool>)| {
        let Some(mut log) = lua.app_data_mut::<RunLog>() else { return Ok(()) };
        match (&log.writer, logged.unwrap_or(false)) {
            (None, _) => log.add(&line.as_bytes()),
            (Some(writer), true) => writer.log(&line.as_bytes()),
            (Some(writer), false) => writer.print(&line.as_bytes()),
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_kept_up_to_a_bound_and_the_last_says_so() {
        let mut log = RunLog::default();
        for _ in 0..1000 {
            log.add(b"x");
        }
        let lines = log.into_lines();
        assert_eq!((lines.len(), lines[199].as_str(), lines[200].as_str()), (201, "x", TRUNCATED));
    }

    #[test]
    fn bytes_are_kept_up_to_a_bound_too() {
        let mut log = RunLog::default();
        log.add(b"short");
        log.add(&vec![b'x'; 1 << 20]);
        log.add(b"never seen");
        let lines = log.into_lines();
        assert_eq!(lines.iter().map(String::len).collect::<Vec<_>>(), [5, MAX_BYTES - 5, TRUNCATED.len()]);
    }

    #[test]
    fn a_log_that_was_cut_is_not_cut_again() {
        for line in [&[0xff; 1000][..], "é".repeat(501).as_bytes(), b"", &[b'x'; 1 << 20]] {
            let mut log = RunLog::default();
            (0..300).for_each(|_| log.add(line));
            let lines = log.into_lines();
            assert!(lines.iter().map(String::len).sum::<usize>() <= MAX_BYTES + TRUNCATED.len());
            assert_eq!(bounded_log(&lines), lines);
        }
    }
}
