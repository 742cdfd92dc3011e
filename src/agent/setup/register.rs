//! Registers a file: TOML directly, Lua and Python by running the script.

use super::{
    error::SetupError,
    lua::{self, SetupScript},
    python,
};
use crate::{
    agent::{
        registrar::RegisterError,
        registration_file::RegistrationFileError,
        setup_changes::{RegisterCause, SetupChanges},
        state::AgentState,
    },
    model::{agent_protocol::StartupScript, api::agent::RegisteredView},
};
use std::{path::Path, sync::Arc};

/// The language of a registration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileLanguage {
    Toml,
    Lua,
    Python,
}

/// Registers the file at `path` with the content `source`.
///
/// # Errors
///
/// Fails if the file is invalid, a server does not accept its registration, or it is a script that registers nothing.
/// The registration before stays in force then.
pub async fn register(
    agent: &Arc<AgentState>,
    path: &Path,
    source: &str,
    cause: RegisterCause,
) -> Result<RegisteredView, SetupError> {
    let invalid = |error: RegistrationFileError| SetupError::from(RegisterError::from(error));
    let language = FileLanguage::of(path).ok_or_else(|| invalid(RegistrationFileError::Unknown(path.to_owned())))?;
    if language == FileLanguage::Toml {
        let methods = agent.registrar.register_toml(path, source, cause).await?;
        let warnings = agent.links.warnings();
        return Ok(RegisteredView { methods, removed: Vec::new(), output: Some(String::new()), warnings });
    }
    if !path.is_absolute() {
        return Err(invalid(RegistrationFileError::Relative(path.to_owned())));
    }
    agent.links.wait_up().await;
    // The script would find out by itself, with a less helpful error.
    if !agent.registrar.is_connected() {
        return Err(RegisterError::NotConnected.into());
    }
    let changes = agent.setup_runs.begin(agent.registrar.declaration().await, cause);
    let ran = run(agent, language, path, source, &changes).await;
    agent.setup_runs.end(&changes);
    let summary = changes.summary();
    match ran {
        Ok(output) if summary.last_change.is_none() => {
            Err(SetupError::NothingRegistered { path: path.to_owned(), output })
        }
        Ok(output) => {
            let (methods, removed, warnings) = (summary.registered, summary.removed, agent.links.warnings());
            Ok(RegisteredView { methods, removed, output: Some(output), warnings })
        }
        Err(error) => {
            if let Err(stays) = agent.registrar.undo(&changes).await {
                log::error!(
                    "the registration of {} stays in force, although the script failed: {stays}",
                    path.display()
                );
            }
            Err(if summary.refused { SetupError::Refused(Box::new(error)) } else { error })
        }
    }
}

/// Reads the methods file of the agent, and registers it.
///
/// # Errors
///
/// Fails as [`register`] does.
pub async fn register_file(agent: &Arc<AgentState>, path: &Path) -> Result<RegisteredView, SetupError> {
    let unreadable = |source| RegisterError::from(RegistrationFileError::Unreadable { path: path.to_owned(), source });
    let path = std::path::absolute(path).map_err(unreadable)?;
    let source = tokio::fs::read_to_string(&path).await.map_err(unreadable)?;
    register(agent, &path, &source, RegisterCause::Startup).await
}

/// Runs the space's startup script in the agent's working directory, and returns its output. It need not register
/// anything.
///
/// # Errors
///
/// Fails with the line if it raises an error, or does not end in time.
pub async fn run_startup_script(agent: &Arc<AgentState>, script: &StartupScript) -> Result<String, SetupError> {
    let StartupScript { name, source } = script;
    let script = SetupScript { name, source, path: Path::new(name), directory: &agent.settings.directory };
    lua::run(agent, &script, None, RegisterCause::Startup, agent.settings.setup_timeout).await
}

/// Runs a script, and returns its output.
async fn run(
    agent: &Arc<AgentState>,
    language: FileLanguage,
    path: &Path,
    source: &str,
    changes: &Arc<SetupChanges>,
) -> Result<String, SetupError> {
    let limit = agent.settings.setup_timeout;
    match language {
        FileLanguage::Lua => {
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
            let directory = path.parent().unwrap_or(Path::new("/"));
            let script = SetupScript { name: &name, source, path, directory };
            lua::run(agent, &script, Some(changes.clone()), changes.cause, limit).await
        }
        FileLanguage::Toml | FileLanguage::Python => python::run(path, &agent.child_env, changes, limit).await,
    }
}

impl FileLanguage {
    /// The language by the file's extension.
    fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "toml" => Some(Self::Toml),
            "lua" => Some(Self::Lua),
            "py" => Some(Self::Python),
            _ => None,
        }
    }
}
