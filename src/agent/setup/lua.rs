//! Runs a set-up script in a Lua runtime inside the agent, with the capabilities of a program of the space.
//!
//! Each script has a runtime of its own, and finds modules as every program of a space does
//! ([`crate::scripting::space_runtime`]).

use super::error::{PrintedBefore, SetupError};
use crate::{
    agent::{
        packages::Packages,
        registration_file::BuiltRegistration,
        setup_changes::{RegisterCause, SetupChanges},
        state::AgentState,
    },
    platform::{
        config::{self, Size, Span},
        egress::Egress,
        kv::Kv,
        task,
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

/// Memory limit of a set-up script, in bytes.
const MEMORY: u64 = 64 << 20;

/// A set-up script.
pub struct SetupScript<'a> {
    /// The name that precedes the line in its errors.
    pub name: &'a str,
    pub source: &'a str,
    /// Its file, or the name of a stored script.
    pub path: &'a Path,
    /// Its working directory.
    pub directory: &'a Path,
}

/// Runs the script, and returns its output. Its changes to the registration are recorded in `changes`.
///
/// # Errors
///
/// Fails with the line if the script is not Lua, raises an error, or does not end in time.
pub async fn run(
    agent: &Arc<AgentState>,
    script: &SetupScript<'_>,
    changes: Option<Arc<SetupChanges>>,
    cause: RegisterCause,
    limit: Duration,
) -> Result<String, SetupError> {
    let failed = |reason: String| SetupError::failed(script.path, reason);
    let program = Program::for_space(script.name, script.source, Capabilities::Full)
        .map_err(|error| failed(error.to_string()))?;
    let in_process = Arc::new(InProcessAgent {
        agent: Arc::downgrade(agent),
        kv: agent.kv.clone(),
        script: script.path.to_owned(),
        changes,
        cause,
    });
    let (wall, cpu, memory) = (Span(limit), Span(limit), Size(MEMORY));
    let settings = config::ScriptConfig { wall, cpu, memory, ..config::ScriptConfig::default() };
    let modules = SpaceModules::new(script.directory.to_owned(), agent.packages.clone());
    let services = HostServices {
        http: Arc::new(Egress::new(&config::EgressConfig::default())),
        kv: None,
        caller: Arc::new(MethodsViaAgent),
        modules: Arc::new(modules),
    };
    let context = ProgramContext {
        directory: script.directory.to_owned(),
        environment: agent.child_env.with_inherited(),
        agent: in_process,
        output: ProgramOutput::Captured,
    };
    let runtime = Runtime::new(&settings, 1, services);
    let ProgramRun { result, log, .. } = runtime.run_program(&program, Arc::new(context), Vec::new()).await;
    let output: String = log.iter().flat_map(|line| [line, "\n"]).collect();
    match result {
        Ok(()) => Ok(output),
        Err(error) => Err(failed(format!("{error}{}", PrintedBefore(&output)))),
    }
}

/// The agent, for scripts that run inside it.
struct InProcessAgent {
    /// Weak, because the script runs within the agent.
    agent: Weak<AgentState>,
    kv: Kv,
    /// The script's path, which its registrations show.
    script: PathBuf,
    changes: Option<Arc<SetupChanges>>,
    cause: RegisterCause,
}

impl InProcessAgent {
    /// Runs a request in a task of its own, so that it completes even if the script is stopped meanwhile.
    fn request<T: Send + 'static, F: Future<Output = Result<T, String>> + Send + 'static>(
        &self,
        request: impl FnOnce(Arc<AgentState>) -> F,
    ) -> AgentReply<T> {
        let running = self.agent.upgrade().map(|agent| task::spawn(request(agent)));
        Box::pin(async move {
            let running = running.ok_or_else(|| "the agent ends".to_owned())?;
            running.await.unwrap_or_else(|error| Err(format!("something went wrong in the agent: {error}")))
        })
    }
}

impl SpaceAgent for InProcessAgent {
    fn emit(&self, kind: &str, payload: Box<RawValue>) -> AgentReply<Box<RawValue>> {
        let kind = kind.to_owned();
        self.request(|agent| async move {
            let spooled = agent.emit(&kind, Some(payload), None).await.map_err(|error| error.to_string())?;
            Ok(raw(&spooled))
        })
    }

    fn methods(&self) -> AgentReply<Box<RawValue>> {
        self.request(|agent| async move {
            let listed = forwarded(&agent, Method::GET, "/api/methods", Bytes::new()).await?;
            listed.ok_or_else(|| "the server's answer is empty".to_owned())
        })
    }

    fn call(&self, request: Box<RawValue>) -> AgentReply<Option<Box<RawValue>>> {
        let body = request.get().to_owned().into();
        self.request(|agent| async move { forwarded(&agent, Method::POST, "/api/methods/call", body).await })
    }

    fn register(&self, directory: PathBuf, registration: Box<RawValue>) -> AgentReply<Box<RawValue>> {
        let built = BuiltRegistration { directory, script: Some(self.script.clone()), registration };
        let (changes, cause) = (self.changes.clone(), self.cause);
        self.request(move |agent| async move {
            let registered = agent.registrar.register_built(&built, changes.as_deref(), cause).await;
            let methods = registered.map_err(|error| error.to_string())?;
            Ok(raw(&json!({ "methods": methods })))
        })
    }

    fn unregister(&self, local_name: Option<&str>) -> AgentReply<Box<RawValue>> {
        let local_name = local_name.map(str::to_owned);
        let changes = self.changes.clone();
        self.request(|agent| async move {
            let removed = agent.unregister(local_name.as_deref(), changes.as_deref()).await;
            let removed = removed.map_err(|error| error.to_string())?;
            Ok(raw(&json!({ "removed": removed })))
        })
    }

    fn kv(&self) -> &dyn SpaceKv {
        &self.kv
    }
}

/// Forwards a request to a server, and returns its body; `None` if that is empty.
async fn forwarded(
    agent: &AgentState,
    method: Method,
    path: &str,
    body: Bytes,
) -> Result<Option<Box<RawValue>>, String> {
    let answer = agent.proxy.forward(method, path, body).await.map_err(|error| error.to_string())?;
    if answer.body.is_empty() && answer.status.is_success() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    match RawValue::from_string(text) {
        Ok(json) if answer.status.is_success() => Ok(Some(json)),
        Ok(refusal) => Err(message(&refusal).unwrap_or_else(|| format!("the server answered {}", answer.status))),
        Err(_) => Err(format!("the server answered {} with something that is not JSON", answer.status)),
    }
}

/// The message in an error body of the API.
fn message(refusal: &RawValue) -> Option<String> {
    let refusal: serde_json::Value = serde_json::from_str(refusal.get()).ok()?;
    refusal["error"]["message"].as_str().map(str::to_owned)
}

fn raw(value: &impl serde::Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("answers have string keys and no failing serializers")
}

impl LibrarySource for Packages {
    fn libraries(&self, known: Option<&str>, _: Duration) -> Result<FetchedLibraries, String> {
        let user = self.user();
        if known == Some(user.tag.as_str()) {
            return Ok(FetchedLibraries::Unchanged);
        }
        Ok(FetchedLibraries::Archive { bytes: user.bytes.to_vec(), tag: Some(user.tag) })
    }
}
