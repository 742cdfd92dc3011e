//! Sinks that hold an event until it is delivered, and failures that attempts alone do not mend.

use crate::support::{Answer, Daemon, Received, Receiver, eventually, success};
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicU16, Ordering},
};

/// A receiver whose status a test sets.
fn switchable(status: u16) -> (Receiver, Arc<AtomicU16>) {
    let switch = Arc::new(AtomicU16::new(status));
    let answered = switch.clone();
    (Receiver::answering(move |_| Answer::Status(answered.load(Ordering::Relaxed))), switch)
}

fn holding(url: &str) -> Value {
    json!({"name": "ledger", "events": "custom.*", "type": "webhook", "owner": "global", "on_failure": "hold", "webhook": {"url": url}})
}

fn numbers(received: &[Received]) -> Vec<u64> {
    received.iter().map(|request| request.json()["data"]["n"].as_u64().unwrap()).collect()
}

fn sink(daemon: &Daemon, id: &str) -> Value {
    daemon.get(&format!("/api/event-sinks/{id}")).json()
}

fn wait_for_failure(daemon: &Daemon, id: &str, state: &str) -> Value {
    eventually("the failure to be shown", || {
        let failure = sink(daemon, id)["failure"].clone();
        (failure["state"] == state).then_some(failure)
    })
}

#[test]
fn a_holding_sink_tries_until_it_succeeds_and_then_delivers_what_waits_in_order() {
    let (receiver, status) = switchable(500);
    let daemon =
        Daemon::with(&[("DELIVERY_BACKOFF", "1ms,1ms"), ("DELIVERY_HOLD_MAX", "20ms"), ("DELIVERY_QUEUE", "3")]);
    let id = daemon.create_sink(&holding(&receiver.url("/")));
    let emitted: Vec<_> = (0..4).map(|n| daemon.emit("x", &json!({"n": n}))).collect();
    assert_eq!(emitted[2]["dropped"], json!([]));
    assert_eq!(emitted[3]["dropped"][0]["name"], "ledger", "the queue has its limit as ever");
    let tried = receiver.wait_for(40);
    assert!(numbers(&tried).iter().all(|n| *n == 0));
    let counted: Vec<usize> =
        tried.iter().map(|request| request.header("x-service-attempt").parse().unwrap()).collect();
    assert_eq!(counted, (1..=tried.len()).collect::<Vec<_>>());
    let failure = wait_for_failure(&daemon, &id, "held");
    assert_eq!((&failure["reason"], &failure["needs_change"]), (&json!("HTTP 500"), &json!(false)));
    assert!(failure["attempts"].as_u64().unwrap() >= 3, "{failure}");
    assert!(success(&daemon.svc(&["sink", "list"])).contains("held"));
    let shown = success(&daemon.svc(&["sink", "show", "ledger"]));
    assert!(shown.contains("held since") && shown.contains("HTTP 500"), "{shown}");

    status.store(200, Ordering::Relaxed);
    daemon.delivery(&emitted[2]["event_id"], "delivered");
    let mut delivered = numbers(&receiver.received());
    delivered.dedup();
    assert_eq!(delivered, [0, 1, 2]);
    let attempts = daemon.delivery(&emitted[0]["event_id"], "delivered")["attempts"].as_array().unwrap().clone();
    assert_eq!(attempts.len(), 20, "the first and the last are kept");
    let last = attempts.last().unwrap()["number"].as_u64().unwrap();
    assert!(last > 40, "{last}");
    assert_eq!((&attempts[2]["number"], &attempts[3]["number"]), (&json!(3), &json!(last - 16)));
    let healthy = sink(&daemon, &id);
    assert_eq!((&healthy["failure"], &healthy["queue"]["dead"]), (&Value::Null, &json!(0)));
}

#[test]
fn a_restart_keeps_the_hold_and_its_wait_and_a_redelivery_tries_at_once() {
    let mut daemon = Daemon::with(&[("DELIVERY_BACKOFF", "1ms"), ("DELIVERY_HOLD_MAX", "1h")]);
    let status = Arc::new(AtomicU16::new(500));
    // The waits are 1, 2, 4 and 8 ms, and then the ten minutes that the receiver asks for.
    let asking = Receiver::answering({
        let status = status.clone();
        move |request| match (status.load(Ordering::Relaxed), request.header("x-service-attempt")) {
            (200, _) => Answer::Status(200),
            (_, "1" | "2" | "3" | "4") => Answer::Status(500),
            _ => Answer::Raw("HTTP/1.1 503 X\r\nretry-after: 600\r\ncontent-length: 0\r\n\r\n".into()),
        }
    });
    let id = daemon.create_sink(&holding(&asking.url("/")));
    let emitted = daemon.emit("x", &json!({"n": 1}));
    asking.wait_for(5);
    eventually("the fifth attempt to be settled", || (sink(&daemon, &id)["failure"]["attempts"] == 5).then_some(()));
    eventually("it to be on disk", || {
        (daemon.event(&emitted["event_id"])["deliveries"][0]["attempts"].as_array()?.len() == 5).then_some(())
    });
    let before = sink(&daemon, &id)["failure"].clone();
    daemon.crash_and_restart();
    let after = sink(&daemon, &id)["failure"].clone();
    for field in ["state", "reason", "since", "attempts"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    let due =
        |failure: &Value| chrono::DateTime::parse_from_rfc3339(failure["next_attempt_at"].as_str().unwrap()).unwrap();
    assert!((due(&after) - due(&before)).num_seconds().abs() <= 2, "{before} {after}");
    assert_eq!(asking.received().len(), 5);
    status.store(200, Ordering::Relaxed);
    let said = success(&daemon.svc(&["sink", "redeliver", "ledger"]));
    assert_eq!(said.trim(), "queued 0 again; the event that waited for its next attempt is attempted now");
    let delivery = daemon.delivery(&emitted["event_id"], "delivered");
    assert_eq!(delivery["attempts"][5]["number"], 6);
    assert_eq!(sink(&daemon, &id)["failure"], Value::Null);
}

#[test]
fn an_address_that_the_policy_refuses_makes_a_dead_letter_at_once_or_holds_the_event() {
    let receiver = Receiver::start();
    let mut daemon = Daemon::with(&[("DELIVERY_BACKOFF", "10m,10m"), ("EGRESS_ALLOW_PRIVATE", "true")]);
    let own = |name: &str, on_failure: &str| {
        let webhook = json!({"url": receiver.url("/")});
        json!({"name": name, "events": "custom.*", "type": "webhook", "on_failure": on_failure, "webhook": webhook})
    };
    let (gives_up, holds) = (daemon.create_sink(&own("a", "dead-letter")), daemon.create_sink(&own("b", "hold")));
    daemon.kill();
    daemon.set("EGRESS_ALLOW_PRIVATE", "false");
    daemon.restart();
    daemon.emit("x", &json!({"n": 1}));
    let failing = wait_for_failure(&daemon, &gives_up, "failing");
    let held = wait_for_failure(&daemon, &holds, "held");
    for failure in [&failing, &held] {
        assert_eq!(failure["needs_change"], true);
        assert!(failure["reason"].as_str().unwrap().contains("not allowed"), "{failure}");
    }
    let letters = eventually("the dead letter", || {
        let letters = daemon.items(&format!("/api/event-sinks/{gives_up}/dead-letters"));
        (!letters.is_empty()).then_some(letters)
    });
    assert_eq!((letters.len(), &letters[0]["attempts"]), (1, &json!(1)));
    assert_eq!((&held["attempts"], &sink(&daemon, &holds)["queue"]["depth"]), (&json!(1), &json!(1)));
    assert_eq!(receiver.received().len(), 0);
}

#[test]
fn a_receiver_that_is_gone_pauses_its_sink_which_keeps_its_events() {
    let (receiver, status) = switchable(410);
    let mut daemon = Daemon::with(&[("DELIVERY_BACKOFF", "1ms,1ms")]);
    let spec = |name: &str, gone: &str| {
        let webhook = json!({"url": receiver.url(&format!("/{name}")), "gone": gone});
        json!({"name": name, "events": "custom.*", "type": "webhook", "owner": "global", "webhook": webhook})
    };
    let (pausing, plain) = (daemon.create_sink(&spec("pausing", "pause")), daemon.create_sink(&spec("plain", "retry")));
    let emitted = daemon.emit("x", &json!({"n": 1}));
    let paused = wait_for_failure(&daemon, &pausing, "paused");
    assert!(paused["reason"].as_str().unwrap().starts_with("HTTP 410"), "{paused}");
    assert_eq!(paused["next_attempt_at"], Value::Null);
    wait_for_failure(&daemon, &plain, "failing");
    let of = |path: &str| receiver.received().iter().filter(|request| request.path == path).count();
    assert_eq!((of("/pausing"), of("/plain")), (1, 3));
    let audit = daemon.items("/api/audit?action=sink.pause");
    assert_eq!((audit.len(), &audit[0]["detail"]["name"]), (1, &json!("pausing")));

    daemon.crash_and_restart();
    let shown = sink(&daemon, &pausing);
    assert_eq!((&shown["active"], &shown["failure"]["state"]), (&json!(false), &json!("paused")));
    assert_eq!((&shown["queue"]["depth"], &shown["queue"]["dead"]), (&json!(1), &json!(0)));
    status.store(200, Ordering::Relaxed);
    assert_eq!(daemon.patch(&format!("/api/event-sinks/{pausing}"), &json!({"active": true})).status, 200);
    eventually("the event that was kept", || (of("/pausing") == 2).then_some(()));
    eventually("the failure to end", || sink(&daemon, &pausing)["failure"].is_null().then_some(()));
    eventually("the delivery on disk", || {
        let deliveries = daemon.event(&emitted["event_id"])["deliveries"].as_array()?.clone();
        deliveries
            .iter()
            .any(|delivery| delivery["name"] == "pausing" && delivery["state"] == "delivered")
            .then_some(())
    });
}

#[test]
fn a_stored_script_that_is_mended_or_activated_ends_the_holds_of_its_sinks_at_once() {
    let daemon = Daemon::with(&[("DELIVERY_BACKOFF", ""), ("DELIVERY_HOLD_MAX", "1h")]);
    let script = json!({"name": "s", "owner": "global", "content": "return svc.retry(600, 'not yet')"});
    let script = daemon.post("/api/scripts", &script).json()["id"].as_str().unwrap().to_owned();
    let path = format!("/api/scripts/{script}");
    let spec = |name: &str| {
        json!({"name": name, "events": "custom.*", "type": "script", "owner": "global", "on_failure": "hold",
            "script": {"script_id": script}})
    };
    let ids = ["a", "b"].map(|name| daemon.create_sink(&spec(name)));
    let delivered = |emitted: &Value| {
        eventually("both deliveries", || {
            let deliveries = daemon.event(&emitted["event_id"])["deliveries"].as_array()?.clone();
            (deliveries.len() == 2 && deliveries.iter().all(|delivery| delivery["state"] == "delivered")).then_some(())
        });
    };
    let emitted = daemon.emit("x", &json!({}));
    for id in &ids {
        assert_eq!(wait_for_failure(&daemon, id, "held")["reason"], "not yet");
    }
    assert_eq!(daemon.patch(&path, &json!({"content": "return"})).status, 200);
    delivered(&emitted);

    assert_eq!(daemon.patch(&path, &json!({"active": false})).status, 200);
    let emitted = daemon.emit("x", &json!({}));
    for id in &ids {
        assert_eq!(wait_for_failure(&daemon, id, "held")["needs_change"], true);
    }
    assert_eq!(daemon.patch(&path, &json!({"active": true})).status, 200);
    delivered(&emitted);
}
