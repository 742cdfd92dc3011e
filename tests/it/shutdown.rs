//! SIGTERM to the server and to an agent: calls under way finish, new ones are refused, and no call holds up the exit
//! for longer than the limit.

use crate::support::{Daemon, Reply, Space, eventually, registration};
use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

/// A space with the methods `w.wait`, which waits for a file, and `w.echo`.
fn waiting_space(daemon: &Daemon, fields: &str) -> Space {
    let mut space = Space::create(daemon, "waits");
    space.start(daemon, &[]);
    let wait = format!("mcp_tool = true\n{fields}");
    space.register(&registration("waits_for_file.py", "timeout = 600", &[("w.wait", wait.as_str()), ("w.echo", "")]));
    space
}

fn call(file: &str, id: usize) -> Value {
    json!({"jsonrpc": "2.0", "method": "w.wait", "params": {"file": file, "n": id}, "id": id})
}

fn wait_in_flight(daemon: &Daemon, count: u64) {
    eventually("the calls to be out", || {
        (daemon.get("/api/methods/w.wait").json()["providers"][0]["in_flight"] == count).then_some(())
    });
}

fn wait_until_it_stops_listening(daemon: &Daemon) {
    eventually("the server to stop listening", || TcpStream::connect(daemon.url.trim_start_matches("http://")).err());
}

#[test]
fn sigterm_lets_calls_over_http_in_batches_over_mcp_and_of_deliveries_finish() {
    const SINGLE: usize = 24;
    const BATCH: usize = 40;
    const TOOLS: usize = 8;
    let mut daemon = Daemon::with(&[("LIMITS_DRAIN", "60s")]);
    let space = waiting_space(&daemon, "events = [\"custom.method\"]");
    let gate = space.directory().join("gate");
    let file = gate.to_str().expect("the path is text").to_owned();
    let source = "print(svc.call('w.wait', event.data).file, svc.call('w.echo', {n = 7}).n)";
    daemon
        .create_sink(&json!({"name": "s", "events": "custom.script", "type": "script", "script": {"source": source}}));
    let events = ["script", "method"].map(|kind| daemon.emit(kind, &json!({"file": file}))["event_id"].clone());
    let (url, token) = (daemon.url.clone(), daemon.admin_token());
    let post = |path: &str, body: &Value| {
        use isahc::{ReadResponseExt, RequestExt, config::Configurable};
        let request = isahc::Request::post(format!("{url}{path}"))
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json")
            .timeout(Duration::from_secs(120));
        let mut response = request.body(body.to_string()).expect("it is well-formed").send().expect("it is answered");
        serde_json::from_str::<Value>(&response.text().expect("it is text")).expect("it is JSON")
    };
    thread::scope(|scope| {
        let (post, file) = (&post, file.as_str());
        let singles: Vec<_> =
            (0..SINGLE).map(|n| scope.spawn(move || post("/api/methods/call", &call(file, n)))).collect();
        let batch = scope.spawn(move || post("/api/methods/call", &(0..BATCH).map(|n| call(file, n)).collect()));
        let tools: Vec<_> = (0..TOOLS)
            .map(|n| {
                let params = json!({"name": "w_wait", "arguments": {"file": file, "n": n}});
                let message = json!({"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": params});
                scope.spawn(move || post("/mcp", &message))
            })
            .collect();
        wait_in_flight(&daemon, (SINGLE + BATCH + TOOLS + 2) as u64);
        daemon.terminate();
        wait_until_it_stops_listening(&daemon);
        std::fs::write(&gate, "").expect("there is room");
        let opened = Instant::now();
        for (n, single) in singles.into_iter().enumerate() {
            let answer = single.join().expect("it does not panic");
            assert_eq!(answer["result"], json!({"file": file, "n": n}), "{answer}");
        }
        let batch = batch.join().expect("it does not panic");
        assert_eq!(batch.as_array().map(Vec::len), Some(BATCH));
        for (n, answer) in batch.as_array().expect("a batch").iter().enumerate() {
            assert_eq!(answer["result"], json!({"file": file, "n": n}), "{answer}");
        }
        for (n, tool) in tools.into_iter().enumerate() {
            let answer = tool.join().expect("it does not panic");
            let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no result: {answer}"));
            assert_eq!(serde_json::from_str::<Value>(text).expect("JSON"), json!({"file": file, "n": n}));
        }
        assert_eq!(daemon.ended().code(), Some(0), "{}", daemon.log());
        assert!(opened.elapsed() < Duration::from_secs(20), "it waits for nothing else: {:?}", opened.elapsed());
    });
    daemon.restart();
    for event in events {
        let delivery = daemon.delivery(&event, "delivered");
        assert_eq!(delivery["attempts"].as_array().map(Vec::len), Some(1), "{delivery}");
    }
}

#[test]
fn a_call_that_hangs_fails_after_the_limit_and_holds_the_exit_no_longer() {
    let mut daemon = Daemon::with(&[("LIMITS_DRAIN", "1s")]);
    let space = waiting_space(&daemon, "");
    let file = space.directory().join("never").to_str().expect("the path is text").to_owned();
    let began = thread::scope(|scope| {
        let hanging = scope.spawn(|| daemon.post("/api/methods/call", &call(&file, 1)));
        wait_in_flight(&daemon, 1);
        let began = Instant::now();
        daemon.terminate();
        let reply: Reply = hanging.join().expect("it does not panic");
        let error =
            json!({"code": -32000, "message": "`w.wait` is not available: its space went away during the call"});
        assert_eq!((reply.status, &reply.json()["error"]), (200, &error));
        began
    });
    assert_eq!(daemon.ended().code(), Some(0), "{}", daemon.log());
    assert!(began.elapsed() < Duration::from_secs(15), "it took {:?}", began.elapsed());
    let log = daemon.log();
    assert!(log.contains("did not end within 1s") && log.contains("is ended: Unavailable"), "{log}");
}

#[test]
fn a_call_that_arrives_while_the_server_stops_is_told_to_try_again() {
    let mut daemon = Daemon::with(&[("LIMITS_DRAIN", "60s")]);
    let space = waiting_space(&daemon, "");
    let gate = space.directory().join("gate");
    let file = gate.to_str().expect("the path is text").to_owned();
    let echo = json!({"jsonrpc": "2.0", "method": "w.echo", "params": {}, "id": 7}).to_string();
    let tool = json!({"name": "w_wait", "arguments": {"file": file}});
    let tool = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": tool}).to_string();
    let begin = |path: &str, body: &str| {
        let mut stream = TcpStream::connect(daemon.url.trim_start_matches("http://")).expect("it listens");
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {}\r\naccept: */*\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            daemon.admin_token(),
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("it reads");
        stream
    };
    let late = [("/api/methods/call", &echo), ("/mcp", &tool)].map(|(path, body)| (begin(path, body), body.clone()));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| daemon.post("/api/methods/call", &call(&file, 1)).json());
        wait_in_flight(&daemon, 1);
        // The heads of the two late requests have been read by now: they were sent before this one.
        daemon.terminate();
        wait_until_it_stops_listening(&daemon);
        for (mut stream, body) in late {
            stream.write_all(body.as_bytes()).expect("it reads");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("it answers");
            let json: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).expect("a body")).expect("JSON");
            let error = json!({"code": -32003, "message": "the server is stopping: try again in a few seconds"});
            assert_eq!((&json["error"], &json["id"]), (&error, &json!(7)), "{answer}");
        }
        std::fs::write(&gate, "").expect("there is room");
        assert_eq!(waiting.join().expect("it does not panic")["result"]["n"], 1);
    });
    assert_eq!(daemon.ended().code(), Some(0), "{}", daemon.log());
}

#[test]
fn sigterm_to_an_agent_lets_its_calls_finish_and_they_can_still_use_its_api() {
    let daemon = Daemon::start();
    let mut space = waiting_space(&daemon, "");
    let gate = space.directory().join("gate");
    let file = gate.to_str().expect("the path is text").to_owned();
    let batch: Value = (0..10).map(|n| call(&file, n)).collect();
    let api = format!("{}/event", space.url);
    thread::scope(|scope| {
        let calls = scope.spawn(|| daemon.post("/api/methods/call", &batch).json());
        wait_in_flight(&daemon, 10);
        let ending = scope.spawn(|| space.terminate());
        eventually("the server to know that the agent stops", || {
            let provider = daemon.get("/api/methods/w.wait").json()["providers"][0].clone();
            (provider["reason"] == "its agent is stopping").then_some(())
        });
        let event = isahc::Request::post(&api).header("content-type", "application/json").body(r#"{"type": "last"}"#);
        let emitted = isahc::RequestExt::send(event.expect("it is well-formed")).expect("the agent answers");
        assert_eq!(emitted.status(), 202);
        std::fs::write(&gate, "").expect("there is room");
        for (n, answer) in calls.join().expect("it does not panic").as_array().expect("a batch").iter().enumerate() {
            assert_eq!(answer["result"], json!({"file": file, "n": n}), "{answer}");
        }
        assert_eq!(ending.join().expect("it does not panic").code(), Some(0));
    });
    assert_eq!(daemon.get("/api/events?pattern=custom.last").json()["items"].as_array().map(Vec::len), Some(1));
    eventually("the space to be stopped", || (space.view(&daemon)["state"] == "stopped").then_some(()));
}
