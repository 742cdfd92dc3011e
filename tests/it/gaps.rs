//! Gaps in the sequence numbers of a sink: told with reasons by the next delivery, and looked up by number.

use crate::support::{Answer, Daemon, Receiver, eventually, success};
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// A receiver that fails while the flag is set.
fn failing(broken: &Arc<AtomicBool>) -> Receiver {
    let broken = broken.clone();
    Receiver::answering(move |_| Answer::Status(if broken.load(Ordering::Relaxed) { 500 } else { 200 }))
}

fn missed(receiver: &Receiver) -> Vec<(String, String)> {
    let header = |name: &str, request: &crate::support::Received| request.header(name).to_owned();
    let received = receiver.received();
    received
        .iter()
        .map(|request| (header("x-service-sequence", request), header("x-service-missed", request)))
        .collect()
}

#[test]
fn the_first_delivery_after_a_gap_tells_what_is_missing_and_why_also_after_a_kill() {
    let broken = Arc::new(AtomicBool::new(true));
    let receiver = failing(&broken);
    let mut daemon = Daemon::with(&[("DELIVERY_QUEUE", "3"), ("DELIVERY_BACKOFF", "1ms")]);
    let id = daemon.create_sink(&json!({
        "name": "s", "events": "custom.x", "type": "webhook", "owner": "global", "active": false,
        "webhook": {"url": receiver.url("/"), "template": "return {missed = event.missed, n = event.sequence}"},
    }));
    for n in 1..=5 {
        daemon.emit("x", &json!({"n": n}));
    }
    let path = format!("/api/event-sinks/{id}");
    assert_eq!(daemon.patch(&path, &json!({"active": true})).status, 200);
    eventually("three dead letters", || (daemon.get(&path).json()["queue"]["dead"] == 3).then_some(()));
    // Everything before an event that was accepted is on disk.
    daemon.emit("other", &json!({}));
    daemon.kill();
    broken.store(false, Ordering::Relaxed);
    daemon.restart();
    let before = receiver.received().len();
    for n in 6..=7 {
        daemon.emit("x", &json!({"n": n}));
    }
    receiver.wait_for(before + 2);
    let told = &missed(&receiver)[before..];
    assert_eq!(told, [("6".to_owned(), "1-3;dead-letter, 4-5;queue-full".to_owned()), ("7".to_owned(), String::new())]);
    let bodies: Vec<Value> = receiver.received()[before..].iter().map(|request| request.json()).collect();
    let ranges = json!([{"from": 1, "to": 3, "reason": "dead-letter"}, {"from": 4, "to": 5, "reason": "queue-full"}]);
    assert_eq!(bodies[0], json!({"missed": ranges, "n": 6}));
    assert_eq!(bodies[1], json!({"n": 7}), "without a gap there is no `missed`");
}

#[test]
fn a_script_sees_the_gap_again_until_it_takes_the_event() {
    let daemon = Daemon::with(&[("DELIVERY_QUEUE", "1"), ("DELIVERY_BACKOFF", "1ms,1ms")]);
    let source = "local missed = require('svc.event').missed() \
                  local gap = missed and missed[1] \
                  print(gap and ('%d-%d %s'):format(gap.from, gap.to, gap.reason) or 'none') \
                  if event.attempt == 1 then error('again') end";
    let id = daemon.create_sink(&json!({
        "name": "s", "events": "*", "type": "script", "owner": "global", "active": false, "script": {"source": source},
    }));
    for _ in 0..3 {
        daemon.emit("x", &json!({}));
    }
    let path = format!("/api/event-sinks/{id}");
    assert_eq!(daemon.patch(&path, &json!({"active": true})).status, 200);
    eventually("the first to be delivered", || (daemon.get(&path).json()["queue"]["depth"] == 0).then_some(()));
    let fourth = daemon.emit("x", &json!({}));
    let delivery = daemon.delivery(&fourth["event_id"], "delivered");
    let logs: Vec<_> = delivery["attempts"].as_array().unwrap().iter().map(|attempt| &attempt["log"]).collect();
    assert_eq!(logs, [&json!(["2-3 queue-full"]), &json!(["2-3 queue-full"])]);
    let fifth = daemon.emit("x", &json!({}));
    let delivery = daemon.delivery(&fifth["event_id"], "delivered");
    assert_eq!(delivery["attempts"][0]["log"], json!(["none"]));
}

#[test]
fn the_fate_of_each_number_can_be_asked_for_and_bad_ranges_are_refused() {
    let receiver = Receiver::start();
    let daemon = Daemon::with(&[("DELIVERY_QUEUE", "2")]);
    let id = daemon.create_sink(&json!({
        "name": "s", "events": "*", "type": "webhook", "owner": "global", "active": false,
        "webhook": {"url": receiver.url("/")},
    }));
    let ids: Vec<Value> = (0..3).map(|_| daemon.emit("x", &json!({}))["event_id"].clone()).collect();
    let path = format!("/api/event-sinks/{id}/sequence");
    let shown = daemon.get(&format!("{path}?from=1&to=1000")).json();
    assert_eq!(
        shown,
        json!({"items": [
            {"sequence": 1, "state": "queued", "event_id": ids[0]},
            {"sequence": 2, "state": "queued", "event_id": ids[1]},
            {"sequence": 3, "state": "dropped", "reason": "queue-full", "event_id": ids[2]},
        ], "last_sequence": 3})
    );
    assert_eq!(daemon.patch(&format!("/api/event-sinks/{id}"), &json!({"active": true})).status, 200);
    receiver.wait_for(2);
    eventually("both to be settled", || {
        let items = daemon.get(&format!("{path}?from=1&to=2")).json()["items"].clone();
        items.as_array().unwrap().iter().all(|item| item["state"] == "delivered").then_some(())
    });
    let table = success(&daemon.svc(&["sink", "sequence", "s", "--from", "2", "--to", "3"]));
    assert!(table.contains("delivered") && table.contains("dropped") && table.contains("queue-full"), "{table}");
    for (query, field) in [
        ("?from=0", "from"),
        ("?from=x", "from"),
        ("?from=2&to=1", "to"),
        ("?from=1&to=1001", "to"),
        ("?from=1&to=18446744073709551616", "to"),
        ("?from=1&limit=3", "limit"),
    ] {
        let reply = daemon.get(&format!("{path}{query}"));
        let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(reply.status == 400 && message.contains(field), "{query}: {} {message}", reply.status);
    }
    assert_eq!(daemon.get(&format!("{path}?from=18446744073709551615")).json()["items"], json!([]));
}
