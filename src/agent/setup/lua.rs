//! Runs a set-up script in a Lua runtime of the agent's own: a program of the space, with its files, processes,
//! libraries and agent.
//!
//! Each script has a runtime to itself, and finds modules as every program of a space does ([`crate::scripting::space_runtime`]).

use super::{HadPrinted, SetupError};
use crate::{
    agent::{Agent, packages::Packages, registration_file::Built, setup_changes::Doings},
    platform::{
        config::{self, Size, Span},
        egress::Egress,
        kv::Kv,
    },
    scripting::{
        lua::{
            AgentReply, Capabilities, HostServices, Program, ProgramContext, ProgramOutput, ProgramRun, Runtime,
            SpaceAgent, SpaceKv,
        },
        space_runtime::{FetchedLibraries, LibrarySource, MethodsViaAgent, SpaceModules},
    },
};
use bytes::Bytes;
use http::Method;
use serde_json::{json, value::RawValue};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::Duration,
};

/// What a script may hold in memory.
const MEMORY: u64 = 64 << 20;

/// A script, and where it is.
pub struct Script<'a> {
    /// What stands before the line in its errors.
    pub name: &'a str,
    pub source: &'a str,
    /// Its file, or what else to call it.
    pub path: &'a Path,
    /// Where it runs.
    pub directory: &'a Path,
}

/// Runs the script for this agent and returns what it printed.
///
/// # Errors
///
/// Fails with the line if the script is no Lua, raises an error, or does not end in time.
pub async fn run(
    agent: &Arc<Agent>,
    script: &Script<'_>,
    doings: Option<Arc<Doings>>,
    limit: Duration,
) -> Result<String, SetupError> {
    let failed = |why: String| SetupError::Failed { path: script.path.to_owned(), why };
    let program = Program::for_space(script.name, script.source, Capabilities::Full)
        .map_err(|error| failed(error.to_string()))?;
    let inside =
        Arc::new(Inside { agent: Arc::downgrade(agent), kv: agent.kv.clone(), script: script.path.to_owned(), doings });
    let settings = config::Script { wall: Span(limit), cpu: Span(limit), memory: Size(MEMORY), threads: 1 };
    let modules = SpaceModules::new(script.directory.to_owned(), agent.packages.clone());
    let libraries = HostServices {
        http: Arc::new(Egress::new(&config::Egress::default())),
        kv: None,
        caller: Arc::new(MethodsViaAgent),
        modules: Arc::new(modules),
    };
    let around = ProgramContext {
        directory: script.directory.to_owned(),
        environment: agent.surroundings.whole(),
        agent: inside,
        output: ProgramOutput::Captured,
    };
    let runtime = Runtime::for_space(&settings, libraries);
    let ProgramRun { result, log, .. } = runtime.run_program(&program, Arc::new(around), Vec::new()).await;
    let output: String = log.iter().flat_map(|line| [line, "\n"]).collect();
    match result {
        Ok(()) => Ok(output),
        Err(error) => Err(failed(format!("{error}{}", HadPrinted(&output)))),
    }
}

/// The agent as its own scripts see it.
struct Inside {
    /// The script runs within it, and must not keep it.
    agent: Weak<Agent>,
    kv: Kv,
    /// Whose registrations these are, for people.
    script: PathBuf,
    /// What it changes is counted here.
    doings: Option<Arc<Doings>>,
}

impl Inside {
    /// Does something with the agent that is not left half done if the script is stopped meanwhile.
    fn ask<T: Send + 'static, F: Future<Output = Result<T, String>> + Send + 'static>(
        &self,
        ask: impl FnOnce(Arc<Agent>) -> F,
    ) -> AgentReply<T> {
        let asked = self.agent.upgrade().map(|agent| tokio::spawn(ask(agent)));
        Box::pin(async move {
            let asked = asked.ok_or_else(|| "the agent ends".to_owned())?;
            asked.await.unwrap_or_else(|error| Err(format!("something went wrong in the agent: {error}")))
        })
    }
}

impl SpaceAgent for Inside {
    fn emit(&self, kind: &str, payload: Box<RawValue>) -> AgentReply<Box<RawValue>> {
        let kind = kind.to_owned();
        self.ask(|agent| async move {
            let raised = agent.raise(&kind, Some(payload)).await.map_err(|error| error.to_string())?;
            Ok(raw(&raised))
        })
    }

    fn methods(&self) -> AgentReply<Box<RawValue>> {
        self.ask(|agent| async move {
            let listed = passed(&agent, Method::GET, "/api/methods", Bytes::new()).await?;
            listed.ok_or_else(|| "the server's answer is empty".to_owned())
        })
    }

    fn call(&self, request: Box<RawValue>) -> AgentReply<Option<Box<RawValue>>> {
        let body = request.get().to_owned().into();
        self.ask(|agent| async move { passed(&agent, Method::POST, "/api/methods/call", body).await })
    }

    fn register(&self, directory: PathBuf, registration: Box<RawValue>) -> AgentReply<Box<RawValue>> {
        let built = Built { directory, script: Some(self.script.clone()), registration };
        let by = self.doings.clone();
        self.ask(|agent| async move {
            let registered = agent.registrar.register_built(&built, by.as_deref()).await;
            let methods = registered.map_err(|error| error.to_string())?;
            Ok(raw(&json!({ "methods": methods })))
        })
    }

    fn unregister(&self, local_name: Option<&str>) -> AgentReply<Box<RawValue>> {
        let local_name = local_name.map(str::to_owned);
        let by = self.doings.clone();
        self.ask(|agent| async move {
            let removed = agent.unregister(local_name.as_deref(), by.as_deref()).await;
            let removed = removed.map_err(|error| error.to_string())?;
            Ok(raw(&json!({ "removed": removed })))
        })
    }

    fn kv(&self) -> &dyn SpaceKv {
        &self.kv
    }
}

/// What a server answers, if that is anything.
async fn passed(agent: &Agent, method: Method, path: &str, body: Bytes) -> Result<Option<Box<RawValue>>, String> {
    let answer = agent.pass(method, path, body).await.map_err(|error| error.to_string())?;
    if answer.body.is_empty() && answer.status.is_success() {
        return Ok(None);
    }
    let told = String::from_utf8_lossy(&answer.body).into_owned();
    let answered: Result<Box<RawValue>, _> = RawValue::from_string(told);
    match answered {
        Ok(answered) if answer.status.is_success() => Ok(Some(answered)),
        Ok(refusal) => Err(message(&refusal).unwrap_or_else(|| format!("the server answered {}", answer.status))),
        Err(_) => Err(format!("the server answered {} with something that is not JSON", answer.status)),
    }
}

/// What our APIs say to a refusal.
fn message(refusal: &RawValue) -> Option<String> {
    let refusal: serde_json::Value = serde_json::from_str(refusal.get()).ok()?;
    refusal["error"]["message"].as_str().map(str::to_owned)
}

fn raw(value: &impl serde::Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("answers have string keys and no failing serializers")
}

impl LibrarySource for Packages {
    fn libraries(&self, known: Option<&str>, _: Duration) -> Result<FetchedLibraries, String> {
        let theirs = self.theirs();
        if known == Some(theirs.tag.as_str()) {
            return Ok(FetchedLibraries::Unchanged);
        }
        Ok(FetchedLibraries::Archive { bytes: theirs.bytes.to_vec(), tag: Some(theirs.tag) })
    }
}
