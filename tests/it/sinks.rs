//! Managing sinks: permissions, validation, secrets, preview and test.

use crate::support::{Daemon, Receiver};
use serde_json::{Value, json};

fn webhook(name: &str, owner: &str) -> Value {
    json!({"name": name, "events": "*", "type": "webhook", "owner": owner,
           "webhook": {"url": "https://hooks.example/x"}})
}

#[test]
fn a_sink_is_created_read_replaced_changed_and_deleted() {
    let daemon = Daemon::start();
    let id = daemon.create_sink(&webhook("one", "me"));
    let path = format!("/api/event-sinks/{id}");
    let sink = daemon.get(&path).json();
    assert_eq!(sink["name"], "one");
    assert_eq!((&sink["type"], &sink["owner"], &sink["active"]), (&json!("webhook"), &json!("me"), &json!(true)));
    assert_eq!(sink["queue"], json!({"depth": 0, "next_sequence": 1, "dead": 0}));
    let mut replaced = webhook("two", "me");
    replaced["description"] = json!("the second");
    assert_eq!(daemon.put(&path, &replaced).json()["description"], "the second");
    let changed = daemon.patch(&path, &json!({"active": false})).json();
    assert_eq!((&changed["active"], &changed["name"]), (&json!(false), &json!("two")));
    assert_eq!(changed["webhook"]["secret"], sink["webhook"]["secret"], "a secret that is not named is kept");
    assert_eq!(daemon.delete(&path).status, 204);
    assert_eq!(daemon.get(&path).status, 404);
    let actions: Vec<_> = daemon.get("/api/audit?action=sink.*").json()["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["action"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(actions, ["sink.delete", "sink.update", "sink.update", "sink.create"]);
}

#[test]
fn a_missing_secret_is_generated_shown_to_its_owner_and_masked_in_lists() {
    let daemon = Daemon::start();
    let id = daemon.create_sink(&webhook("s", "me"));
    let secret = daemon.get(&format!("/api/event-sinks/{id}")).json()["webhook"]["secret"].clone();
    assert!(secret.as_str().unwrap().starts_with("whsec_") && secret.as_str().unwrap().len() > 30, "{secret}");
    let listed = daemon.get("/api/event-sinks").json()["items"][0]["webhook"]["secret"].clone();
    assert_eq!(listed, "whsec_****");
}

#[test]
fn sink_names_are_unique_per_owner() {
    let daemon = Daemon::start();
    daemon.create_sink(&webhook("s", "me"));
    daemon.create_sink(&webhook("s", "global"));
    let again = daemon.post("/api/event-sinks", &webhook("s", "me"));
    assert_eq!((again.status, &again.json()["error"]["code"]), (409, &json!("conflict")));
}

#[test]
fn own_and_global_sinks_need_their_permissions_and_anothers_sink_looks_absent() {
    let daemon = Daemon::start();
    let own = daemon.create_user("own", &["manage_own_event_sinks"]);
    let global = daemon.create_user("global", &["manage_global_event_sinks"]);
    let none = daemon.create_user("none", &["use_spaces"]);
    let create = |token: &str, sink: &Value| {
        daemon.send("POST", "/api/event-sinks", Some(token), Some(sink.to_string().into_bytes()))
    };
    assert_eq!(create(&none, &webhook("a", "me")).status, 403);
    assert_eq!(create(&own, &webhook("a", "global")).status, 403);
    assert_eq!(create(&own, &webhook("a", "me")).status, 201);
    let everyones = create(&global, &webhook("b", "global"));
    assert_eq!(everyones.status, 201);
    assert_eq!(create(&global, &webhook("a", "me")).status, 201, "the global permission includes one's own");

    let mine = daemon.create_sink(&webhook("mine", "me"));
    let everyones = everyones.json()["id"].as_str().unwrap().to_owned();
    for (token, id) in [(&own, &mine), (&global, &mine), (&own, &everyones)] {
        let path = format!("/api/event-sinks/{id}");
        assert_eq!(daemon.send("GET", &path, Some(token), None).status, 404);
        assert_eq!(daemon.send("DELETE", &path, Some(token), None).status, 404);
        let change = json!({"active": false}).to_string().into_bytes();
        assert_eq!(daemon.send("PATCH", &path, Some(token), Some(change)).status, 404);
    }
    let names = |token: &str| -> Vec<Value> {
        let list = daemon.send("GET", "/api/event-sinks", Some(token), None).json();
        list["items"].as_array().unwrap().iter().map(|sink| sink["name"].clone()).collect()
    };
    assert_eq!(names(&own), ["a"]);
    assert_eq!(names(&global), ["b", "a"]);
}

#[test]
fn a_bad_sink_is_refused_with_its_field_and_changes_nothing() {
    let daemon = Daemon::start();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut sink = webhook("s", "me");
        change(&mut sink);
        sink
    };
    for (sink, words) in [
        (with(&|s| s["name"] = json!("")), vec!["name"]),
        (with(&|s| s["name"] = json!(7)), vec!["name"]),
        (with(&|s| s["events"] = json!("a.*.b")), vec!["events", "position 3"]),
        (with(&|s| s["events"] = json!("*.x")), vec!["events", "position 1"]),
        (with(&|s| s["type"] = json!("email")), vec!["type", "webhook"]),
        (with(&|s| s["owner"] = json!("you")), vec!["owner"]),
        (with(&|s| s["colour"] = json!("red")), vec!["colour"]),
        (with(&|s| s["webhook"]["url"] = json!("ftp://x/")), vec!["webhook.url"]),
        (with(&|s| s["webhook"]["url"] = json!("not a url")), vec!["webhook.url"]),
        (with(&|s| s["webhook"]["headers"] = json!({"X-Service-Event-Id": "1"})), vec!["X-Service-Event-Id"]),
        (with(&|s| s["webhook"]["template"] = json!("return {\n  a = = 1 }")), vec!["template", "line 2"]),
        (with(&|s| s["webhook"] = Value::Null), vec!["webhook"]),
        (json!({"name": "s", "events": "*", "type": "script", "script": {"source": "\n\nlocal = 5"}}), vec!["line 3"]),
        (json!({"name": "s", "events": "*", "type": "json-rpc", "template": "return ("}), vec!["template", "line 1"]),
    ] {
        let reply = daemon.post("/api/event-sinks", &sink);
        assert_eq!(reply.status, 400, "{sink} → {}", reply.text);
        for word in words {
            assert!(reply.message().contains(word), "{sink} → {}", reply.message());
        }
    }
    assert_eq!(daemon.get("/api/event-sinks").json()["items"], json!([]));
    assert_eq!(daemon.get("/api/event-sinks/zebra").status, 400);
    assert_eq!(daemon.get(&format!("/api/event-sinks/{}", uuid::Uuid::now_v7())).status, 404);
}

#[test]
fn the_type_of_a_sink_cannot_change() {
    let daemon = Daemon::start();
    let id = daemon.create_sink(&webhook("s", "me"));
    let change = json!({"type": "script", "webhook": null, "script": {"source": "return"}});
    let reply = daemon.patch(&format!("/api/event-sinks/{id}"), &change);
    assert_eq!(reply.status, 400);
    assert!(reply.message().contains("`type` cannot change"), "{}", reply.message());
}

#[test]
fn lists_mask_header_values_too() {
    let daemon = Daemon::start();
    let mut sink = webhook("s", "me");
    sink["webhook"]["headers"] = json!({"Authorization": "Bearer hidden"});
    let id = daemon.create_sink(&sink);
    let listed = daemon.get("/api/event-sinks").json();
    assert_eq!(listed["items"][0]["webhook"]["headers"], json!({"Authorization": "****"}));
    let shown = daemon.get(&format!("/api/event-sinks/{id}")).json();
    assert_eq!(shown["webhook"]["headers"], json!({"Authorization": "Bearer hidden"}));
}

#[test]
fn a_json_rpc_sink_is_kept_as_a_formatter_and_gets_no_events() {
    let daemon = Daemon::start();
    let id = daemon.create_sink(&json!({"name": "f", "events": "*", "type": "json-rpc", "template": "return {}"}));
    assert_eq!(daemon.get(&format!("/api/event-sinks/{id}")).json()["template"]["source"], "return {}");
    assert_eq!(daemon.emit("x", &json!({}))["matched"], json!([]));
}

#[test]
fn a_preview_renders_and_sends_nothing() {
    let daemon = Daemon::start();
    let receiver = Receiver::start();
    let template = "return { text = ('%s by %s'):format(event.data.version, actor.username), n = event.data.n }";
    let mut sink = webhook("s", "global");
    sink["webhook"] = json!({"url": receiver.url("/"), "template": template});
    let body = json!({"sink": sink, "type": "deploy", "payload": {"version": "1.2", "n": 9007199254740993_i64}});
    let preview = daemon.post("/api/event-sinks/preview", &body);
    assert_eq!(preview.status, 200, "{}", preview.text);
    let rendered: Value = serde_json::from_str(preview.json()["body"].as_str().unwrap()).unwrap();
    assert_eq!(rendered, json!({"text": "1.2 by admin", "n": 9007199254740993_i64}));
    sink["webhook"]["template"] = json!({"lang": "text", "source": "v=${{ event.data.version }} d=${{ event.data }}"});
    let body = json!({"sink": sink, "payload": {"version": "1.2"}});
    let preview = daemon.post("/api/event-sinks/preview", &body);
    assert_eq!(preview.json()["body"], "v=1.2 d={\"version\":\"1.2\"}");
    let failing = json!({"sink": {"name": "x", "events": "*", "type": "webhook",
        "webhook": {"url": receiver.url("/"), "template": "return event.data.a.b"}}, "payload": {}});
    let preview = daemon.post("/api/event-sinks/preview", &failing);
    assert_eq!(preview.status, 400, "{}", preview.text);
    assert!(preview.message().contains("line 1") || preview.message().contains(":1:"), "{}", preview.message());
    assert_eq!(receiver.received().len(), 0);
}

#[test]
fn a_test_delivers_a_sample_now_and_leaves_the_queue_alone() {
    let daemon = Daemon::start();
    let receiver = Receiver::start();
    let mut sink = webhook("s", "global");
    sink["webhook"]["url"] = json!(receiver.url("/"));
    let id = daemon.create_sink(&sink);
    let reply = daemon.post(&format!("/api/event-sinks/{id}/test"), &json!({"type": "t", "payload": {"n": 1}}));
    assert_eq!((reply.status, &reply.json()["outcome"]), (200, &json!("delivered")), "{}", reply.text);
    assert_eq!(receiver.received()[0].json()["data"], json!({"n": 1}));
    assert_eq!(daemon.get(&format!("/api/event-sinks/{id}")).json()["queue"]["next_sequence"], 1);
    assert_eq!(daemon.get("/api/events").json()["items"], json!([]));
}

#[test]
fn a_users_sink_cannot_reach_private_addresses_but_a_global_one_can() {
    let mut daemon = Daemon::with(&[("EGRESS_ALLOW_PRIVATE", "true")]);
    let receiver = Receiver::start();
    let url = receiver.url("/");
    let port = url.trim_end_matches('/').rsplit(':').next().unwrap();
    let hosts = ["127.0.0.1", "2130706433", "127.1", "[::ffff:127.0.0.1]", "localhost"];
    let sink_at = |name: &str, owner: &str, url: &str| {
        let mut sink = webhook(name, owner);
        sink["webhook"]["url"] = json!(url);
        sink
    };
    let at = |host: &str| format!("http://{host}:{port}/");
    let numbered = hosts.iter().enumerate();
    let ids: Vec<String> =
        numbered.map(|(n, host)| daemon.create_sink(&sink_at(&format!("s{n}"), "me", &at(host)))).collect();
    // The policy becomes stricter while the sinks are there: each delivery checks the address.
    daemon.kill();
    daemon.set("EGRESS_ALLOW_PRIVATE", "false");
    daemon.restart();
    for (host, id) in hosts.iter().zip(&ids) {
        let reply = daemon.post(&format!("/api/event-sinks/{id}/test"), &json!({})).json();
        assert_eq!(reply["outcome"], "failed", "{host}: {reply}");
        assert!(reply["error"].as_str().unwrap().contains("not allowed"), "{reply}");
    }
    assert_eq!(receiver.received().len(), 0);
    // Another field can still be changed, and what would never be delivered cannot be made.
    let path = format!("/api/event-sinks/{}", ids[0]);
    assert_eq!(daemon.patch(&path, &json!({"active": false})).status, 200);
    let private = "loopback and private addresses are closed to user-owned sinks: make the sink global, or have \
                   `egress.allow_private` set on the server";
    for host in hosts.iter().chain(&["a.localhost", "10.1.2.3", "[fd00::1]"]) {
        let reply = daemon.post("/api/event-sinks", &sink_at("new", "me", &at(host)));
        assert_eq!(reply.status, 400, "{host}: {}", reply.text);
        let message = reply.message();
        assert!(message.starts_with("`webhook.url`: `") && message.ends_with(private), "{host}: {message}");
    }
    let moved = daemon.patch(&path, &json!({"webhook": {"url": at("127.0.0.2")}}));
    assert!(moved.status == 400 && moved.message().starts_with("`webhook.url`: "), "{}", moved.text);
    for owner in ["me", "global"] {
        let reply =
            daemon.post("/api/event-sinks", &sink_at("metadata", owner, "http://169.254.169.254/latest/meta-data/"));
        let expected = "`webhook.url`: `169.254.169.254` is at 169.254.169.254, which is not allowed: cloud metadata \
                        addresses are never allowed";
        assert_eq!((reply.status, reply.message().as_str()), (400, expected), "{owner}");
    }
    let by_name = daemon.post("/api/event-sinks", &sink_at("name", "me", "https://hooks.invalid/"));
    assert_eq!(by_name.status, 201, "a name is resolved at delivery: {}", by_name.text);
    let mut sink = webhook("allowed", "global");
    sink["webhook"]["url"] = json!(url);
    let id = daemon.create_sink(&sink);
    let reply = daemon.post(&format!("/api/event-sinks/{id}/test"), &json!({})).json();
    assert_eq!(reply["outcome"], "delivered", "{reply}");
}
