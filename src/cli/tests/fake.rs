//! A fake server, and answers as a real one gives them.

use super::{CommandOutput, run_with};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::Arc,
};

/// A request that the fake server received.
#[derive(Clone, Debug)]
pub struct SeenRequest {
    pub line: String,
    pub headers: Vec<String>,
    pub body: String,
}

impl SeenRequest {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// A server that gives prepared answers, and records the requests.
pub struct FakeApi {
    pub url: String,
    seen: Arc<Mutex<Vec<SeenRequest>>>,
}

impl FakeApi {
    /// `answer` gets "METHOD /path?query" and the number of earlier requests of the same line.
    pub fn new(answer: impl Fn(&str, usize) -> (u16, Value) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let memory = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let request = read_request(&stream);
                let mut memory = memory.lock();
                let before = memory.iter().filter(|seen: &&SeenRequest| seen.line == request.line).count();
                let (status, body) = answer(&request.line, before);
                memory.push(request);
                drop(memory);
                write_answer(stream, status, &body);
            }
        });
        Self { url, seen }
    }

    /// A server that gives everything the same answer.
    pub fn always(status: u16, body: Value) -> Self {
        Self::new(move |_, _| (status, body.clone()))
    }

    pub fn run(&self, words: &[&str]) -> CommandOutput {
        self.run_piped(words, "")
    }

    pub fn run_piped(&self, words: &[&str], stdin: &str) -> CommandOutput {
        run_with(words, stdin, &|name| match name {
            "SVC_SERVER" => Some(self.url.clone()),
            "SVC_TOKEN" => Some("svc_test".to_owned()),
            _ => None,
        })
    }

    pub fn seen(&self) -> Vec<SeenRequest> {
        self.seen.lock().clone()
    }
}

fn read_request(stream: &TcpStream) -> SeenRequest {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let length = lines.iter().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).unwrap();
    let line = lines.remove(0).trim_end_matches(" HTTP/1.1").to_owned();
    SeenRequest { line, headers: lines, body: String::from_utf8(body).unwrap() }
}

fn write_answer(mut stream: TcpStream, status: u16, body: &Value) {
    // A string stands for a body that is not JSON.
    let text = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
    let cookie = "Set-Cookie: svc_session=crumb; HttpOnly; SameSite=Strict\r\n";
    write!(stream, "HTTP/1.1 {status} X\r\n{cookie}Connection: close\r\nContent-Length: {}\r\n\r\n{text}", text.len())
        .unwrap();
}

pub const SINK: &str = "01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a78";
pub const USER: &str = "01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a70";

pub fn error(code: &str, message: &str) -> Value {
    json!({ "error": { "code": code, "message": message } })
}

pub fn emitted() -> Value {
    json!({
        "event_id": "01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a77", "event_type": "custom.a", "event_ts": "2026-01-31T12:00:00.000000Z",
        "matched": [{ "sink_id": SINK, "name": "slack" }], "dropped": []
    })
}

pub fn event(state: &str) -> Value {
    json!({
        "id": "01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a77", "type": "custom.a", "ts": "2026-01-31T12:00:00.000000Z",
        "accepted_at": "2026-01-31T12:00:00.000500Z",
        "zone": "default", "space_id": "00000000-0000-0000-0000-000000000000", "user_id": USER, "data": { "z": 1, "a": 2 },
        "actor": { "id": USER, "username": "ada", "kind": "user" },
        "deliveries": [{
            "sink_id": SINK, "name": "slack", "state": state, "sequence": 7,
            "attempts": [{
                "number": 1, "at": "2026-01-31T12:00:01.000000Z", "duration_ms": 12.0, "outcome": "failed",
                "status": 500, "error": "the receiver answered 500", "log": ["tried\u{1b}[2J"]
            }]
        }]
    })
}

pub fn sink() -> Value {
    json!({
        "id": "01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a78", "name": "slack", "description": "", "events": "custom.*",
        "type": "webhook", "owner": "me", "active": true, "queue": { "depth": 0, "next_sequence": 8, "dead": 1 },
        "webhook": { "url": "https://x.example", "secret": "whsec_abc", "headers": {}, "skip_tls_verify": false },
        "created_at": "2026-01-31T12:00:00.000000Z", "updated_at": "2026-01-31T12:00:00.000000Z"
    })
}

pub fn list(items: &[Value]) -> Value {
    json!({ "items": items, "next": null })
}

/// A space with failed checks and a restarted agent, with this agent token.
pub fn space(agent_token: Value) -> Value {
    json!({
        "id": "01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a79", "name": "web", "owner": "ada", "owner_id": USER,
        "description": "the shop", "template_id": null, "driver": "process", "state": "deployed", "linked": false,
        "health": "healthy", "consecutive_failures": 2,
        "last_check": { "ok": false, "detail": "the agent is not connected", "checked_at": "2026-01-31T12:00:01.000000Z" },
        "urls": ["http://localhost:8080"], "host": "localhost",
        "ports": [{ "name": "web", "port": 8080, "protocol": "http" }], "custom": { "TEAM": "ops" },
        "startup_script_id": null, "directory": null, "methods_file": null, "launched": true,
        "health_check": {
            "type": "http", "port": 8080, "path": "/healthz", "interval": "10s", "timeout": "5s", "failures": 3
        },
        "process": { "pid": null, "launches": 3, "trouble": "it ended with exit status: 7" }, "node_id": "box",
        "created_at": "2026-01-31T12:00:00.000000Z", "updated_at": "2026-01-31T12:00:00.000000Z",
        "started_at": "2026-01-31T12:00:00.000000Z", "stopped_at": null, "agent_token": agent_token,
    })
}
