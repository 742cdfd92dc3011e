//! The errors of set-up scripts.

use crate::{agent::registrar::RegisterError, platform::config::Span};
use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

/// A set-up that failed.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// A server refused the registration of a script, which failed then.
    #[error("{0}")]
    Refused(Box<Self>),
    #[error("{} failed: {reason}", path.display())]
    Failed { path: PathBuf, reason: String },
    #[error("{} needs python3, and there is none on the PATH: install it, or register with TOML or Lua", .0.display())]
    NoPython(PathBuf),
    #[error("{} did not end within {}: set `agent.setup_timeout` if it needs longer", path.display(), Span(*limit))]
    Timeout { path: PathBuf, limit: Duration },
    #[error(
        "{} ended without registering anything: it must call `register` on its server{}",
        path.display(),
        PrintedBefore(output)
    )]
    NothingRegistered { path: PathBuf, output: String },
}

/// Output captured before the failure, appended to the error message.
pub struct PrintedBefore<'a>(pub &'a str);

impl SetupError {
    pub fn failed(path: &Path, reason: impl Into<String>) -> Self {
        Self::Failed { path: path.to_owned(), reason: reason.into() }
    }
}

impl fmt::Display for PrintedBefore<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.trim_end() {
            "" => Ok(()),
            printed => write!(f, "\nit had printed:\n{printed}"),
        }
    }
}
