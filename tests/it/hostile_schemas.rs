//! JSON Schemas made to cost memory and time, of a member and of an agent: each is refused or ends soon, and others are
//! served meanwhile.

use crate::support::{Daemon, Space};
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// 500 patterns, of which each compiled to 10 MB.
fn large_patterns() -> Value {
    let properties: Map<_, _> =
        (0..500).map(|n| (format!("p{n}"), json!({"pattern": format!("\\pL{{200}}{n}")}))).collect();
    json!({"type": "object", "properties": properties})
}

fn tool(schema: &Value) -> Option<Vec<u8>> {
    let tool = json!({"name": "t", "kind": "tool", "content": "return 1", "params_schema": schema});
    Some(tool.to_string().into_bytes())
}

#[test]
fn a_schema_of_large_patterns_is_refused_and_takes_no_memory() {
    let daemon = Daemon::start();
    let ada = daemon.create_user("ada", &["manage_own_scripts"]);
    let before = daemon.memory();
    let reply = daemon.send("POST", "/api/scripts", Some(&ada), tool(&large_patterns()));
    assert_eq!(reply.status, 400, "{}", reply.text);
    assert!(reply.message().contains("/properties/p0/pattern"), "{}", reply.message());
    assert!(reply.message().contains("262144 bytes"), "{}", reply.message());

    let mut space = Space::create(&daemon, "notes");
    space.start(&daemon, &[]);
    let method = json!({"name": "m", "local_name": "m", "description": "d", "params_schema": large_patterns()});
    let registration = json!({"server": {"command": "./m"}, "methods": [method]});
    let output = space.try_register(&toml::to_string(&registration).expect("it is TOML"));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("`methods[0].params_schema`"), "{message}");
    let grown = daemon.memory().saturating_sub(before);
    assert!(grown < 64 << 10, "the daemon grew by {grown} KiB");
}

#[test]
fn calls_that_hang_up_leave_no_work_behind_and_others_are_served() {
    let daemon = Daemon::start();
    let ada = daemon.create_user("ada", &["manage_own_scripts"]);
    let schema = json!({"type": "object", "additionalProperties": {"pattern": "^(([a-z])+.)+[A-Z]([a-z])+$"}});
    let made = daemon.send("POST", "/api/scripts", Some(&ada), tool(&schema));
    assert_eq!(made.status, 201, "{}", made.text);
    let path = format!("/api/scripts/{}/run", made.json()["id"].as_str().expect("an id is text"));
    let arguments: Map<_, _> = (0..100).map(|n| (format!("p{n}"), json!("a".repeat(2_000)))).collect();
    let body = json!({"params": arguments}).to_string().into_bytes();
    let started = Instant::now();
    for _ in 0..5 {
        let reply = daemon.send("POST", &path, Some(&ada), Some(body.clone()));
        assert_eq!(reply.status, 400, "{}", reply.text);
        assert!(reply.message().contains("does not match"), "{}", reply.message());
    }
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}
