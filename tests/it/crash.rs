//! Kills the daemon under load repeatedly and checks that no accepted event is lost.

use crate::support::{Answer, Daemon, Receiver, eventually};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashSet},
    io::Read as _,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const KILLS: usize = 150;
/// After every so many kills under load, the next start is killed too.
const KILLS_PER_START: usize = 3;
const EMITTERS: usize = 4;
const SINKS: usize = 3;

#[test]
fn two_hundred_kills_under_load_and_during_start_lose_no_accepted_event_and_no_order() {
    let receiver = Receiver::start();
    // Large enough that no event is dropped: a drop is no loss, but would hide one.
    let mut daemon = Daemon::with(&[("DELIVERY_QUEUE", "100000"), ("DELIVERY_BACKOFF", "5ms,5ms,5ms,5ms,5ms,5ms,5ms")]);
    for n in 0..SINKS {
        daemon.create_sink(&json!({
            "name": format!("s{n}"), "events": "custom.load.*", "type": "webhook", "owner": "global",
            "webhook": {"url": receiver.url(&format!("/s{n}"))},
        }));
    }
    let accepted = Arc::new(Mutex::new(HashSet::<String>::new()));
    for round in 0..KILLS {
        let stop = Arc::new(AtomicBool::new(false));
        let load: Vec<_> = (0..EMITTERS)
            .map(|emitter| {
                let (accepted, stop) = (accepted.clone(), stop.clone());
                let (url, token) = (daemon.url.clone(), daemon.admin_token());
                thread::spawn(move || emit_until(&stop, &url, &token, emitter, &accepted))
            })
            .collect();
        // A different moment each time, spread over several write groups.
        let before = accepted.lock().unwrap().len();
        eventually("some events to be accepted", || {
            (accepted.lock().unwrap().len() > before + round % 7).then_some(())
        });
        thread::sleep(Duration::from_micros((round as u64 * 7919) % 20_000));
        daemon.kill();
        stop.store(true, Ordering::Relaxed);
        load.into_iter().for_each(|thread| thread.join().unwrap());
        if round % KILLS_PER_START == 0 {
            daemon.kill_during_start(Duration::from_micros((round as u64 * 7919) % 60_000));
        }
        daemon.restart();
    }
    let accepted = accepted.lock().unwrap();
    assert!(accepted.len() > KILLS, "there was load");
    eventually("all queues to drain", || (daemon.metric("svc_queue_depth{") == 0.0).then_some(()));

    let mut by_sink = BTreeMap::<String, Vec<(u64, String)>>::new();
    for request in receiver.received() {
        let sequence = request.header("x-service-sequence").parse().unwrap();
        let event = request.header("x-service-event-id").to_owned();
        by_sink.entry(request.path).or_default().push((sequence, event));
    }
    assert_eq!(by_sink.len(), SINKS);
    for (sink, deliveries) in by_sink {
        let delivered: HashSet<&String> = deliveries.iter().map(|(_, event)| event).collect();
        let lost: Vec<_> = accepted.iter().filter(|event| !delivered.contains(event)).collect();
        assert!(lost.is_empty(), "{sink} lost {lost:?}");
        in_order(&sink, &deliveries);
    }
}

/// Each start reads the log of the killed server, writes a snapshot of it, and is killed at another moment.
#[test]
fn a_hundred_kills_during_start_leave_a_database_that_opens_with_every_event() {
    let mut daemon = Daemon::start();
    let mut accepted = Vec::new();
    let mut emit = |daemon: &Daemon, count: usize| {
        for n in 0..count {
            let event = json!({"type": "load", "payload": {"n": n, "text": "x".repeat(2000)}});
            let reply = daemon.post("/api/events/emit", &event);
            assert_eq!(reply.status, 202);
            accepted.push(reply.json()["event_id"].as_str().unwrap().to_owned());
        }
    };
    emit(&daemon, 200);
    daemon.kill();
    let began = Instant::now();
    daemon.restart();
    let start = began.elapsed();
    for round in 0..100_u32 {
        if round % 10 == 0 {
            // Without new events there would be nothing to write a snapshot of.
            emit(&daemon, 20);
            daemon.kill();
        }
        daemon.kill_during_start(start * (round * 37 % 100) / 100);
        if round % 10 == 9 {
            daemon.restart();
        }
    }
    let stored = daemon.items("/api/events");
    let mut stored: Vec<_> = stored.iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect();
    stored.reverse();
    assert_eq!(stored, accepted);
}

/// The kill stands for a defect of the server that the event sets off.
#[test]
fn an_event_that_ends_the_server_in_each_of_its_attempts_becomes_a_dead_letter_and_the_next_is_delivered() {
    let receiver = Receiver::answering(|request| match request.json()["data"]["n"].as_u64() {
        // Reads until the daemon is killed, and does not answer.
        Some(1) => Answer::Custom(Box::new(|stream| drop(stream.read_to_end(&mut Vec::new())))),
        _ => Answer::Status(200),
    });
    let mut daemon = Daemon::with(&[("DELIVERY_BACKOFF", "5ms,5ms")]);
    let sink = daemon.create_sink(&json!({
        "name": "s", "events": "custom.load", "type": "webhook", "owner": "global", "webhook": {"url": receiver.url("/")},
    }));
    let first = daemon.emit("load", &json!({"n": 1}))["event_id"].clone();
    daemon.emit("load", &json!({"n": 2}));
    // The first interruption is taken for chance; the three attempts follow.
    for kills in 1..=4 {
        receiver.wait_for(kills);
        daemon.kill();
        daemon.restart();
    }
    let received = receiver.wait_for(5);
    let attempts: Vec<_> = received
        .iter()
        .map(|request| (request.json()["data"]["n"].as_u64(), request.header("x-service-attempt")))
        .collect();
    assert_eq!(attempts, [(Some(1), "1"), (Some(1), "1"), (Some(1), "2"), (Some(1), "3"), (Some(2), "1")]);
    let letters = daemon.items(&format!("/api/event-sinks/{sink}/dead-letters"));
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0]["event_id"], first);
    assert_eq!(letters[0]["why"], "the server ended unexpectedly during this attempt");
}

/// Checks that first deliveries arrive in sequence without a gap. A crash may undo settlements that were not yet on
/// disk; delivery then continues from an earlier number, again in order.
fn in_order(sink: &str, deliveries: &[(u64, String)]) {
    let mut owner = BTreeMap::<u64, &String>::new();
    let mut next = 1;
    for (sequence, event) in deliveries {
        assert_eq!(*owner.entry(*sequence).or_insert(event), event, "{sink}: number {sequence} was given twice");
        assert!(*sequence <= next, "{sink}: {sequence} came when {next} was due");
        if *sequence == next {
            next += 1;
        }
    }
}

pub fn emit_until(stop: &AtomicBool, url: &str, token: &str, emitter: usize, accepted: &Mutex<HashSet<String>>) {
    use isahc::ReadResponseExt;
    let client = isahc::HttpClient::new().unwrap();
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        // Occasionally an event that is stored in several chunks.
        let filling = if n % 20 == 7 { "x".repeat(100_000) } else { String::new() };
        let body = json!({"type": format!("load.e{emitter}"), "payload": {"n": n, "x": filling}}).to_string();
        let request = isahc::Request::post(format!("{url}/api/events/emit"))
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json")
            .body(body)
            .unwrap();
        let Ok(mut response) = client.send(request) else { return };
        if response.status() != 202 {
            return;
        }
        let Ok(text) = response.text() else { return };
        let answer: Value = serde_json::from_str(&text).unwrap();
        accepted.lock().unwrap().insert(answer["event_id"].as_str().unwrap().to_owned());
    }
}
