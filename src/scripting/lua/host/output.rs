//! The destination of the lines that a program of a space prints and logs.

use std::sync::Arc;

/// The destination of a run's output.
#[derive(Clone)]
pub enum ProgramOutput {
    /// The run's log, up to its bound.
    Captured,
    /// A writer, line by line and without a bound.
    Streamed(Arc<dyn OutputWriter>),
}

/// Writes the lines of a run as they come.
pub trait OutputWriter: Send + Sync {
    /// Writes a line of `print`.
    fn print(&self, line: &[u8]);

    /// Writes a line of `log`.
    fn log(&self, line: &[u8]);
}
