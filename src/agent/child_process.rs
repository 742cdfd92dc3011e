//! Starts a program of the space: a method server, a health check or a set-up script, as a process group of its own.
//!
//! The child gets the agent's environment without its [`SECRETS`], and is killed with all of its group if the agent
//! drops it or dies ([`crate::platform::process_group`]).

use crate::platform::process_group::{OnParentDeath, ProcessGroup};
use std::{
    io,
    path::{Path, PathBuf},
    process::Stdio,
};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};

/// Variables that no child inherits: they are credentials of the space and of the user.
pub const SECRETS: [&str; 2] = ["SVC_AGENT_TOKEN", "SVC_TOKEN"];

/// A program to start.
pub struct ChildCommand<'a> {
    pub command: &'a str,
    pub args: &'a [String],
    /// Working directory, to which a command with a relative path is relative too.
    pub directory: &'a Path,
    pub environment: &'a [(String, String)],
}

/// The agent's ends of a child's standard streams.
pub struct ChildPipes {
    pub stdin: ChildStdin,
    pub stdout: ChildStdout,
    pub stderr: ChildStderr,
}

/// A command that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ChildSpawnError {
    #[error("cannot start `{command}`: there is no directory {}", directory.display())]
    Directory { command: String, directory: PathBuf },
    #[error("cannot start `{command}`: {source}{}", advice(command, source))]
    Command { command: String, source: io::Error },
}

/// Advice for a command that holds its arguments too.
fn advice(command: &str, error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound if command.contains(char::is_whitespace) => "; its arguments go into `args`",
        _ => "",
    }
}

impl ChildCommand<'_> {
    /// Starts it with a pipe for each of its streams.
    ///
    /// # Errors
    ///
    /// Fails if the directory does not exist or the command cannot be run.
    pub async fn spawn_with_pipes(&self) -> Result<(ProcessGroup, ChildPipes), ChildSpawnError> {
        let mut process = self.spawn(Stdio::piped(), Stdio::piped(), Stdio::piped()).await?;
        let pipes = ChildPipes {
            stdin: process.take_stdin().expect("it was asked for"),
            stdout: process.take_stdout().expect("it was asked for"),
            stderr: process.take_stderr().expect("it was asked for"),
        };
        Ok((process, pipes))
    }

    /// Starts it with empty input and discarded output; only stderr is piped.
    ///
    /// # Errors
    ///
    /// Fails as [`ChildCommand::spawn_with_pipes`] does.
    pub async fn spawn_with_stderr(&self) -> Result<(ProcessGroup, ChildStderr), ChildSpawnError> {
        let mut process = self.spawn(Stdio::null(), Stdio::null(), Stdio::piped()).await?;
        let stderr = process.take_stderr().expect("it was asked for");
        Ok((process, stderr))
    }

    async fn spawn(&self, stdin: Stdio, stdout: Stdio, stderr: Stdio) -> Result<ProcessGroup, ChildSpawnError> {
        let failed = |source| ChildSpawnError::Command { command: self.command.to_owned(), source };
        let directory = std::path::absolute(self.directory).map_err(failed)?;
        if !directory.is_dir() {
            return Err(ChildSpawnError::Directory { command: self.command.to_owned(), directory });
        }
        let mut command = match self.command.contains('/') {
            true => Command::new(directory.join(self.command)),
            false => Command::new(self.command),
        };
        command.args(self.args).current_dir(directory).stdin(stdin).stdout(stdout).stderr(stderr);
        for secret in SECRETS {
            command.env_remove(secret);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        ProcessGroup::spawn(command, OnParentDeath::Kill).await.map_err(failed)
    }
}
