//! Processor time of a filter on a 500-byte event, in the server and in the worker process together: one filter, then ten
//! filters of one owner, which go to the worker in one message. Events come one after the other, so that no message to the
//! worker is shared between two of them, and then 16 at a time.
//!
//! Run with `cargo bench --bench filter`; exits 1 if a filter exceeds its budget.

use futures_util::future::{BoxFuture, join_all};
use serde_json::value::RawValue;
use std::{process::ExitCode, sync::Arc};
use svc::{
    model::{
        event::{Actor, ActorKind, Event, EventSpace},
        id::{EventId, SpaceId, UserId},
        owner::Owner,
        timestamp::Timestamp,
    },
    platform::{config, kv::Kv, metrics::Metrics, store::Store},
    scripting::{
        lua::{FilterVerdict, HttpClient, HttpRequest, HttpResponse, MethodCaller},
        workers::{LibraryTexts, LuaWorkers, ProgramText, WorkerCommand, WorkerServices},
    },
};

/// Microseconds of processor time that a filter may take, in all processes.
const BUDGET: f64 = 25.0;

/// Measured events, and the warm-up before them.
const EVENTS: usize = 20_000;
const WARM_UP: usize = 2_000;

fn main() -> ExitCode {
    let directory = tempfile::tempdir().expect("the temporary directory is writable");
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    let event = Arc::new(event());
    println!("event       {} bytes", serde_json::to_vec(&*event).expect("an event is JSON").len());
    println!("promise     a filter takes at most {BUDGET} us of processor time, in the server and the worker together");
    let mut kept = true;
    tokio.block_on(async {
        let workers = workers(directory.path());
        for (filters, at_once) in [(1, 1), (1, 16), (10, 1), (10, 16)] {
            let programs: Vec<_> = (0..filters).map(filter).collect();
            run(&workers, &programs, &event, WARM_UP, at_once).await;
            let before = cpu_micros();
            run(&workers, &programs, &event, EVENTS, at_once).await;
            let each = (cpu_micros() - before) / (EVENTS * filters) as f64;
            let verdict = if each <= BUDGET { "kept" } else { "BROKEN" };
            kept &= each <= BUDGET;
            println!("{filters:>2} filters, {at_once:>2} events at once   {each:>5.1} us for each filter   {verdict}");
        }
        workers.shut_down();
    });
    if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn run(workers: &LuaWorkers, filters: &[ProgramText], event: &Arc<Event>, events: usize, at_once: usize) {
    for _ in 0..events / at_once {
        let runs = (0..at_once).map(|_| workers.run_filters(Owner::Global, filters, event));
        for verdicts in join_all(runs).await {
            assert!(verdicts.iter().all(|verdict| *verdict == FilterVerdict::Refuse), "{verdicts:?}");
        }
    }
}

/// A filter of the usual kind. No two have the same text.
fn filter(number: usize) -> ProgramText {
    ProgramText::filter(&format!("event.data.ok and event.data.seconds > {} and space.name == 'web'", 100 + number))
}

/// Processor time of this process and its children that run now, in microseconds.
fn cpu_micros() -> f64 {
    let own = std::process::id().to_string();
    let processes = std::fs::read_dir("/proc").expect("/proc is mounted").filter_map(Result::ok);
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let family = pids.filter(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1).map(str::to_owned));
        pid.to_string() == own || parent.as_deref() == Some(&own)
    });
    family.map(process_micros).sum()
}

fn process_micros(pid: i32) -> f64 {
    let mut clock: libc::clockid_t = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both pointers are valid for writing.
    let read = unsafe { libc::clock_getcpuclockid(pid, &mut clock) == 0 && libc::clock_gettime(clock, &mut time) == 0 };
    if read { time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3 } else { 0.0 }
}

fn workers(directory: &std::path::Path) -> LuaWorkers {
    let metrics = Arc::<Metrics>::default();
    let store = Store::open(directory, 0, metrics.clone()).expect("the store opens");
    let services = WorkerServices {
        http: Arc::new(Unreachable),
        kv: Kv::new(store).expect("the store can be read"),
        caller: Arc::new(Unreachable),
        libraries: Arc::new(Unreachable),
    };
    let command = WorkerCommand::of_program(env!("CARGO_BIN_EXE_svc").into());
    LuaWorkers::new(&config::ScriptConfig::default(), command, services, metrics).expect("a thread starts")
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

/// Refuses HTTP requests and method calls, which a filter cannot make.
struct Unreachable;

impl HttpClient for Unreachable {
    fn send(&self, _: Owner, _: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, String>> {
        Box::pin(async { Err("unreachable".to_owned()) })
    }
}

impl LibraryTexts for Unreachable {
    fn find(&self, _: Owner, _: &str) -> Option<ProgramText> {
        None
    }
}

impl MethodCaller for Unreachable {
    fn call(&self, _: Owner, _: &str, _: Box<RawValue>) -> BoxFuture<'static, Result<Box<RawValue>, String>> {
        Box::pin(async { Err("unreachable".to_owned()) })
    }
}
