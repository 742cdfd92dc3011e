//! One user's failing receivers do not hold up the deliveries of others, nor those to other sinks of the same user.

use crate::support::{Answer, Daemon, Receiver, eventually};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// A receiver whose requests hang until it is dropped.
struct HangingReceiver {
    receiver: Receiver,
    /// Requests that the daemon has given up.
    given_up: Arc<AtomicUsize>,
}

impl HangingReceiver {
    fn start() -> Self {
        let given_up = Arc::new(AtomicUsize::new(0));
        let count = given_up.clone();
        let receiver = Receiver::answering(move |_| {
            let count = count.clone();
            Answer::Custom(Box::new(move |stream| {
                // Returns when the daemon closes the connection.
                let _ = std::io::Read::read(stream, &mut [0]);
                count.fetch_add(1, Ordering::SeqCst);
            }))
        });
        Self { receiver, given_up }
    }
}

/// A daemon whose attempts never end by themselves within a test.
fn daemon(concurrency: &str) -> Daemon {
    Daemon::with(&[
        ("DELIVERY_CONCURRENCY", concurrency),
        ("WEBHOOK_TIMEOUT", "10m"),
        ("EGRESS_ALLOW_PRIVATE", "true"),
        ("LIMITS_DRAIN", "1s"),
    ])
}

fn sink(name: &str, owner: &str, events: &str, url: &str) -> Value {
    json!({"name": name, "events": events, "type": "webhook", "owner": owner, "webhook": {"url": url}})
}

#[test]
fn a_healthy_sink_gets_all_its_events_while_sinks_of_its_owner_hang() {
    let daemon = daemon("32");
    let (healthy, hanging) = (Receiver::start(), HangingReceiver::start());
    daemon.create_sink(&sink("healthy", "global", "custom.good", &healthy.url("/")));
    for n in 0..60 {
        daemon.create_sink(&sink(&format!("hanging {n}"), "global", "custom.bad", &hanging.receiver.url("/")));
    }
    daemon.emit("good", &json!({}));
    healthy.wait_for(1);
    daemon.emit("bad", &json!({}));
    // More than the old half of all places hang at the same time, and no new ones are taken.
    let held = eventually("the places of hanging sinks to be taken", || {
        let before = hanging.receiver.received().len();
        std::thread::sleep(Duration::from_millis(1500));
        (before >= 16 && before == hanging.receiver.received().len()).then_some(before)
    });
    assert!(held <= 32, "{held} of 60 hanging sinks hold a place");
    for n in 0..50 {
        daemon.emit("good", &json!({ "n": n }));
    }
    healthy.wait_for(51);
    assert_eq!(hanging.given_up.load(Ordering::SeqCst), 0, "every hanging attempt still holds its place");
}

#[test]
fn a_new_user_gets_all_events_while_the_sinks_of_many_others_hang() {
    let daemon = daemon("64");
    let (healthy, hanging) = (Receiver::start(), HangingReceiver::start());
    let create = |token: &str, sink: &Value| {
        let reply = daemon.send("POST", "/api/event-sinks", Some(token), Some(sink.to_string().into_bytes()));
        assert_eq!(reply.status, 201, "{}", reply.text);
    };
    let emit = |token: &str| {
        let event = json!({"type": "x", "payload": {}}).to_string().into_bytes();
        assert_eq!(daemon.send("POST", "/api/events/emit", Some(token), Some(event)).status, 202);
    };
    for user in ["a", "b", "c", "d"] {
        let token = daemon.create_user(user, &["manage_own_event_sinks", "use_spaces"]);
        for n in 0..30 {
            create(&token, &sink(&format!("{n}"), "me", "*", &hanging.receiver.url("/")));
        }
        emit(&token);
    }
    hanging.receiver.wait_for(20);
    let innocent = daemon.create_user("innocent", &["manage_own_event_sinks", "use_spaces"]);
    create(&innocent, &sink("s", "me", "*", &healthy.url("/")));
    for _ in 0..30 {
        emit(&innocent);
    }
    healthy.wait_for(30);
    assert_eq!(hanging.given_up.load(Ordering::SeqCst), 0, "every hanging attempt still holds its place");
}

#[test]
fn a_sink_with_many_events_gives_its_place_to_another_of_its_owner_after_a_turn() {
    // Two places, of which an owner gets one.
    let daemon = daemon("2");
    let is_open = Arc::new(AtomicBool::new(true));
    let opened = is_open.clone();
    let receiver = Receiver::answering(move |received| {
        if received.path == "/busy" {
            while !opened.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Answer::Status(200)
    });
    daemon.create_sink(&sink("busy", "global", "custom.many", &receiver.url("/busy")));
    daemon.create_sink(&sink("other", "global", "custom.one", &receiver.url("/other")));
    // Both sinks are healthy from now on.
    daemon.emit("many", &json!({}));
    daemon.emit("one", &json!({}));
    receiver.wait_for(2);

    is_open.store(false, Ordering::SeqCst);
    for _ in 0..50 {
        daemon.emit("many", &json!({}));
    }
    daemon.emit("one", &json!({}));
    is_open.store(true, Ordering::SeqCst);
    let paths: Vec<_> = receiver.wait_for(2 + 51).into_iter().skip(2).map(|received| received.path).collect();
    let other = paths.iter().position(|path| path == "/other").expect("it is delivered");
    // Fifty events take a second, and a turn is a fiftieth of one.
    assert!(other < 40, "it was delivered behind {other} of 50 events of the busy sink");
}
