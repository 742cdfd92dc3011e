//! Processor time of rendering a template for a 500-byte event, in a pooled Lua state and in a new one.
//!
//! Run with `cargo bench --bench render`; exits 1 if a render in a pooled state exceeds its budget.

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use std::{process::ExitCode, sync::Arc, time::Instant};
use svc::{
    model::{
        body_template::BodyTemplate,
        event::{Actor, ActorKind, Event, EventSpace},
        id::{EventId, SpaceId, UserId},
        owner::Owner,
        timestamp::Timestamp,
    },
    platform::{config, kv::Kv, metrics::Metrics, store::Store},
    scripting::lua::{
        EventInput, HostServices, HttpClient, HttpRequest, HttpResponse, MethodCaller, NoModules, Program, Runtime,
    },
};

/// Microseconds of processor time that a render in a pooled state may take.
const BUDGET: f64 = 80.0;

const TEMPLATE: &str = r#"
return {
    text = ("%s deployed %s to %s"):format(actor.username, event.data.version, space.name),
    channel = custom.CHANNEL,
    commits = event.data.commits,
    took = event.data.seconds / 60,
}
"#;

fn main() -> ExitCode {
    let directory = tempfile::tempdir().expect("the temporary directory is writable");
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    let (pooled, wall) = tokio.block_on(async {
        let metrics = Arc::<Metrics>::default();
        let runtime = runtime(directory.path(), &metrics);
        let program = compiled();
        for _ in 0..2_000 {
            render(&runtime, &program).await;
        }
        let before = lua_micros(&metrics);
        let began = Instant::now();
        for _ in 0..20_000 {
            render(&runtime, &program).await;
        }
        let wall = began.elapsed().as_secs_f64() * 1e6 / 20_000.0;
        ((lua_micros(&metrics) - before) / 20_000.0, wall)
    });
    let fresh = tokio.block_on(async {
        let metrics = Arc::<Metrics>::default();
        let runtime = runtime(&directory.path().join("fresh"), &metrics);
        // A program that never ran has no pooled state.
        let programs: Vec<_> = (0..2_000).map(|_| compiled()).collect();
        for program in &programs {
            render(&runtime, program).await;
        }
        lua_micros(&metrics) / 2_000.0
    });
    println!("event               {} bytes", serde_json::to_vec(&event()).expect("an event is JSON").len());
    println!(
        "pooled state        {pooled:.1} us of processor time per render ({wall:.1} us until the caller has the result)"
    );
    println!("fresh state         {fresh:.1} us of processor time per render");
    println!("ratio               {:.1}", fresh / pooled);
    if pooled > BUDGET {
        println!("over the budget of {BUDGET} us");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

async fn render(runtime: &Runtime, program: &Program) {
    let input = EventInput { event: Arc::new(event()), sequence: 1, attempt: 1 };
    runtime.render(program, Owner::Global, input).await.expect("the template renders");
}

fn compiled() -> Program {
    Program::template(&BodyTemplate::Lua(TEMPLATE.to_owned())).expect("the template compiles")
}

fn runtime(directory: &std::path::Path, metrics: &Arc<Metrics>) -> Runtime {
    let store = Store::open(directory, 0, metrics.clone()).expect("the store opens");
    let kv = Kv::new(store).expect("the store can be read");
    let libraries = HostServices {
        http: Arc::new(Unreachable),
        kv: Some(kv),
        caller: Arc::new(Unreachable),
        modules: Arc::new(NoModules),
    };
    Runtime::new(&config::ScriptConfig::default(), libraries, metrics.clone())
}

/// Total processor time of all Lua runs so far, from the metric that the daemon exports.
fn lua_micros(metrics: &Metrics) -> f64 {
    let text = metrics.render([]);
    let sum = text.lines().find_map(|line| line.strip_prefix("svc_lua_cpu_seconds_sum "));
    sum.and_then(|sum| sum.parse::<f64>().ok()).expect("the metric is there") * 1e6
}

fn event() -> Event {
    let data = r#"{"version":"1.42.0","seconds":93.5,"commits":[{"id":"4f1c","by":"ada"},{"id":"9b07","by":"lin"}],"ok":true}"#;
    Event {
        id: EventId::new(),
        kind: "custom.deploy.done".parse().expect("a type"),
        ts: Timestamp::now(),
        zone: "default".into(),
        space_id: SpaceId::new(),
        user_id: UserId::new(),
        actor: Actor { id: uuid::Uuid::now_v7(), username: "ada".to_owned(), kind: ActorKind::User },
        space: Some(EventSpace {
            name: "web".to_owned(),
            urls: vec!["https://web.example.com".to_owned()],
            custom: [("CHANNEL".to_owned(), "ops".to_owned())].into(),
        }),
        data: RawValue::from_string(data.to_owned()).expect("JSON"),
    }
}

/// Refuses HTTP requests and method calls, which a template cannot make.
struct Unreachable;

impl HttpClient for Unreachable {
    fn send(&self, _: Owner, _: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, String>> {
        Box::pin(async { Err("unreachable".to_owned()) })
    }
}

impl MethodCaller for Unreachable {
    fn call(&self, _: Owner, _: &str, _: Box<RawValue>) -> BoxFuture<'static, Result<Box<RawValue>, String>> {
        Box::pin(async { Err("unreachable".to_owned()) })
    }
}
