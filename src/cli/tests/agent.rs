//! The commands that run inside a space, against an agent that says what a test wants.

use super::{
    CommandOutput,
    fake::{FakeApi, error},
    run_with,
};
use serde_json::{Value, json};
use std::net::TcpListener;

/// Runs a command where the environment says that the agent is at this address.
fn run_inside(agent: &str, words: &[&str]) -> CommandOutput {
    run_with(words, "", &|name| (name == "SVC_AGENT_URL").then(|| agent.to_owned()))
}

fn methods() -> Value {
    json!([{ "name": "notes.search", "local_name": "search" }, { "name": "notes.add", "local_name": "add" }])
}

/// A temporary registration file.
struct File(tempfile::NamedTempFile);

impl File {
    fn new(text: &str) -> Self {
        let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Self(file)
    }

    fn name(&self) -> &str {
        self.0.path().to_str().unwrap()
    }
}

#[test]
fn an_event_goes_through_the_agent() {
    let id = "01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a77";
    let agent = FakeApi::always(202, json!({ "event_id": id, "event_type": "custom.a" }));
    let ran = run_inside(&agent.url, &["event", "a", "{\"n\": 1.50}"]);
    assert_eq!((ran.code, ran.out, ran.err.as_str()), (0, format!("{id}  custom.a\n"), ""));
    let seen = &agent.seen()[0];
    assert_eq!((seen.line.as_str(), seen.body.as_str()), ("POST /event", "{\"type\":\"a\",\"payload\":{\"n\": 1.50}}"));
    let has = |name: &str| seen.headers.iter().any(|line| line.to_lowercase().starts_with(name));
    assert!(has("content-type: application/json") && !has("authorization"), "{:?}", seen.headers);
}

#[test]
fn a_file_is_registered_with_its_whole_path() {
    let agent = FakeApi::always(200, json!({ "methods": methods() }));
    let file = File::new("[server]\n");
    let ran = run_inside(&agent.url, &["methods", "register", file.name()]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(ran.out, "registered 2 methods: notes.search, notes.add\n");
    let seen = &agent.seen()[0];
    assert_eq!(seen.line, "POST /methods");
    assert_eq!(seen.json(), json!({ "path": file.name(), "source": "[server]\n" }));
    let ran = run_inside(&agent.url, &["methods", "register", file.name(), "--json"]);
    assert_eq!(ran.out, format!("{}\n", json!({ "methods": methods() })));
    let ran = run_inside(&agent.url, &["methods", "register", "/nowhere.toml"]);
    assert_eq!((ran.code, agent.seen().len()), (1, 2));
}

#[test]
fn methods_are_removed_all_or_by_their_local_name() {
    let agent = FakeApi::new(|line, _| match line {
        "DELETE /methods" => (200, json!({ "removed": methods() })),
        _ => (200, json!({ "removed": [methods()[0]] })),
    });
    let ran = run_inside(&agent.url, &["methods", "unregister"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "removed 2 methods: notes.search, notes.add\n"));
    let ran = run_inside(&agent.url, &["methods", "unregister", "a/b c"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "removed 1 method: notes.search\n"));
    assert_eq!(agent.seen()[1].line, "DELETE /methods/a%2Fb%20c");
    let ran = run_inside(&FakeApi::always(200, json!({ "removed": [] })).url, &["methods", "unregister"]);
    assert_eq!(ran.out, "nothing was registered\n");
}

#[test]
fn a_request_that_an_agent_cannot_serve_has_its_exit_code_and_says_what_to_do() {
    let nobody = format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    for words in [&["agent", "status"][..], &["methods", "unregister"], &["event", "a"]] {
        let ran = run_inside(&nobody, words);
        assert_eq!((ran.code, ran.out.as_str()), (3, ""), "{words:?}");
        assert!(ran.err.contains("svc agent start") && ran.err.contains(&nobody), "{words:?}: {}", ran.err);
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    }
    for (status, code, exit) in
        [(503, "not_connected", 3), (503, "spool_full", 1), (403, "forbidden", 4), (409, "refused", 1)]
    {
        let agent = FakeApi::always(status, error(code, "this is why"));
        let ran = run_inside(&agent.url, &["methods", "unregister"]);
        assert_eq!((ran.code, ran.err.as_str()), (exit, "svc: this is why\n"), "{code}");
    }
    let ran = run_inside(&FakeApi::always(502, "<html>".into()).url, &["agent", "status"]);
    assert!(ran.code == 1 && ran.err.contains("SVC_AGENT_URL"), "{}", ran.err);
    let ran = run_inside("ftp://x", &["agent", "status"]);
    assert!(ran.code == 2 && ran.err.contains("SVC_AGENT_URL"), "{}", ran.err);
}

#[test]
fn the_status_tells_of_servers_events_and_methods() {
    let server = |name: &str, error: Value, published: bool, refusal: Value| {
        json!({
            "url": format!("http://{name}"), "connected": error.is_null(), "since": "2026-01-31T12:00:00.000000Z",
            "error": error, "published": published, "refusal": refusal,
        })
    };
    let mut status = json!({
        "version": "0.1.0",
        "space": { "id": "01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a77", "name": "notes", "zone": "eu", "max_payload": 1 },
        "servers": [
            server("a", json!(null), true, json!(null)),
            server("b", json!("cannot connect"), false, json!(null)),
            server("c", json!(null), false, json!("no group named `ops`")),
        ],
        "spool": { "depth": 3, "limit": 10_000 },
        "registration": {
            "path": "/srv/methods.toml", "command": "./serve", "health": "restarting", "reason": "exit status 1",
            "methods": methods(),
        },
    });
    let ran = run_inside(&FakeApi::always(200, status.clone()).url, &["agent", "status"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let expected = "\
version        0.1.0
space          notes
id             01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a77
zone           eu
events         3 of 10000 waiting for a server
methods file   /srv/methods.toml
method server  ./serve (restarting: exit status 1)

SERVER    LINK       SINCE                 METHODS
http://a  connected  2026-01-31T12:00:00Z  published
http://b  down       2026-01-31T12:00:00Z  -          cannot connect
http://c  connected  2026-01-31T12:00:00Z  refused    no group named `ops`

METHOD        LOCAL NAME
notes.search  search
notes.add     add
";
    assert_eq!(ran.out, expected);
    status["space"] = Value::Null;
    status["registration"] = Value::Null;
    let ran = run_inside(&FakeApi::always(200, status.clone()).url, &["agent", "status"]);
    assert!(
        ran.out.contains("unknown until a server") && ran.out.ends_with("no methods are registered\n"),
        "{}",
        ran.out
    );
    let ran = run_inside(&FakeApi::always(200, status.clone()).url, &["agent", "status", "--json"]);
    assert_eq!(ran.out, format!("{status}\n"));
}
