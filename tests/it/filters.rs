//! Filters of sinks and subscriptions: what they refuse leaves no trace in a queue, and what fails counts as a match.

use crate::support::{Daemon, Receiver, Space, eventually, registration, stderr, success};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn sink(receiver: &Receiver, name: &str, owner: &str, filter: &str) -> Value {
    json!({"name": name, "events": "custom.deploy.*", "type": "webhook", "owner": owner, "filter": filter,
           "webhook": {"url": receiver.url(&format!("/{name}"))}})
}

fn names(receipt: &Value) -> Vec<&str> {
    receipt["matched"].as_array().unwrap().iter().map(|sink| sink["name"].as_str().unwrap()).collect()
}

#[test]
fn an_event_that_a_filter_refuses_gets_no_place_and_no_number() {
    let (daemon, receiver) = (Daemon::start(), Receiver::start());
    let id = daemon.create_sink(&sink(&receiver, "main", "global", "event.data.branch == \"main\""));
    for n in 0..3 {
        assert_eq!(names(&daemon.emit("deploy.done", &json!({"branch": "other", "n": n}))), [""; 0]);
    }
    let event = daemon.emit("deploy.done", &json!({"branch": "main"}));
    assert_eq!(names(&event), ["main"]);
    daemon.delivery(&event["event_id"], "delivered");
    let received = receiver.wait_for(1);
    assert_eq!((received.len(), received[0].header("x-service-sequence")), (1, "1"));
    let shown = daemon.get(&format!("/api/event-sinks/{id}")).json();
    assert_eq!(shown["queue"], json!({"depth": 0, "next_sequence": 2, "dead": 0}));
    assert_eq!((&shown["filter"], shown.get("filter_errors")), (&json!("event.data.branch == \"main\""), None));
    assert_eq!((daemon.metric("svc_filter_refusals_total"), daemon.metric("svc_filter_errors_total")), (3.0, 0.0));

    let changed = daemon.patch(&format!("/api/event-sinks/{id}"), &json!({"filter": "event.data.branch ~= \"main\""}));
    assert_eq!(changed.status, 200, "{}", changed.text);
    assert_eq!(names(&daemon.emit("deploy.done", &json!({"branch": "main"}))), [""; 0]);
    let removed = daemon.patch(&format!("/api/event-sinks/{id}"), &json!({"filter": null}));
    assert_eq!((removed.status, removed.json().get("filter")), (200, None), "{}", removed.text);
    assert_eq!(names(&daemon.emit("deploy.done", &json!({"branch": "main"}))), ["main"]);
}

#[test]
fn a_filter_on_a_field_that_is_not_there_lets_the_event_pass_and_the_sink_shows_the_error() {
    let (mut daemon, receiver) = (Daemon::start(), Receiver::start());
    let id = daemon.create_sink(&sink(&receiver, "main", "global", "event.data.build.branch == \"main\""));
    let path = format!("/api/event-sinks/{id}");
    for n in 1..=2 {
        let event = daemon.emit("deploy.done", &json!({"n": n}));
        assert_eq!(names(&event), ["main"]);
        daemon.delivery(&event["event_id"], "delivered");
        let errors = daemon.get(&path).json()["filter_errors"].clone();
        assert_eq!(
            (&errors["count"], &errors["last"]),
            (&json!(n), &json!("filter:1: attempt to index nil with 'branch'"))
        );
    }
    assert_eq!(daemon.metric("svc_filter_errors_total"), 2.0);
    let shown = success(&daemon.svc(&["sink", "show", "main"]));
    assert!(shown.contains("filter errors") && shown.contains("2, each counted as a match"), "{shown}");
    assert_eq!(names(&daemon.emit("deploy.done", &json!({"build": {"branch": "other"}}))), [""; 0]);

    let changed = daemon.patch(&path, &json!({"filter": "event.data.build and event.data.build.branch == \"main\""}));
    assert_eq!((changed.status, changed.json().get("filter_errors")), (200, None), "{}", changed.text);
    assert_eq!(names(&daemon.emit("deploy.done", &json!({}))), [""; 0]);
    daemon.crash_and_restart();
    assert_eq!(names(&daemon.emit("deploy.done", &json!({}))), [""; 0], "a filter is there after a restart");
}

#[test]
fn a_filter_is_checked_when_it_is_saved() {
    let (daemon, receiver) = (Daemon::start(), Receiver::start());
    for (filter, words) in [
        (json!("event.data.n ==\n== 1"), ["`filter`", "line 2"]),
        (json!("return true"), ["`filter`", "line 1"]),
        (json!(""), ["`filter`", "expression"]),
        (json!("true ".repeat(2000)), ["`filter`", "4096"]),
        (json!(7), ["filter", "string"]),
    ] {
        let mut sink = sink(&receiver, "main", "global", "");
        sink["filter"] = filter;
        let reply = daemon.post("/api/event-sinks", &sink);
        assert_eq!(reply.status, 400, "{}", reply.text);
        assert!(words.iter().all(|word| reply.message().contains(word)), "{}", reply.message());
    }
    assert_eq!(daemon.get("/api/event-sinks").json()["items"], json!([]));
}

#[test]
fn an_explanation_runs_the_filters_and_counts_no_error() {
    let (daemon, receiver) = (Daemon::start(), Receiver::start());
    let created = daemon.svc(&[
        "sink",
        "create",
        "--name",
        "main",
        "--events",
        "custom.deploy.*",
        "--global",
        "--url",
        &receiver.url("/main"),
        "--filter",
        "event.data.branch == 'main'",
    ]);
    success(&created);
    let failing = daemon.create_sink(&sink(&receiver, "failing", "global", "event.data.a.b"));
    let explain = |payload: &str| {
        let told: Value =
            serde_json::from_str(&success(&daemon.svc(&["event", "deploy.done", payload, "--explain", "--json"])))
                .unwrap();
        let of = |name: &str| {
            let sinks = told["sinks"].as_array().unwrap();
            let sink = sinks.iter().find(|sink| sink["name"] == name).unwrap();
            (sink["matches"].as_bool().unwrap(), sink["reason"].as_str().unwrap().to_owned())
        };
        (of("main"), of("failing"))
    };
    let (main, failing_sink) = explain(r#"{"branch": "other"}"#);
    assert_eq!(main, (false, "filtered: its filter `event.data.branch == 'main'` refuses the event".to_owned()));
    assert!(failing_sink.0 && failing_sink.1.contains("its filter fails, which counts as a match: filter:1: "));
    let (main, _) = explain(r#"{"branch": "main"}"#);
    assert_eq!(main, (true, "its pattern `custom.deploy.*` matches; its filter lets the event pass".to_owned()));
    assert_eq!(daemon.get(&format!("/api/event-sinks/{failing}")).json().get("filter_errors"), None);
    assert!(success(&daemon.svc(&["event", "deploy.done", "--explain"])).contains("filtered: "));

    let own = daemon.create_user("own", &["use_spaces"]);
    let body = json!({"type": "deploy.done"}).to_string().into_bytes();
    let told = daemon.send("POST", "/api/events/explain", Some(&own), Some(body)).json();
    let [failing] = &told["sinks"].as_array().unwrap()[..] else { panic!("{told}") };
    let (name, reason) = (failing["name"].as_str().unwrap(), failing["reason"].as_str().unwrap());
    assert_eq!((name, reason), ("failing", "it gets the event"), "nothing is told of filters of others");
    assert_eq!(daemon.metric("svc_events_accepted_total"), 0.0);
}

#[test]
fn a_subscription_has_a_filter_too() {
    let daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    space.start(&daemon, &[]);
    let methods = |filter: &str| {
        let fields = format!("events = [\"custom.deploy.*\"]\nfilter = '{filter}'");
        registration("echo.py", "", &[("inbox.remember", &fields), ("inbox.remembered", "")])
    };
    let refused = space.try_register(&methods("event.data.n >"));
    assert!(stderr(&refused).contains("`methods[0].filter`: it does not compile: line 1"), "{}", stderr(&refused));
    let useless = registration("echo.py", "", &[("inbox.remember", "filter = 'true'")]);
    assert!(stderr(&space.try_register(&useless)).contains("`methods[0].filter`"));
    space.register(&methods("event.data.n > 1"));
    for n in 0..4 {
        daemon.emit("deploy.done", &json!({"n": n}));
    }
    let received = eventually("two events to arrive", || {
        let all = daemon.call("inbox.remembered", &json!({}))["result"].as_array().cloned()?;
        (all.len() >= 2).then_some(all)
    });
    let numbers: Vec<_> = received.iter().map(|params| params["data"]["n"].clone()).collect();
    assert_eq!(numbers, [2, 3]);
    daemon.emit("deploy.done", &json!({"n": "x"}));
    let shown = daemon.get("/api/subscriptions").json()["items"][0].clone();
    assert_eq!((&shown["filter"], &shown["filter_errors"]["count"]), (&json!("event.data.n > 1"), &json!(1)));
}

#[test]
fn a_hostile_filter_of_one_user_does_not_delay_the_events_of_others() {
    let daemon = Daemon::with(&[("EGRESS_ALLOW_PRIVATE", "true")]);
    let receiver = Receiver::start();
    daemon.create_sink(&sink(&receiver, "mine", "me", "event.data.n == 1"));
    let emit_twenty = || {
        let began = Instant::now();
        for n in 0..20 {
            let expected: &[&str] = if n == 1 { &["mine"] } else { &[] };
            assert_eq!(names(&daemon.emit("deploy.done", &json!({"n": n}))), expected);
        }
        began.elapsed()
    };
    let undisturbed = emit_twenty();
    let eve = daemon.create_user("eve", &["use_spaces", "manage_own_event_sinks"]);
    let hanging = format!("(function() local a, x = ('1'):rep(2e7){} return x end)()", " x = a + a".repeat(380));
    let body = sink(&receiver, "eve", "me", &hanging).to_string().into_bytes();
    assert_eq!(daemon.send("POST", "/api/event-sinks", Some(&eve), Some(body)).status, 201);
    let emit = json!({"type": "deploy.done", "payload": {}}).to_string().into_bytes();
    let hostile = daemon.send("POST", "/api/events/emit", Some(&eve), Some(emit));
    assert_eq!((hostile.status, names(&hostile.json())), (202, vec!["eve"]), "a late answer counts as a match");
    // Waits for the hostile filter would take 250 ms for each event, five seconds in all.
    let disturbed = emit_twenty();
    let most = undisturbed * 2 + Duration::from_secs(4);
    assert!(disturbed < most, "20 events took {disturbed:?}, and {undisturbed:?} before");
}
