//! Reports: events of the service about sinks, sources and agents.

use crate::support::{Answer, Daemon, Receiver, Space, eventually, success};
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicU16, Ordering},
};

fn watcher(name: &str, events: &str, url: &str) -> Value {
    json!({"name": name, "events": events, "type": "webhook", "owner": "global", "webhook": {"url": url}})
}

fn script(name: &str, events: &str, source: &str) -> Value {
    json!({"name": name, "events": events, "type": "script", "script": {"source": source}})
}

/// The types of the events that a receiver got.
fn kinds(receiver: &Receiver) -> Vec<String> {
    receiver.received().iter().map(|request| request.header("x-service-event-type").to_owned()).collect()
}

/// The types, sinks and depths of the reports in the history, oldest first.
fn reports(daemon: &Daemon) -> Vec<(String, String, u64)> {
    let mut events = daemon.items("/api/events?pattern=sink.*");
    events.reverse();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let report = |event: &Value| {
        let data = &event["data"];
        (text(&event["type"]), text(&data["sink_name"]), data["depth"].as_u64().unwrap())
    };
    events.iter().map(report).collect()
}

fn drained(daemon: &Daemon) {
    eventually("the queues to drain", || (daemon.metric("svc_queue_depth{") == 0.0).then_some(()));
}

#[test]
fn a_sink_that_fails_and_recovers_is_reported_once_each_and_not_to_itself() {
    let status = Arc::new(AtomicU16::new(500));
    let answered = status.clone();
    let failing = Receiver::answering(move |_| Answer::Status(answered.load(Ordering::Relaxed)));
    let watching = Receiver::start();
    let mut daemon = Daemon::with(&[("DELIVERY_BACKOFF", "1ms,1ms")]);
    let id = daemon.create_sink(&watcher("bad", "custom.*, sink.*", &failing.url("/")));
    daemon.create_sink(&watcher("star", "*", &watching.url("/star")));
    daemon.create_sink(&watcher("exact", "sink.failing", &watching.url("/exact")));
    let all = json!({"name": "all", "events": "*", "type": "webhook", "owner": "global", "internal": true,
        "webhook": {"url": watching.url("/all")}});
    daemon.create_sink(&all);
    for n in 0..3 {
        let emitted = daemon.emit("x", &json!({"n": n}));
        eventually("the dead letter", || {
            let deliveries = daemon.event(&emitted["event_id"])["deliveries"].as_array()?.clone();
            deliveries.iter().any(|delivery| delivery["name"] == "bad" && delivery["state"] == "dead").then_some(())
        });
        daemon.crash_and_restart();
    }
    status.store(200, Ordering::Relaxed);
    daemon.emit("x", &json!({"n": 3}));
    eventually("the recovery", || (reports(&daemon).len() == 2).then_some(()));
    drained(&daemon);
    let told = |kind: &str| (kind.to_owned(), "bad".to_owned(), 1);
    assert_eq!(reports(&daemon), [told("sink.failing"), told("sink.recovered")]);
    let of = |path: &str| {
        let received = watching.received();
        let of_path = received.iter().filter(|request| request.path == path);
        let mut kinds: Vec<_> = of_path.map(|request| request.header("x-service-event-type").to_owned()).collect();
        kinds.retain(|kind| !kind.starts_with("custom."));
        kinds.dedup();
        kinds
    };
    assert_eq!(of("/star"), [""; 0], "`*` does not match reports");
    assert_eq!(
        (of("/exact"), of("/all")),
        (vec!["sink.failing".to_owned()], vec!["sink.failing".to_owned(), "sink.recovered".to_owned()])
    );
    assert!(kinds(&failing).iter().all(|kind| kind == "custom.x"), "a sink gets no report about itself");
    let report = watching.received().into_iter().find(|request| request.path == "/exact").unwrap().json();
    let data = &report["data"];
    assert_eq!((&data["sink_id"], &data["owner"], &data["reason"]), (&json!(id), &json!("global"), &json!("HTTP 500")));
    assert_eq!((&data["previous"], &data["current"]), (&json!("working"), &json!("failing")));
    assert_eq!((&data["event_type"], &data["needs_change"]), (&json!("custom.x"), &json!(false)));
}

#[test]
fn reports_stay_within_the_scope_of_their_owner_and_users_cannot_raise_them() {
    let watching = Receiver::start();
    let daemon = Daemon::with(&[("DELIVERY_BACKOFF", "1ms,1ms"), ("EGRESS_ALLOW_PRIVATE", "true")]);
    let ada = daemon.create_user("ada", &["use_spaces", "manage_own_event_sinks"]);
    let post = |token: &str, sink: Value| {
        let reply = daemon.send("POST", "/api/event-sinks", Some(token), Some(sink.to_string().into_bytes()));
        assert_eq!(reply.status, 201, "{}", reply.text);
    };
    let own = |name: &str, path: &str| json!({"name": name, "events": "sink.*", "type": "webhook", "webhook": {"url": watching.url(path)}});
    post(&ada, own("watch", "/ada"));
    post(&daemon.admin_token(), own("watch", "/admin"));
    daemon.create_sink(&watcher("watch", "sink.*", &watching.url("/global")));
    post(&ada, script("of ada", "custom.ada", "error('no')"));
    let global = json!({"name": "of all", "events": "custom.*", "type": "script", "owner": "global", "script": {"source": "error('no')"}});
    daemon.create_sink(&global);
    let body = json!({"type": "ada", "payload": {}}).to_string().into_bytes();
    assert_eq!(daemon.send("POST", "/api/events/emit", Some(&ada), Some(body)).status, 202);
    let received = watching.wait_for(3);
    drained(&daemon);
    let mut told: Vec<_> =
        received.iter().map(|request| (request.path.clone(), request.json()["data"]["sink_name"].clone())).collect();
    told.sort_by_key(|(path, name)| (path.clone(), name.to_string()));
    let expected = [("/ada", "of ada"), ("/global", "of ada"), ("/global", "of all")];
    assert_eq!(told, expected.map(|(path, name)| (path.to_owned(), json!(name))));

    let raised = daemon.emit("sink.failing", &json!({"depth": 0}));
    assert_eq!(
        (&raised["event_type"], &raised["matched"][0]["name"]),
        (&json!("custom.sink.failing"), &json!("of all"))
    );
}

#[test]
fn sinks_that_fail_on_each_others_reports_come_to_rest() {
    let daemon = Daemon::with(&[("DELIVERY_BACKOFF", "1ms,1ms")]);
    for name in ["a", "b", "c"] {
        daemon.create_sink(&script(name, "custom.start, sink.*", "error('no')"));
    }
    daemon.emit("start", &json!({}));
    eventually("the reports", || (reports(&daemon).len() == 3).then_some(()));
    drained(&daemon);
    let mut told = reports(&daemon);
    told.sort();
    let failing = |name: &str| ("sink.failing".to_owned(), name.to_owned(), 1);
    assert_eq!(told, ["a", "b", "c"].map(failing));
}

/// Each of the two goes back and forth between failure and success on the reports of the other, for ever if nothing
/// ended it.
#[test]
fn sinks_that_fail_and_recover_on_each_others_reports_come_to_rest() {
    let daemon = Daemon::with(&[("DELIVERY_BACKOFF", "1ms,1ms")]);
    let a = "if event.type == 'sink.failing' or event.data.bad then error('no') end";
    let b = "if event.type == 'sink.recovered' then error('no') end";
    daemon.create_sink(&script("a", "custom.x, sink.*", a));
    daemon.create_sink(&script("b", "sink.*", b));
    daemon.emit("x", &json!({"bad": true}));
    eventually("the first report", || (reports(&daemon).len() == 1).then_some(()));
    drained(&daemon);
    daemon.emit("x", &json!({"bad": false}));
    eventually("the others", || (reports(&daemon).len() == 4).then_some(()));
    drained(&daemon);
    let told = |kind: &str, name: &str, depth| (format!("sink.{kind}"), name.to_owned(), depth);
    let expected =
        [told("failing", "a", 1), told("recovered", "a", 1), told("failing", "b", 2), told("failing", "a", 3)];
    assert_eq!(reports(&daemon), expected);
}

#[test]
fn a_queue_that_drops_and_a_sink_that_holds_are_reported_once() {
    let status = Arc::new(AtomicU16::new(500));
    let answered = status.clone();
    let receiver = Receiver::answering(move |_| Answer::Status(answered.load(Ordering::Relaxed)));
    let watching = Receiver::start();
    let daemon = Daemon::with(&[("DELIVERY_BACKOFF", "1ms"), ("DELIVERY_HOLD_MAX", "10ms"), ("DELIVERY_QUEUE", "4")]);
    let mut holding = watcher("slow", "custom.*", &receiver.url("/"));
    holding["on_failure"] = "hold".into();
    daemon.create_sink(&holding);
    daemon.create_sink(&watcher("watch", "sink.*", &watching.url("/")));
    for n in 0..10 {
        daemon.emit("x", &json!({"n": n}));
    }
    eventually("both reports", || (kinds(&watching).len() == 2).then_some(()));
    let mut told = kinds(&watching);
    told.sort();
    assert_eq!(told, ["sink.dropping", "sink.held"]);
    status.store(200, Ordering::Relaxed);
    eventually("the recovery", || (kinds(&watching).len() == 3).then_some(()));
    drained(&daemon);
    status.store(500, Ordering::Relaxed);
    for n in 0..10 {
        daemon.emit("x", &json!({"n": n}));
    }
    eventually("the next reports", || (kinds(&watching).len() == 5).then_some(()));
    let mut told = kinds(&watching)[2..].to_vec();
    told.sort();
    assert_eq!(told, ["sink.dropping", "sink.held", "sink.recovered"]);
}

#[test]
fn a_source_that_begins_to_refuse_is_reported_once() {
    let watching = Receiver::start();
    let daemon = Daemon::start();
    daemon.create_sink(&watcher("watch", "source.*", &watching.url("/")));
    let source = json!({"slug": "github", "verify": {"type": "github", "secret": "a secret of some length"}});
    assert_eq!(daemon.post("/api/sources", &source).status, 201);
    for _ in 0..20 {
        assert_eq!(daemon.send("POST", "/in/github", None, Some(b"{}".to_vec())).status, 401);
    }
    let report = watching.wait_for(1).remove(0).json();
    drained(&daemon);
    assert_eq!((&report["event_type"], &report["data"]["source_slug"]), (&json!("source.refusing"), &json!("github")));
    assert!(report["data"]["reason"].as_str().unwrap().starts_with("not verified"), "{report}");
    assert_eq!(watching.received().len(), 1);
}

#[test]
fn an_agent_that_stays_away_is_reported_once_and_one_that_says_goodbye_is_not() {
    let watching = Receiver::start();
    let mut daemon = Daemon::start();
    daemon.create_sink(&watcher("watch", "agent.*", &watching.url("/")));
    let (mut lost, mut stopped) = (Space::create(&daemon, "lost"), Space::create(&daemon, "stopped"));
    lost.start(&daemon, &[]);
    stopped.start(&daemon, &[]);
    lost.wait_linked(&daemon);
    stopped.wait_linked(&daemon);
    assert!(stopped.terminate().success());
    lost.kill();
    let report = watching.wait_for(1).remove(0).json();
    assert_eq!((&report["event_type"], &report["data"]["space_name"]), (&json!("agent.lost"), &json!("lost")));
    daemon.terminate();
    assert!(daemon.ended().success());
    daemon.restart();
    lost.start(&daemon, &[]);
    lost.wait_linked(&daemon);
    lost.kill();
    let again = watching.wait_for(2);
    assert_eq!(again[1].json()["data"]["space_name"], "lost", "it was back in between");
    assert_eq!(daemon.items("/api/events?pattern=agent.*").len(), 2);
    assert_ne!(again[0].header("x-service-event-id"), again[1].header("x-service-event-id"));
}

#[test]
fn internal_is_kept_shown_and_applied_from_files() {
    let daemon = Daemon::start();
    let made =
        daemon.svc(&["sink", "create", "--name", "all", "--events", "*", "--url", "https://x.example", "--internal"]);
    success(&made);
    let shown = success(&daemon.svc(&["sink", "show", "all"]));
    assert!(shown.lines().any(|line| line.starts_with("internal") && line.ends_with("yes")), "{shown}");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("all.toml");
    std::fs::write(&file, "name = \"all\"\nevents = \"*\"\ntype = \"webhook\"\non_failure = \"hold\"\n[webhook]\nurl = \"https://x.example\"\ngone = \"pause\"\n").unwrap();
    let applied = success(&daemon.svc(&["sink", "apply", file.to_str().unwrap()]));
    assert!(applied.contains("(internal, on_failure, webhook.gone)"), "{applied}");
    let shown = success(&daemon.svc(&["sink", "show", "all"]));
    assert!(!shown.contains("internal") && shown.contains("hold") && shown.contains("pause"), "{shown}");
}
