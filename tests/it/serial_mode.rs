//! Serial mode: the wait for the slot counts towards the timeout, and the number of waiting calls is bounded.

use crate::support::{Daemon, Reply, Space, eventually, registration};
use serde_json::{Value, json};
use std::thread;

/// A daemon with a space whose method server is serial.
fn serial(timeout: u32) -> (Daemon, Space) {
    let daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    space.start(&daemon, &[]);
    let server = format!("mode = \"serial\"\ntimeout = {timeout}");
    space.register(&registration("serial.py", &server, &[("s.hold", ""), ("s.quick", ""), ("s.work", "")]));
    (daemon, space)
}

fn in_flight(daemon: &Daemon, method: &str) -> u64 {
    daemon.get(&format!("/api/methods/{method}")).json()["providers"][0]["in_flight"].as_u64().expect("a number")
}

fn wait_in_flight(daemon: &Daemon, method: &str, count: u64) {
    eventually("the calls to be out", || (in_flight(daemon, method) == count).then_some(()));
}

/// The file that `hold` waits for.
fn hold_file(space: &Space) -> (std::path::PathBuf, Value) {
    let gate = space.directory().join("gate");
    let params = json!([gate]);
    (gate, params)
}

#[test]
fn waiting_for_the_slot_counts_towards_the_timeout() {
    let (daemon, space) = serial(2);
    let (gate, params) = hold_file(&space);
    let process = daemon.call("s.quick", &json!({}))["result"]["pid"].clone();
    thread::scope(|scope| {
        let held = scope.spawn(|| daemon.call("s.hold", &params));
        wait_in_flight(&daemon, "s.hold", 1);
        // The call is not sent while the other one has the slot, that is, until the file exists.
        let waited = daemon.call("s.quick", &json!({}));
        assert_eq!(waited["error"], json!({"code": -32001, "message": "`s.quick` did not reply within 2 s"}));
        let held = held.join().expect("it does not panic");
        assert_eq!(held["error"], json!({"code": -32001, "message": "`s.hold` did not reply within 2 s"}));
    });
    std::fs::write(gate, "").expect("there is room");
    let after = daemon.call("s.quick", &json!({"n": 1}));
    assert_eq!(after["result"], json!({"pid": process, "hurried": false, "params": {"n": 1}}), "{after}");
    assert_eq!((in_flight(&daemon, "s.hold"), in_flight(&daemon, "s.quick")), (0, 0));
}

#[test]
fn at_most_a_thousand_calls_wait_for_a_serial_server() {
    let (daemon, space) = serial(600);
    let (gate, begun) = (space.directory().join("gate"), space.directory().join("begun"));
    let params = json!([gate, begun]);
    let call = |n: u32| json!({"jsonrpc": "2.0", "method": "s.quick", "params": {"n": n}, "id": n});
    let many: Value = (0..1000).map(call).collect();
    let (held, batch, single) = thread::scope(|scope| {
        let held = scope.spawn(|| daemon.call("s.hold", &params));
        eventually("the first to have the slot", || begun.exists().then_some(()));
        let batch = scope.spawn(|| daemon.post("/api/methods/call", &many));
        wait_in_flight(&daemon, "s.quick", 1000);
        let single = scope.spawn(|| daemon.call("s.work", &json!({})));
        // The order of the waiting calls is not defined.
        eventually("one to be turned away", || {
            (single.is_finished() || in_flight(&daemon, "s.quick") == 999).then_some(())
        });
        std::fs::write(&gate, "").expect("there is room");
        let batch: Reply = batch.join().expect("it does not panic");
        (held.join().expect("it does not panic"), batch.json(), single.join().expect("it does not panic"))
    });
    assert_eq!(held["result"]["params"], params);
    let mut turned_away = Vec::new();
    for (n, answer) in batch.as_array().expect("a batch").iter().chain([&single]).enumerate() {
        match &answer["error"] {
            Value::Null => assert_eq!(answer["result"]["hurried"], false, "{answer}"),
            error => turned_away.push(error.clone()),
        }
        assert!(n == 1000 || answer["id"] == n, "{answer}");
    }
    assert_eq!(turned_away.len(), 1, "{turned_away:?}");
    let message = turned_away[0]["message"].as_str().expect("a message");
    assert_eq!(turned_away[0]["code"], -32002);
    assert!(message.ends_with("has too many calls waiting: try again later"), "{message}");
    assert_eq!(daemon.call("s.quick", &json!({"n": 0}))["result"]["params"], json!({"n": 0}));
}

#[test]
fn a_serial_server_that_is_stuck_is_restarted() {
    let (daemon, space) = serial(1);
    let (_, params) = hold_file(&space);
    let before = daemon.call("s.quick", &json!({}))["result"]["pid"].clone();
    assert_eq!(daemon.call("s.hold", &params)["error"]["code"], -32001);
    let after = eventually("another process to answer", || {
        let pid = daemon.call("s.quick", &json!({}))["result"]["pid"].clone();
        pid.is_i64().then_some(pid)
    });
    assert_ne!(after, before);
    eventually("the stuck one to be gone", || crate::support::ended(before.as_u64().expect("an id")).then_some(()));
    assert!(space.log().contains("it has not answered a call for 2s"), "{}", space.log());
}
