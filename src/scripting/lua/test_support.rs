//! What the tests of this folder share: a runtime with short limits, a scripted way out, an event.

use super::*;
use crate::{
    model::{
        body_template::BodyTemplate,
        event::{Actor, ActorKind, EventSpace},
        id::{EventId, SpaceId, UserId},
        timestamp::Timestamp,
    },
    platform::{kv::Kv, store::Store},
};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use std::{collections::HashMap, path::PathBuf};
use tokio::sync::Notify;

/// A runtime on a store of its own, both gone with it.
pub struct World {
    pub runtime: Runtime,
    pub metrics: Arc<Metrics>,
    pub http: Arc<Http>,
    pub modules: Arc<Shelf>,
    kv: Kv,
    directory: PathBuf,
}

impl World {
    /// A world of two threads and roomy limits.
    pub fn new() -> Self {
        Self::with(config::Script { threads: 2, ..config::Script::default() })
    }

    /// A world whose runs end soon.
    pub fn strict() -> Self {
        Self::with(config::Script {
            wall: config::Span(Duration::from_secs(10)),
            cpu: config::Span(Duration::from_millis(100)),
            memory: config::Size(8 << 20),
            threads: 2,
        })
    }

    pub fn with(config: config::Script) -> Self {
        let directory = std::env::temp_dir().join(format!("svc-script-{}", uuid::Uuid::now_v7()));
        let (metrics, http) = (Arc::<Metrics>::default(), Arc::<Http>::default());
        let modules = Arc::<Shelf>::default();
        let store = Store::open(&directory, 0, metrics.clone()).unwrap();
        let kv = Kv::new(store).unwrap();
        let libraries = HostServices {
            http: http.clone(),
            kv: Some(kv.clone()),
            caller: Arc::new(Caller),
            modules: modules.clone(),
        };
        let runtime = Runtime::new(&config, libraries, metrics.clone());
        Self { runtime, metrics, http, modules, kv, directory }
    }

    pub fn sandbox(&self, program: &Program, owner: Owner) -> Sandbox {
        Sandbox::new(program, owner, &self.runtime.0.libraries, self.runtime.0.limits).unwrap()
    }

    /// Renders a Lua template for the sample event.
    pub async fn render(&self, source: &str) -> Result<RenderedBody, ScriptError> {
        self.runtime.render(&lua(source), Owner::Global, input(event())).await
    }

    /// Calls a tool as a user.
    pub async fn evaluate(&self, source: &str, arguments: &str) -> ToolRun {
        self.call(&Program::tool("tool", source).unwrap(), arguments).await
    }

    /// Calls a compiled tool as a user.
    pub async fn call(&self, program: &Program, arguments: &str) -> ToolRun {
        let arguments = RawValue::from_string(arguments.to_owned()).unwrap();
        let acting = ToolContext { owner: someone(), caller: Arc::new(Caller), emitter: Arc::new(Caller) };
        self.runtime.run_tool(program, Owner::Global, ToolCall { arguments, acting }).await
    }

    /// What a program of a space finds around it, in a directory that is gone with this world.
    pub fn around(&self) -> Arc<ProgramContext> {
        Arc::new(ProgramContext {
            directory: self.directory.clone(),
            environment: [("PATH", "/usr/bin:/bin"), ("GREETING", "hello")].map(|(n, v)| (n.into(), v.into())).into(),
            agent: Arc::new(Agent(self.kv.clone())),
            output: ProgramOutput::Captured,
        })
    }

    /// Runs a program of a space.
    pub async fn launch(&self, source: &str, arguments: &[&str]) -> ProgramRun {
        let program = Program::for_space("main.lua", source, Capabilities::Full).unwrap();
        self.runtime.run_program(&program, self.around(), arguments.iter().map(ToString::to_string).collect()).await
    }

    /// Has a function of a library handle a request.
    pub async fn handle(&self, program: &Program, handler: &str, params: &str) -> Result<String, ScriptError> {
        let (library, function) = handler.rsplit_once('.').unwrap();
        let handler = MethodHandler { library: library.to_owned(), function: function.to_owned() };
        let params = RawValue::from_string(params.to_owned()).unwrap();
        let result = self.runtime.call_handler(program, self.around(), handler, Some(params)).await;
        result.map(|json| json.get().to_owned())
    }

    /// Runs a script for the sample event.
    pub async fn run(&self, source: &str) -> ScriptRun {
        self.runtime.run_script(&Program::script("script", source).unwrap(), Owner::Global, input(event())).await
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.runtime.shut_down();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Answers every request with what was asked, except on `never.test`, which stays silent, and `refused.test`.
#[derive(Default)]
pub struct Http {
    pub requests: Mutex<Vec<(Owner, HttpRequest)>>,
    asked: Notify,
    abandoned: Arc<Notify>,
}

impl Http {
    /// Returns once a request has been sent.
    pub async fn asked(&self) {
        self.asked.notified().await;
    }

    /// Returns once a request has been dropped unanswered.
    pub async fn abandoned(&self) {
        self.abandoned.notified().await;
    }
}

impl HttpClient for Http {
    fn send(&self, owner: Owner, request: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, String>> {
        struct Notice(Arc<Notify>);
        impl Drop for Notice {
            fn drop(&mut self) {
                self.0.notify_one();
            }
        }
        let notice = Notice(self.abandoned.clone());
        self.requests.lock().push((owner, request.clone()));
        self.asked.notify_one();
        Box::pin(async move {
            if request.url.contains("never.test") {
                let _notice = notice;
                std::future::pending::<()>().await;
            }
            if request.url.contains("refused.test") {
                return Err("refused.test may not be reached".to_owned());
            }
            // Has the run wait for a turn of the caller's own runtime.
            tokio::time::sleep(Duration::from_millis(1)).await;
            let headers = vec![("X-Seen".to_owned(), "1".to_owned()), ("x-seen".to_owned(), "2".to_owned())];
            Ok(HttpResponse { status: 201, headers, body: request.body })
        })
    }
}

/// Knows the method `echo`, which returns its params.
struct Caller;

impl MethodCaller for Caller {
    fn call(&self, _: Owner, method: &str, params: Box<RawValue>) -> BoxFuture<'static, Result<Box<RawValue>, String>> {
        let known = method == "echo";
        let error = format!("no method named `{method}`");
        Box::pin(async move { if known { Ok(params) } else { Err(error) } })
    }
}

/// The user that tools are called by.
pub fn someone() -> Owner {
    Owner::User("01900000-0000-7000-8000-000000000000".parse().unwrap())
}

/// Takes every event but those called `refused`, and says whose it is.
impl EventEmitter for Caller {
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

/// Knows the method `echo`, and says what was registered.
struct Agent(Kv);

impl Agent {
    fn said(said: serde_json::Value) -> AgentReply<Box<RawValue>> {
        Box::pin(async move { Ok(serde_json::value::to_raw_value(&said).unwrap()) })
    }
}

impl SpaceAgent for Agent {
    fn emit(&self, kind: &str, payload: Box<RawValue>) -> AgentReply<Box<RawValue>> {
        Self::said(serde_json::json!({ "event_type": format!("custom.{kind}"), "payload": payload }))
    }

    fn methods(&self) -> AgentReply<Box<RawValue>> {
        Self::said(serde_json::json!({ "methods": [{ "name": "echo" }] }))
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
            serde_json::Value::Array(requests) => Some(requests.iter().filter_map(answer).collect()),
            request => answer(&request),
        };
        Box::pin(async move { Ok(answers.map(|answers| serde_json::value::to_raw_value(&answers).unwrap())) })
    }

    fn register(&self, directory: PathBuf, registration: Box<RawValue>) -> AgentReply<Box<RawValue>> {
        match registration.get().contains("wrong") {
            true => Box::pin(async { Err("`server.command` is missing".to_owned()) }),
            false => Self::said(serde_json::json!({ "directory": directory, "registration": registration })),
        }
    }

    fn unregister(&self, local_name: Option<&str>) -> AgentReply<Box<RawValue>> {
        Self::said(serde_json::json!({ "removed": local_name }))
    }

    fn kv(&self) -> &dyn SpaceKv {
        &self.0
    }
}

/// HostServices by name, the same for every owner.
#[derive(Default)]
pub struct Shelf(Mutex<HashMap<String, Program>>);

impl Shelf {
    pub fn put(&self, name: &str, source: &str) {
        self.0.lock().insert(name.to_owned(), Program::library(name, source).unwrap());
    }
}

impl ModuleSource for Shelf {
    fn find(&self, _: Owner, name: &str) -> Result<Option<Program>, String> {
        if name == "broken" {
            return Err("its file cannot be read".to_owned());
        }
        Ok(self.0.lock().get(name).cloned())
    }
}

pub fn lua(source: &str) -> Program {
    Program::template(&BodyTemplate::Lua(source.to_owned())).unwrap()
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
    EventInput { event: Arc::new(event), sequence: 7, attempt: 1 }
}
