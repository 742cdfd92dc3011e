//! Replays: events that a sink lost, or got before, are sent again from the history.

use crate::support::{Answer, Daemon, Received, Receiver, eventually, stderr, success};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

fn sink(url: &str, active: bool) -> Value {
    json!({
        "name": "s", "events": "custom.x", "type": "webhook", "owner": "global", "active": active,
        "webhook": {"url": url, "template": "return {n = event.data.n, replay = event.replay}"},
    })
}

/// A sink that has lost all but the first `queue` of `count` events.
fn burst(daemon: &Daemon, receiver: &Receiver, queue: usize, count: usize) -> String {
    let id = daemon.create_sink(&sink(&receiver.url("/"), false));
    for n in 0..count {
        let dropped = daemon.emit("x", &json!({"n": n}))["dropped"].as_array().unwrap().len();
        assert_eq!(dropped, usize::from(n >= queue));
    }
    assert_eq!(daemon.patch(&format!("/api/event-sinks/{id}"), &json!({"active": true})).status, 200);
    receiver.wait_for(queue);
    id
}

fn numbers(received: &[Received]) -> Vec<u64> {
    received.iter().map(|request| request.json()["n"].as_u64().unwrap()).collect()
}

/// Waits until the first events have come, in order and no others. The kill may have repeated the last deliveries
/// before it.
fn wait_for_first(receiver: &Receiver, count: u64) {
    let all = eventually(&format!("{count} events"), || {
        let mut all: Vec<u64> = Vec::new();
        for number in numbers(&receiver.received()) {
            if !all.contains(&number) {
                all.push(number);
            }
        }
        (all.len() as u64 >= count).then_some(all)
    });
    assert_eq!(all, (0..count).collect::<Vec<u64>>());
}

fn replays(daemon: &Daemon, sink: &str) -> Vec<Value> {
    daemon.items(&format!("/api/event-sinks/{sink}/replays"))
}

fn wait_for_end(daemon: &Daemon, sink: &str) -> Value {
    eventually("the replay to end", || {
        let job = replays(daemon, sink).remove(0);
        job["finished_at"].is_string().then_some(job)
    })
}

#[test]
fn events_dropped_in_a_burst_are_replayed_in_order_and_the_command_waits_for_it() {
    let daemon = Daemon::with(&[("DELIVERY_QUEUE", "10")]);
    let receiver = Receiver::start();
    let id = burst(&daemon, &receiver, 10, 100);
    let told = success(&daemon.svc(&["sink", "replay", "s"]));
    assert_eq!(told, "queued 90 again\n");
    let received = receiver.wait_for(100);
    assert_eq!(numbers(&received), (0..100).collect::<Vec<u64>>());
    let job = replays(&daemon, &id).remove(0);
    let ended = [&job["state"], &job["matched"], &job["queued"], &job["gone"]];
    assert_eq!(ended, [&json!("done"), &json!(90), &json!(90), &json!(0)]);
    for (n, request) in received.iter().enumerate() {
        let replay = if n < 10 { "" } else { job["id"].as_str().unwrap() };
        assert_eq!(request.header("x-service-replay"), replay);
        assert_eq!(request.json().get("replay").cloned(), (n >= 10).then(|| job["id"].clone()));
    }
    let sequences: Vec<u64> =
        received.iter().map(|request| request.header("x-service-sequence").parse().unwrap()).collect();
    assert_eq!(sequences, (1..=10).chain(101..=190).collect::<Vec<u64>>());
    assert_eq!(received[10].header("x-service-missed"), "11-100;queue-full");
    let audit = daemon.get("/api/audit?action=sink.replay").json();
    assert_eq!(audit["items"][0]["detail"]["replay"], job["id"]);
    // A number keeps its fate, and the new one has its own.
    let fate = |number: u64| {
        let path = format!("/api/event-sinks/{id}/sequence?from={number}&to={number}");
        eventually("the delivery to be settled", || {
            let number = daemon.get(&path).json()["items"][0].clone();
            (number["state"] != "queued").then_some(number)
        })
    };
    let (old, new) = (fate(11), fate(101));
    assert_eq!((&old["state"], &new["state"]), (&json!("dropped"), &json!("delivered")));
    assert_eq!(old["event_id"], new["event_id"]);
    let listed = success(&daemon.svc(&["sink", "replays", "s"]));
    assert!(listed.contains("done") && listed.contains("dropped, dead"), "{listed}");
}

#[test]
fn the_numbers_of_a_gap_can_be_asked_for_and_dead_letters_go_with_them() {
    let daemon = Daemon::with(&[("DELIVERY_QUEUE", "4"), ("DELIVERY_BACKOFF", "1ms")]);
    let broken = Arc::new(AtomicBool::new(true));
    let receiver = Receiver::answering({
        let broken = broken.clone();
        move |_| Answer::Status(if broken.load(Ordering::Relaxed) { 500 } else { 200 })
    });
    let id = daemon.create_sink(&sink(&receiver.url("/"), false));
    for n in 0..8 {
        daemon.emit("x", &json!({"n": n}));
    }
    let path = format!("/api/event-sinks/{id}");
    daemon.patch(&path, &json!({"active": true}));
    eventually("four dead letters", || (daemon.get(&path).json()["queue"]["dead"] == 4).then_some(()));
    broken.store(false, Ordering::Relaxed);
    let before = receiver.received().len();
    let told = success(&daemon.svc(&["sink", "replay", "s", "--sequences", "3-5,8", "--json"]));
    let job: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&job["queued"], &job["sequences"]), (&json!(4), &json!(["3-5", "8"])));
    let received = receiver.wait_for(before + 4);
    assert_eq!(numbers(&received[before..]), [2, 3, 4, 7]);
    assert_eq!(received[before].header("x-service-missed"), "1-4;dead-letter, 5-8;queue-full");
    assert_eq!(daemon.get(&path).json()["queue"]["dead"], 2);
}

#[test]
fn new_events_are_not_dropped_for_a_replay_and_arrive_among_the_replayed_ones() {
    let daemon = Daemon::with(&[("DELIVERY_QUEUE", "10")]);
    let receiver = Receiver::start();
    let id = burst(&daemon, &receiver, 10, 200);
    let reply = daemon.post(&format!("/api/event-sinks/{id}/replay"), &json!({"states": ["dropped"], "rate": 400}));
    assert_eq!(reply.status, 201, "{}", reply.text);
    for n in 1000..1100 {
        let emitted = daemon.emit("x", &json!({"n": n}));
        assert_eq!(emitted["dropped"], json!([]));
        // A live sink that is never more than a few events behind.
        let path = format!("/api/event-sinks/{id}");
        eventually("room for new events", || {
            (daemon.get(&path).json()["queue"]["depth"].as_u64().unwrap() < 10).then_some(())
        });
    }
    wait_for_end(&daemon, &id);
    let all = numbers(&receiver.wait_for(300));
    let (new, old): (Vec<u64>, Vec<u64>) = all.into_iter().partition(|n| *n >= 1000);
    assert_eq!(old, (0..200).collect::<Vec<u64>>());
    assert_eq!(new, (1000..1100).collect::<Vec<u64>>());
}

#[test]
fn a_replay_over_history_that_was_pruned_meanwhile_ends_and_says_what_was_gone() {
    let daemon = Daemon::with(&[("DELIVERY_QUEUE", "5"), ("HISTORY_SIZE", "256KiB")]);
    let receiver = Receiver::start();
    let id = burst(&daemon, &receiver, 5, 50);
    let path = format!("/api/event-sinks/{id}/replay");
    assert_eq!(daemon.post(&path, &json!({"rate": 1})).status, 201);
    eventually("the first to be queued", || (replays(&daemon, &id)[0]["queued"].as_u64() > Some(0)).then_some(()));
    for _ in 0..20 {
        daemon.emit("other", &json!({"filling": "x".repeat(50_000)}));
    }
    let job = wait_for_end(&daemon, &id);
    let (queued, gone) = (job["queued"].as_u64().unwrap(), job["gone"].as_u64().unwrap());
    assert_eq!((&job["state"], &job["matched"], queued + gone), (&json!("done"), &json!(45), 45));
    assert!(gone > 30, "{job}");
    receiver.wait_for(5 + queued as usize);
}

#[test]
fn kills_during_a_replay_lose_no_event_and_no_order() {
    let receiver = Receiver::start();
    let mut daemon = Daemon::with(&[("DELIVERY_QUEUE", "20"), ("DELIVERY_BACKOFF", "5ms,5ms,5ms,5ms,5ms,5ms,5ms")]);
    let id = burst(&daemon, &receiver, 20, 400);
    assert_eq!(daemon.post(&format!("/api/event-sinks/{id}/replay"), &json!({"rate": 400})).status, 201);
    for round in 0..12_u64 {
        let before = receiver.received().len();
        eventually("some deliveries, or the end", || {
            let ended = replays(&daemon, &id)[0]["finished_at"].is_string();
            (receiver.received().len() > before + 3 || ended).then_some(())
        });
        thread::sleep(Duration::from_micros((round * 7919) % 20_000));
        daemon.kill();
        daemon.restart();
    }
    let job = wait_for_end(&daemon, &id);
    assert_eq!((&job["state"], &job["queued"], &job["gone"]), (&json!("done"), &json!(380), &json!(0)));
    eventually("the queue to drain", || (daemon.metric("svc_queue_depth{") == 0.0).then_some(()));
    let mut event_of = BTreeMap::new();
    let mut highest = 0;
    for request in receiver.received() {
        let sequence: u64 = request.header("x-service-sequence").parse().unwrap();
        let n = request.json()["n"].as_u64().unwrap();
        assert_eq!(*event_of.entry(sequence).or_insert(n), n, "number {sequence} was given twice");
        // A crash may repeat deliveries that were not settled on disk, from an earlier number on and again in order.
        assert!(event_of.range(..sequence).next_back().is_none_or(|(_, before)| before + 1 == n), "{sequence} {n}");
        highest = highest.max(sequence);
    }
    assert_eq!(event_of.values().copied().collect::<Vec<_>>(), (0..400).collect::<Vec<u64>>());
    assert_eq!(highest, 400 + 380, "each was queued once");
}

#[test]
fn a_replay_is_paused_continued_and_cancelled_also_across_restarts_and_waits_for_an_inactive_sink() {
    let mut daemon = Daemon::with(&[("DELIVERY_QUEUE", "10")]);
    let receiver = Receiver::start();
    let id = burst(&daemon, &receiver, 10, 100);
    let path = format!("/api/event-sinks/{id}/replay");
    for (method, path) in [("POST", format!("{path}/pause")), ("DELETE", path.clone())] {
        let reply = daemon.send(method, &path, Some(&daemon.admin_token()), None);
        assert_eq!((reply.status, reply.message()), (409, "no replay to this sink is under way".to_owned()));
    }
    let started = success(&daemon.svc(&["sink", "replay", "s", "--rate", "20", "--detach"]));
    assert!(started.contains("svc sink replays s"), "{started}");
    let again = daemon.svc(&["sink", "replay", "s"]);
    assert!(!again.status.success() && stderr(&again).contains("is under way"), "{}", stderr(&again));
    receiver.wait_for(12);
    let told = success(&daemon.svc(&["sink", "pause-replay", "s"]));
    assert!(told.starts_with("paused; "), "{told}");
    let paused = replays(&daemon, &id).remove(0);
    daemon.kill();
    daemon.restart();
    wait_for_first(&receiver, 10 + paused["queued"].as_u64().unwrap());
    assert_eq!(replays(&daemon, &id)[0]["state"], "paused");
    assert_eq!(replays(&daemon, &id)[0]["queued"], paused["queued"]);

    daemon.patch(&format!("/api/event-sinks/{id}"), &json!({"active": false}));
    success(&daemon.svc(&["sink", "resume-replay", "s"]));
    assert_eq!(replays(&daemon, &id)[0]["state"], "running");
    daemon.patch(&format!("/api/event-sinks/{id}"), &json!({"active": true}));
    let queued = |job: &Value| job["queued"].as_u64().unwrap();
    eventually("it to go on", || (queued(&replays(&daemon, &id)[0]) > queued(&paused)).then_some(()));
    success(&daemon.svc(&["sink", "cancel-replay", "s"]));
    let cancelled = wait_for_end(&daemon, &id);
    assert_eq!(cancelled["state"], "cancelled");
    wait_for_first(&receiver, 10 + queued(&cancelled));
    for action in ["sink.replay", "sink.pause_replay", "sink.resume_replay", "sink.cancel_replay"] {
        assert_eq!(daemon.items(&format!("/api/audit?action={action}")).len(), 1, "{action}");
    }
    // The rest comes with the next one, and the jobs go with the sink.
    assert_eq!(success(&daemon.svc(&["sink", "replay", "s"])), format!("queued {} again\n", 90 - queued(&cancelled)));
    wait_for_first(&receiver, 100);
    assert_eq!(daemon.delete(&format!("/api/event-sinks/{id}")).status, 204);
    assert_eq!(daemon.get(&format!("{path}s")).status, 404);
}

#[test]
fn the_command_says_that_a_replay_waits_for_an_inactive_sink() {
    let daemon = Daemon::with(&[("DELIVERY_QUEUE", "2")]);
    let receiver = Receiver::start();
    let id = burst(&daemon, &receiver, 2, 3);
    let path = format!("/api/event-sinks/{id}");
    assert_eq!(daemon.patch(&path, &json!({"active": false})).status, 200);
    let mut command = daemon.command(&["sink", "replay", "s"]);
    let mut waiting = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut note = String::new();
    BufReader::new(waiting.stderr.take().unwrap()).read_line(&mut note).unwrap();
    let expected = "sink `s` is inactive, and the replay waits until it is active: `svc sink replays s` shows how far it is, also if this \
                    command is ended\n";
    assert_eq!(note, expected);
    assert_eq!(daemon.patch(&path, &json!({"active": true})).status, 200);
    assert_eq!(success(&waiting.wait_with_output().unwrap()), "queued 1 again\n");
}

#[test]
fn bad_input_names_the_field_and_starts_nothing() {
    let daemon = Daemon::start();
    let receiver = Receiver::start();
    let id = daemon.create_sink(&sink(&receiver.url("/"), true));
    let path = format!("/api/event-sinks/{id}/replay");
    let many: Vec<u64> = (1..=1001).collect();
    for (body, field) in [
        (json!({"since": "yesterday"}), "since"),
        (json!({"since": 5}), "since"),
        (json!({"until": "x"}), "until"),
        (json!({"since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}), "until"),
        (json!({"type": "a.*.b"}), "type"),
        (json!({"type": ""}), "type"),
        (json!({"states": "dead"}), "states"),
        (json!({"states": []}), "states"),
        (json!({"states": ["queued"]}), "states"),
        (json!({"sequences": []}), "sequences"),
        (json!({"sequences": [0]}), "sequences"),
        (json!({"sequences": ["9-3"]}), "sequences"),
        (json!({"sequences": [1.5]}), "sequences"),
        (json!({"sequences": many}), "sequences"),
        (json!({"rate": 0}), "rate"),
        (json!({"rate": 10_001}), "rate"),
        (json!({"rate": "fast"}), "rate"),
        (json!({"event_ids": []}), "event_ids"),
    ] {
        let reply = daemon.post(&path, &body);
        let message = reply.message();
        assert!(reply.status == 400 && message.contains(&format!("`{field}")), "{body}: {} {message}", reply.status);
    }
    assert_eq!(replays(&daemon, &id), [Value::Null; 0]);
    assert_eq!(daemon.items("/api/audit?action=sink.replay").len(), 0);
    let formatter = daemon.create_sink(&json!({
        "name": "f", "events": "*", "type": "json-rpc", "owner": "global", "template": "return {}",
    }));
    let reply = daemon.post(&format!("/api/event-sinks/{formatter}/replay"), &json!({}));
    assert_eq!((reply.status, reply.message()), (409, "this sink receives no events".to_owned()));
    for arguments in [&["--sequences", "3-1"][..], &["--state", "queued"], &["--type", "*.x"], &["--rate", "x"]] {
        let output = daemon.svc(&[&["sink", "replay", "s"][..], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
    }
}
