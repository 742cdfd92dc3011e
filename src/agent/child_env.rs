//! What every process of the space finds in its environment, on top of the agent's own less its secrets.

use super::{method_server::child::SECRETS, packages::Packages};
use std::{collections::BTreeMap, ffi::OsString, path::PathBuf, sync::Arc};

/// Where Python looks for modules.
const PYTHON_PATH: &str = "PYTHONPATH";

/// The environment of processes. Cloning it is cheap.
#[derive(Clone, Default)]
pub struct Surroundings {
    fixed: Vec<(String, String)>,
    packages: Option<Arc<Packages>>,
}

impl Surroundings {
    /// For processes that reach the agent at this address, and import from its packages.
    pub fn new(agent_url: String, packages: Arc<Packages>) -> Self {
        Self { fixed: vec![("SVC_AGENT_URL".to_owned(), agent_url)], packages: Some(packages) }
    }

    /// What a process that starts now gets.
    pub fn variables(&self) -> Vec<(String, String)> {
        let mut variables = self.fixed.clone();
        if let Some(packages) = &self.packages {
            let own = std::env::var_os(PYTHON_PATH);
            // What is there already goes first.
            let own = own.as_deref().filter(|own| !own.is_empty());
            let paths = own.into_iter().flat_map(std::env::split_paths).chain(packages.python_path());
            let paths: Vec<PathBuf> = paths.collect();
            let joined = std::env::join_paths(paths).ok().and_then(|joined| joined.into_string().ok());
            variables.extend(joined.filter(|path| !path.is_empty()).map(|path| (PYTHON_PATH.to_owned(), path)));
        }
        variables
    }

    /// The same and all of the agent's own environment but its secrets, for what runs within the agent.
    pub fn whole(&self) -> BTreeMap<OsString, OsString> {
        let own = std::env::vars_os().filter(|(name, _)| !SECRETS.iter().any(|secret| name == secret));
        let ours = self.variables().into_iter().map(|(name, value)| (name.into(), value.into()));
        own.chain(ours).collect()
    }
}

impl From<Vec<(String, String)>> for Surroundings {
    fn from(fixed: Vec<(String, String)>) -> Self {
        Self { fixed, packages: None }
    }
}
