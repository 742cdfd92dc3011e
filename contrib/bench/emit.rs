//! Throughput of durable emits over HTTP, by one emitter and by 64, beside what the database underneath does with the
//! same rows: sled alone, synced after every emit and after every 64. All alternate in one run, so that the ratios are
//! comparable on any machine.
//!
//! Run with `cargo bench --bench emit`; exits 1 if a requirement is missed.

mod support;

use std::{
    process::ExitCode,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};
use support::{Daemon, PAYLOAD, event, requirement, temp_dir};
use svc::model::id::{EventId, UserId};

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
    let (mut one, mut many, mut per_flush) = (0.0, 0.0, f64::MAX);
    let (mut sled_each, mut sled_groups) = (0.0, 0.0);
    for _ in 0..ROUNDS {
        one = f64::max(one, over_http(&daemon, 1));
        let (flushes, writes) = (daemon.metric("svc_store_flushes_total"), daemon.metric("svc_store_writes_total"));
        many = f64::max(many, over_http(&daemon, EMITTERS));
        let flushes = daemon.metric("svc_store_flushes_total") - flushes;
        per_flush = f64::min(per_flush, (daemon.metric("svc_store_writes_total") - writes) / flushes);
        sled_each = f64::max(sled_each, sled_alone(1));
        sled_groups = f64::max(sled_groups, sled_alone(EMITTERS));
    }
    println!("emits/s: one emitter {one:.0}, {EMITTERS} emitters {many:.0}");
    println!("sled alone: {sled_each:.0} synced one by one, {sled_groups:.0} in groups of {EMITTERS}");
    let met = [
        requirement("64 emitters over one", many / one, "x", many >= 3.0 * one, "at least 3"),
        requirement("emits per flush with 64", per_flush, "", per_flush >= 16.0, "at least 16"),
        requirement("one emitter over sled alone", one / sled_each, "x", one >= 0.85 * sled_each, "at least 0.85"),
        requirement("64 emitters over sled alone", many / sled_groups, "x", many >= 0.6 * sled_groups, "at least 0.6"),
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

/// Emits per second into a bare database, synced after every `group` of them: the event, its entry in a queue, and its
/// place in an index.
fn sled_alone(group: usize) -> f64 {
    let directory = temp_dir();
    let tree = sled::open(directory.path().join("db")).expect("a fresh directory opens");
    let user = UserId::new();
    let started = Instant::now();
    let mut count = 0_u64;
    while started.elapsed() < TURN {
        let mut batch = sled::Batch::default();
        for _ in 0..group {
            count += 1;
            let id = EventId::new();
            let event = serde_json::to_vec(&*event(id, user)).expect("an event is JSON");
            batch.insert([b"E", count.to_be_bytes().as_slice()].concat(), event);
            batch.insert([b"Q".as_slice(), &[0; 16], &count.to_be_bytes()].concat(), &[0; 16]);
            batch.insert([b"I", id.to_string().as_bytes()].concat(), &count.to_be_bytes());
        }
        tree.apply_batch(batch).expect("the disk takes it");
        // This program has the function with which `svc` makes sled sync its file.
        tree.flush().expect("the disk takes it");
    }
    count as f64 / started.elapsed().as_secs_f64()
}
