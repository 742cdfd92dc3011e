//! `svc methods`: publishes methods from inside a space, and takes them back. Calling them is for everybody else.

use super::{
    agent::find::Near,
    failure::Failure,
    payload::read_file,
    shell::{Form, Shell},
    table::printable,
};
use crate::platform::percent;
use serde::Deserialize;
use std::path::PathBuf;

command_family! {
    /// Publish methods from inside a space, or take them back.
    #[argh(
        example = "{command_name} register methods.toml\n{command_name} unregister",
        note = "These ask the agent of this space, at SVC_AGENT_URL or http://127.0.0.1:7301."
    )]
    Methods = "methods" { Register, Unregister }
}

agent_command! {
    /// Register the methods that a file declares, in place of all that this space registered before.
    #[argh(
        example = "{command_name} methods.toml\n{command_name} methods.lua",
        note = "A script is run by the agent, with `svc.methods` to load: it must call `register` on its server."
    )]
    Register = "register" {
        /// the registration, in TOML, or a Lua or Python script; its method server runs in the file's directory
        #[argh(positional)]
        file: PathBuf,
    }
}

agent_command! {
    /// Remove methods of this space; without any left their server is stopped.
    #[argh(example = "{command_name}\n{command_name} search")]
    Unregister = "unregister" {
        /// the one to remove, by its local name; all if left out
        #[argh(positional)]
        local_name: Option<String>,
    }
}

#[derive(Deserialize)]
struct Registered {
    methods: Vec<Method>,
    #[serde(default)]
    removed: Vec<Method>,
    /// What the script printed, if it was one.
    #[serde(default)]
    output: String,
}

#[derive(Deserialize)]
struct Removed {
    removed: Vec<Method>,
}

#[derive(Deserialize)]
struct Method {
    name: String,
}

impl Register {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let agent = Near::find(shell.environment)?;
        let source = read_file(&self.file)?;
        let path =
            std::path::absolute(&self.file).map_err(|source| Failure::File { path: self.file.clone(), source })?;
        let Some(path) = path.to_str() else {
            return Err(Failure::Usage(format!("`{}` is not UTF-8", path.display())));
        };
        let answer = agent.post_patiently("/methods", &serde_json::json!({ "path": path, "source": source }))?;
        if self.form() == Form::Json {
            return shell.out.json(answer.as_str());
        }
        let registered: Registered = agent.read(&answer)?;
        for line in registered.output.lines() {
            shell.out.line(&printable(line))?;
        }
        if !registered.methods.is_empty() {
            shell.out.line(&format!("registered {}", counted(&registered.methods)))?;
        }
        match registered.removed.is_empty() {
            true if registered.methods.is_empty() => shell.out.line("nothing was registered"),
            true => Ok(()),
            false => shell.out.line(&format!("removed {}", counted(&registered.removed))),
        }
    }
}

impl Unregister {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let agent = Near::find(shell.environment)?;
        let answer = match &self.local_name {
            Some(name) => agent.delete(&format!("/methods/{}", percent::encode(name)))?,
            None => agent.delete("/methods")?,
        };
        if self.form() == Form::Json {
            return shell.out.json(answer.as_str());
        }
        let removed: Removed = agent.read(&answer)?;
        match removed.removed.is_empty() {
            true => shell.out.line("nothing was registered"),
            false => shell.out.line(&format!("removed {}", counted(&removed.removed))),
        }
    }
}

/// How many methods, and which.
fn counted(methods: &[Method]) -> String {
    let names = methods.iter().map(|method| printable(&method.name)).collect::<Vec<_>>().join(", ");
    match methods.len() {
        1 => format!("1 method: {names}"),
        many => format!("{many} methods: {names}"),
    }
}
