//! Emitting events and reading them back: types, ownership, history, the live stream, explain.

use crate::support::{Daemon, Receiver, eventually};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
};

fn sink(name: &str, events: &str, owner: &str, receiver: &Receiver) -> Value {
    json!({"name": name, "events": events, "type": "webhook", "owner": owner, "webhook": {"url": receiver.url("/")}})
}

#[test]
fn every_type_gets_custom_in_front_and_never_becomes_a_system_event() {
    let daemon = Daemon::start();
    let receiver = Receiver::start();
    daemon.create_sink(&sink("system", "space.*", "global", &receiver));
    let emitted = daemon.emit("space.created", &json!({}));
    assert_eq!(emitted["event_type"], "custom.space.created");
    assert_eq!(emitted["matched"], json!([]));
    assert_eq!(daemon.emit("custom.a", &json!({}))["event_type"], "custom.custom.a");
}

#[test]
fn an_api_event_has_the_nil_space_and_belongs_to_its_caller() {
    let daemon = Daemon::start();
    let emitted = daemon.emit("deploy.done", &json!({"version": "1.2", "big": 9007199254740993_i64}));
    let event = daemon.event(&emitted["event_id"]);
    assert_eq!(event["space_id"], "00000000-0000-0000-0000-000000000000");
    assert_eq!(event["user_id"], daemon.get("/api/whoami").json()["id"]);
    assert_eq!(event["actor"]["username"], "admin");
    assert_eq!(event["zone"], "default");
    assert_eq!(event["ts"], emitted["event_ts"]);
    assert!(event["accepted_at"].as_str() >= event["ts"].as_str(), "{event}");
    assert_eq!(daemon.get("/api/events").json()["items"][0], event);
    assert_eq!(event["data"], json!({"version": "1.2", "big": 9007199254740993_i64}));
}

#[test]
fn an_event_reaches_its_users_own_sinks_and_global_ones_only() {
    let daemon = Daemon::with(&[("EGRESS_ALLOW_PRIVATE", "true")]);
    let receiver = Receiver::start();
    let ada = daemon.create_user("ada", &["use_spaces", "manage_own_event_sinks"]);
    daemon.create_sink(&sink("everyone", "*", "global", &receiver));
    daemon.create_sink(&sink("admins", "*", "me", &receiver));
    let own = sink("adas", "*", "me", &receiver).to_string();
    assert_eq!(daemon.send("POST", "/api/event-sinks", Some(&ada), Some(own.into())).status, 201);
    let body = json!({"type": "x", "payload": {}}).to_string();
    let emitted = daemon.send("POST", "/api/events/emit", Some(&ada), Some(body.into())).json();
    let mut names: Vec<_> = emitted["matched"].as_array().unwrap().iter().map(|sink| &sink["name"]).collect();
    names.sort_by_key(|name| name.to_string());
    assert_eq!(names, ["adas", "everyone"]);
}

#[test]
fn an_emit_needs_use_spaces_or_manage_spaces() {
    let daemon = Daemon::start();
    let body = || Some(json!({"type": "x", "payload": {}}).to_string().into_bytes());
    let nobody = daemon.create_user("nobody", &["use_methods"]);
    assert_eq!(daemon.send("POST", "/api/events/emit", Some(&nobody), body()).status, 403);
    for (name, permission) in [("user", "use_spaces"), ("manager", "manage_spaces")] {
        let token = daemon.create_user(name, &[permission]);
        assert_eq!(daemon.send("POST", "/api/events/emit", Some(&token), body()).status, 202, "{permission}");
    }
}

#[test]
fn a_repeated_id_is_answered_again_and_stored_once() {
    let daemon = Daemon::start();
    let receiver = Receiver::start();
    daemon.create_sink(&sink("s", "*", "global", &receiver));
    let id = uuid::Uuid::now_v7().to_string();
    let body = json!({"type": "x", "payload": {"n": 1}, "id": id});
    let first = daemon.post("/api/events/emit", &body);
    let second = daemon.post("/api/events/emit", &body);
    assert_eq!((first.status, second.status), (202, 202));
    assert_eq!(first.json(), second.json());
    assert_eq!(first.json()["event_id"], id);
    daemon.delivery(&json!(id), "delivered");
    assert_eq!(receiver.received().len(), 1);
    for body in
        [json!({"type": "y", "payload": {"n": 1}, "id": id}), json!({"type": "x", "payload": {"n": 2}, "id": id})]
    {
        let other = daemon.post("/api/events/emit", &body);
        assert_eq!(other.status, 409, "{}", other.text);
    }
}

/// A nested object with this many levels.
fn nested(depth: usize) -> Value {
    (1..depth).fold(json!({}), |inner, _| json!({"a": inner}))
}

#[test]
fn bad_emits_name_what_is_wrong_and_store_nothing() {
    let daemon = Daemon::start();
    for (body, status, word) in [
        (json!({"payload": {}}), 400, "type"),
        (json!({"type": 5, "payload": {}}), 400, "type"),
        (json!({"type": "", "payload": {}}), 400, "type"),
        (json!({"type": "a..b", "payload": {}}), 400, "position 3"),
        (json!({"type": "a".repeat(249), "payload": {}}), 400, "255"),
        (json!({"type": "a", "payload": [1]}), 400, "payload"),
        (json!({"type": "a", "payload": "text"}), 400, "payload"),
        (json!({"type": "a", "payload": null}), 400, "`payload`: null is no payload"),
        (json!({"type": "a", "payload": {}, "id": "zebra"}), 400, "id"),
        (json!({"type": "a", "payload": {}, "colour": 1}), 400, "colour"),
        (json!(["a"]), 400, ""),
        (json!({"type": "a", "payload": nested(65)}), 400, "deep"),
        (json!({"type": "a", "payload": {"x": "y".repeat(257 << 10)}}), 413, "payload"),
    ] {
        let reply = daemon.post("/api/events/emit", &body);
        assert_eq!(reply.status, status, "{:.200} → {:.200}", body.to_string(), reply.text);
        assert!(reply.message().contains(word), "{:.200} → {}", body.to_string(), reply.message());
    }
    let token = daemon.admin_token();
    for body in [&b"{\"type\":"[..], b"", b"{\"type\":\"a\",\"payload\":{\"x\":\"\xff\"}}"] {
        let reply = daemon.send("POST", "/api/events/emit", Some(&token), Some(body.to_vec()));
        assert_eq!(reply.status, 400, "{}", reply.text);
    }
    let huge = vec![b' '; (1 << 20) + 1];
    assert_eq!(daemon.send("POST", "/api/events/emit", Some(&token), Some(huge)).status, 413);
    assert_eq!(daemon.get("/api/events").json()["items"], json!([]));
}

#[test]
fn history_is_filtered_by_pattern_sink_state_and_time_and_paged() {
    let daemon = Daemon::start();
    let (good, bad) = (Receiver::start(), Receiver::answering(|_| crate::support::Answer::Status(500)));
    let sink_id = daemon.create_sink(&sink("good", "custom.a.*", "global", &good));
    daemon.create_sink(&sink("bad", "custom.b", "global", &bad));
    let ids: Vec<Value> =
        ["a.one", "a.two", "b"].iter().map(|kind| daemon.emit(kind, &json!({}))["event_id"].clone()).collect();
    daemon.delivery(&ids[0], "delivered");
    daemon.delivery(&ids[1], "delivered");
    daemon.delivery(&ids[2], "dead");
    let found = |query: &str| -> Vec<Value> {
        let reply = daemon.get(&format!("/api/events?{query}"));
        assert_eq!(reply.status, 200, "{}", reply.text);
        reply.json()["items"].as_array().unwrap().iter().map(|event| event["id"].clone()).collect()
    };
    assert_eq!(found("pattern=custom.*"), [&ids[2], &ids[1], &ids[0]].map(Clone::clone));
    assert_eq!(found("pattern=custom.a.*"), [&ids[1], &ids[0]].map(Clone::clone));
    assert_eq!(found(&format!("sink={sink_id}")), [&ids[1], &ids[0]].map(Clone::clone));
    assert_eq!(found("state=dead"), [ids[2].clone()]);
    assert_eq!(found("until=2001-01-01T00:00:00Z"), [Value::Null; 0]);
    let first = daemon.get("/api/events?pattern=custom.*&limit=2").json();
    let second =
        daemon.get(&format!("/api/events?pattern=custom.*&limit=2&cursor={}", first["next"].as_str().unwrap())).json();
    assert_eq!(second["items"][0]["id"], ids[0]);
    assert_eq!(second["next"], Value::Null);
    for query in ["state=lost", "limit=0", "cursor=x", "since=noon", "pattern=*.a", "colour=red"] {
        assert_eq!(daemon.get(&format!("/api/events?{query}")).status, 400, "{query}");
    }
}

#[test]
fn anothers_event_looks_like_an_absent_one() {
    let daemon = Daemon::start();
    let emitted = daemon.emit("secret", &json!({}));
    let ada = daemon.create_user("ada", &["use_spaces"]);
    let path = format!("/api/events/{}", emitted["event_id"].as_str().unwrap());
    let hidden = daemon.send("GET", &path, Some(&ada), None);
    let absent = daemon.send("GET", &format!("/api/events/{}", uuid::Uuid::now_v7()), Some(&ada), None);
    assert_eq!((hidden.status, absent.status), (404, 404));
    assert_eq!(hidden.json()["error"]["code"], absent.json()["error"]["code"]);
    assert_eq!(daemon.send("GET", "/api/events", Some(&ada), None).json()["items"], json!([]));
    assert_eq!(daemon.get("/api/events/zebra").status, 400);
}

#[test]
fn the_stream_shows_events_and_outcomes_as_they_happen() {
    let daemon = Daemon::start();
    let receiver = Receiver::start();
    daemon.create_sink(&sink("s", "*", "global", &receiver));
    let mut lines = stream(&daemon, "/api/events/stream?pattern=custom.seen");
    daemon.emit("unseen", &json!({}));
    let emitted = daemon.emit("seen", &json!({"n": 1}));
    let mut next = || loop {
        let line = lines.next().unwrap().unwrap();
        if let Some(kind) = line.strip_prefix("event: ").or_else(|| line.strip_prefix("event:")) {
            let data = lines.next().unwrap().unwrap();
            let data: Value = serde_json::from_str(data.trim_start_matches("data:").trim()).unwrap();
            return (kind.trim().to_owned(), data);
        }
    };
    let (kind, event) = next();
    assert_eq!((kind.as_str(), &event["id"]), ("event", &emitted["event_id"]));
    assert_eq!(event["data"], json!({"n": 1}));
    let (kind, outcome) = next();
    assert_eq!((kind.as_str(), &outcome["event_id"]), ("delivery", &emitted["event_id"]));
    assert_eq!((&outcome["state"], &outcome["name"]), (&json!("delivered"), &json!("s")));
}

/// The lines of a server-sent event stream, after its header.
fn stream(daemon: &Daemon, path: &str) -> impl Iterator<Item = std::io::Result<String>> + use<> {
    let mut socket = TcpStream::connect(daemon.url.trim_start_matches("http://")).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n", daemon.admin_token()).unwrap();
    socket.set_read_timeout(Some(crate::support::TEST_TIMEOUT)).unwrap();
    let mut lines = BufReader::new(socket).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "HTTP/1.1 200 OK");
    let head: Vec<String> = lines.by_ref().map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
    assert!(head.iter().any(|line| line == "content-type: text/event-stream"), "{head:?}");
    lines
}

#[test]
fn explain_tells_which_sinks_match_and_why_the_others_do_not_and_sends_nothing() {
    let daemon = Daemon::with(&[("EGRESS_ALLOW_PRIVATE", "true")]);
    let receiver = Receiver::start();
    daemon.create_sink(&sink("matching", "custom.deploy.*", "global", &receiver));
    daemon.create_sink(&sink("deaf", "space.*", "global", &receiver));
    let mut off = sink("off", "*", "me", &receiver);
    off["active"] = json!(false);
    daemon.create_sink(&off);
    let explained = daemon.post("/api/events/explain", &json!({"type": "deploy.done"})).json();
    assert_eq!(explained["event_type"], "custom.deploy.done");
    let of =
        |name: &str| explained["sinks"].as_array().unwrap().iter().find(|sink| sink["name"] == name).unwrap().clone();
    assert_eq!(of("matching")["matches"], true);
    assert_eq!(of("deaf")["matches"], false);
    assert!(of("deaf")["reason"].as_str().unwrap().contains("space.*"));
    assert_eq!((&of("off")["matches"], &of("off")["active"]), (&json!(true), &json!(false)));
    assert_eq!(daemon.get("/api/events").json()["items"], json!([]));
}

#[test]
fn the_counters_of_accepted_and_matched_events_equal_the_sum_of_outcomes() {
    let daemon = Daemon::with(&[("DELIVERY_QUEUE", "2")]);
    let (good, bad) = (Receiver::start(), Receiver::answering(|_| crate::support::Answer::Status(500)));
    daemon.create_sink(&sink("good", "*", "global", &good));
    daemon.create_sink(&sink("bad", "custom.b", "global", &bad));
    let mut full = sink("full", "*", "global", &good);
    full["active"] = json!(false);
    daemon.create_sink(&full);
    for kind in ["a", "b", "c", "d"] {
        daemon.emit(kind, &json!({}));
        // One at a time, so that only the queue of the inactive sink overflows.
        eventually("the active queues to drain", || {
            (daemon.metric("svc_queue_depth{")
                == daemon.metric("svc_deliveries_matched_total")
                    - ["delivered", "dropped", "dead"]
                        .iter()
                        .map(|name| daemon.metric(&format!("svc_deliveries_{name}_total")))
                        .sum::<f64>()
                && daemon.metric("svc_queue_depth{") <= 2.0)
                .then_some(())
        });
    }
    let count = |name: &str| daemon.metric(&format!("svc_{name}"));
    // The four, and the reports that one sink fails and another drops.
    eventually("the reports", || (count("events_accepted_total") == 6.0).then_some(()));
    assert_eq!(count("deliveries_matched_total"), 9.0);
    assert_eq!(count("deliveries_delivered_total"), 4.0);
    assert_eq!(count("deliveries_dead_total"), 1.0);
    assert_eq!(count("deliveries_dropped_total"), 2.0);
    assert_eq!(count("queue_depth{"), 2.0);
    assert_eq!(count("delivery_attempts_failed_total"), 3.0);
}
