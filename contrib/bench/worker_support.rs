//! Shared by the benchmarks of Lua in worker processes: the workers, the event, the baseline, and the processor time
//! of all processes.

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use std::{
    io::{Read as _, Write as _},
    sync::Arc,
    thread,
};
use svc::{
    model::{
        event::{Actor, ActorKind, Event, EventSpace},
        id::{EventId, SpaceId, UserId},
        owner::Owner,
        timestamp::Timestamp,
    },
    platform::{config, kv::Kv, metrics::Metrics, store::Store},
    scripting::{
        lua::{HttpClient, HttpRequest, HttpResponse, MethodCaller},
        workers::{LibraryTexts, LuaWorkers, ProgramText, WorkerCommand, WorkerServices},
    },
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
};

/// Workers with a store in this directory.
pub fn workers(directory: &std::path::Path, metrics: &Arc<Metrics>) -> LuaWorkers {
    let store = Store::open(directory, 0, metrics.clone()).expect("the store opens");
    let kv = Kv::new(store).expect("the store can be read");
    let services = WorkerServices {
        http: Arc::new(Unreachable),
        kv,
        caller: Arc::new(Unreachable),
        libraries: Arc::new(Unreachable),
    };
    let command = WorkerCommand::of_program(env!("CARGO_BIN_EXE_svc").into());
    LuaWorkers::new(&config::ScriptConfig::default(), command, services, metrics.clone()).expect("a thread starts")
}

/// An event of 500 bytes.
pub fn event() -> Event {
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

/// Refuses HTTP requests and method calls, which neither a template nor a filter can make.
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

/// The baseline: a thread that sends every message back.
pub struct Echo {
    socket: UnixStream,
    message: Vec<u8>,
}

impl Echo {
    pub fn start() -> Self {
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().expect("a socket pair");
        let message = serde_json::to_vec(&event()).expect("an event is JSON");
        let mut received = message.clone();
        thread::spawn(move || {
            while theirs.read_exact(&mut received).is_ok() {
                theirs.write_all(&received).expect("the other end reads");
            }
        });
        ours.set_nonblocking(true).expect("a socket can be");
        Self { socket: UnixStream::from_std(ours).expect("a socket can be watched"), message }
    }

    /// Processor time of sending a message of an event's size and receiving it back, in microseconds: the mean of so
    /// many messages.
    pub async fn micros(&mut self, messages: usize) -> f64 {
        let before = cpu_micros();
        for _ in 0..messages {
            self.socket.write_all(&self.message).await.expect("the thread reads");
            self.socket.read_exact(&mut self.message).await.expect("the thread answers");
        }
        (cpu_micros() - before) / messages as f64
    }
}

/// Processor time of this process and its children that run now, in microseconds.
pub fn cpu_micros() -> f64 {
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
