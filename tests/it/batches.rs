//! Webhooks that get several events in one request.

use crate::support::{Answer, Daemon, Received, Receiver, eventually, success};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU16, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

fn batched(url: &str, batch: Value) -> Value {
    json!({"name": "s", "events": "custom.*", "type": "webhook", "owner": "global", "webhook": {"url": url, "batch": batch}})
}

/// The `n` of each event of each batch.
fn numbers(received: &[Received]) -> Vec<Vec<u64>> {
    let of_batch = |request: &Received| {
        let events = request.json().as_array().unwrap().clone();
        assert_eq!(request.header("x-service-batch"), events.len().to_string());
        events.iter().map(|event| event["data"]["n"].as_u64().unwrap()).collect()
    };
    received.iter().map(of_batch).collect()
}

/// Emits events while the sink is inactive, so that all of them wait when it starts.
fn emit_waiting(daemon: &Daemon, sink: &str, numbers: std::ops::Range<u64>) -> Vec<Value> {
    let path = format!("/api/event-sinks/{sink}");
    assert_eq!(daemon.patch(&path, &json!({"active": false})).status, 200);
    let emitted = numbers.map(|n| daemon.emit("x", &json!({"n": n}))).collect();
    assert_eq!(daemon.patch(&path, &json!({"active": true})).status, 200);
    emitted
}

#[test]
fn a_batch_is_one_request_with_the_events_in_order_signed_as_a_whole() {
    let receiver = Receiver::start();
    let daemon = Daemon::start();
    let sink = daemon.create_sink(&batched(&receiver.url("/"), json!({"max": 10})));
    let emitted = emit_waiting(&daemon, &sink, 0..25);
    daemon.delivery(&emitted[24]["event_id"], "delivered");
    let received = receiver.received();
    let expected: Vec<Vec<u64>> = vec![(0..10).collect(), (10..20).collect(), (20..25).collect()];
    assert_eq!(numbers(&received), expected);
    for (n, event) in received.iter().flat_map(|request| request.json().as_array().unwrap().clone()).enumerate() {
        let fields: Vec<_> = event.as_object().unwrap().keys().cloned().collect();
        assert_eq!(fields, ["data", "event_id", "event_ts", "event_type", "sequence"]);
        assert_eq!((&event["sequence"], &event["event_id"]), (&json!(n + 1), &emitted[n]["event_id"]));
    }
    assert_eq!(received[0].headers.get("x-service-event-id"), None);
    assert_eq!(received[0].header("x-service-attempt"), "1");
    let secret =
        daemon.get(&format!("/api/event-sinks/{sink}")).json()["webhook"]["secret"].as_str().unwrap().to_owned();
    assert!(received.iter().all(|request| crate::secrets::is_signed_with(request, &secret)));
    let attempt = daemon.delivery(&emitted[3]["event_id"], "delivered")["attempts"][0].clone();
    assert_eq!((&attempt["number"], &attempt["status"]), (&json!(1), &json!(200)));
}

#[test]
fn a_batch_is_retried_with_the_same_events_under_the_same_id_and_dies_as_a_whole() {
    let receiver =
        Receiver::answering(|request| Answer::Status(if request.json()[0]["data"]["n"] == 0 { 500 } else { 200 }));
    let daemon = Daemon::with(&[("DELIVERY_BACKOFF", "200ms,1ms")]);
    let sink = daemon.create_sink(&batched(&receiver.url("/"), json!({"max": 5})));
    let emitted = emit_waiting(&daemon, &sink, 0..3);
    receiver.wait_for(1);
    // They come during the wait, and are not added to the batch that is retried.
    let later: Vec<_> = (3..5).map(|n| daemon.emit("x", &json!({"n": n}))).collect();
    daemon.delivery(&later[1]["event_id"], "delivered");
    let received = receiver.received();
    let failed = vec![0, 1, 2];
    assert_eq!(numbers(&received), [failed.clone(), failed.clone(), failed, vec![3, 4]]);
    let ids: Vec<_> = received.iter().map(|request| request.header("webhook-id")).collect();
    assert!(ids[0] == ids[1] && ids[1] == ids[2] && ids[2] != ids[3], "{ids:?}");
    let attempts: Vec<_> = received.iter().map(|request| request.header("x-service-attempt")).collect();
    assert_eq!(attempts, ["1", "2", "3", "1"]);
    let letters = daemon.items(&format!("/api/event-sinks/{sink}/dead-letters"));
    let dead: Vec<_> = letters.iter().map(|letter| (letter["event_id"].clone(), letter["attempts"].clone())).collect();
    assert_eq!(dead, emitted.iter().map(|event| (event["event_id"].clone(), json!(3))).collect::<Vec<_>>());
}

#[test]
fn the_events_of_a_batch_tell_of_gaps_and_of_the_replay_that_sends_them() {
    let receiver = Receiver::start();
    let daemon = Daemon::with(&[("DELIVERY_QUEUE", "4")]);
    let sink = daemon.create_sink(&batched(&receiver.url("/"), json!({"max": 10})));
    let lost = emit_waiting(&daemon, &sink, 0..6);
    daemon.delivery(&lost[3]["event_id"], "delivered");
    let after = emit_waiting(&daemon, &sink, 6..8);
    daemon.delivery(&after[1]["event_id"], "delivered");
    let received = receiver.received();
    assert_eq!(numbers(&received), [vec![0, 1, 2, 3], vec![6, 7]]);
    let missed: Vec<_> = received.iter().map(|request| request.header("x-service-missed")).collect();
    assert_eq!(missed, ["", "5-6;queue-full"]);
    let items = received[1].json();
    assert_eq!(items[0]["missed"], json!([{"from": 5, "to": 6, "reason": "queue-full"}]));
    assert_eq!((items[1].get("missed"), items[1].get("replay")), (None, None), "{items}");

    let job = daemon.post(&format!("/api/event-sinks/{sink}/replay"), &json!({})).json();
    daemon.delivery(&lost[5]["event_id"], "delivered");
    let replayed = receiver.received().split_off(2);
    assert_eq!(numbers(&replayed).concat(), [4, 5]);
    for request in &replayed {
        assert_eq!(request.header("x-service-replay"), job["id"]);
        assert!(request.json().as_array().unwrap().iter().all(|event| event["replay"] == job["id"]));
    }
}

#[test]
fn a_batch_is_held_as_a_whole_over_a_restart() {
    let status = Arc::new(AtomicU16::new(500));
    let answered = status.clone();
    let receiver = Receiver::answering(move |_| Answer::Status(answered.load(Ordering::Relaxed)));
    let mut daemon = Daemon::with(&[("DELIVERY_BACKOFF", "1ms,1ms"), ("DELIVERY_HOLD_MAX", "50ms")]);
    let mut spec = batched(&receiver.url("/"), json!({"max": 5}));
    spec["on_failure"] = "hold".into();
    let sink = daemon.create_sink(&spec);
    let emitted = emit_waiting(&daemon, &sink, 0..4);
    eventually("the hold on disk", || {
        (daemon.event(&emitted[3]["event_id"])["deliveries"][0]["attempts"].as_array()?.len() > 3).then_some(())
    });
    daemon.crash_and_restart();
    daemon.emit("x", &json!({"n": 4}));
    let before = receiver.received().len();
    receiver.wait_for(before + 2);
    status.store(200, Ordering::Relaxed);
    eventually("the delivery", || (daemon.metric("svc_queue_depth{") == 0.0).then_some(()));
    let mut batches = numbers(&receiver.received());
    batches.dedup();
    assert_eq!(batches, [vec![0, 1, 2, 3], vec![4]]);
    let ids: HashSet<_> = receiver.received().iter().map(|request| request.header("webhook-id").to_owned()).collect();
    assert_eq!(ids.len(), 2, "a restart keeps the batch and its id");
}

#[test]
fn the_first_event_waits_for_others_but_no_longer_than_it_may() {
    let receiver = Receiver::start();
    let daemon = Daemon::start();
    daemon.create_sink(&batched(&receiver.url("/"), json!({"max": 3, "wait": "1m"})));
    for n in 0..3 {
        daemon.emit("x", &json!({"n": n}));
    }
    assert_eq!(numbers(&receiver.wait_for(1)), [vec![0, 1, 2]], "a whole batch does not wait");
    drop(daemon);

    let receiver = Receiver::start();
    let daemon = Daemon::start();
    daemon.create_sink(&batched(&receiver.url("/"), json!({"max": 100, "wait": "3s"})));
    let began = Instant::now();
    daemon.emit("x", &json!({"n": 0}));
    daemon.emit("x", &json!({"n": 1}));
    assert_eq!(numbers(&receiver.wait_for(1)), [vec![0, 1]]);
    assert!(began.elapsed() >= Duration::from_millis(2990), "{:?}", began.elapsed());
}

#[test]
fn a_change_of_the_sink_takes_effect_on_the_wait_of_a_batch() {
    let receiver = Receiver::start();
    let daemon = Daemon::start();
    let sink = daemon.create_sink(&batched(&receiver.url("/"), json!({"max": 3, "wait": "1m"})));
    let emitted = daemon.emit("x", &json!({"n": 0}));
    let webhook = json!({"url": receiver.url("/"), "batch": {"max": 3}});
    assert_eq!(daemon.patch(&format!("/api/event-sinks/{sink}"), &json!({"webhook": webhook})).status, 200);
    daemon.delivery(&emitted["event_id"], "delivered");
    assert_eq!(numbers(&receiver.received()), [vec![0]]);
}

#[test]
fn a_template_sees_the_events_of_a_batch_and_tests_and_previews_have_one() {
    let receiver = Receiver::start();
    let daemon = Daemon::start();
    let mut spec = batched(&receiver.url("/"), json!({"max": 10}));
    let template = "local lines = {} for _, e in events do table.insert(lines, e.sequence .. ':' .. e.data.n .. ':' .. e.actor.username) end \
                    return { lines = lines, none = event == nil and space == nil }";
    spec["webhook"]["template"] = template.into();
    let sink = daemon.create_sink(&spec);
    emit_waiting(&daemon, &sink, 0..3);
    let expected = json!({"lines": ["1:0:admin", "2:1:admin", "3:2:admin"], "none": true});
    assert_eq!(receiver.wait_for(1)[0].json(), expected);
    let tested = daemon.post(&format!("/api/event-sinks/{sink}/test"), &json!({"payload": {"n": 7}})).json();
    assert_eq!(
        (&tested["outcome"], &tested["sent"]),
        (&json!("delivered"), &json!(r#"{"lines":["0:7:admin"],"none":true}"#))
    );
    assert_eq!(receiver.wait_for(2)[1].header("x-service-batch"), "1");

    let full = json!({"url": receiver.url("/"), "batch": {"max": 2}, "body": "full"});
    assert_eq!(daemon.patch(&format!("/api/event-sinks/{sink}"), &json!({"webhook": full})).status, 200);
    let preview = success(&daemon.svc(&["sink", "preview", "s", r#"{"n": 1}"#]));
    let preview: Value = serde_json::from_str(&preview).unwrap();
    assert_eq!((&preview[0]["sequence"], &preview[0]["actor"]["username"]), (&json!(0), &json!("admin")));
}

#[test]
fn batches_are_bounded_in_bytes() {
    let receiver = Receiver::start();
    let daemon = Daemon::start();
    let sink = daemon.create_sink(&batched(&receiver.url("/"), json!({"max": 100})));
    let path = format!("/api/event-sinks/{sink}");
    daemon.patch(&path, &json!({"active": false}));
    for n in 0..7 {
        daemon.emit("x", &json!({"n": n, "text": "x".repeat(200 << 10)}));
    }
    daemon.patch(&path, &json!({"active": true}));
    let received = receiver.wait_for(4);
    assert_eq!(numbers(&received), [vec![0, 1], vec![2, 3], vec![4, 5], vec![6]]);
}

#[test]
fn batches_are_made_and_shown_on_the_command_line_and_applied_from_files() {
    let daemon = Daemon::start();
    let url = "https://x.example";
    let create =
        ["sink", "create", "--name", "s", "--events", "*", "--url", url, "--batch", "50", "--batch-wait", "2s"];
    success(&daemon.svc(&create));
    let shown = success(&daemon.svc(&["sink", "show", "s"]));
    assert!(shown.contains("up to 50 events, after 2s at the latest"), "{shown}");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("s.toml");
    let toml = |batch: &str| {
        format!("name = \"s\"\nevents = \"*\"\ntype = \"webhook\"\n[webhook]\nurl = \"{url}\"\nbatch = {batch}\n")
    };
    std::fs::write(&file, toml("{ max = 20 }")).unwrap();
    let applied = success(&daemon.svc(&["sink", "apply", file.to_str().unwrap()]));
    assert!(applied.contains("(webhook.batch)"), "{applied}");
    for (batch, said) in
        [("{ max = 101 }", "`webhook.batch.max` must be 1 to 100"), ("{ max = 5, wiat = \"1s\" }", "wiat")]
    {
        std::fs::write(&file, toml(batch)).unwrap();
        let refused = daemon.svc(&["sink", "apply", file.to_str().unwrap()]);
        let error = crate::support::stderr(&refused);
        assert!(!refused.status.success() && error.contains(said), "{error}");
    }
    let kept = daemon.get("/api/event-sinks?name=s").json()["items"][0]["webhook"]["batch"].clone();
    assert_eq!(kept, json!({"max": 20}));
}

#[test]
fn kills_during_batches_lose_no_event_and_no_order() {
    let receiver = Receiver::answering(|_| {
        thread::sleep(Duration::from_millis(3));
        Answer::Status(200)
    });
    let settings = [("DELIVERY_QUEUE", "100000"), ("DELIVERY_BACKOFF", "5ms,5ms,5ms,5ms,5ms,5ms,5ms")];
    let mut daemon = Daemon::with(&settings);
    daemon.create_sink(&batched(&receiver.url("/"), json!({"max": 7})));
    let accepted = Arc::new(Mutex::new(HashSet::<String>::new()));
    for round in 0..20_u64 {
        let stop = Arc::new(AtomicBool::new(false));
        let load: Vec<_> = (0..4)
            .map(|_| {
                let (accepted, stop) = (accepted.clone(), stop.clone());
                let (url, token) = (daemon.url.clone(), daemon.admin_token());
                thread::spawn(move || crate::crash::emit_until(&stop, &url, &token, 0, &accepted))
            })
            .collect();
        let before = receiver.received().len();
        eventually("some batches", || (receiver.received().len() > before + 3).then_some(()));
        thread::sleep(Duration::from_micros((round * 7919) % 20_000));
        daemon.kill();
        stop.store(true, Ordering::Relaxed);
        load.into_iter().for_each(|thread| thread.join().unwrap());
        daemon.restart();
    }
    eventually("the queue to drain", || (daemon.metric("svc_queue_depth{") == 0.0).then_some(()));
    let mut owner = BTreeMap::<u64, String>::new();
    let mut next = 1;
    for request in receiver.received() {
        for event in request.json().as_array().unwrap() {
            let (sequence, id) = (event["sequence"].as_u64().unwrap(), event["event_id"].as_str().unwrap().to_owned());
            assert_eq!(*owner.entry(sequence).or_insert_with(|| id.clone()), id, "number {sequence} was given twice");
            // A crash may undo settlements that were not on disk; delivery then continues from an earlier number, in
            // order.
            assert!(sequence <= next, "{sequence} came when {next} was due");
            next = sequence + 1;
        }
    }
    let delivered: HashSet<&String> = owner.values().collect();
    let accepted = accepted.lock().unwrap();
    assert!(accepted.len() > 100, "there was load");
    let lost: Vec<_> = accepted.iter().filter(|event| !delivered.contains(event)).collect();
    assert!(lost.is_empty(), "lost {lost:?}");
}
