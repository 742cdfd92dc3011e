//! Spaces against a running daemon: their events, permissions, and recovery after a crash.

use crate::support::{Daemon, Receiver, Space, eventually, success};
use serde_json::{Value, json};
use std::{collections::BTreeMap, thread, time::Duration};

/// Posts without a body, as a user.
fn post(daemon: &Daemon, token: &str, path: &str) -> crate::support::Reply {
    daemon.send("POST", path, Some(token), None)
}

fn create(daemon: &Daemon, token: &str, body: &Value) -> Value {
    let reply = daemon.send("POST", "/api/spaces", Some(token), Some(body.to_string().into_bytes()));
    assert_eq!(reply.status, 201, "{}", reply.text);
    reply.json()
}

fn path(space: &Value) -> String {
    format!("/api/spaces/{}", space["id"].as_str().unwrap())
}

/// The events of spaces in the history, oldest first.
fn events(daemon: &Daemon) -> Vec<Value> {
    let mut events = daemon.get("/api/events?pattern=space.*&limit=200").json()["items"].as_array().unwrap().clone();
    events.reverse();
    events
}

fn create_webhook(daemon: &Daemon, receiver: &Receiver) {
    daemon.create_sink(&json!({
        "name": "hook", "events": "space.*", "type": "webhook", "owner": "global",
        "webhook": {"url": receiver.url("/"), "template": "return {data = event.data, type = event.type, space = space,
            actor = actor, custom = custom}"},
    }));
}

#[test]
fn creating_and_deleting_a_space_emits_events_with_exactly_the_documented_fields() {
    let daemon = Daemon::start();
    let receiver = Receiver::start();
    create_webhook(&daemon, &receiver);
    let script = daemon.post("/api/scripts", &json!({"name": "set-up", "owner": "global", "content": ""})).json();
    let template = json!({
        "name": "web", "ports": [{"name": "web", "port": 8080}], "custom": {"CHANNEL": "#ops"},
        "startup_script_id": script["id"],
    });
    let template = daemon.post("/api/templates", &template).json();
    let ada = daemon.create_user("ada", &["use_spaces"]);
    let made = create(&daemon, &ada, &json!({"name": "shop", "template": "web"}));
    let bare = create(&daemon, &ada, &json!({"name": "bare"}));
    assert_eq!(daemon.delete(&path(&made)).status, 204);
    let space_events: Vec<Value> = receiver.wait_for(3).iter().map(|request| request.json()).collect();
    let created = json!({
        "space_name": "shop", "space_id": made["id"], "space_urls": ["http://localhost:8080"],
        "template_id": template["id"], "startup_script_id": script["id"],
    });
    assert_eq!((&space_events[0]["type"], &space_events[0]["data"]), (&json!("space.created"), &created));
    let lacking = json!({
        "space_name": "bare", "space_id": bare["id"], "space_urls": [], "template_id": null, "startup_script_id": null,
    });
    assert_eq!((&space_events[1]["type"], &space_events[1]["data"]), (&json!("space.created"), &lacking));
    assert_eq!(space_events[2]["type"], "space.deleted");
    let fields: Vec<&String> = space_events[2]["data"].as_object().unwrap().keys().collect();
    assert_eq!(fields, ["deleted_at", "space_id", "space_name"]);
    assert_eq!(space_events[2]["data"]["space_id"], made["id"]);
    // The space and the actor as templates see them.
    assert_eq!(
        (&space_events[0]["space"]["name"], &space_events[0]["custom"]["CHANNEL"]),
        (&json!("shop"), &json!("#ops"))
    );
    assert_eq!(
        (&space_events[0]["actor"]["username"], &space_events[2]["actor"]["username"]),
        (&json!("ada"), &json!("admin"))
    );
    let history = events(&daemon);
    assert!(
        history.iter().all(|event| event["user_id"] == made["owner_id"]),
        "events belong to the owner, not to the actor"
    );
    assert_eq!(history[0]["space_id"], made["id"]);
}

#[test]
fn a_space_is_visible_to_its_owner_and_looks_absent_to_others() {
    let daemon = Daemon::start();
    let (ada, bob) = (daemon.create_user("ada", &["use_spaces"]), daemon.create_user("bob", &["use_spaces"]));
    let keeper = daemon.create_user("keeper", &["manage_spaces"]);
    let nobody = daemon.create_user("nobody", &["use_methods"]);
    let space = create(&daemon, &ada, &json!({"name": "web"}));
    for (token, status) in [(&ada, 200), (&bob, 404), (&keeper, 200), (&nobody, 403)] {
        assert_eq!(daemon.send("GET", &path(&space), Some(token), None).status, status);
    }
    assert_eq!(post(&daemon, &bob, &format!("{}/stop", path(&space))).status, 404);
    let start = post(&daemon, &ada, &format!("{}/start", path(&space)));
    assert_eq!(start.status, 409);
    assert!(start.message().contains("svc agent start"), "{}", start.text);
    assert_eq!(post(&daemon, &ada, &format!("{}/stop", path(&space))).status, 409);
    let twice = daemon.send("POST", "/api/spaces", Some(&ada), Some(br#"{"name":"web"}"#.to_vec()));
    assert_eq!(twice.status, 409, "{}", twice.text);
    create(&daemon, &bob, &json!({"name": "web"}));
    let process = br#"{"name":"box","driver":"process"}"#.to_vec();
    assert_eq!(daemon.send("POST", "/api/spaces", Some(&ada), Some(process)).status, 403);
    let named = |token: &str, query: &str| {
        let list = daemon.send("GET", &format!("/api/spaces?{query}"), Some(token), None).json();
        list["items"].as_array().unwrap().iter().map(|space| space["owner"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(named(&keeper, "name=web"), ["ada", "bob"]);
    assert_eq!(named(&keeper, "owner=me"), [""; 0]);
    assert_eq!(named(&bob, ""), ["bob"]);
}

#[test]
fn an_agent_token_is_shown_once_and_survives_restarts_until_it_is_rotated() {
    let mut daemon = Daemon::start();
    let made = create(&daemon, &daemon.admin_token(), &json!({"name": "web"}));
    let first = made["agent_token"].as_str().unwrap().to_owned();
    let status = |daemon: &Daemon, token: &str| daemon.send("GET", "/api/whoami", Some(token), None).status;
    assert_eq!(status(&daemon, &first), 200);
    assert_eq!(daemon.get(&path(&made)).json().get("agent_token"), None);
    daemon.crash_and_restart();
    assert_eq!(status(&daemon, &first), 200);
    let second = success(&daemon.svc(&["space", "token", "web"]));
    assert_eq!((status(&daemon, &first), status(&daemon, second.trim())), (401, 200));
    daemon.crash_and_restart();
    assert_eq!((status(&daemon, &first), status(&daemon, second.trim())), (401, 200));
    assert!(!daemon.log().contains(first.strip_prefix("sva_").unwrap()), "never logged");
    daemon.delete(&path(&made));
    assert_eq!(status(&daemon, second.trim()), 401);
}

#[test]
fn deleting_a_user_deletes_its_spaces() {
    let daemon = Daemon::start();
    let ada = daemon.create_user("ada", &["use_spaces"]);
    let space = create(&daemon, &ada, &json!({"name": "web"}));
    assert_eq!(daemon.delete(&format!("/api/users/{}", space["owner_id"].as_str().unwrap())).status, 204);
    assert_eq!(daemon.get(&path(&space)).status, 404);
    let kinds: Vec<Value> = events(&daemon).iter().map(|event| event["type"].clone()).collect();
    assert_eq!(kinds, ["space.created", "space.deleted"]);
    let audited = daemon.get("/api/audit?action=space.*").json();
    assert_eq!(audited["items"][0]["action"], "space.delete");
}

/// Creates and deletes spaces while the daemon is killed repeatedly. The events must agree with the surviving state:
/// every existing space has its creation, every deleted space its deletion, and no event exists twice.
#[test]
fn kills_between_a_state_change_and_its_event_lose_and_repeat_no_event() {
    let mut daemon = Daemon::with(&[("LIMITS_SPACES", "100000")]);
    let mut serial = 0;
    for round in 0_u64..25 {
        let (url, token, from) = (daemon.url.clone(), daemon.admin_token(), serial);
        let load = thread::spawn(move || create_and_delete_spaces(&url, &token, from));
        eventually("the first space of the round", || {
            let query = format!("/api/spaces?name=s{from}");
            let there = !daemon.get(&query).json()["items"].as_array().unwrap().is_empty();
            (there || !events_of(&daemon, &format!("s{from}")).is_empty()).then_some(())
        });
        // A different moment each time, spread over the two writes of a change.
        thread::sleep(Duration::from_micros((round * 7919) % 15_000));
        daemon.kill();
        serial = load.join().unwrap();
        daemon.restart();
    }
    let mut space_events = BTreeMap::<String, Vec<String>>::new();
    for event in daemon.items("/api/events?pattern=space.*") {
        let space = event["space_id"].as_str().unwrap().to_owned();
        space_events.entry(space).or_default().insert(0, event["type"].as_str().unwrap().to_owned());
    }
    let there = daemon.items("/api/spaces");
    let there: Vec<_> = there.iter().map(|space| space["id"].as_str().unwrap().to_owned()).collect();
    assert!(space_events.len() > 25, "there was load");
    for (space, kinds) in &space_events {
        match there.contains(space) {
            true => assert_eq!(*kinds, ["space.created"], "{space}"),
            false => assert_eq!(*kinds, ["space.created", "space.deleted"], "{space}"),
        }
    }
    assert!(there.iter().all(|space| space_events.contains_key(space)), "a space without its creation");
}

fn events_of(daemon: &Daemon, name: &str) -> Vec<Value> {
    let all = daemon.get("/api/events?pattern=space.*&limit=200").json()["items"].as_array().unwrap().clone();
    all.into_iter().filter(|event| event["data"]["space_name"] == name).collect()
}

/// Creates spaces and deletes every other one until the daemon is gone; returns the next number.
fn create_and_delete_spaces(url: &str, token: &str, from: usize) -> usize {
    use isahc::ReadResponseExt;
    let client = isahc::HttpClient::new().unwrap();
    for n in from.. {
        let request = |method: &str, path: &str, body: String| {
            isahc::Request::builder()
                .method(method)
                .uri(format!("{url}{path}"))
                .header("authorization", format!("Bearer {token}"))
                .header("content-type", "application/json")
                .body(body)
                .unwrap()
        };
        let made = client.send(request("POST", "/api/spaces", json!({"name": format!("s{n}")}).to_string()));
        let Ok(text) = made.and_then(|mut response| Ok(response.text()?)) else { return n + 1 };
        let Ok(space) = serde_json::from_str::<Value>(&text) else { return n + 1 };
        if n % 2 == 0 && client.send(request("DELETE", &path(&space), String::new())).is_err() {
            return n + 1;
        }
    }
    unreachable!("the daemon is killed before that")
}

#[test]
fn spaces_and_templates_are_managed_from_the_command_line() {
    let daemon = Daemon::start();
    let svc = |arguments: &[&str]| success(&daemon.svc(arguments));
    let file = daemon.directory().join("web.toml");
    std::fs::write(&file, "name = \"web\"\n[[ports]]\nname = \"web\"\nport = 8080\n").unwrap();
    assert!(svc(&["template", "apply", file.to_str().unwrap()]).starts_with("created template web"));
    assert!(svc(&["template", "apply", file.to_str().unwrap()]).starts_with("replaced template web"));
    svc(&["template", "create", "db", "--port", "db=5432/tcp", "--health-tcp", "5432", "--interval", "1m"]);
    assert!(svc(&["template", "show", "db"]).contains("tcp 5432 every 1m"), "{}", svc(&["template", "show", "db"]));
    assert_eq!(svc(&["template", "list"]).lines().count(), 3);
    svc(&["template", "delete", "db"]);

    let token = svc(&["space", "create", "shop", "--template", "web", "--host", "box.example", "--custom", "A=b"]);
    assert!(token.starts_with("sva_") && token.lines().count() == 1, "{token}");
    assert!(svc(&["space", "list"]).contains("http://box.example:8080"));
    svc(&["space", "update", "shop", "--health-http", "8080/healthz"]);
    let shown: Value = serde_json::from_str(&svc(&["space", "show", "shop", "--json"])).unwrap();
    assert_eq!((&shown["health_check"]["path"], &shown["custom"]), (&json!("/healthz"), &json!({"A": "b"})));
    let start = daemon.svc(&["space", "start", "shop"]);
    assert_eq!(start.status.code(), Some(1));
    assert!(String::from_utf8(start.stderr).unwrap().contains("svc agent start"));
    svc(&["space", "delete", "shop"]);
    assert_eq!(daemon.svc(&["space", "show", "shop"]).status.code(), Some(1));
}

#[test]
fn a_space_that_the_server_runs_is_launched_ended_and_launched_again_at_the_next_start() {
    let mut daemon = Daemon::start();
    success(&daemon.svc(&["space", "create", "box", "--driver", "process"]));
    success(&daemon.svc(&["space", "start", "box"]));
    let show = |daemon: &Daemon| daemon.get("/api/spaces?name=box").json()["items"][0].clone();
    let launched = |daemon: &Daemon| {
        eventually("a launch", || show(daemon)["process"]["launches"].as_u64().filter(|launches| *launches > 0))
    };
    launched(&daemon);
    daemon.terminate();
    assert!(daemon.ended().success());
    daemon.restart();
    launched(&daemon);
    success(&daemon.svc(&["space", "stop", "box"]));
    eventually("its end", || show(&daemon)["process"].is_null().then_some(()));
    daemon.crash_and_restart();
    assert_eq!((&show(&daemon)["launched"], &show(&daemon)["process"]), (&json!(false), &json!(null)));
}

/// The type of an event and its data fields besides the name and id of the space.
fn space_events(event: &Value) -> (String, Vec<&String>) {
    let fields = event["data"].as_object().unwrap().keys();
    let rest = fields.filter(|field| !["space_name", "space_id"].contains(&field.as_str())).collect();
    (event["type"].as_str().unwrap().to_owned(), rest)
}

#[test]
fn reported_and_missing_checks_of_an_agent_decide_on_health() {
    let daemon = Daemon::start();
    let mark = daemon.directory().join("up");
    let check = json!({
        "type": "command", "command": "test", "args": ["-e", mark], "interval": "1s", "failures": 2,
    });
    let fields = json!({"name": "web", "ports": [{"name": "web", "port": 8080}], "health_check": check});
    let mut space = Space::create_with(&daemon, &daemon.admin_token(), fields);
    space.start(&daemon, &[]);
    let health = |wanted: &str| {
        eventually(wanted, || (space.view(&daemon)["health"] == wanted).then_some(()));
    };
    health("unhealthy");
    std::fs::write(&mark, "").unwrap();
    health("healthy");
    space.kill();
    let health = |wanted: &str| {
        eventually(wanted, || (space.view(&daemon)["health"] == wanted).then_some(()));
    };
    health("unhealthy");
    let lost = space.view(&daemon);
    assert_eq!(
        (&lost["state"], &lost["last_check"]["detail"]),
        (&json!("deployed"), &json!("the agent is not connected"))
    );
    space.start(&daemon, &[]);
    eventually("healthy", || (space.view(&daemon)["health"] == "healthy").then_some(()));
    assert!(space.terminate().success());
    let events = eventually("space.stopped", || Some(events(&daemon)).filter(|events| events.len() == 7));
    let judged = ["checked_at", "current", "previous"].map(str::to_owned);
    let failed = ["checked_at", "consecutive_failures", "current", "previous"].map(str::to_owned);
    let created = ["space_urls", "startup_script_id", "template_id"].map(str::to_owned);
    let started = ["node_id", "space_urls", "started_at"].map(str::to_owned);
    let stopped = ["stopped_at".to_owned()];
    for (event, (kind, fields)) in events.iter().zip([
        ("space.created", &created[..]),
        ("space.started", &started),
        ("space.unhealthy", &failed),
        ("space.healthy", &judged),
        ("space.unhealthy", &failed),
        ("space.healthy", &judged),
        ("space.stopped", &stopped),
    ]) {
        assert_eq!(space_events(event), (kind.to_owned(), fields.iter().collect()));
    }
    let changes: Vec<_> = events.iter().map(|event| (&event["data"]["previous"], &event["data"]["current"])).collect();
    assert_eq!(changes[2..4], [(&json!("unknown"), &json!("unhealthy")), (&json!("unhealthy"), &json!("healthy"))]);
    assert_eq!(events[2]["data"]["consecutive_failures"], 2);
    let kinds: Vec<&Value> = events.iter().map(|event| &event["actor"]["kind"]).collect();
    assert_eq!(kinds, ["user", "agent", "agent", "agent", "system", "agent", "agent"]);
}

#[test]
fn every_kind_of_check_reaches_the_agent_unchanged() {
    let daemon = Daemon::start();
    let receiver = Receiver::start();
    let url = receiver.url("/healthz");
    let port: u16 = url.rsplit_once(':').unwrap().1.split('/').next().unwrap().parse().unwrap();
    let mut space = Space::create(&daemon, "web");
    space.start(&daemon, &[]);
    let path = format!("/api/spaces/{}", space.id);
    for check in [
        json!({"type": "http", "url": url}),
        json!({"type": "http", "port": port, "path": "/healthz"}),
        json!({"type": "tcp", "port": port}),
        json!({"type": "command", "command": "true"}),
        json!({"type": "lua", "source": "return space.name == 'web'"}),
    ] {
        let patched = daemon.patch(&path, &json!({"health_check": check}));
        assert_eq!(patched.status, 200, "{}", patched.text);
        eventually(&format!("{check} to succeed"), || (space.view(&daemon)["health"] == "healthy").then_some(()));
        assert_eq!(daemon.patch(&path, &json!({"health_check": null})).json()["health"], "unknown");
    }
    assert!(receiver.received().iter().any(|request| request.path == "/healthz"));
}

#[test]
fn an_agent_that_the_server_runs_deploys_its_space_and_ends_with_the_server() {
    let mut daemon = Daemon::start();
    success(&daemon.svc(&["space", "create", "box", "--driver", "process"]));
    success(&daemon.svc(&["space", "start", "box"]));
    let show = |daemon: &Daemon| daemon.get("/api/spaces?name=box").json()["items"][0].clone();
    let linked = |daemon: &Daemon, before: u64| {
        eventually("a linked agent", || {
            let space = show(daemon);
            let pid = space["process"]["pid"].as_u64().filter(|pid| space["linked"] == true && *pid != before)?;
            Some((space, pid))
        })
    };
    // An ended process is listed until its parent has waited for it.
    let lives = |pid: u64| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| !stat.rsplit_once(')').unwrap().1.trim_start().starts_with('Z'))
    };
    let (space, first) = linked(&daemon, 0);
    assert_eq!(space["state"], "deployed", "{space}");
    // The agent is restarted if it dies; the space is neither stopped nor started.
    assert!(std::process::Command::new("kill").args(["-9", &first.to_string()]).status().unwrap().success());
    let (_, second) = linked(&daemon, first);
    // A killed server ends the agent, and the next server runs it again.
    daemon.kill();
    eventually("the agent to end", || (!lives(second)).then_some(()));
    daemon.restart();
    let (_, third) = linked(&daemon, second);
    success(&daemon.svc(&["space", "stop", "box"]));
    eventually("the agent to end", || (!lives(third)).then_some(()));
    assert_eq!(show(&daemon)["state"], "stopped");
    success(&daemon.svc(&["space", "delete", "box"]));
    let kinds: Vec<Value> = events(&daemon).iter().map(|event| event["type"].clone()).collect();
    assert_eq!(kinds, ["space.created", "space.started", "space.stopped", "space.deleted"]);
}
