//! Test fixtures of this folder: workers and a runtime with fake services, and a sample event.

use super::{sandbox::Sandbox, *};
use crate::{
    model::{
        body_template::BodyTemplate,
        event::{Actor, ActorKind, Event, EventSpace},
        id::{EventId, SpaceId, UserId},
        jsonrpc::MAX_BATCH,
        owner::Owner,
        timestamp::Timestamp,
        units::{Size, Span},
    },
    platform::{config, kv::Kv, metrics::Metrics, store::Store},
    scripting::workers::{LibraryTexts, LuaWorkers, ProgramText, WorkerCommand, WorkerServices},
};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use std::{collections::HashMap, path::PathBuf, sync::Arc, time::Duration};
use tempfile::TempDir;
use tokio::sync::{Notify, watch};

/// Workers and a runtime with fake services, on a store in a directory of its own.
pub struct TestRuntime {
    /// Runs templates, scripts and tools.
    pub workers: LuaWorkers,
    /// Runs health checks and programs of a space.
    pub runtime: Runtime,
    pub metrics: Arc<Metrics>,
    pub http: Arc<FakeHttp>,
    pub modules: Arc<FakeModules>,
    kv: Kv,
    directory: TempDir,
}

impl TestRuntime {
    /// The default limits.
    pub fn new() -> Self {
        Self::with(config::ScriptConfig::default())
    }

    /// Low limits.
    pub fn strict() -> Self {
        Self::with(config::ScriptConfig {
            wall: Span(Duration::from_secs(10)),
            cpu: Span(Duration::from_millis(100)),
            memory: Size(8 << 20),
            ..config::ScriptConfig::default()
        })
    }

    pub fn with(config: config::ScriptConfig) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (metrics, http) = (Arc::<Metrics>::default(), Arc::<FakeHttp>::default());
        let modules = Arc::<FakeModules>::default();
        let store = Store::open(directory.path(), 0, metrics.clone()).unwrap();
        let kv = Kv::new(store).unwrap();
        let services = HostServices {
            http: http.clone(),
            kv: Some(Arc::new(kv.clone())),
            caller: Arc::new(FakeHost),
            modules: modules.clone(),
        };
        let runtime = Runtime::new(&config, 2, services);
        let services = WorkerServices {
            http: http.clone(),
            kv: kv.clone(),
            caller: Arc::new(FakeHost),
            libraries: modules.clone(),
        };
        let workers = LuaWorkers::new(&config, WorkerCommand::this_program(), services, metrics.clone()).unwrap();
        Self { workers, runtime, metrics, http, modules, kv, directory }
    }

    pub fn sandbox(&self, program: &Program) -> Sandbox {
        Sandbox::new(program, &self.runtime.0.states.services, self.runtime.0.states.limits).unwrap()
    }

    /// Renders a Lua template for the sample event.
    pub async fn render(&self, source: &str) -> Result<RenderedBody, ScriptError> {
        self.workers.render(&lua(source), Owner::Global, input(event())).await
    }

    /// Runs a script for the sample event.
    pub async fn run_script(&self, source: &str) -> ScriptRun {
        self.workers.run_script(&ProgramText::script("script", source), Owner::Global, input(event())).await
    }

    /// Runs a health check in this process.
    pub async fn check(&self, program: &Program) -> CheckVerdict {
        let space = CheckedSpace { id: SpaceId::NIL, name: "web".to_owned() };
        self.runtime.run_check(program, space).await.unwrap()
    }

    /// Runs a tool as [`tool_user`].
    pub async fn run_tool(&self, source: &str, arguments: &str) -> ToolRun {
        self.call_tool(&ProgramText::tool("tool", source), arguments).await
    }

    /// Runs a tool as [`tool_user`].
    pub async fn call_tool(&self, program: &ProgramText, arguments: &str) -> ToolRun {
        let arguments = RawValue::from_string(arguments.to_owned()).unwrap();
        let context = ToolContext { owner: tool_user(), caller: Arc::new(FakeHost), emitter: Arc::new(FakeHost) };
        self.workers.run_tool(program, Owner::Global, ToolCall { arguments, context }).await
    }

    /// The context of a space's program, in this runtime's directory.
    pub fn program_context(&self) -> Arc<ProgramContext> {
        Arc::new(ProgramContext {
            directory: self.directory.path().to_owned(),
            environment: [("PATH", "/usr/bin:/bin"), ("GREETING", "hello")].map(|(n, v)| (n.into(), v.into())).into(),
            agent: Arc::new(FakeAgent(self.kv.clone())),
            output: ProgramOutput::Captured,
        })
    }

    /// Runs a program of a space.
    pub async fn run_program(&self, source: &str, arguments: &[&str]) -> ProgramRun {
        let program = Program::for_space("main.lua", source, Capabilities::Full).unwrap();
        let arguments = arguments.iter().map(ToString::to_string).collect();
        self.runtime.run_program(&program, self.program_context(), arguments).await
    }

    /// Calls the handler `library.function`.
    pub async fn call_handler(&self, program: &Program, handler: &str, params: &str) -> Result<String, ScriptError> {
        let (library, function) = handler.rsplit_once('.').unwrap();
        let handler = MethodHandler { library: library.to_owned(), function: function.to_owned() };
        let params = RawValue::from_string(params.to_owned()).unwrap();
        let result = self.runtime.call_handler(program, self.program_context(), handler, Some(params)).await;
        result.map(|json| json.get().to_owned())
    }
}

impl Drop for TestRuntime {
    fn drop(&mut self) {
        self.workers.shut_down();
        self.runtime.shut_down();
    }
}

/// Answers every request with its own body, except to `never.test`, which never answers, `gate.test`, which answers
/// once the gate is open, and `refused.test`.
#[derive(Default)]
pub struct FakeHttp {
    pub requests: Mutex<Vec<(Owner, HttpRequest)>>,
    requested: Notify,
    abandoned: Arc<Notify>,
    gate: watch::Sender<bool>,
}

impl FakeHttp {
    /// Returns once a request has been sent.
    pub async fn requested(&self) {
        self.requested.notified().await;
    }

    /// Lets the requests to `gate.test` through.
    pub fn open_gate(&self) {
        self.gate.send_replace(true);
    }

    /// Returns once a request has been dropped unanswered.
    pub async fn abandoned(&self) {
        self.abandoned.notified().await;
    }
}

impl HttpClient for FakeHttp {
    fn send(&self, owner: Owner, request: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, String>> {
        struct NotifyOnDrop(Arc<Notify>);
        impl Drop for NotifyOnDrop {
            fn drop(&mut self) {
                self.0.notify_one();
            }
        }
        let notice = NotifyOnDrop(self.abandoned.clone());
        let mut gate = self.gate.subscribe();
        self.requests.lock().push((owner, request.clone()));
        self.requested.notify_one();
        Box::pin(async move {
            if request.url.contains("never.test") {
                let _notice = notice;
                std::future::pending::<()>().await;
            }
            if request.url.contains("gate.test") {
                gate.wait_for(|open| *open).await.map_err(|error| error.to_string())?;
            }
            if request.url.contains("refused.test") {
                return Err("refused.test may not be reached".to_owned());
            }
            // Makes the run wait for a timer of the caller's tokio runtime.
            tokio::time::sleep(Duration::from_millis(1)).await;
            let headers = vec![("X-Seen".to_owned(), "1".to_owned()), ("x-seen".to_owned(), "2".to_owned())];
            Ok(HttpResponse { status: 201, headers, body: request.body })
        })
    }
}

/// Has the method `echo`, which returns its params, and accepts every event but `refused`.
pub struct FakeHost;

impl MethodCaller for FakeHost {
    fn call(&self, _: Owner, method: &str, params: Box<RawValue>) -> BoxFuture<'static, Result<Box<RawValue>, String>> {
        let known = method == "echo";
        let error = format!("no method named `{method}`");
        Box::pin(async move { if known { Ok(params) } else { Err(error) } })
    }
}

/// The user who runs the tools.
pub fn tool_user() -> Owner {
    Owner::User("01900000-0000-7000-8000-000000000000".parse().unwrap())
}

impl EventEmitter for FakeHost {
    fn emit(
        &self,
        owner: Owner,
        kind: &str,
        payload: Box<RawValue>,
    ) -> BoxFuture<'static, Result<Box<RawValue>, String>> {
        let emitted = match kind {
            "refused" => Err("no such thing".to_owned()),
            _ => Ok(serde_json::json!({ "type": kind, "payload": payload, "owner": owner })),
        };
        Box::pin(async move { emitted.map(|emitted| serde_json::value::to_raw_value(&emitted).unwrap()) })
    }
}

/// Has the method `echo`, and returns every registration.
struct FakeAgent(Kv);

impl FakeAgent {
    fn reply(reply: serde_json::Value) -> AgentReply<Box<RawValue>> {
        Box::pin(async move { Ok(serde_json::value::to_raw_value(&reply).unwrap()) })
    }
}

impl SpaceAgent for FakeAgent {
    fn emit(&self, kind: &str, payload: Box<RawValue>) -> AgentReply<Box<RawValue>> {
        Self::reply(serde_json::json!({ "event_type": format!("custom.{kind}"), "payload": payload }))
    }

    fn methods(&self) -> AgentReply<Box<RawValue>> {
        Self::reply(serde_json::json!({ "methods": [{ "name": "echo" }] }))
    }

    fn call(&self, request: Box<RawValue>) -> AgentReply<Option<Box<RawValue>>> {
        fn answer(request: &serde_json::Value) -> Option<serde_json::Value> {
            let id = request.get("id")?;
            let error = serde_json::json!({ "code": -32601, "message": "no such method", "data": [1] });
            Some(match request["method"].as_str() {
                Some("echo") => serde_json::json!({ "result": request["params"], "id": id }),
                _ => serde_json::json!({ "error": error, "id": id }),
            })
        }
        let answers = match serde_json::from_str(request.get()).unwrap() {
            serde_json::Value::Array(requests) if requests.len() > MAX_BATCH => {
                Some(serde_json::json!({ "error": { "code": -32600, "message": "too many requests" }, "id": null }))
            }
            serde_json::Value::Array(requests) => Some(requests.iter().filter_map(answer).collect()),
            request => answer(&request),
        };
        Box::pin(async move { Ok(answers.map(|answers| serde_json::value::to_raw_value(&answers).unwrap())) })
    }

    fn register(&self, directory: PathBuf, registration: Box<RawValue>) -> AgentReply<Box<RawValue>> {
        match registration.get().contains("wrong") {
            true => Box::pin(async { Err("`server.command` is missing".to_owned()) }),
            false => Self::reply(serde_json::json!({ "directory": directory, "registration": registration })),
        }
    }

    fn unregister(&self, local_name: Option<&str>) -> AgentReply<Box<RawValue>> {
        Self::reply(serde_json::json!({ "removed": local_name }))
    }

    fn kv(&self) -> &dyn SpaceKv {
        &self.0
    }
}

/// Modules by name, the same for every owner.
#[derive(Default)]
pub struct FakeModules {
    by_name: Mutex<HashMap<String, (Program, ProgramText)>>,
    required: Notify,
}

impl FakeModules {
    pub fn put(&self, name: &str, source: &str) {
        let library = (Program::library(name, source).unwrap(), ProgramText::library(name, source));
        self.by_name.lock().insert(name.to_owned(), library);
    }

    /// Returns once a worker has asked for a module.
    pub async fn required(&self) {
        self.required.notified().await;
    }
}

impl LibraryTexts for FakeModules {
    fn find(&self, _: Owner, name: &str) -> Option<ProgramText> {
        self.required.notify_one();
        if name == "broken" {
            return Some(ProgramText::library(name, "x ="));
        }
        self.by_name.lock().get(name).map(|(_, text)| text.clone())
    }
}

impl ModuleSource for FakeModules {
    fn find(&self, _: Owner, name: &str) -> Result<Option<Program>, String> {
        if name == "broken" {
            return Err("its file cannot be read".to_owned());
        }
        Ok(self.by_name.lock().get(name).map(|(program, _)| program.clone()))
    }
}

pub fn lua(source: &str) -> ProgramText {
    ProgramText::template(&BodyTemplate::Lua(source.to_owned()))
}

pub fn event() -> Event {
    let data = r#"{"big":9007199254740993,"empty":{},"items":[{"x":1},{"x":2}],"list":[],"none":null,"ok":true,"version":"1.2"}"#;
    Event {
        id: EventId::new(),
        kind: "custom.deploy.done".parse().unwrap(),
        ts: Timestamp::from_micros(1_700_000_000_000_000),
        zone: "default".into(),
        space_id: SpaceId::NIL,
        user_id: UserId::new(),
        actor: Actor { id: uuid::Uuid::nil(), username: "ada".to_owned(), kind: ActorKind::User },
        space: Some(EventSpace {
            name: "web".to_owned(),
            urls: vec!["http://web".to_owned()],
            custom: [("CHANNEL".to_owned(), "ops".to_owned())].into(),
        }),
        data: RawValue::from_string(data.to_owned()).unwrap(),
    }
}

pub fn input(event: Event) -> EventInput {
    EventInput { sequence: 7, ..EventInput::sample(Arc::new(event)) }
}
