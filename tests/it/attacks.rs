//! Attacks of an ordinary member on one daemon: during each the daemon lives, its memory, threads and disk stay bounded, and
//! another user's requests and deliveries go on as before.
//!
//! An attack is one entry of [`ATTACKS`]: a function that does harm until it is told to stop, run by a number of threads.

use crate::support::{Answer, Daemon, Receiver, Space};
use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Requests of the innocent user that are measured, before an attack and during it.
const PROBES: usize = 100;
/// The pause between two of them, so that an attack lasts.
const PAUSE: Duration = Duration::from_millis(15);
/// The factor by which an attack may slow the innocent user down, above the floor.
const FACTOR: u32 = 3;
/// Latencies below these are good on a busy machine, whatever they were before.
const MEDIAN_FLOOR: Duration = Duration::from_millis(150);
const P99_FLOOR: Duration = Duration::from_millis(1000);
/// The memory by which one attack may let the daemon grow.
const GROWTH_KIB: u64 = 96 << 10;
/// Bounds of the daemon after every attack. Tokio has up to 512 threads for blocking work and ends those that were idle for
/// ten seconds.
const MEMORY_KIB: u64 = 512 << 10;
const THREADS: usize = 600;
const DISK: u64 = 256 << 20;
/// The time after an attack in which memory and disk may come down to their bounds.
const SETTLING: Duration = Duration::from_secs(20);
const HISTORY: &str = "4MiB";

/// The harm of one thread; returns when the stage says so.
type Harm = fn(&Stage);

/// An attack, with the number of threads that run it.
struct Attack {
    name: &'static str,
    threads: usize,
    harm: Harm,
}

const ATTACKS: &[Attack] = &[
    Attack { name: "hanging sinks", threads: 1, harm: hanging_sinks },
    Attack { name: "refusing sinks", threads: 1, harm: refusing_sinks },
    Attack { name: "event flood", threads: 2, harm: event_flood },
    Attack { name: "dead letter flood", threads: 2, harm: dead_letter_flood },
    Attack { name: "kv flood", threads: 1, harm: kv_flood },
    Attack { name: "payloads at the limit", threads: 2, harm: large_payloads },
    Attack { name: "deep JSON", threads: 2, harm: deep_json },
    Attack { name: "many WebSockets", threads: 2, harm: web_sockets },
    Attack { name: "slow request bodies", threads: 2, harm: slow_bodies },
    Attack { name: "huge headers", threads: 2, harm: huge_headers },
    Attack { name: "hostile patterns", threads: 2, harm: hostile_patterns },
    Attack { name: "hostile schemas", threads: 2, harm: hostile_schemas },
    Attack { name: "names that are looked up", threads: 1, harm: names_to_look_up },
    Attack { name: "busy scripts", threads: 1, harm: busy_scripts },
];

/// Everything that an attack uses.
struct Stage<'a> {
    daemon: &'a Daemon,
    token: &'a str,
    /// URLs of receivers that never answer, that refuse connections, and that answer 500.
    hanging: &'a str,
    refusing: &'a str,
    failing: &'a str,
    stop: AtomicBool,
    /// Steps of the attack that have been done.
    steps: AtomicUsize,
}

#[test]
fn no_attack_of_a_member_harms_the_daemon_or_another_user() {
    let mut daemon = Daemon::with(&[
        ("EGRESS_ALLOW_PRIVATE", "true"),
        ("DELIVERY_BACKOFF", "1s"),
        ("HISTORY_SIZE", HISTORY),
        ("LOG_LEVEL", "error"),
    ]);
    let permissions = ["manage_own_event_sinks", "manage_own_scripts", "use_spaces", "use_methods"];
    let attacker = daemon.create_user("attacker", &permissions);
    let innocent = daemon.create_user("innocent", &permissions);
    let receiver = Receiver::start();
    let hanging = Receiver::answering(|_| Answer::Custom(Box::new(|stream| drop(stream.read(&mut [0])))));
    let failing = Receiver::answering(|_| Answer::Status(500));
    // Bound and not listening, so that every connection is refused.
    let refusing = tokio::net::TcpSocket::new_v4().unwrap();
    refusing.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let refusing_url = format!("http://{}/", refusing.local_addr().unwrap());
    create_sink(&daemon, &innocent, "innocent", &json!({"url": receiver.url("/")}));
    probe(&daemon, &innocent);

    let (mut failures, mut emitted) = (Vec::new(), 1);
    for attack in ATTACKS {
        let (before, memory_before) = (latencies(&daemon, &innocent), daemon.memory());
        let stage = Stage {
            daemon: &daemon,
            token: &attacker,
            hanging: &hanging.url("/"),
            refusing: &refusing_url,
            failing: &failing.url("/"),
            stop: AtomicBool::new(false),
            steps: AtomicUsize::new(0),
        };
        let during = thread::scope(|scope| {
            for _ in 0..attack.threads {
                scope.spawn(|| (attack.harm)(&stage));
            }
            crate::support::eventually(attack.name, || (stage.steps.load(Ordering::SeqCst) >= 20).then_some(()));
            let during = latencies(&daemon, &innocent);
            stage.stop.store(true, Ordering::SeqCst);
            during
        });
        emitted += 2 * PROBES;
        let memory_limit = MEMORY_KIB.min(memory_before + GROWTH_KIB);
        let (memory, disk) = (settled(memory_limit, || daemon.memory()), settled(DISK, || daemon.disk()));
        let threads = daemon.threads();
        let line = format!(
            "{}: {} steps; median {:?} before and {:?} during, p99 {:?} and {:?}; {} and {} MiB, {threads} threads, {} MiB on disk",
            attack.name,
            stage.steps.load(Ordering::SeqCst),
            before.median,
            during.median,
            before.p99,
            during.p99,
            memory_before >> 10,
            memory >> 10,
            disk >> 20,
        );
        println!("{line}");
        if during.median > MEDIAN_FLOOR.max(FACTOR * before.median)
            || during.p99 > P99_FLOOR.max(FACTOR * before.p99)
            || memory > memory_limit
            || threads > THREADS
            || disk > DISK
        {
            failures.push(line);
        }
        delete_sinks(&daemon, &attacker);
    }
    assert_eq!(failures, [""; 0], "the bounds are broken");
    receiver.wait_for(emitted);
    daemon.terminate();
    assert!(daemon.ended().success(), "the daemon has lived through all of it");
}

/// The measure once it is within the limit, or after the time for that.
fn settled(limit: u64, measure: impl Fn() -> u64) -> u64 {
    let deadline = Instant::now() + SETTLING;
    loop {
        let measured = measure();
        if measured <= limit || Instant::now() >= deadline {
            return measured;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

struct ProbeLatencies {
    median: Duration,
    p99: Duration,
}

/// Measures requests of the innocent user: an emit and a read.
fn latencies(daemon: &Daemon, token: &str) -> ProbeLatencies {
    let mut times: Vec<Duration> = (0..PROBES)
        .map(|_| {
            thread::sleep(PAUSE);
            probe(daemon, token)
        })
        .collect();
    times.sort();
    ProbeLatencies { median: times[PROBES / 2], p99: times[PROBES * 99 / 100] }
}

fn probe(daemon: &Daemon, token: &str) -> Duration {
    let started = Instant::now();
    emit(daemon, token, "calm", &json!({}), 202);
    assert_eq!(daemon.send("GET", "/api/whoami", Some(token), None).status, 200);
    started.elapsed()
}

#[track_caller]
fn emit(daemon: &Daemon, token: &str, kind: &str, payload: &Value, status: u16) {
    let event = json!({"type": kind, "payload": payload}).to_string().into_bytes();
    let reply = daemon.send("POST", "/api/events/emit", Some(token), Some(event));
    assert_eq!(reply.status, status, "{}", reply.text);
}

#[track_caller]
fn create_sink(daemon: &Daemon, token: &str, name: &str, webhook: &Value) {
    let sink = json!({"name": name, "events": "*", "type": "webhook", "owner": "me", "webhook": webhook});
    let reply = daemon.send("POST", "/api/event-sinks", Some(token), Some(sink.to_string().into_bytes()));
    assert_eq!(reply.status, 201, "{}", reply.text);
}

fn delete_sinks(daemon: &Daemon, token: &str) {
    let sinks = daemon.send("GET", "/api/event-sinks?limit=100", Some(token), None).json();
    for sink in sinks["items"].as_array().unwrap().iter().filter(|sink| sink["owner"] != "global") {
        let path = format!("/api/event-sinks/{}", sink["id"].as_str().unwrap());
        assert_eq!(daemon.send("DELETE", &path, Some(token), None).status, 204);
    }
}

impl Stage<'_> {
    /// Repeats a step until the attack is over.
    fn repeat(&self, mut step: impl FnMut(usize)) {
        for n in 0.. {
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            step(n);
            self.steps.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Emits an event. It may be refused, as long as there is an answer.
    fn emit(&self, payload: &Value) {
        let event = json!({"type": "attack", "payload": payload}).to_string().into_bytes();
        self.daemon.send("POST", "/api/events/emit", Some(self.token), Some(event));
    }

    fn create_sinks(&self, count: usize, url: &str) {
        for n in 0..count {
            create_sink(self.daemon, self.token, &format!("attack {n}"), &json!({"url": url}));
        }
    }

    fn create_script_sink(&self, name: &str, source: &str) {
        let sink = json!({"name": name, "events": "*", "type": "script", "owner": "me", "script": {"source": source}});
        let reply = self.daemon.send("POST", "/api/event-sinks", Some(self.token), Some(sink.to_string().into_bytes()));
        assert_eq!(reply.status, 201, "{}", reply.text);
    }

    /// Opens a connection and sends this.
    fn open(&self, text: &str) -> Option<TcpStream> {
        let mut stream = TcpStream::connect(self.daemon.url.trim_start_matches("http://")).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        stream.write_all(text.as_bytes()).ok()?;
        Some(stream)
    }
}

fn hanging_sinks(stage: &Stage) {
    stage.create_sinks(60, stage.hanging);
    stage.repeat(|_| stage.emit(&json!({})));
}

fn refusing_sinks(stage: &Stage) {
    stage.create_sinks(60, stage.refusing);
    stage.repeat(|_| stage.emit(&json!({})));
}

fn event_flood(stage: &Stage) {
    stage.repeat(|n| stage.emit(&json!({ "n": n, "text": "x".repeat(1000) })));
}

fn dead_letter_flood(stage: &Stage) {
    static FIRST: AtomicBool = AtomicBool::new(true);
    if FIRST.swap(false, Ordering::SeqCst) {
        stage.create_sinks(20, stage.failing);
    }
    stage.repeat(|_| stage.emit(&json!({"text": "x".repeat(50_000)})));
}

fn kv_flood(stage: &Stage) {
    stage.create_script_sink("kv", "kv.set(event.id, ('x'):rep(60000))");
    stage.repeat(|_| stage.emit(&json!({})));
}

fn busy_scripts(stage: &Stage) {
    for n in 0..20 {
        stage.create_script_sink(&format!("busy {n}"), "while true do end");
    }
    stage.repeat(|_| stage.emit(&json!({})));
}

fn large_payloads(stage: &Stage) {
    let payload = json!({"text": "x".repeat(250 << 10)});
    stage.repeat(|_| stage.emit(&payload));
}

fn deep_json(stage: &Stage) {
    let deep = format!(r#"{{"type":"x","payload":{{"a":{}{}}}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    stage.repeat(|_| {
        let reply = stage.daemon.send("POST", "/api/events/emit", Some(stage.token), Some(deep.clone().into_bytes()));
        assert_eq!(reply.status, 400, "{}", reply.text);
    });
}

/// Opens sockets with the tokens of ten agents, as many as each may have, and closes some to open others.
fn web_sockets(stage: &Stage) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let requests = [(); 10].map(|()| {
        let name = format!("attack-{}", NUMBER.fetch_add(1, Ordering::SeqCst));
        let space = Space::create_with(stage.daemon, stage.token, json!({ "name": name }));
        format!(
            "GET /api/agent HTTP/1.1\r\nhost: svc\r\nauthorization: Bearer {}\r\nconnection: upgrade\r\n\
             upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            space.token
        )
    });
    let mut held = Vec::new();
    stage.repeat(|n| {
        let Some(mut stream) = stage.open(&requests[n % requests.len()]) else { return };
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).expect("the daemon answers");
        match &answer {
            b"HTTP/1.1 101" => held.push(stream),
            // The agent has all its sockets.
            b"HTTP/1.1 429" => drop(held.drain(..held.len() / 2)),
            other => panic!("{}", String::from_utf8_lossy(other)),
        }
    });
    assert!(!held.is_empty(), "sockets were open");
}

fn slow_bodies(stage: &Stage) {
    let head = format!(
        "POST /api/events/emit HTTP/1.1\r\nhost: svc\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: 1000000\r\n\r\n",
        stage.token
    );
    let mut held: Vec<TcpStream> = Vec::new();
    stage.repeat(|_| {
        if held.len() < 200 {
            held.extend(stage.open(&head));
        }
        held.retain_mut(|stream| stream.write_all(b" ").is_ok());
        thread::sleep(Duration::from_millis(5));
    });
}

fn huge_headers(stage: &Stage) {
    let request = format!("GET /api/whoami HTTP/1.1\r\nhost: svc\r\nx-a: {}\r\n\r\n", "x".repeat(1 << 20));
    stage.repeat(|_| {
        if let Some(mut stream) = stage.open(&request) {
            let _ = stream.read(&mut [0; 64]);
        }
    });
}

fn hostile_patterns(stage: &Stage) {
    let long = ["a"; 127].join(".");
    let many: Vec<String> = (0..3000).map(|n| format!("custom.{n}.{}.*", &long[..100])).collect();
    for (_, events) in [(0, format!("custom.{long}.*")), (1, many.join(", "))] {
        let sink = json!({
            "name": format!("{:?}", Instant::now()), "events": events, "type": "webhook", "owner": "me",
            "webhook": {"url": stage.refusing},
        });
        // Refused or not, as long as there is an answer.
        stage.daemon.send("POST", "/api/event-sinks", Some(stage.token), Some(sink.to_string().into_bytes()));
    }
    stage.repeat(|n| {
        let event = json!({"type": format!("{}.{}", n % 3000, &long[..100]), "payload": {}}).to_string().into_bytes();
        stage.daemon.send("POST", "/api/events/emit", Some(stage.token), Some(event));
    });
}

fn hostile_schemas(stage: &Stage) {
    let large: Vec<Value> = (0..500).map(|n| json!({"pattern": format!(r"\pL{{200}}{n}")})).collect();
    let nested = json!({"pattern": "^(((a*)*)*)*b$"});
    stage.repeat(|n| {
        let schema = if n % 2 == 0 { json!({"allOf": large}) } else { json!({"properties": {"a": nested}}) };
        let tool = json!({
            "name": format!("tool{:?}", Instant::now()).replace(|c: char| !c.is_ascii_alphanumeric(), ""),
            "kind": "tool", "owner": "me", "content": "return 1", "params_schema": schema,
        });
        // Refused or not, as long as there is an answer.
        stage.daemon.send("POST", "/api/scripts", Some(stage.token), Some(tool.to_string().into_bytes()));
    });
}

fn names_to_look_up(stage: &Stage) {
    for n in 0..60 {
        let url = format!("http://name{n}.invalid/");
        create_sink(stage.daemon, stage.token, &format!("name {n}"), &json!({"url": url}));
    }
    stage.repeat(|_| stage.emit(&json!({})));
}
