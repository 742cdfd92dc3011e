//! JSON Schemas made to cost memory and time, of a member and of an agent: each is refused or ends soon, and others are
//! served meanwhile.

use crate::support::{Daemon, Space, eventually};
use serde_json::{Map, Value, json};
use std::{io::Write as _, net::TcpStream};

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

/// A tool of this user that takes this schema; returns the path to run it.
#[track_caller]
fn create_tool(daemon: &Daemon, token: &str, schema: &Value) -> String {
    let made = daemon.send("POST", "/api/scripts", Some(token), tool(schema));
    assert_eq!(made.status, 201, "{}", made.text);
    format!("/api/scripts/{}/run", made.json()["id"].as_str().expect("an id is text"))
}

#[track_caller]
fn run(daemon: &Daemon, token: &str, path: &str, body: &str) {
    let reply = daemon.send("POST", path, Some(token), Some(body.as_bytes().to_vec()));
    assert_eq!(reply.status, 200, "{}", reply.text);
}

#[test]
fn calls_that_hang_up_leave_no_work_behind_and_others_are_served() {
    let daemon = Daemon::start();
    let [ada, bob] = ["ada", "bob"].map(|name| daemon.create_user(name, &["manage_own_scripts"]));
    // Each byte of a text makes another state of the automaton, and every text is looked at.
    let slow = json!({"properties": {"texts": {"items": {"not": {"pattern": "(a|b)*a(a|b){600}c"}}}}});
    let slow = create_tool(&daemon, &ada, &slow);
    let easy = create_tool(&daemon, &bob, &json!({"properties": {"a": {"pattern": "^a$"}}}));
    let letter = |n: u64| if n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 0 { 'a' } else { 'b' };
    let texts: Vec<String> = (0..9).map(|text| (0..4_000).map(|n| letter(text * 4_000 + n)).collect()).collect();
    let body = json!({"params": {"texts": texts}}).to_string();
    let easy_body = r#"{"params":{"a":"a"}}"#;
    // The first calls compile the schemas and start the workers.
    run(&daemon, &ada, &slow, &body);
    run(&daemon, &bob, &easy, easy_body);
    let before = daemon.processor_time();
    run(&daemon, &ada, &slow, &body);
    let alone = daemon.processor_time() - before;

    // Eight calls are as many as a user may have under way. Two are checked, and the others wait for that.
    let request = format!(
        "POST {slow} HTTP/1.1\r\nhost: svc\r\nauthorization: Bearer {ada}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let before = daemon.processor_time();
    let calls = [(); 8].map(|()| {
        let mut stream = TcpStream::connect(daemon.url.trim_start_matches("http://")).expect("the daemon listens");
        stream.write_all(request.as_bytes()).expect("the daemon reads");
        stream
    });
    run(&daemon, &bob, &easy, easy_body);
    let unanswered = calls.iter().filter(|stream| {
        stream.set_nonblocking(true).expect("it is a socket");
        stream.peek(&mut [0]).is_err()
    });
    assert!(unanswered.count() >= 4, "another user is served before those who wait");
    drop(calls);
    // It comes after all calls that have not ended, and is refused as long as they are under way.
    eventually("the next call to be served", || {
        let reply = daemon.send("POST", &slow, Some(&ada), Some(body.clone().into_bytes()));
        assert!([200, 429].contains(&reply.status), "{}", reply.text);
        (reply.status == 200).then_some(())
    });
    let all = daemon.processor_time() - before;
    println!("a call takes {alone:?} of the processor, and all with those that hung up {all:?}");
    assert!(all < 5 * alone, "nine calls that do not end take nine times {alone:?}, and these took {all:?}");
}
