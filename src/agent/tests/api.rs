//! Tests of the agent's local API: its bodies, its access checks and its errors.

use super::support::{RunningAgent, ScriptedServer, settings};
use crate::agent::{AgentError, AgentSettings, StopSignals};
use serde_json::{Value, json};
use tokio::net::TcpListener;

fn code(answer: &(u16, Value)) -> (u16, &str) {
    (answer.0, answer.1["error"]["code"].as_str().unwrap_or_default())
}

fn message(answer: &(u16, Value)) -> &str {
    answer.1["error"]["message"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn an_event_needs_only_a_type() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let (status, body) = agent.post("/event", r#"{"type":"deploy.done"}"#).await;
    assert_eq!((status, &body["event_type"]), (202, &json!("custom.deploy.done")));
    let mut linked = server.welcome_idle().await;
    let (id, kind, payload) = linked.receive_event().await;
    assert_eq!((json!(id), kind.as_str(), payload), (body["event_id"].clone(), "deploy.done", json!({})));
    agent.stop(linked).await;
}

#[tokio::test]
async fn an_invalid_event_is_refused_with_its_field() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let large = json!({ "type": "a", "payload": { "text": "x".repeat(2000) } }).to_string();
    let deep = format!(r#"{{"type":"a","payload":{}1{}}}"#, r#"{"a":"#.repeat(65), "}".repeat(65));
    let huge = format!(r#"{{"type":"a","payload":{{"text":"{}"}}}}"#, "x".repeat(2 << 20));
    for (body, status, part) in [
        (r#"{"payload":{}}"#, 400, "type"),
        (r#"{"type":"a..b"}"#, 400, "position 3"),
        (r#"{"type":7}"#, 400, "`type`"),
        (r#"{"type":"a","payload":[1]}"#, 400, "`payload` must be a JSON object"),
        (r#"{"type":"a","payload":null}"#, 400, "`payload`: null is no payload"),
        (r#"{"type":"a","payload":{"x":"\ud800"}}"#, 400, "`payload`"),
        (r#"{"type":"a","space":"x"}"#, 400, "`space`"),
        (r#"{"type":"a","id":"x"}"#, 400, "`id`"),
        (r#"["a"]"#, 400, "object"),
        ("{", 400, "EOF"),
        ("", 400, "object"),
        (large.as_str(), 413, "1024"),
        (deep.as_str(), 400, "64 deep"),
        (huge.as_str(), 413, "limit"),
    ] {
        let answer = agent.post("/event", body).await;
        assert_eq!(answer.0, status, "{part}: {answer:?}");
        assert!(message(&answer).contains(part), "{part}: {answer:?}");
    }
    assert_eq!(agent.get("/status").await.1["spool"]["depth"], 0);
    agent.stop(()).await;
}

#[tokio::test]
async fn web_pages_cannot_use_the_api() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let event = r#"{"type":"a"}"#;
    let host = format!("Host: {}\r\n", agent.address);
    let json = "Content-Type: application/json\r\n";
    for (headers, expected) in [
        (format!("Host: evil.example\r\n{json}"), (403, "forbidden")),
        (json.to_owned(), (403, "forbidden")),
        (format!("{host}{json}Origin: https://evil.example\r\n"), (403, "forbidden")),
        (format!("{host}{json}Origin: null\r\n"), (403, "forbidden")),
        (format!("{host}Content-Type: text/plain\r\n"), (415, "unsupported_media_type")),
        (host.clone(), (415, "unsupported_media_type")),
        (format!("{host}{json}Origin: http://localhost:3000\r\n"), (202, "")),
        (format!("Host: localhost\r\n{json}"), (202, "")),
    ] {
        let answer = agent.post_with("/event", &headers, event).await;
        assert_eq!(code(&answer), expected, "{headers:?}: {answer:?}");
    }
    agent.stop(()).await;
}

#[tokio::test]
async fn an_unknown_path_or_method_is_an_error_that_names_the_known_ones() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    assert_eq!(code(&agent.get("/").await), (404, "not_found"));
    assert_eq!(code(&agent.get("/api/events").await), (404, "not_found"));
    assert_eq!(code(&agent.get("/event").await), (405, "method_not_allowed"));
    assert_eq!(code(&agent.post("/status", "{}").await), (405, "method_not_allowed"));
    assert_eq!(code(&agent.delete("/methods/%zz").await), (400, "bad_request"));
    agent.stop(()).await;
}

#[tokio::test]
async fn a_value_can_have_any_key() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    for key in ["plain", "", ".", "..", "%2e%2e", "a%2Fb", "a+b", "a%20b", "%C3%A4", "%26key%3Dx", "100%25"] {
        let path = format!("/kv?key={key}");
        assert_eq!(agent.delete(&path).await, (200, json!({ "deleted": key == "%2e%2e" || key == "a%20b" })), "{key}");
        assert_eq!(agent.get(&path).await, (204, Value::Null), "{key}");
        assert_eq!(agent.put(&path, &json!({ "value": [key] })).await, (200, json!({ "stored": true })));
        assert_eq!(agent.get(&path).await, (200, json!({ "value": [key] })));
    }
    let once = json!({ "value": null, "add": true, "ttl": 600 });
    assert_eq!(agent.put("/kv?key=once", &once).await.1, json!({ "stored": true }));
    assert_eq!(agent.put("/kv?key=once", &once).await.1, json!({ "stored": false }));
    assert_eq!(agent.get("/kv?key=once").await, (200, json!({ "value": null })));
    assert_eq!(agent.post("/kv/increment?key=n", "{}").await, (200, json!({ "value": 1 })));
    assert_eq!(agent.post("/kv/increment?key=n", r#"{"by":-3}"#).await, (200, json!({ "value": -2 })));
    assert_eq!(agent.put("/kv?key=n", &json!({ "value": 1, "ttl": 0 })).await.0, 200);
    assert_eq!(agent.get("/kv?key=n").await.0, 204);
    agent.stop(()).await;
}

#[tokio::test]
async fn a_value_that_cannot_be_stored_is_refused_with_its_reason() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let long = format!("/kv?key={}", "k".repeat(257));
    for path in ["/kv", "/kv?key", "/kv?other=x", "/kv?key=a&key=b", "/kv?key=%zz", "/kv?key=%ff", &long] {
        assert_eq!(code(&agent.get(path).await), (400, "bad_request"), "{path}");
    }
    assert_eq!(message(&agent.get(&long).await), "a key has at most 256 bytes; this one has 257");
    for body in [json!({}), json!({ "value": 1, "ttl": -1 }), json!({ "value": 1, "ttl": "1s" }), json!({ "vlaue": 1 })]
    {
        assert_eq!(code(&agent.put("/kv?key=a", &body).await), (400, "bad_request"), "{body}");
    }
    let large = json!({ "value": "v".repeat(64 << 10) });
    assert_eq!(code(&agent.put("/kv?key=a", &large).await), (413, "too_large"));
    let endless = json!({ "value": "text", "ttl": 1e300 });
    assert_eq!(agent.put("/kv?key=a", &endless).await.0, 200);
    assert_eq!(code(&agent.post("/kv/increment?key=a", "{}").await), (409, "not_an_integer"));
    assert_eq!(agent.get("/kv?key=a").await.1, json!({ "value": "text" }));
    let page = format!("Host: {}\r\n", agent.address);
    assert_eq!(agent.post_with("/kv/increment?key=a", &page, "{}").await.0, 415, "a page could send that");
    assert_eq!(code(&agent.post("/kv?key=a", "{}").await), (405, "method_not_allowed"));
    assert_eq!(code(&agent.get("/kv/increment?key=a").await), (405, "method_not_allowed"));
    agent.stop(()).await;
}

#[tokio::test]
async fn a_full_spool_is_an_error_that_names_the_setting() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let agent = RunningAgent::start(AgentSettings { spool: 2, ..settings(&scratch, &[&server]) }).await;
    agent.emit("a", json!({})).await;
    agent.emit("a", json!({})).await;
    let answer = agent.post("/event", r#"{"type":"a"}"#).await;
    assert_eq!(code(&answer), (503, "spool_full"));
    assert!(message(&answer).contains("agent.spool"), "{answer:?}");
    agent.stop(()).await;
}

#[tokio::test]
async fn the_api_listens_on_loopback_only() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let ran = crate::agent::run(settings(&scratch, &[&server]), listener, StopSignals::default()).await;
    assert!(matches!(ran, Err(AgentError::NotLoopback(_))));
}
