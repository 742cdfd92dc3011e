//! Misbehaving receivers and clients, and full disks.

use crate::support::{Answer, Daemon, Random, Receiver, Space, eventually};
use serde_json::{Value, json};
use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

/// Short where the test is about the timeout, long where another failure must come first.
const SHORT: &str = "700ms";
const LONG: &str = "50s";

/// Sends one event to a receiver that answers like this, and returns the only attempt.
fn attempt(timeout: &str, answer: impl Fn() -> Answer + Send + Sync + 'static) -> (Value, Receiver) {
    let daemon = Daemon::with(&[("DELIVERY_BACKOFF", ""), ("WEBHOOK_TIMEOUT", timeout)]);
    let receiver = Receiver::answering(move |_| answer());
    daemon.create_sink(&json!({
        "name": "s", "events": "*", "type": "webhook", "owner": "global", "webhook": {"url": receiver.url("/")},
    }));
    let emitted = daemon.emit("x", &json!({}));
    let attempt = eventually("an attempt", || {
        Some(daemon.event(&emitted["event_id"])["deliveries"][0]["attempts"][0].clone()).filter(Value::is_object)
    });
    (attempt, receiver)
}

fn error(attempt: &Value) -> &str {
    assert_eq!(attempt["outcome"], "failed", "{attempt}");
    attempt["error"].as_str().unwrap()
}

#[test]
fn a_receiver_that_never_answers_fails_by_the_timeout() {
    let (attempt, _receiver) = attempt(SHORT, || Answer::Custom(Box::new(|_| thread::sleep(Duration::from_secs(30)))));
    assert!(error(&attempt).contains("700ms"), "{attempt}");
}

#[test]
fn a_receiver_that_answers_byte_by_byte_fails_by_the_same_timeout() {
    let (attempt, _receiver) = attempt(SHORT, || {
        Answer::Custom(Box::new(|stream| {
            for byte in b"HTTP/1.1 200 OK\r\nx-slow: ".iter().chain([b'a'; 1000].iter()) {
                if stream.write_all(&[*byte]).is_err() {
                    return;
                }
                thread::sleep(Duration::from_millis(50));
            }
        }))
    });
    assert!(error(&attempt).contains("700ms"), "{attempt}");
}

#[test]
fn a_receiver_that_closes_during_its_response_fails_the_attempt() {
    let (attempt, _receiver) = attempt(LONG, || Answer::Raw("HTTP/1.1 20".into()));
    error(&attempt);
}

#[test]
fn a_redirect_is_not_followed() {
    let target = Receiver::start();
    let location = target.url("/");
    let (attempt, _receiver) = attempt(LONG, move || {
        Answer::Raw(format!("HTTP/1.1 302 X\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n"))
    });
    assert!(error(&attempt).contains("redirect"), "{attempt}");
    assert_eq!(attempt["status"], 302);
    assert_eq!(target.received().len(), 0);
}

#[test]
fn an_endless_response_body_affects_only_its_connection() {
    let (attempt, _receiver) = attempt(LONG, || {
        Answer::Custom(Box::new(|stream| {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            while stream.write_all(&[b'x'; 4096]).is_ok() {}
        }))
    });
    assert_eq!((&attempt["outcome"], &attempt["status"]), (&json!("delivered"), &json!(200)), "{attempt}");
    assert!(attempt["response"].as_str().unwrap().len() <= 1024);
}

#[test]
fn a_receiver_that_is_not_there_fails_the_attempt() {
    let daemon = Daemon::with(&[("DELIVERY_BACKOFF", "")]);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    daemon.create_sink(&json!({
        "name": "s", "events": "*", "type": "webhook", "owner": "global",
        "webhook": {"url": format!("http://127.0.0.1:{port}/")},
    }));
    let emitted = daemon.emit("x", &json!({}));
    let delivery = daemon.delivery(&emitted["event_id"], "dead");
    assert!(delivery["attempts"][0]["status"].is_null());
}

#[test]
fn with_little_disk_space_events_are_refused_with_the_reason_and_deliveries_continue() {
    let mut daemon = Daemon::with(&[("DELIVERY_BACKOFF", "300ms,300ms,300ms,300ms,300ms,300ms,300ms,300ms")]);
    let mended = Arc::new(AtomicBool::new(false));
    let receiver = Receiver::answering({
        let mended = mended.clone();
        move |_| Answer::Status(if mended.load(Ordering::Relaxed) { 200 } else { 500 })
    });
    daemon.create_sink(&json!({
        "name": "s", "events": "*", "type": "webhook", "owner": "global", "webhook": {"url": receiver.url("/")},
    }));
    let waiting = daemon.emit("x", &json!({}));
    receiver.wait_for(1);
    daemon.kill();
    mended.store(true, Ordering::Relaxed);
    daemon.set("LIMITS_DISK_FREE", "1000000GiB");
    daemon.restart();
    daemon.delivery(&waiting["event_id"], "delivered");
    let refused = daemon.post("/api/events/emit", &json!({"type": "x", "payload": {}}));
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (503, &json!("disk_full")), "{}", refused.text);
    assert_eq!(refused.headers["retry-after"], "60");
    assert!(refused.message().contains("full"), "{}", refused.message());
    assert_eq!(daemon.send("GET", "/readyz", None, None).status, 503);
    assert_eq!(daemon.send("GET", "/healthz", None, None).status, 200);
    assert_eq!(daemon.get("/api/events").json()["items"].as_array().unwrap().len(), 1, "nothing was half-written");
}

#[test]
fn with_a_disk_that_others_filled_the_history_is_kept() {
    let mut daemon = Daemon::start();
    let payload = json!({"x": "x".repeat(200 << 10)});
    let emitted: Vec<_> = (0..20).map(|_| daemon.emit("x", &payload)["event_id"].clone()).collect();
    daemon.kill();
    daemon.set("LIMITS_DISK_FREE", "1000000GiB");
    daemon.restart();
    eventually("the sweep of the history", || daemon.log().contains("the history is kept").then_some(()));
    for id in &emitted {
        assert_eq!(daemon.get(&format!("/api/events/{}", id.as_str().unwrap())).status, 200);
    }
}

/// A file-size limit simulates a full disk: the write fails in the same place, without root.
#[test]
fn a_write_error_ends_the_daemon_with_exit_code_1_and_keeps_all_confirmed_events() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().join("data");
    let (mut child, url) = start_with_file_limit(&directory, Some(4096));
    let token = std::fs::read_to_string(directory.join("admin.token")).unwrap().trim().to_owned();
    // The first delivery lasts until the end is wanted.
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let receiver = Receiver::answering(move |_| {
        let _ = released.lock().unwrap().recv();
        Answer::Status(500)
    });
    let sink = json!({
        "name": "s", "events": "*", "type": "webhook", "owner": "global", "webhook": {"url": receiver.url("/")},
    });
    assert_eq!(request(&url, &token, "POST", "/api/event-sinks", &sink.to_string()).0, 201);
    let mut accepted = Vec::new();
    let refused = (0..1000).find_map(|n| {
        let body = json!({"type": "x", "payload": {"n": n, "noise": noise(n)}}).to_string();
        match request(&url, &token, "POST", "/api/events/emit", &body) {
            (202, answer) => {
                accepted.push(answer["event_id"].as_str().unwrap().to_owned());
                None
            }
            other => Some(other),
        }
    });
    let (status, answer) = refused.expect("the limit is reached");
    assert_eq!((status, &answer["error"]["code"]), (503, &json!("store_stopped")), "{answer}");
    assert!(!accepted.is_empty());
    // Probes are told for as long as the delivery lasts, which is longer than they would be without one.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        for path in ["/healthz", "/readyz"] {
            let (status, answer) = request(&url, &token, "GET", path, "");
            assert_eq!(status, 503, "{answer}");
            assert!(answer["reason"].as_str().unwrap().contains("the store has stopped"), "{answer}");
        }
        let emit = request(&url, &token, "POST", "/api/events/emit", r#"{"type":"x","payload":{}}"#);
        assert_eq!((emit.0, &emit.1["error"]["code"]), (503, &json!("store_stopped")));
        let read = request(&url, &token, "GET", &format!("/api/events/{}", accepted[0]), "");
        assert_eq!(read.0, 200, "{}", read.1);
        thread::sleep(Duration::from_millis(100));
    }
    drop(release);
    assert_eq!(child.wait().unwrap().code(), Some(1), "the daemon ends, so that its supervisor starts it again");

    let (mut child, url) = start_with_file_limit(&directory, None);
    for id in &accepted {
        assert_eq!(request(&url, &token, "GET", &format!("/api/events/{id}"), "").0, 200, "{id} was lost");
    }
    assert_eq!(request(&url, &token, "POST", "/api/events/emit", r#"{"type":"x","payload":{}}"#).0, 202);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_server_that_cannot_write_at_its_start_ends_at_once_with_the_reason_and_loses_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("data");
    let (mut child, url) = start_with_file_limit(&directory, None);
    let token = std::fs::read_to_string(directory.join("admin.token")).unwrap().trim().to_owned();
    let accepted: Vec<_> = (0..60)
        .map(|n| {
            let body = json!({"type": "x", "payload": {"n": n, "noise": noise(n)}}).to_string();
            let (status, answer) = request(&url, &token, "POST", "/api/events/emit", &body);
            assert_eq!(status, 202, "{answer}");
            answer["event_id"].as_str().unwrap().to_owned()
        })
        .collect();
    child.kill().unwrap();
    child.wait().unwrap();
    // Less than the database has, so that no write at its end succeeds, and less than any file needs.
    for kib in [1024, 0] {
        let began = Instant::now();
        let output = with_file_limit(&directory, Some(kib)).stderr(Stdio::piped()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{kib}: {error}");
        assert!(output.stdout.is_empty(), "it did not serve");
        assert!(error.contains("File too large"), "{kib}: {error}");
        assert!(!error.contains("in use") && !error.contains("damaged"), "{kib}: {error}");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
    let (mut child, url) = start_with_file_limit(&directory, None);
    for id in &accepted {
        assert_eq!(request(&url, &token, "GET", &format!("/api/events/{id}"), "").0, 200, "{id} was lost");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_write_error_ends_an_agent_with_exit_code_1_and_its_accepted_events_reach_the_server_later() {
    let mut daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    daemon.kill();
    let mut command = Command::new("sh");
    let agent = space.agent_command(&daemon.url, &[]);
    command.args(["-c", "trap '' XFSZ; ulimit -f 4096; exec \"$0\" \"$@\""]).arg(agent.get_program());
    command.args(agent.get_args()).stdin(Stdio::null()).stdout(Stdio::piped());
    command.envs(agent.get_envs().filter_map(|(name, value)| Some((name, value?)))).env_remove("SVC_METHODS_FILE");
    command.stderr(File::options().append(true).open(space.directory().join("agent.log")).unwrap());
    space.launch_as(command);
    let address = space.url.trim_start_matches("http://").to_owned();
    let mut accepted = 0;
    let refused = (0..1000).find_map(|n| {
        let body = json!({"type": "n", "payload": {"n": n, "noise": noise(n)}}).to_string();
        match request(&address, "", "POST", "/event", &body) {
            (202, _) => {
                accepted += 1;
                None
            }
            other => Some(other),
        }
    });
    let (status, answer) = refused.expect("the limit is reached");
    assert_eq!((status, &answer["error"]["code"]), (503, &json!("store_stopped")), "{answer}");
    assert_eq!(space.ended().code(), Some(1));
    assert!(space.log().contains("stopped after a failed write to the data directory"), "{}", space.log());
    assert!(accepted > 10, "{accepted}");

    daemon.restart();
    space.start(&daemon, &[]);
    let numbers = eventually("the events to arrive", || {
        let events = daemon.get("/api/events?limit=100&pattern=custom.n").json();
        let items = events["items"].as_array()?.clone();
        let mut numbers: Vec<_> = items.iter().map(|event| event["data"]["n"].as_u64().unwrap()).collect();
        numbers.reverse();
        (numbers.len() >= accepted).then_some(numbers)
    });
    assert_eq!(numbers[..accepted], (0..accepted as u64).collect::<Vec<_>>());
    // The write that failed may be on disk after all.
    assert!(numbers.len() <= accepted + 1, "{}", numbers.len());
}

/// Text that the store cannot compress to much less.
fn noise(seed: u64) -> String {
    let mut random = Random::new(seed + 1);
    (0..40_000).map(|_| char::from(b'#' + random.below(80) as u8)).collect()
}

/// A server whose files are limited to this size in KiB; a write beyond it fails instead of killing the process.
fn with_file_limit(directory: &std::path::Path, kib: Option<u32>) -> Command {
    let limit = kib.map_or_else(String::new, |kib| format!("ulimit -f {};", kib * 2));
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(format!("trap '' XFSZ; {limit} exec \"$0\" server --listen 127.0.0.1:0 --data \"$1\""))
        .arg(env!("CARGO_BIN_EXE_svc"))
        .arg(directory)
        .env("SVC_DELIVERY_BACKOFF", ["1s"; 30].join(","))
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

fn start_with_file_limit(directory: &std::path::Path, kib: Option<u32>) -> (Child, String) {
    let mut child = with_file_limit(directory, kib).spawn().unwrap();
    let line = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    (child, line.strip_prefix("listening on http://").unwrap().to_owned())
}

fn request(address: &str, token: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let text = std::io::read_to_string(stream).unwrap();
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    let body = text.split_once("\r\n\r\n").unwrap().1;
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

#[test]
fn a_client_that_is_slow_with_its_headers_is_cut_off() {
    let daemon = Daemon::start();
    let mut stream = TcpStream::connect(daemon.url.trim_start_matches("http://")).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost:").unwrap();
    stream.set_read_timeout(Some(crate::support::TEST_TIMEOUT)).unwrap();
    let text = std::io::read_to_string(stream).unwrap_or_default();
    assert!(!text.contains("200 OK"), "{text}");
}
