//! The environment of every process of the space: the agent's own without its secrets, the agent's address, and the
//! Python path of its packages.

use super::{child_process::SECRETS, packages::Packages};
use std::{collections::BTreeMap, ffi::OsString, path::PathBuf, sync::Arc};

/// The variable in which Python finds its module path.
const PYTHON_PATH: &str = "PYTHONPATH";

/// The environment of child processes. Cloning it is cheap.
#[derive(Clone, Default)]
pub struct ChildEnv {
    fixed: Vec<(String, String)>,
    packages: Option<Arc<Packages>>,
}

impl ChildEnv {
    /// The environment of processes that reach the agent at this address and import from its packages.
    pub fn new(agent_url: String, packages: Arc<Packages>) -> Self {
        Self { fixed: vec![("SVC_AGENT_URL".to_owned(), agent_url)], packages: Some(packages) }
    }

    /// The variables that a process started now gets on top of the inherited ones.
    pub fn variables(&self) -> Vec<(String, String)> {
        let mut variables = self.fixed.clone();
        if let Some(packages) = &self.packages {
            let own = std::env::var_os(PYTHON_PATH);
            // Paths that the user set go first.
            let own = own.as_deref().filter(|own| !own.is_empty());
            let paths = own.into_iter().flat_map(std::env::split_paths).chain(packages.python_path());
            let paths: Vec<PathBuf> = paths.collect();
            let joined = std::env::join_paths(paths).ok().and_then(|joined| joined.into_string().ok());
            variables.extend(joined.filter(|path| !path.is_empty()).map(|path| (PYTHON_PATH.to_owned(), path)));
        }
        variables
    }

    /// The inherited variables without secrets, and those of [`ChildEnv::variables`]: for scripts inside the agent.
    pub fn with_inherited(&self) -> BTreeMap<OsString, OsString> {
        let inherited = std::env::vars_os().filter(|(name, _)| !SECRETS.iter().any(|secret| name == secret));
        let added = self.variables().into_iter().map(|(name, value)| (name.into(), value.into()));
        inherited.chain(added).collect()
    }
}

impl From<Vec<(String, String)>> for ChildEnv {
    fn from(fixed: Vec<(String, String)>) -> Self {
        Self { fixed, packages: None }
    }
}
