//! Methods that are called for events, served by a real agent and its process (SPEC 6.4, DESIGN 6).

use crate::support::{Daemon, Space, eventually, registration};
use serde_json::{Value, json};

/// The whole params of each delivery, which the echo answers with.
fn answer(delivery: &Value) -> Value {
    let last = delivery["attempts"].as_array().unwrap().last().unwrap();
    serde_json::from_str(last["response"].as_str().unwrap_or_else(|| panic!("no answer in {delivery}"))).unwrap()
}

fn subscription(daemon: &Daemon) -> Value {
    daemon.get("/api/subscriptions").json()["items"][0].clone()
}

#[test]
fn a_method_is_called_with_the_event_or_with_what_its_formatter_makes_of_it() {
    let daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    space.start(&daemon, &[]);
    let fields = "events = [\"custom.deploy.*\"]\nevent_sinks = [\"short\"]";
    space.register(&registration("echo.py", "", &[("{{space}}.echo", fields), ("deaf", "event_sinks = [\"short\"]")]));
    let emitted = daemon.emit("deploy.done", &json!({"version": "1.2"}));
    assert_eq!(emitted["matched"][0]["name"], "notes/notes.echo");
    assert_eq!(emitted["matched"].as_array().unwrap().len(), 1, "naming formatters does not subscribe");
    let delivery = daemon.delivery(&emitted["event_id"], "delivered");
    let expected = json!({
        "event_id": emitted["event_id"], "event_type": "custom.deploy.done", "event_ts": emitted["event_ts"],
        "data": {"version": "1.2"},
    });
    assert_eq!(answer(&delivery), expected);

    let short = json!({"name": "short", "events": "custom.deploy.*", "type": "json-rpc",
                       "template": "return { v = event.data.version }"});
    daemon.create_sink(&short);
    let emitted = daemon.emit("deploy.done", &json!({"version": "1.3"}));
    assert_eq!(answer(&daemon.delivery(&emitted["event_id"], "delivered")), json!({"v": "1.3"}));
    let listed = daemon.svc(&["subscription", "list"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("notes/notes.echo") && listed.contains("yes"), "{listed}");
    let waited = daemon.svc(&["event", "deploy.done", "--wait"]);
    let told = String::from_utf8(waited.stdout).unwrap();
    assert!(waited.status.success() && told.contains("delivered  notes/notes.echo  1 attempt"), "{told}");
}

#[test]
fn events_wait_for_an_agent_that_is_away_through_a_crash_of_both() {
    let mut daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    space.start(&daemon, &[]);
    space.register(&registration("echo.py", "", &[("echo", "events = [\"custom.*\"]")]));
    space.kill();
    eventually("the link to be gone", || (subscription(&daemon)["open"] == false).then_some(()));
    let before: Vec<Value> = (0..3).map(|n| daemon.emit("x", &json!({"n": n}))["event_id"].clone()).collect();
    daemon.crash_and_restart();
    let after = daemon.emit("x", &json!({"n": 3}))["event_id"].clone();
    assert_eq!(subscription(&daemon)["queue"]["depth"], 4);
    space.start(&daemon, &[]);
    for (n, id) in before.iter().chain([&after]).enumerate() {
        let delivery = daemon.delivery(id, "delivered");
        assert_eq!(delivery["attempts"].as_array().unwrap().len(), 1, "waiting used up no attempt: {delivery}");
        assert_eq!((answer(&delivery)["data"]["n"].clone(), &delivery["sequence"]), (json!(n), &json!(n + 1)));
    }
}

#[test]
fn unregistering_ends_the_subscription() {
    let daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    space.start(&daemon, &[]);
    space.register(&registration("echo.py", "", &[("echo", "events = [\"custom.*\"]")]));
    let first = daemon.emit("x", &json!({}));
    daemon.delivery(&first["event_id"], "delivered");
    assert!(space.svc(&["methods", "unregister"]).status.success());
    eventually("the subscription to go", || subscription(&daemon).is_null().then_some(()));
    assert_eq!(daemon.emit("x", &json!({}))["matched"], json!([]));
}
