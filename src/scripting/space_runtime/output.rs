//! The standard streams as the output of a program.

use crate::scripting::lua::OutputWriter;
use parking_lot::Mutex;
use std::io;
use tokio_util::sync::CancellationToken;

/// Prints to stdout and logs to stderr: the output of a program that is run once.
#[derive(Default)]
pub struct StandardStreams {
    /// The error of the first failed write to stdout.
    error: Mutex<Option<io::Error>>,
    closed: CancellationToken,
}

/// Prints and logs to stderr: the output of a method server, whose stdout carries its responses.
pub struct StderrOnly;

impl StandardStreams {
    /// Completes once a write to stdout has failed.
    pub async fn stdout_closed(&self) {
        self.closed.cancelled().await;
    }

    /// Takes the error of the failed write to stdout, if there was one.
    pub fn take_error(&self) -> Option<io::Error> {
        self.error.lock().take()
    }
}

impl OutputWriter for StandardStreams {
    fn print(&self, line: &[u8]) {
        if self.closed.is_cancelled() {
            return;
        }
        if let Err(error) = write_line(&mut io::stdout().lock(), line) {
            *self.error.lock() = Some(error);
            self.closed.cancel();
        }
    }

    fn log(&self, line: &[u8]) {
        write_to_stderr(line);
    }
}

impl OutputWriter for StderrOnly {
    fn print(&self, line: &[u8]) {
        write_to_stderr(line);
    }

    fn log(&self, line: &[u8]) {
        write_to_stderr(line);
    }
}

/// Writes a line to stderr. A closed stderr is not an error.
pub(super) fn write_to_stderr(line: &[u8]) {
    let _ = write_line(&mut io::stderr().lock(), line);
}

fn write_line(out: &mut dyn io::Write, line: &[u8]) -> io::Result<()> {
    out.write_all(line).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush())
}
