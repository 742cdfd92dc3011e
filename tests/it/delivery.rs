//! Delivery to a sink: in order, one at a time, with retries, dead letters and bounded queues.

use crate::support::{Answer, Daemon, Received, Receiver, eventually};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

fn webhook(name: &str, url: &str) -> Value {
    json!({"name": name, "events": "*", "type": "webhook", "owner": "global", "webhook": {"url": url}})
}

fn sequences(received: &[Received]) -> Vec<u64> {
    received.iter().map(|request| request.header("x-service-sequence").parse().unwrap()).collect()
}

#[test]
fn a_webhook_gets_the_default_body_and_every_header() {
    let daemon = Daemon::start();
    let receiver = Receiver::start();
    let mut sink = webhook("s", &receiver.url("/hook?x=1"));
    sink["webhook"]["secret"] = json!("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    sink["webhook"]["headers"] = json!({"X-Team": "ops"});
    daemon.create_sink(&sink);
    let emitted = daemon.emit("deploy.done", &json!({"version": "1.2"}));
    let request = receiver.wait_for(1).remove(0);
    assert_eq!(request.path, "/hook?x=1");
    assert_eq!(
        request.json(),
        json!({
            "event_id": emitted["event_id"], "event_type": "custom.deploy.done", "event_ts": emitted["event_ts"],
            "data": {"version": "1.2"},
        })
    );
    assert_eq!(request.header("content-type"), "application/json");
    assert_eq!(request.header("x-service-event-id"), emitted["event_id"]);
    assert_eq!(request.header("x-service-event-type"), "custom.deploy.done");
    assert_eq!(request.header("x-service-event-ts"), emitted["event_ts"]);
    assert_eq!(request.header("x-service-sequence"), "1");
    assert_eq!(request.header("x-service-attempt"), "1");
    assert_eq!(request.header("x-team"), "ops");

    // Standard Webhooks signs with the decoded secret, the plain signature with the secret as written.
    let (written, key) = ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let key = STANDARD.decode(key).unwrap();
    let sign = |key: &[u8], text: &[u8]| {
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(key).unwrap();
        mac.update(text);
        mac.finalize().into_bytes().to_vec()
    };
    let id = request.header("webhook-id");
    assert_eq!(id, emitted["event_id"]);
    let signed = [id.as_bytes(), b".", request.header("webhook-timestamp").as_bytes(), b".", &request.body].concat();
    let standard = format!("v1,{}", STANDARD.encode(sign(&key, &signed)));
    assert_eq!(request.header("webhook-signature"), standard);
    let hex: String = sign(written.as_bytes(), &request.body).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(request.header("x-service-signature"), format!("sha256={hex}"));
}

#[test]
fn a_sink_gets_its_events_in_order_and_one_at_a_time_over_one_connection() {
    let daemon = Daemon::start();
    let receiver = Receiver::start();
    daemon.create_sink(&webhook("s", &receiver.url("/")));
    for n in 0..60 {
        daemon.emit("x", &json!({"n": n}));
    }
    let received = receiver.wait_for(60);
    assert_eq!(sequences(&received), (1..=60).collect::<Vec<u64>>());
    let numbers: Vec<_> = received.iter().map(|request| request.json()["data"]["n"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..60).collect::<Vec<u64>>());
    assert_eq!(receiver.most_at_once(), 1);
    assert_eq!(receiver.connections(), 1, "the connection is kept");
}

#[test]
fn a_failing_event_gets_three_attempts_blocks_its_sink_and_becomes_a_dead_letter() {
    let daemon = Daemon::start();
    let receiver =
        Receiver::answering(|request| Answer::Status(if request.json()["data"]["bad"] == true { 500 } else { 200 }));
    let id = daemon.create_sink(&webhook("s", &receiver.url("/")));
    let bad = daemon.emit("x", &json!({"bad": true}));
    daemon.emit("x", &json!({"bad": false}));
    let received = receiver.wait_for(4);
    assert_eq!(sequences(&received), [1, 1, 1, 2]);
    let attempts: Vec<_> = received.iter().map(|request| request.header("x-service-attempt")).collect();
    assert_eq!(attempts, ["1", "2", "3", "1"]);
    let delivery = daemon.delivery(&bad["event_id"], "dead");
    let tried = delivery["attempts"].as_array().unwrap();
    assert_eq!(tried.len(), 3);
    for (n, attempt) in tried.iter().enumerate() {
        assert_eq!((&attempt["number"], &attempt["status"]), (&json!(n + 1), &json!(500)));
        assert_eq!(attempt["outcome"], "failed");
        assert!(attempt["duration_ms"].as_f64().unwrap() > 0.0);
    }
    let letters = daemon.get(&format!("/api/event-sinks/{id}/dead-letters")).json();
    assert_eq!(letters["items"][0]["event_id"], bad["event_id"]);
    assert_eq!(letters["items"][0]["attempts"], 3);
    let audit = daemon.get("/api/audit?action=event.give_up").json();
    assert_eq!(audit["items"][0]["detail"]["event_id"], bad["event_id"]);
}

#[test]
fn a_dead_letter_can_be_sent_again_under_a_new_number() {
    let daemon = Daemon::start();
    let broken = Arc::new(AtomicBool::new(true));
    let receiver = Receiver::answering({
        let broken = broken.clone();
        move |_| Answer::Status(if broken.load(Ordering::Relaxed) { 503 } else { 200 })
    });
    let id = daemon.create_sink(&webhook("s", &receiver.url("/")));
    let emitted = daemon.emit("x", &json!({}));
    daemon.delivery(&emitted["event_id"], "dead");
    broken.store(false, Ordering::Relaxed);
    let reply = daemon.post(&format!("/api/event-sinks/{id}/redeliver"), &json!({}));
    assert_eq!((reply.status, reply.json()), (200, json!({"redelivered": 1, "remaining": 0})));
    let delivery = daemon.delivery(&emitted["event_id"], "delivered");
    assert_eq!(delivery["sequence"], 2);
    assert_eq!(delivery["attempts"].as_array().unwrap().len(), 4);
    assert_eq!(delivery["attempts"][3]["number"], 1);
    assert_eq!(receiver.received().last().unwrap().header("x-service-sequence"), "2");
    assert_eq!(daemon.get(&format!("/api/event-sinks/{id}/dead-letters")).json()["items"], json!([]));
    let audit = daemon.get("/api/audit?action=sink.redeliver").json();
    assert_eq!(audit["items"].as_array().unwrap().len(), 1);
}

#[test]
fn a_full_queue_drops_only_for_that_sink_and_leaves_a_gap_in_its_numbers() {
    let daemon = Daemon::with(&[("DELIVERY_QUEUE", "3")]);
    let receiver = Receiver::start();
    let mut off = webhook("off", &receiver.url("/off"));
    off["active"] = json!(false);
    let off = daemon.create_sink(&off);
    daemon.create_sink(&webhook("on", &receiver.url("/on")));
    for n in 1..=5 {
        let emitted = daemon.emit("x", &json!({"n": n}));
        let dropped: Vec<_> = emitted["dropped"].as_array().unwrap().iter().map(|sink| &sink["name"]).collect();
        assert_eq!(dropped, vec!["off"; usize::from(n > 3)], "event {n}");
        assert_eq!(emitted["matched"].as_array().unwrap().len(), 2);
        if n > 3 {
            let event = daemon.event(&emitted["event_id"]);
            let states: Vec<_> = event["deliveries"].as_array().unwrap().iter().map(|d| &d["state"]).collect();
            assert!(states.contains(&&json!("dropped")), "{event}");
        }
        receiver.wait_for(n);
    }
    let audit = daemon.get("/api/audit?action=event.drop").json();
    assert_eq!(audit["items"].as_array().unwrap().len(), 1, "the others of that minute are summed up at its end");
    assert!(daemon.log().contains("sink `off`"), "the drop is logged");
    assert_eq!(daemon.patch(&format!("/api/event-sinks/{off}"), &json!({"active": true})).status, 200);
    let to_off = |received: Vec<Received>| -> Vec<Received> {
        received.into_iter().filter(|request| request.path == "/off").collect()
    };
    eventually("the three that waited", || (to_off(receiver.received()).len() == 3).then_some(()));
    daemon.emit("x", &json!({"n": 6}));
    eventually("the sixth", || (to_off(receiver.received()).len() == 4).then_some(()));
    assert_eq!(sequences(&to_off(receiver.received())), [1, 2, 3, 6], "4 and 5 were dropped");
}

#[test]
fn the_default_queue_holds_a_hundred_events() {
    let daemon = Daemon::start();
    let mut sink = webhook("s", "http://127.0.0.1:9/");
    sink["active"] = json!(false);
    let id = daemon.create_sink(&sink);
    for n in 1..=101 {
        let emitted = daemon.emit("x", &json!({}));
        assert_eq!(emitted["dropped"].as_array().unwrap().len(), usize::from(n == 101), "event {n}");
    }
    assert_eq!(daemon.get(&format!("/api/event-sinks/{id}")).json()["queue"]["depth"], 100);
}

#[test]
fn an_inactive_sink_keeps_its_queue_over_a_restart_and_delivers_once_it_is_active() {
    let mut daemon = Daemon::start();
    let receiver = Receiver::start();
    let mut sink = webhook("s", &receiver.url("/"));
    sink["active"] = json!(false);
    let id = daemon.create_sink(&sink);
    let emitted = daemon.emit("x", &json!({}));
    daemon.crash_and_restart();
    assert_eq!(daemon.event(&emitted["event_id"])["deliveries"][0]["state"], "queued");
    assert_eq!(receiver.received().len(), 0);
    daemon.patch(&format!("/api/event-sinks/{id}"), &json!({"active": true}));
    daemon.delivery(&emitted["event_id"], "delivered");
}

#[test]
fn attempts_are_counted_over_restarts() {
    let mut daemon = Daemon::with(&[("DELIVERY_BACKOFF", "1ms,10m")]);
    let receiver = Receiver::answering(|_| Answer::Status(500));
    let id = daemon.create_sink(&webhook("s", &receiver.url("/")));
    let emitted = daemon.emit("x", &json!({}));
    eventually("two attempts on disk", || {
        (daemon.event(&emitted["event_id"])["deliveries"][0]["attempts"].as_array()?.len() == 2).then_some(())
    });
    daemon.crash_and_restart();
    // The third attempt is due in ten minutes; a restart does not make it earlier.
    assert_eq!(daemon.get(&format!("/api/event-sinks/{id}")).json()["queue"]["depth"], 1);
    assert_eq!(receiver.received().len(), 2);
    daemon.kill();
    drop(daemon);

    let mut daemon = Daemon::with(&[("DELIVERY_BACKOFF", "1ms,1s")]);
    daemon.create_sink(&webhook("s", &receiver.url("/")));
    let emitted = daemon.emit("x", &json!({}));
    eventually("two attempts on disk", || {
        (daemon.event(&emitted["event_id"])["deliveries"][0]["attempts"].as_array()?.len() == 2).then_some(())
    });
    daemon.crash_and_restart();
    let delivery = daemon.delivery(&emitted["event_id"], "dead");
    let numbers: Vec<_> = delivery["attempts"].as_array().unwrap().iter().map(|a| a["number"].clone()).collect();
    assert_eq!(numbers, [1, 2, 3], "the restart did not start the count anew");
}

#[test]
fn retry_after_is_waited_for() {
    let daemon = Daemon::with(&[("DELIVERY_BACKOFF", "1ms,1ms")]);
    let times = Arc::new(Mutex::new(Vec::new()));
    let receiver = Receiver::answering({
        let times = times.clone();
        move |_| {
            let mut times = times.lock().unwrap();
            times.push(std::time::Instant::now());
            match times.len() {
                1 => Answer::Raw("HTTP/1.1 429 X\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n".into()),
                _ => Answer::Status(200),
            }
        }
    });
    daemon.create_sink(&webhook("s", &receiver.url("/")));
    let emitted = daemon.emit("x", &json!({}));
    daemon.delivery(&emitted["event_id"], "delivered");
    let times = times.lock().unwrap();
    assert!(times[1] - times[0] >= std::time::Duration::from_secs(1), "{:?}", times[1] - times[0]);
}

#[test]
fn editing_a_sink_takes_effect_on_the_next_delivery() {
    let daemon = Daemon::start();
    let receiver = Receiver::start();
    let id = daemon.create_sink(&webhook("s", &receiver.url("/before")));
    let emitted = daemon.emit("x", &json!({}));
    daemon.delivery(&emitted["event_id"], "delivered");
    let edit = json!({"events": "custom.y", "webhook": {"url": receiver.url("/after"), "template": "return 'body'"}});
    assert_eq!(daemon.patch(&format!("/api/event-sinks/{id}"), &edit).status, 200);
    assert_eq!(daemon.emit("x", &json!({}))["matched"], json!([]));
    daemon.emit("y", &json!({}));
    let request = receiver.wait_for(2).remove(1);
    assert_eq!((request.path.as_str(), request.body.as_slice()), ("/after", &b"body"[..]));
}

#[test]
fn correcting_a_broken_sink_delivers_the_waiting_event_at_once() {
    let daemon = Daemon::with(&[("DELIVERY_BACKOFF", "10m,10m")]);
    let receiver = Receiver::answering(|request| Answer::Status(if request.path == "/good" { 200 } else { 500 }));
    let id = daemon.create_sink(&webhook("s", &receiver.url("/bad")));
    let emitted = daemon.emit("x", &json!({}));
    eventually("the first attempt to be settled", || {
        (daemon.event(&emitted["event_id"])["deliveries"][0]["attempts"].as_array()?.len() == 1).then_some(())
    });
    daemon.patch(&format!("/api/event-sinks/{id}"), &json!({"webhook": {"url": receiver.url("/good")}}));
    let delivery = daemon.delivery(&emitted["event_id"], "delivered");
    assert_eq!(delivery["attempts"].as_array().unwrap().len(), 2);
}

#[test]
fn deleting_a_sink_drops_its_queue() {
    let daemon = Daemon::start();
    let mut sink = webhook("s", "http://127.0.0.1:9/");
    sink["active"] = json!(false);
    let id = daemon.create_sink(&sink);
    let emitted = daemon.emit("x", &json!({}));
    assert_eq!(daemon.delete(&format!("/api/event-sinks/{id}")).status, 204);
    daemon.delivery(&emitted["event_id"], "discarded");
    assert_eq!(daemon.emit("x", &json!({}))["matched"], json!([]));
}

#[test]
fn a_dead_webhook_never_slows_another_sink() {
    let daemon = Daemon::with(&[("DELIVERY_BACKOFF", "1ms,1ms")]);
    let held = Arc::new(AtomicUsize::new(0));
    let hanging = Receiver::answering({
        let held = held.clone();
        move |_| {
            held.fetch_add(1, Ordering::SeqCst);
            Answer::Custom(Box::new(|_| std::thread::sleep(std::time::Duration::from_secs(120))))
        }
    });
    let receiver = Receiver::start();
    daemon.create_sink(&webhook("hangs", &hanging.url("/")));
    daemon.create_sink(&webhook("works", &receiver.url("/")));
    for _ in 0..20 {
        daemon.emit("x", &json!({}));
    }
    receiver.wait_for(20);
    assert_eq!(held.load(Ordering::SeqCst), 1, "the other is still at its first attempt");
}

#[test]
fn a_script_decides_between_success_skip_retry_and_dead_letter() {
    let daemon = Daemon::start();
    daemon.create_sink(&json!({
        "name": "s", "events": "*", "type": "script", "owner": "global",
        "script": {"source": r#"
            local event = require "svc.event"
            print("attempt for", event.get_string("want", "nothing"))
            local want = event.get_string("want", "")
            if want == "skip" then return svc.skip("not today") end
            if want == "dead" then return svc.dead("never") end
            if want == "fail" then error("no luck") end
            if want == "retry" then
              if kv.add("seen:" .. event.id(), true) then return svc.retry(0, "once more") end
            end
        "#},
    }));
    let emit = |want: &str| daemon.emit("x", &json!({"want": want}))["event_id"].clone();
    let delivered = daemon.delivery(&emit("ack"), "delivered");
    assert_eq!(delivered["attempts"][0]["log"], json!(["attempt for\tack"]));
    daemon.delivery(&emit("skip"), "skipped");
    let dead = daemon.delivery(&emit("dead"), "dead");
    assert_eq!(dead["attempts"].as_array().unwrap().len(), 1, "no further attempt makes sense");
    let failed = daemon.delivery(&emit("fail"), "dead");
    assert_eq!(failed["attempts"].as_array().unwrap().len(), 3);
    assert!(failed["attempts"][0]["error"].as_str().unwrap().contains("no luck"), "{failed}");
    let retried = daemon.delivery(&emit("retry"), "delivered");
    assert_eq!(retried["attempts"].as_array().unwrap().len(), 2);
}

#[test]
fn many_dead_letters_are_redelivered_in_steps_and_some_by_their_events() {
    let daemon = Daemon::with(&[("DELIVERY_BACKOFF", ""), ("DELIVERY_QUEUE", "1000")]);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let id = daemon.create_sink(&json!({
        "name": "s", "events": "*", "type": "webhook", "owner": "global",
        "webhook": {"url": format!("http://127.0.0.1:{port}/")},
    }));
    let events: Vec<_> = (0..600).map(|n| daemon.emit("x", &json!({"n": n}))["event_id"].clone()).collect();
    let sink = format!("/api/event-sinks/{id}");
    eventually("all are dead letters", || {
        let letters = daemon.items(&format!("{sink}/dead-letters"));
        (letters.len() == events.len()).then_some(())
    });
    assert_eq!(daemon.patch(&sink, &json!({"active": false})).status, 200);
    let redeliver = |body: &Value| daemon.post(&format!("{sink}/redeliver"), body).json();
    let three = json!({"event_ids": [events[0], events[300], events[599]]});
    assert_eq!(redeliver(&three), json!({"redelivered": 3, "remaining": 597}));
    assert_eq!(redeliver(&three), json!({"redelivered": 0, "remaining": 597}));
    assert_eq!(redeliver(&json!({})), json!({"redelivered": 597, "remaining": 0}));
    let entries = daemon.items("/api/audit?action=sink.redeliver");
    let counts: Vec<_> = entries.iter().map(|entry| entry["detail"]["redelivered"].clone()).collect();
    assert_eq!(counts, [97, 500, 3]);
}
