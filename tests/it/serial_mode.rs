//! Serial mode: the wait for the slot does not count towards the timeout, and the number of waiting calls is bounded.

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
fn waiting_for_the_slot_does_not_count_and_a_job_over_the_timeout_fails_its_own_call_alone() {
    let (daemon, space) = serial(3);
    let (gate, params) = hold_file(&space);
    let process = daemon.call("s.quick", &json!({}))["result"]["pid"].clone();
    thread::scope(|scope| {
        let held = scope.spawn(|| daemon.call("s.hold", &params));
        wait_in_flight(&daemon, "s.hold", 1);
        // The call is not sent while the other one has the slot, that is, until the file exists.
        let waiting = scope.spawn(|| daemon.call("s.quick", &json!({"n": 1})));
        wait_in_flight(&daemon, "s.quick", 1);
        let held = held.join().expect("it does not panic");
        assert_eq!(held["error"], json!({"code": -32001, "message": "`s.hold` did not reply within 3 s"}));
        std::fs::write(gate, "").expect("there is room");
        let waited = waiting.join().expect("it does not panic");
        assert_eq!(waited["result"], json!({"pid": process, "hurried": false, "params": {"n": 1}}), "{waited}");
    });
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
fn a_serial_server_that_is_stuck_is_restarted_once_and_waiting_calls_go_to_the_next_process() {
    let (daemon, space) = serial(1);
    let (_, params) = hold_file(&space);
    let before = daemon.call("s.quick", &json!({}))["result"]["pid"].clone();
    let batch: Value =
        (0..5).map(|n| json!({"jsonrpc": "2.0", "method": "s.quick", "params": {"n": n}, "id": n})).collect();
    let waited = thread::scope(|scope| {
        let held = scope.spawn(|| daemon.call("s.hold", &params));
        wait_in_flight(&daemon, "s.hold", 1);
        let waiting = scope.spawn(|| daemon.post("/api/methods/call", &batch).json());
        assert_eq!(held.join().expect("it does not panic")["error"]["code"], -32001);
        waiting.join().expect("it does not panic")
    });
    let after = waited[0]["result"]["pid"].clone();
    assert_ne!(after, before);
    for (n, answer) in waited.as_array().expect("a batch").iter().enumerate() {
        assert_eq!(answer["result"], json!({"pid": after, "hurried": false, "params": {"n": n}}), "{answer}");
    }
    eventually("the stuck one to be gone", || crate::support::ended(before.as_u64().expect("an id")).then_some(()));
    assert_eq!(space.log().matches("it has not answered a call for 2s").count(), 1, "{}", space.log());
    assert_eq!(space.log().matches("runs as process").count(), 2, "{}", space.log());
}
