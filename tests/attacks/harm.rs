//! The attacks: each function repeats its harm until the stage says stop.
//!
//! Clients run at the lowest priority ([`crate::client`]), and every request waits for its response, so that an attack
//! takes from the daemon as much as the daemon gives it.

use crate::{
    client::Client,
    support::{Daemon, Space},
    text,
};
use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

/// An attack, with the number of threads that run it.
pub struct Attack {
    pub name: &'static str,
    pub threads: usize,
    /// The harm of one thread; returns when the stage says so.
    pub harm: fn(&Stage),
}

pub const ATTACKS: &[Attack] = &[
    Attack { name: "hanging sinks", threads: 1, harm: hanging_sinks },
    Attack { name: "refusing sinks", threads: 1, harm: refusing_sinks },
    Attack { name: "event flood", threads: 4, harm: event_flood },
    Attack { name: "dead letter flood", threads: 2, harm: dead_letter_flood },
    Attack { name: "redelivery flood", threads: 2, harm: redelivery_flood },
    Attack { name: "flood of test deliveries", threads: 4, harm: test_flood },
    Attack { name: "payloads at the limit", threads: 1, harm: large_payloads },
    Attack { name: "deep JSON", threads: 1, harm: deep_json },
    Attack { name: "many WebSockets", threads: 2, harm: web_sockets },
    Attack { name: "slow request bodies", threads: 2, harm: slow_bodies },
    Attack { name: "huge headers", threads: 2, harm: huge_headers },
    Attack { name: "hostile patterns", threads: 2, harm: hostile_patterns },
    Attack { name: "hostile schemas", threads: 2, harm: hostile_schemas },
    Attack { name: "names that do not exist", threads: 1, harm: absent_names },
    Attack { name: "silent name server", threads: 1, harm: unanswered_names },
    Attack { name: "login flood", threads: 8, harm: login_flood },
    Attack { name: "flood of tool calls over MCP", threads: 4, harm: tool_flood },
    Attack { name: "flood of scripts to compile", threads: 4, harm: compile_flood },
    Attack { name: "kv flood", threads: 1, harm: kv_flood },
    Attack { name: "busy scripts", threads: 1, harm: busy_scripts },
    Attack { name: "scripts that cannot be interrupted", threads: 1, harm: uninterruptible_scripts },
    Attack { name: "scripts that hold memory", threads: 1, harm: memory_holders },
];

/// Everything that an attack uses.
pub struct Stage<'a> {
    pub daemon: &'a Daemon,
    token: &'a str,
    urls: &'a Urls,
    pub stop: AtomicBool,
    /// Steps of the attack that have been done.
    pub steps: AtomicUsize,
    /// Numbers for the threads and for what they create.
    next: AtomicUsize,
}

/// URLs of the attacker's receivers.
pub struct Urls {
    /// It never answers.
    pub hanging: String,
    /// It refuses connections.
    pub refusing: String,
    /// It answers 500.
    pub failing: String,
}

impl<'a> Stage<'a> {
    pub fn new(daemon: &'a Daemon, token: &'a str, urls: &'a Urls) -> Self {
        let (stop, steps, next) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
        Self { daemon, token, urls, stop, steps, next }
    }

    /// Deletes everything that the attacker has made.
    pub fn clean_up(&self) {
        let mut client = self.client();
        for list in ["/api/event-sinks", "/api/scripts", "/api/spaces"] {
            loop {
                let page: Value =
                    serde_json::from_str(&client.send("GET", &format!("{list}?limit=100"), "").body).unwrap();
                let items = page["items"].as_array().unwrap();
                let own = items.iter().filter(|item| item["owner"] != "global").collect::<Vec<_>>();
                for item in &own {
                    let deleted = client.send("DELETE", &format!("{list}/{}", text(item, "id")), "");
                    assert_eq!(deleted.status, 204, "{}", deleted.body);
                }
                if own.is_empty() {
                    break;
                }
            }
        }
    }

    fn client(&self) -> Client {
        Client::new(&self.daemon.url, self.token)
    }

    /// A number that nobody else has in this attack; 0 for the first.
    fn number(&self) -> usize {
        self.next.fetch_add(1, Ordering::SeqCst)
    }

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

    /// Emits events until the attack is over. They may be refused, as long as there is an answer.
    fn flood(&self, payload: &Value) {
        let (mut client, event) = (self.client(), json!({"type": "attack", "payload": payload}).to_string());
        self.repeat(|_| drop(client.send("POST", "/api/events/emit", &event)));
    }

    /// Creates a sink for the events of the attack and returns its id.
    fn create_sink(&self, kind: &str, fields: &Value) -> String {
        let name = format!("attack {}", self.number());
        let sink = json!({"name": name, "events": "custom.attack", "type": kind, "owner": "me", kind: fields});
        let made = self.client().send("POST", "/api/event-sinks", &sink.to_string());
        assert_eq!(made.status, 201, "{}", made.body);
        text(&serde_json::from_str(&made.body).unwrap(), "id").to_owned()
    }

    fn create_webhooks(&self, count: usize, url: impl Fn(usize) -> String) {
        for n in 0..count {
            self.create_sink("webhook", &json!({"url": url(n)}));
        }
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
    stage.create_webhooks(60, |_| stage.urls.hanging.clone());
    stage.flood(&json!({}));
}

fn refusing_sinks(stage: &Stage) {
    stage.create_webhooks(60, |_| stage.urls.refusing.clone());
    stage.flood(&json!({}));
}

fn event_flood(stage: &Stage) {
    stage.flood(&json!({"text": "x".repeat(1000)}));
}

fn dead_letter_flood(stage: &Stage) {
    if stage.number() == 0 {
        stage.create_webhooks(20, |_| stage.urls.failing.clone());
    }
    stage.flood(&json!({"text": "x".repeat(50_000)}));
}

/// Queues the same dead letters again and again.
fn redelivery_flood(stage: &Stage) {
    let id = stage.create_sink("webhook", &json!({"url": stage.urls.failing}));
    let mut client = stage.client();
    for _ in 0..50 {
        client.send("POST", "/api/events/emit", r#"{"type":"attack","payload":{}}"#);
    }
    stage.repeat(|_| {
        let reply = client.send("POST", &format!("/api/event-sinks/{id}/redeliver"), "{}");
        assert_eq!(reply.status, 200, "{}", reply.body);
    });
}

/// Delivers samples that a template renders, beside the queue.
fn test_flood(stage: &Stage) {
    let template = "local t = {} for i = 1, 1000 do t[i] = event.id .. i end return t";
    let id = stage.create_sink("webhook", &json!({"url": stage.urls.failing, "template": template}));
    let mut client = stage.client();
    // Refused or not, as long as there is an answer.
    stage.repeat(|_| drop(client.send("POST", &format!("/api/event-sinks/{id}/test"), "{}")));
}

fn large_payloads(stage: &Stage) {
    stage.flood(&json!({"text": "x".repeat(250 << 10)}));
}

fn deep_json(stage: &Stage) {
    let deep = format!(r#"{{"type":"x","payload":{{"a":{}{}}}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let mut client = stage.client();
    stage.repeat(|_| {
        let reply = client.send("POST", "/api/events/emit", &deep);
        assert_eq!(reply.status, 400, "{}", reply.body);
    });
}

/// Opens sockets with the tokens of ten agents, as many as each may have, and closes some to open others.
fn web_sockets(stage: &Stage) {
    let requests = [(); 10].map(|()| {
        let name = format!("attack-{}", stage.number());
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
    let (mut client, long) = (stage.client(), ["a"; 127].join("."));
    let many: Vec<String> = (0..3000).map(|n| format!("custom.{n}.{}.*", &long[..100])).collect();
    for events in [format!("custom.{long}.*"), many.join(", ")] {
        let sink = json!({
            "name": format!("attack {}", stage.number()), "events": events, "type": "webhook", "owner": "me",
            "webhook": {"url": stage.urls.refusing},
        });
        // Refused or not, as long as there is an answer.
        client.send("POST", "/api/event-sinks", &sink.to_string());
    }
    stage.repeat(|n| {
        let event = json!({"type": format!("{}.{}", n % 3000, &long[..100]), "payload": {}});
        client.send("POST", "/api/events/emit", &event.to_string());
    });
}

fn hostile_schemas(stage: &Stage) {
    let mut client = stage.client();
    let large: Vec<Value> = (0..500).map(|n| json!({"pattern": format!(r"\pL{{200}}{n}")})).collect();
    let nested = json!({"pattern": "^(((a*)*)*)*b$"});
    stage.repeat(|n| {
        let schema = if n % 2 == 0 { json!({"allOf": large}) } else { json!({"properties": {"a": nested}}) };
        let tool = json!({
            "name": format!("tool{}", stage.number()), "kind": "tool", "owner": "me", "content": "return 1",
            "params_schema": schema,
        });
        // Refused or not, as long as there is an answer.
        client.send("POST", "/api/scripts", &tool.to_string());
    });
}

fn absent_names(stage: &Stage) {
    stage.create_webhooks(60, |n| format!("http://name{n}.invalid/"));
    stage.flood(&json!({}));
}

/// The name server of the daemon never answers.
fn unanswered_names(stage: &Stage) {
    stage.create_webhooks(90, |n| format!("http://name{n}.slow.test/"));
    stage.flood(&json!({}));
}

/// Wrong passwords for many names from many networks.
fn login_flood(stage: &Stage) {
    let mut client = stage.client();
    stage.repeat(|_| {
        let number = stage.number();
        let from = format!("x-forwarded-for: 198.{}.{}.7\r\n", number / 250 % 250, number % 250);
        let login = json!({"name": format!("user{number}"), "password": "a wrong password"}).to_string();
        let reply = client.send_with("POST", "/api/auth/login", &from, &login);
        assert!([401, 429, 503].contains(&reply.status), "{}", reply.body);
    });
}

fn tool_flood(stage: &Stage) {
    let (mut client, name) = (stage.client(), format!("burn{}", stage.number()));
    let source = "local n = 0 for i = 1, 200000 do n = n + i % 7 end return { n = n }";
    let tool = json!({"name": name, "kind": "tool", "owner": "me", "content": source});
    let made = client.send("POST", "/api/scripts", &tool.to_string());
    assert_eq!(made.status, 201, "{}", made.body);
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": {}},
    });
    stage.repeat(|_| {
        let reply = client.send("POST", "/mcp", &call.to_string());
        assert!(reply.status == 200 || reply.status == 429 || reply.status == 503, "{} {}", reply.status, reply.body);
    });
}

/// Saves one large script again and again, each time with another text.
fn compile_flood(stage: &Stage) {
    let (mut client, number) = (stage.client(), stage.number());
    let source = |n: usize| format!("local x = {n} {}", "x = x + 1 ".repeat(6000));
    let script = json!({"name": format!("script{number}"), "kind": "script", "owner": "me", "content": source(0)});
    let made = client.send("POST", "/api/scripts", &script.to_string());
    assert_eq!(made.status, 201, "{}", made.body);
    let path = format!("/api/scripts/{}", text(&serde_json::from_str(&made.body).unwrap(), "id"));
    stage.repeat(|n| {
        let patch = json!({"content": source(n + 1)}).to_string();
        // Refused or not, as long as there is an answer.
        client.send("PATCH", &path, &patch);
    });
}

fn kv_flood(stage: &Stage) {
    stage.create_sink("script", &json!({"source": "kv.set(event.id, ('x'):rep(60000))"}));
    stage.flood(&json!({}));
}

fn busy_scripts(stage: &Stage) {
    for _ in 0..10 {
        stage.create_sink("script", &json!({"source": "while true do end"}));
    }
    stage.flood(&json!({}));
}

/// Each addition reads a number of 29 MB, and no interrupt comes in between. The programs differ, so that the
/// quarantine of one does not stop the others.
fn uninterruptible_scripts(stage: &Stage) {
    for n in 0..6 {
        let source = format!("local n, a, x = {n}, ('1'):rep(29e6){}", " x = a + a".repeat(2000));
        stage.create_sink("script", &json!({"source": source}));
    }
    stage.flood(&json!({}));
}

/// Scripts that fill their memory, some of which then wait with it for a receiver that never answers, and scripts that
/// keep values of the server.
fn memory_holders(stage: &Stage) {
    let fill = "local t = {} for i = 1, 25000 do t[i] = ('x'):rep(1000) .. i end";
    let wait = format!("{fill} http.request{{url = '{}', timeout = 5}} return #t", stage.urls.hanging);
    let verdicts = "local t = {} for i = 1, 250000 do t[i] = pcall(svc.skip, ('x'):rep(4096) .. i) end".to_owned();
    let endless = "local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1000) .. i end".to_owned();
    for source in [&wait, &verdicts, &endless] {
        for _ in 0..4 {
            stage.create_sink("script", &json!({"source": source}));
        }
    }
    stage.flood(&json!({}));
}
