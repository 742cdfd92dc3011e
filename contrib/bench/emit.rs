//! Throughput of durable emits over HTTP: one emitter, 64 emitters, and the queue engine alone, which writes the same
//! rows without HTTP and routing. The three alternate in one run, so that the ratios are comparable on any machine.
//!
//! Run with `cargo bench --bench emit`; exits 1 if a requirement is missed.

mod support;

use std::{
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use support::{Daemon, PAYLOAD, event, requirement, temp_dir};
use svc::{
    model::{
        id::{EventId, SinkId, UserId},
        owner::Owner,
    },
    platform::{metrics::Metrics, store::Store},
    routing::queue::{
        Engine, RouteTarget,
        sled::{EngineHooks, QueueLimits, SledEngine},
    },
};

const ROUNDS: usize = 3;
const TURN: Duration = Duration::from_secs(4);
const EMITTERS: usize = 64;

fn main() -> ExitCode {
    // One inactive sink with a queue that never fills: every emit writes an event and a queue entry.
    let daemon = Daemon::start(&[("SVC_DELIVERY_QUEUE", "100000000")]);
    let sink =
        r#"{"name":"s","events":"*","type":"script","owner":"global","active":false,"script":{"source":"return"}}"#;
    let mut connection = daemon.connect();
    let (status, answer) = connection.request("POST", "/api/event-sinks", sink);
    assert_eq!(status, 201, "{answer}");
    let (mut one, mut many, mut alone, mut per_flush) = (0.0, 0.0, 0.0, f64::MAX);
    for _ in 0..ROUNDS {
        one = f64::max(one, over_http(&daemon, 1));
        let (flushes, writes) = (daemon.metric("svc_store_flushes_total"), daemon.metric("svc_store_writes_total"));
        many = f64::max(many, over_http(&daemon, EMITTERS));
        let flushes = daemon.metric("svc_store_flushes_total") - flushes;
        per_flush = f64::min(per_flush, (daemon.metric("svc_store_writes_total") - writes) / flushes);
        alone = f64::max(alone, store_alone());
    }
    println!("emits/s: one emitter {one:.0}, {EMITTERS} emitters {many:.0}, store alone {alone:.0}");
    let met = [
        requirement("64 emitters over one", many / one, "x", many >= 3.0 * one, "at least 3"),
        requirement("emits per flush with 64", per_flush, "", per_flush >= 16.0, "at least 16"),
        requirement("64 emitters over the store alone", many / alone, "x", many >= 0.6 * alone, "at least 0.6"),
    ];
    if met.iter().all(|met| *met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Emits per second of `emitters` clients, each of which waits for a response before its next emit.
fn over_http(daemon: &Daemon, emitters: usize) -> f64 {
    let body = format!(r#"{{"type":"deploy.done","payload":{PAYLOAD}}}"#);
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let started = Instant::now();
    thread::scope(|scope| {
        for _ in 0..emitters {
            scope.spawn(|| {
                let mut connection = daemon.connect();
                while !stop.load(Relaxed) {
                    let (status, answer) = connection.request("POST", "/api/events/emit", &body);
                    assert_eq!(status, 202, "{answer}");
                    count.fetch_add(1, Relaxed);
                }
            });
        }
        thread::sleep(TURN);
        stop.store(true, Relaxed);
    });
    count.load(Relaxed) as f64 / started.elapsed().as_secs_f64()
}

/// Emits per second directly into the queue engine, by as many tasks as there are emitters.
fn store_alone() -> f64 {
    let directory = temp_dir();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime starts");
    runtime.block_on(async {
        let metrics = Arc::<Metrics>::default();
        let store = Store::open(directory.path(), 0, metrics.clone()).expect("a fresh directory opens");
        let (ready, _wakes) = tokio::sync::mpsc::unbounded_channel();
        let hooks = EngineHooks { accepted: Box::new(|_| ()), ready };
        let limits = QueueLimits { queue: usize::MAX, dead_letters: 1, undelivered: u64::MAX };
        let engine = SledEngine::open(store.clone(), metrics, limits, hooks).expect("a fresh store opens");
        let target = RouteTarget { sink: SinkId::new(), name: "s".into() };
        engine.open_queue(&target, Owner::User(UserId::new()));
        let user = UserId::new();
        let started = Instant::now();
        let tasks: Vec<_> = (0..EMITTERS)
            .map(|_| {
                let (engine, target) = (engine.clone(), target.clone());
                tokio::spawn(async move {
                    let mut count = 0_u64;
                    while started.elapsed() < TURN {
                        engine
                            .accept(event(EventId::new(), user), vec![target.clone()])
                            .await
                            .expect("the engine accepts the event");
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        let mut count = 0;
        for task in tasks {
            count += task.await.expect("no task panics");
        }
        let rate = count as f64 / started.elapsed().as_secs_f64();
        store.close().await;
        rate
    })
}
