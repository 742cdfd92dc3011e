//! Runs the scripts that set a space up: they write files, launch things, and register methods, and then they end.
//!
//! A registration's way: [`register`] hands a TOML file to the registrar, and runs a script ([`lua`], [`python`]), which
//! comes back to the agent to register what it has built. [`start_up`] runs the space's startup script.

mod lua;
mod python;

use super::{
    Agent,
    registrar::RegisterError,
    registration_file::{FileError, Named},
    setup_changes::{self, Doings},
};
use crate::{model::agent_protocol::StartupScript, platform::config::Span};
use lua::Script;
use serde::Serialize;
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// The most of a script's output that is kept, in bytes. It is its end that tells what went wrong.
const MAX_OUTPUT: usize = 64 << 10;

/// What a registration came to.
#[derive(Debug, Serialize)]
pub struct Done {
    pub methods: Vec<Named>,
    /// What the script removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<Named>,
    /// What the script printed, if it was one.
    pub output: String,
}

/// Why a set-up came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error(transparent)]
    Register(#[from] RegisterError),
    #[error("{} failed: {why}", path.display())]
    Failed { path: PathBuf, why: String },
    #[error("{} needs python3, and there is none on the PATH: install it, or register with TOML or Lua", .0.display())]
    NoPython(PathBuf),
    #[error("{} did not end within {}: set `agent.setup_timeout` if it needs longer", path.display(), Span(*limit))]
    TooLong { path: PathBuf, limit: Duration },
    #[error(
        "{} ended without registering anything: it must call `register` on its server{}",
        path.display(),
        HadPrinted(output)
    )]
    Nothing { path: PathBuf, output: String },
}

/// What a script printed before it went wrong, to put behind what is told of that.
struct HadPrinted<'a>(&'a str);

/// What a registration is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Toml,
    Lua,
    Python,
}

/// Registers what the file at `path`, in which `source` is written, declares or builds.
///
/// # Errors
///
/// Fails if the file is wrong, or a server does not take what it registers, or it is a script that registers nothing.
/// What was registered before goes on serving then.
pub async fn register(agent: &Arc<Agent>, path: &Path, source: &str) -> Result<Done, SetupError> {
    let wrong = |error: FileError| SetupError::from(RegisterError::from(error));
    let form = Form::of(path).ok_or_else(|| wrong(FileError::Unknown(path.to_owned())))?;
    if form == Form::Toml {
        let methods = agent.registrar.register(path, source).await?;
        return Ok(Done { methods, removed: Vec::new(), output: String::new() });
    }
    if !path.is_absolute() {
        return Err(wrong(FileError::Relative(path.to_owned())));
    }
    // It could only find out by itself, and tell it less well.
    if !agent.registrar.is_connected() {
        return Err(RegisterError::NotConnected.into());
    }
    let doings = agent.scripts.begin(agent.registrar.declared().await);
    let ran = run(agent, form, path, source, &doings).await;
    agent.scripts.end(&doings);
    match (ran, doings.done()) {
        (Ok(output), setup_changes::Done { last: None, .. }) => {
            Err(SetupError::Nothing { path: path.to_owned(), output })
        }
        (Ok(output), setup_changes::Done { methods, removed, .. }) => Ok(Done { methods, removed, output }),
        (Err(error), _) => {
            if let Err(stays) = agent.registrar.undo(&doings).await {
                log::error!("what {} registered stays, although it failed: {stays}", path.display());
            }
            Err(error)
        }
    }
}

/// Runs a script and returns what it printed.
async fn run(
    agent: &Arc<Agent>,
    form: Form,
    path: &Path,
    source: &str,
    doings: &Arc<Doings>,
) -> Result<String, SetupError> {
    let limit = agent.settings.setup_timeout;
    match form {
        Form::Lua => {
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
            let directory = path.parent().unwrap_or(Path::new("/"));
            lua::run(agent, &Script { name: &name, source, path, directory }, Some(doings.clone()), limit).await
        }
        Form::Toml | Form::Python => python::run(path, &agent.surroundings, doings, limit).await,
    }
}

/// The same for a file that is still to be read.
///
/// # Errors
///
/// As [`register`].
pub async fn register_file(agent: &Arc<Agent>, path: &Path) -> Result<Done, SetupError> {
    let unreadable = |source| RegisterError::from(FileError::Unreadable { path: path.to_owned(), source });
    let path = std::path::absolute(path).map_err(unreadable)?;
    let source = tokio::fs::read_to_string(&path).await.map_err(unreadable)?;
    register(agent, &path, &source).await
}

/// Runs a space's startup script, where the agent was started, and returns what it printed. It need not register anything.
///
/// # Errors
///
/// Fails with the line if it does not end well, or in time.
pub async fn start_up(agent: &Arc<Agent>, script: &StartupScript) -> Result<String, SetupError> {
    let StartupScript { name, source } = script;
    let script = Script { name, source, path: Path::new(name), directory: &agent.settings.directory };
    lua::run(agent, &script, None, agent.settings.setup_timeout).await
}

impl fmt::Display for HadPrinted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.trim_end() {
            "" => Ok(()),
            printed => write!(f, "\nit had printed:\n{printed}"),
        }
    }
}

impl Form {
    fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "toml" => Some(Self::Toml),
            "lua" => Some(Self::Lua),
            "py" => Some(Self::Python),
            _ => None,
        }
    }
}
