//! Floods of logins, agent sockets and audit entries: the server stays small, and others do not notice.

use crate::support::{Answer, Daemon, Receiver, Space, TEST_TIMEOUT, eventually};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{self, Message, client::IntoClientRequest as _},
};

/// Growth of the process that a flood of logins may cause, in KiB.
const MAX_GROWTH: u64 = 64 << 10;

/// The most passwords of the flood that are checked while an honest login waits: as many as wait for a turn at most.
const MAX_CHECKED_BEFORE: usize = 16;

/// Addresses of the flood. Each has a thread and one login under way.
const FLOOD_ADDRESSES: usize = 200;

/// A login under way. The flood uses bare sockets, so that it takes little of the processor that the daemon needs.
struct PendingLogin(std::net::TcpStream);

impl PendingLogin {
    fn send(daemon: &Daemon, from: &str, name: &str, password: &str) -> Self {
        let body = json!({"name": name, "password": password}).to_string();
        let mut stream = std::net::TcpStream::connect(daemon.url.trim_start_matches("http://")).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let head = "POST /api/auth/login HTTP/1.1\r\nhost: svc\r\nconnection: close\r\ncontent-type: application/json";
        let request = format!("{head}\r\nx-forwarded-for: {from}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(request.as_bytes()).unwrap();
        Self(stream)
    }

    /// The status of the answer, and the seconds of its `Retry-After`.
    fn answer(mut self) -> (u16, Option<u64>) {
        let mut answer = String::new();
        self.0.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        let wait = answer.lines().find_map(|line| line.strip_prefix("retry-after: "));
        (status.unwrap_or_else(|| panic!("{answer}")), wait.map(|wait| wait.parse().unwrap()))
    }
}

#[test]
fn a_flood_of_logins_neither_grows_the_process_nor_delays_an_honest_one() {
    let daemon = Daemon::with(&[("HTTP_TRUSTED_PROXIES", "127.0.0.0/8")]);
    daemon.create_user("ada", &[]);
    let before = daemon.memory();
    let (stop, refused, wrong) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let known = AtomicUsize::new(0);
    let (honest, memory) = thread::scope(|scope| {
        for number in 0..FLOOD_ADDRESSES {
            let (daemon, stop, refused, wrong, known) = (&daemon, &stop, &refused, &wrong, &known);
            scope.spawn(move || {
                let (from, name) = (format!("198.51.100.{number}"), format!("user{number}"));
                for round in 0.. {
                    match PendingLogin::send(daemon, &from, &name, "a wrong password").answer() {
                        (401, None) => wrong.fetch_add(1, Relaxed),
                        (503, Some(1)) => refused.fetch_add(1, Relaxed),
                        // It has failed too often.
                        (429, Some(_)) => 0,
                        other => panic!("{other:?}"),
                    };
                    if round == 0 {
                        known.fetch_add(1, Relaxed);
                    }
                    if stop.load(Relaxed) {
                        return;
                    }
                    thread::sleep(Duration::from_millis(50));
                }
            });
        }
        // From now on an address that has not tried yet comes before all of these.
        eventually("each address of the flood to have an answer", || {
            (known.load(Relaxed) == FLOOD_ADDRESSES).then_some(())
        });
        let mut honest = Vec::new();
        let mut memory = 0;
        for number in 0..5 {
            let checked = wrong.load(Relaxed);
            // A wrong password is answered as soon as it is checked; a right one waits for the disk too.
            let mistaken = PendingLogin::send(&daemon, &format!("203.0.113.{number}"), "bob", "a wrong password");
            let answer = mistaken.answer();
            let checked_before = wrong.load(Relaxed) - checked;
            let login = PendingLogin::send(&daemon, &format!("192.0.2.{number}"), "ada", "correct horse");
            honest.push((answer, checked_before, login.answer()));
            memory = memory.max(daemon.memory());
            thread::sleep(Duration::from_millis(200));
        }
        stop.store(true, Relaxed);
        (honest, memory)
    });
    let (refused, wrong) = (refused.into_inner(), wrong.into_inner());
    let growth = memory.saturating_sub(before);
    println!("honest logins {honest:?}, growth {growth} KiB, {refused} refused, {wrong} wrong");
    assert!(refused > 0 && wrong > 0, "{refused} refused, {wrong} wrong");
    assert!(growth <= MAX_GROWTH, "the process grew by {growth} KiB");
    let in_time = |(mistaken, checked_before, login): &(_, usize, _)| {
        (*mistaken, *login) == ((401, None), (200, None)) && *checked_before <= MAX_CHECKED_BEFORE
    };
    assert!(honest.iter().all(in_time), "answers, and passwords of the flood checked before the first: {honest:?}");
}

async fn open_socket(daemon: &Daemon, token: &str) -> Result<WebSocketStream<TcpStream>, tungstenite::Error> {
    let address = daemon.url.strip_prefix("http://").unwrap();
    let mut request = format!("ws://{address}/api/agent").into_client_request()?;
    request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    let stream = TcpStream::connect(address).await?;
    tokio_tungstenite::client_async(request, stream).await.map(|(socket, _)| socket)
}

/// Asks for a socket that is refused, and returns the head and the body of the answer. A WebSocket client may leave out
/// the body.
fn refused_socket(daemon: &Daemon, token: &str) -> (String, Value) {
    let address = daemon.url.strip_prefix("http://").unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13";
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
    let request = format!("GET /api/agent HTTP/1.1\r\nHost: {address}\r\n{upgrade}\r\n{key}");
    write!(stream, "{request}\r\nAuthorization: Bearer {token}\r\n\r\n").unwrap();
    let mut answer = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(answer.read_line(&mut head).unwrap() > 0, "{head}");
    }
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or_else(|| panic!("{head}"));
    let mut body = vec![0; length.parse().unwrap()];
    answer.read_exact(&mut body).unwrap();
    (head, serde_json::from_slice(&body).unwrap())
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn the_sockets_of_one_agent_token_are_bounded_with_a_reason() {
    let daemon = Daemon::start();
    let (space, other) = (Space::create(&daemon, "s"), Space::create(&daemon, "other"));
    runtime().block_on(async {
        let mut sockets = Vec::new();
        for _ in 0..8 {
            sockets.push(open_socket(&daemon, &space.token).await.unwrap());
        }
        let (head, body) = refused_socket(&daemon, &space.token);
        assert!(head.starts_with("HTTP/1.1 429 ") && head.contains("\r\nretry-after: 5\r\n"), "{head}");
        let message = body["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("8 connections with this agent token"), "{message}");
        open_socket(&daemon, &other.token).await.expect("another token has its own");
        drop(sockets);
        let deadline = Instant::now() + TEST_TIMEOUT;
        while open_socket(&daemon, &space.token).await.is_err() {
            assert!(Instant::now() < deadline, "closed sockets still count");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}

#[test]
fn a_large_message_before_hello_ends_the_socket() {
    let daemon = Daemon::start();
    let space = Space::create(&daemon, "s");
    let before = daemon.memory();
    runtime().block_on(async {
        let mut socket = open_socket(&daemon, &space.token).await.unwrap();
        // The server stops reading long before the end, so the message cannot be sent as a whole.
        let large = Message::Binary(vec![b'x'; 16 << 20].into());
        let sending = tokio::time::timeout(TEST_TIMEOUT, socket.send(large)).await.expect("the server ends it");
        let read = tokio::time::timeout(TEST_TIMEOUT, socket.next()).await.expect("the server ends it");
        assert!(sending.is_err() || !matches!(read, Some(Ok(Message::Binary(_)))), "{sending:?} {read:?}");
    });
    let growth = daemon.memory().saturating_sub(before);
    assert!(growth < 8 << 10, "the process grew by {growth} KiB");
    assert_eq!(daemon.get("/api/whoami").status, 200);
}

#[test]
fn events_that_a_full_sink_loses_have_two_entries_a_minute() {
    let receiver = Receiver::answering(|_| {
        // It says nothing until the daemon hangs up.
        Answer::Custom(Box::new(|stream| drop(stream.read(&mut [0]))))
    });
    let mut daemon = Daemon::with(&[("DELIVERY_QUEUE", "2"), ("LIMITS_DRAIN", "100ms")]);
    let id = daemon.create_sink(&json!({
        "name": "full", "events": "*", "type": "webhook", "owner": "global", "webhook": {"url": receiver.url("/")},
    }));
    for _ in 0..50 {
        daemon.emit("x", &json!({}));
    }
    let entries = daemon.items("/api/audit?action=event.drop");
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!(entries[0]["object"], format!("sink:{id}"));
    assert_eq!(entries[0]["detail"]["sequence"], 3);
    // The end of the server ends the minute.
    daemon.terminate();
    daemon.ended();
    daemon.restart();
    let entries = daemon.items("/api/audit?action=event.drop");
    assert_eq!(entries.len(), 2, "{entries:?}");
    let summary = &entries[0]["detail"];
    assert_eq!((&summary["count"], &summary["sink"]), (&json!(47), &json!("full")));
    assert_eq!((&summary["first_sequence"], &summary["last_sequence"]), (&json!(4), &json!(50)));
}

#[test]
fn a_member_pushes_no_entry_of_an_administrator_out_of_the_audit_log() {
    let daemon = Daemon::with(&[("HISTORY_AUDIT_SIZE", "20KiB"), ("HISTORY_AUDIT_ADMIN_SIZE", "1MiB")]);
    let ada = daemon.create_user("ada", &["manage_own_event_sinks"]);
    daemon.create_user("eve", &[]);
    let sink = json!({"name": "s", "events": "*", "type": "script", "script": {"source": ""}});
    let made = daemon.send("POST", "/api/event-sinks", Some(&ada), Some(sink.to_string().into_bytes())).json();
    let path = format!("/api/event-sinks/{}", made["id"].as_str().unwrap());
    let change = |description: String| {
        let body = json!({"description": description}).to_string().into_bytes();
        assert_eq!(daemon.send("PATCH", &path, Some(&ada), Some(body)).status, 200);
    };
    (0..400).for_each(|number| change(number.to_string()));
    let mut daemon = daemon;
    daemon.crash_and_restart();
    eventually("old entries to be deleted", || {
        (daemon.items("/api/audit?action=sink.update").len() < 200).then_some(())
    });
    let created = daemon.items("/api/audit?action=user.create");
    let names: Vec<_> = created.iter().map(|entry| entry["object"].clone()).collect();
    assert_eq!(names, ["eve", "ada", "admin"]);
}

#[test]
fn a_change_that_changes_nothing_has_no_audit_entry() {
    let daemon = Daemon::start();
    daemon.create_user("ada", &[]);
    let user = daemon.items("/api/users")[1]["id"].as_str().unwrap().to_owned();
    let role = daemon.items("/api/roles")[0]["id"].as_str().unwrap().to_owned();
    // It gets no events: the creation of the space would be one, and giving it up has an entry.
    let sink = json!({"name": "s", "events": "nothing", "type": "webhook", "webhook": {"url": "https://a.example/"}});
    let sink_id = daemon.create_sink(&sink);
    let script = json!({"name": "l", "kind": "library", "content": "return {}"});
    let script_id = daemon.post("/api/scripts", &script).json()["id"].as_str().unwrap().to_owned();
    let space_id = daemon.post("/api/spaces", &json!({"name": "s"})).json()["id"].as_str().unwrap().to_owned();
    let template = daemon.post("/api/templates", &json!({"name": "t"})).json()["id"].as_str().unwrap().to_owned();
    let before = daemon.items("/api/audit").len();
    for (path, body) in [
        (format!("/api/users/{user}"), json!({"active": true, "name": "ada", "revoke_tokens": false})),
        (format!("/api/roles/{role}"), json!({"name": "admin"})),
        (format!("/api/event-sinks/{sink_id}"), json!({"active": true})),
        (format!("/api/event-sinks/{sink_id}"), json!({})),
        (format!("/api/scripts/{script_id}"), json!({"active": true})),
        (format!("/api/spaces/{space_id}"), json!({"description": ""})),
        (format!("/api/templates/{template}"), json!({"name": "t"})),
    ] {
        let reply = daemon.patch(&path, &body);
        assert_eq!(reply.status, 200, "{path}: {}", reply.text);
    }
    let redelivered = daemon.post(&format!("/api/event-sinks/{sink_id}/redeliver"), &json!({}));
    assert_eq!(redelivered.status, 200, "{}", redelivered.text);
    let after = daemon.items("/api/audit");
    assert_eq!(after.len(), before, "{:?}", after.first());
    let changed = daemon.patch(&format!("/api/event-sinks/{sink_id}"), &json!({"description": "new"}));
    assert_eq!((changed.status, daemon.items("/api/audit").len()), (200, before + 1));
}
