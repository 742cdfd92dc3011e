//! Methods that subscribe to events: their params, and no loss while their agent is away.

use crate::support::{Daemon, Space, eventually, registration};
use serde_json::{Value, json};

fn subscribed_registration(fields: &str) -> String {
    registration("echo.py", "", &[("inbox.remember", fields), ("inbox.remembered", "")])
}

fn wait_received(daemon: &Daemon, count: usize) -> Vec<Value> {
    eventually(&format!("{count} events to arrive"), || {
        let all = daemon.call("inbox.remembered", &json!({}))["result"].as_array().cloned()?;
        (all.len() >= count).then_some(all)
    })
}

#[test]
fn a_subscribed_method_is_called_with_the_event() {
    let daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    space.start(&daemon, &[]);
    space.register(&subscribed_registration("events = [\"custom.deploy.*\", \"space.created\"]"));
    let event = daemon.emit("deploy.done", &json!({"version": "1.2", "n": 1.0}));
    assert_eq!(event["matched"][0]["name"], "notes/inbox.remember");
    daemon.emit("other", &json!({}));
    let params_received = wait_received(&daemon, 1);
    assert_eq!(
        params_received[0],
        json!({
            "event_id": event["event_id"], "event_type": "custom.deploy.done", "event_ts": event["event_ts"],
            "data": {"version": "1.2", "n": 1.0},
        })
    );
    Space::create(&daemon, "second");
    let params_received = wait_received(&daemon, 2);
    assert_eq!(
        (&params_received[1]["event_type"], &params_received[1]["data"]["space_name"]),
        (&json!("space.created"), &json!("second"))
    );
    assert_eq!(params_received.len(), 2);
}

#[test]
fn a_method_gets_only_events_of_its_owner() {
    let daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    space.start(&daemon, &[]);
    space.register(&subscribed_registration("events = [\"*\"]\nscope = \"shared\""));
    let other = daemon.create_user("uma", &["use_spaces", "use_methods"]);
    let body = json!({"type": "x", "payload": {"whose": "uma"}}).to_string().into_bytes();
    assert_eq!(daemon.send("POST", "/api/events/emit", Some(&other), Some(body)).status, 202);
    daemon.emit("x", &json!({"whose": "admin"}));
    assert_eq!(wait_received(&daemon, 1)[0]["data"], json!({"whose": "admin"}));
}

#[test]
fn the_first_named_formatter_whose_patterns_match_makes_the_params() {
    let daemon = Daemon::start();
    let formatter = |name: &str, events: &str| {
        let template = format!("return {{by = '{name}', v = event.data.v}}");
        daemon.create_sink(&json!({"name": name, "events": events, "type": "json-rpc", "template": template}));
    };
    formatter("all", "*");
    formatter("builds", "custom.build.*");
    formatter("unnamed", "*");
    let mut space = Space::create(&daemon, "notes");
    space.start(&daemon, &[]);
    space.register(&subscribed_registration(
        "events = [\"custom.*\"]\nevent_sinks = [\"missing\", \"builds\", \"all\"]",
    ));
    daemon.emit("build.done", &json!({"v": 1}));
    daemon.emit("deploy.done", &json!({"v": 2}));
    assert_eq!(wait_received(&daemon, 2), [json!({"by": "builds", "v": 1}), json!({"by": "all", "v": 2})]);
    // Formatters alone subscribe to nothing; without a matching one the default format is used.
    space.register(&registration(
        "echo.py",
        "",
        &[
            ("inbox.remember", "event_sinks = [\"all\"]"),
            ("inbox.remembered", ""),
            ("inbox.say", "events = [\"custom.plain\"]\nevent_sinks = [\"builds\"]"),
        ],
    ));
    let plain = daemon.emit("plain", &json!({"text": "x"}));
    assert_eq!(plain["matched"].as_array().map(Vec::len), Some(1), "{plain}");
    assert_eq!(plain["matched"][0]["name"], "notes/inbox.say");
}

#[test]
fn events_wait_while_the_agent_is_away_even_over_a_restart_of_the_server() {
    let mut daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    space.start(&daemon, &[]);
    space.register(&subscribed_registration("events = [\"custom.*\"]"));
    space.kill();
    eventually("the link to be lost", || (space.view(&daemon)["linked"] == false).then_some(()));
    for n in 0..3 {
        daemon.emit("n", &json!({ "n": n }));
    }
    daemon.crash_and_restart();
    for n in 3..6 {
        daemon.emit("n", &json!({ "n": n }));
    }
    space.start(&daemon, &[]);
    daemon.wait_method("inbox.remembered");
    let params_received: Vec<_> = wait_received(&daemon, 6).iter().map(|event| event["data"]["n"].clone()).collect();
    assert_eq!(params_received, (0..6).map(Value::from).collect::<Vec<_>>());
}

#[test]
fn stopping_the_space_or_unregistering_drops_waiting_events() {
    let daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    space.start(&daemon, &[]);
    space.register(&subscribed_registration("events = [\"custom.*\"]"));
    space.kill();
    eventually("the link to be lost", || (space.view(&daemon)["linked"] == false).then_some(()));
    daemon.emit("n", &json!({"n": 1}));
    assert_eq!(daemon.get("/api/subscriptions").json()["items"][0]["queue"]["depth"], 1);
    assert_eq!(daemon.post(&format!("/api/spaces/{}/stop", space.id), &json!({})).status, 200);
    eventually("the subscription to be gone", || {
        (daemon.get("/api/subscriptions").json()["items"] == json!([])).then_some(())
    });
    space.start(&daemon, &[]);
    daemon.wait_method("inbox.remembered");
    daemon.emit("n", &json!({"n": 2}));
    assert_eq!(wait_received(&daemon, 1)[0]["data"], json!({"n": 2}));
    assert!(space.svc(&["methods", "unregister"]).status.success());
    assert_eq!(daemon.emit("n", &json!({"n": 3}))["matched"], json!([]));
}

#[test]
fn a_method_that_keeps_failing_gets_three_attempts_and_then_the_event_is_a_dead_letter() {
    let daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    space.start(&daemon, &[]);
    space.register(&registration("echo.py", "", &[("inbox.fail", "events = [\"custom.*\"]")]));
    let event = daemon.emit("n", &json!({"n": 1}));
    let delivery = daemon.delivery(&event["event_id"], "dead");
    assert_eq!(delivery["attempts"].as_array().map(Vec::len), Some(3));
    assert!(delivery["attempts"][0]["error"].as_str().is_some_and(|error| error.contains("as you wish")), "{delivery}");
    let subscription = daemon.get("/api/subscriptions").json()["items"][0].clone();
    let id = subscription["id"].as_str().expect("an id");
    let letters = daemon.get(&format!("/api/event-sinks/{id}/dead-letters")).json();
    assert_eq!(
        letters["items"][0]["event"]["id"].as_str().or(letters["items"][0]["event_id"].as_str()),
        event["event_id"].as_str()
    );
    let list = daemon.svc(&["sink", "dead-letters", id]);
    assert!(list.status.success(), "{}", String::from_utf8_lossy(&list.stderr));
    let other = daemon.create_user("uma", &["manage_own_event_sinks"]);
    assert_eq!(daemon.send("GET", &format!("/api/event-sinks/{id}/dead-letters"), Some(&other), None).status, 404);
}
