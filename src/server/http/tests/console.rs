//! The parts of the API that the console needs: figures of the last hour, recorded events as samples, searches, and checks of Lua.

use super::TestServer;
use crate::{
    model::{
        delivery::AttemptOutcome,
        event::Actor,
        id::{SinkId, SpaceId, UserId},
    },
    routing::{activity::MINUTES, emit::NewEvent},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

fn webhook(name: &str, owner: &str) -> Value {
    json!({"name": name, "events": "custom.*", "type": "webhook", "owner": owner, "webhook": {"url": "https://example.com/"}})
}

#[tokio::test]
async fn the_figures_of_the_last_hour_are_those_that_the_caller_may_see() {
    let server = TestServer::start().await;
    let (_, ada) = server.user("ada", &["member"]).await;
    let global = server.post("/api/event-sinks", webhook("global", "global")).await.text("id");
    let own = server.call(&ada, "POST", "/api/event-sinks", Some(webhook("own", "me"))).await.text("id");
    server.post("/api/events/emit", json!({"type": "a"})).await;
    server.call(&ada, "POST", "/api/events/emit", Some(json!({"type": "b"}))).await;
    let activity = server.services.feed.activity();
    let count = |sink: &str, outcome| activity.count_attempt(sink.parse::<SinkId>().unwrap(), outcome, Some("refused"));
    count(&global, AttemptOutcome::Failed);
    count(&own, AttemptOutcome::Delivered);
    activity.count_drop(own.parse().unwrap());
    let sum = |figures: &Value, name: &str| {
        let counts = figures[name].as_array().unwrap();
        assert_eq!(counts.len(), MINUTES);
        counts.iter().map(|count| count.as_u64().unwrap()).sum::<u64>()
    };
    let all = server.get("/api/activity").await.body;
    assert_eq!(["events", "delivered", "failed", "dropped"].map(|name| sum(&all, name)), [2, 0, 1, 0]);
    assert_eq!(all["queues"]["depth"], 2, "the global sink hears both");
    assert_eq!(all["troubled"][0]["name"], "global");
    assert_eq!(
        (&all["troubled"][0]["status"], &all["troubled"][0]["last_error"]),
        (&json!("failing"), &json!("refused"))
    );
    let hers = server.call(&ada, "GET", "/api/activity", None).await.body;
    assert_eq!(["events", "delivered", "failed", "dropped"].map(|name| sum(&hers, name)), [1, 1, 0, 1]);
    assert_eq!((&hers["sinks"]["total"], &hers["sinks"]["dropping"]), (&json!(1), &json!(1)));
    assert_eq!(hers["troubled"][0]["name"], "own");
    server.stop().await;
}

#[tokio::test]
async fn all_viewers_of_a_second_share_the_figures_and_each_sees_its_part() {
    let server = TestServer::start().await;
    let (_, ada) = server.user("ada", &["member"]).await;
    let own = server.call(&ada, "POST", "/api/event-sinks", Some(webhook("own", "me"))).await.text("id");
    let (activity, own) = (server.services.feed.activity(), own.parse::<SinkId>().unwrap());
    let dropped = |figures: &Value| {
        let counts = figures["dropped"].as_array().unwrap();
        counts.iter().map(|count| count.as_u64().unwrap()).sum::<u64>()
    };
    // A round counts only if all of it was within the second.
    let mut count = 0;
    let first = loop {
        let started = Instant::now();
        let figures = server.get("/api/activity").await.body;
        assert_eq!((dropped(&figures), &figures["sinks"]["total"]), (0, &json!(0)), "her sink is hers alone");
        activity.count_drop(own);
        count += 1;
        let hers = server.call(&ada, "GET", "/api/activity", None).await.body;
        if started.elapsed() < Duration::from_millis(900) {
            break hers;
        }
        assert!(count < 50, "the machine is too slow for two requests in a second");
    };
    assert_eq!((dropped(&first), &first["sinks"]["total"]), (count - 1, &json!(1)), "computed for the first viewer");
    loop {
        let later = server.call(&ada, "GET", "/api/activity", None).await.body;
        if dropped(&later) == count {
            break;
        }
        assert_eq!(dropped(&later), count - 1);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn a_text_to_search_for_is_bounded() {
    let server = TestServer::start().await;
    for (path, field) in [("/api/events", "text"), ("/api/event-sinks", "q")] {
        let longest = "%C3%A9".repeat(256);
        assert_eq!(server.get(&format!("{path}?{field}={longest}")).await.status, 200, "{field}");
        let refused = server.get(&format!("{path}?{field}={longest}x")).await;
        assert_eq!(refused.code(), "bad_request");
        assert_eq!(refused.message(), format!("`{field}`: must be at most 256 characters"));
        assert_eq!(server.get(&format!("{path}?{field}=")).await.status, 200, "an empty {field} searches for nothing");
    }
    server.stop().await;
}

#[tokio::test]
async fn the_reason_why_a_sink_does_not_hear_a_report_is_told() {
    let server = TestServer::start().await;
    let sink = |name: &str, events: &str, internal: bool| {
        let mut sink = webhook(name, "global");
        (sink["events"], sink["internal"]) = (json!(events), json!(internal));
        sink
    };
    let told = server.post("/api/event-sinks", sink("told", "sink.*", true)).await.text("id");
    for other in [sink("star", "*", false), sink("both", "custom.*, *", false), sink("all", "*", true)] {
        server.post("/api/event-sinks", other).await;
    }
    server.post("/api/event-sinks", sink("named", "*, sink.failing", false)).await;
    server.post("/api/event-sinks", sink("custom", "custom.*", true)).await;
    let report = NewEvent {
        id: None,
        raised_at: None,
        kind: "sink.failing".parse().unwrap(),
        space_id: SpaceId::NIL,
        space: None,
        user_id: UserId::NIL,
        actor: Actor::system(),
        payload: serde_json::value::to_raw_value(&json!({"sink_id": told})).unwrap(),
    };
    let receipt = server.services.emitter.emit_about(told.parse().unwrap(), report).await.unwrap();
    let heard: BTreeSet<_> = receipt.matched.iter().map(|target| target.name.to_string()).collect();
    let explained = server.post("/api/events/explain", json!({"event_id": receipt.event.id})).await.body;
    let explained = explained["sinks"].as_array().unwrap();
    let matching = explained.iter().filter(|sink| sink["matches"] == true);
    let matching: BTreeSet<_> = matching.map(|sink| sink["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(matching, heard, "the explanation is that of the routes");
    assert_eq!(matching, BTreeSet::from(["all".to_owned(), "named".to_owned()]));
    let denied =
        "its pattern `*` does not match `sink.failing`, a report of the service, unless the sink has `internal = true`";
    for (name, reason) in [
        ("told", "a sink gets no reports about itself"),
        ("star", denied),
        ("both", denied),
        ("all", "its pattern `*` matches"),
        ("named", "its pattern `sink.failing` matches"),
        ("custom", "none of its patterns `custom.*` matches `sink.failing`"),
    ] {
        let sink = explained.iter().find(|sink| sink["name"] == name).unwrap();
        assert_eq!(sink["reason"], reason, "{name}");
    }
    server.stop().await;
}

#[tokio::test]
async fn sinks_are_found_by_words_and_by_status() {
    let server = TestServer::start().await;
    for name in ["alpha", "beta"] {
        server.post("/api/event-sinks", webhook(name, "global")).await;
    }
    let mut paused = webhook("gamma", "global");
    paused["active"] = json!(false);
    paused["description"] = json!("Tells ALPHA's friends");
    server.post("/api/event-sinks", paused).await;
    for (query, expected) in [
        ("q=alpha", &["alpha", "gamma"][..]),
        ("q=alpha%20friends", &["gamma"]),
        ("q=nothing", &[]),
        ("status=paused", &["gamma"]),
        ("status=active", &["alpha", "beta"]),
        ("status=failing", &[]),
        ("status=failing,paused", &["gamma"]),
    ] {
        let found = server.get(&format!("/api/event-sinks?{query}")).await.body;
        let names: Vec<_> =
            found["items"].as_array().unwrap().iter().map(|sink| sink["name"].as_str().unwrap()).collect();
        assert_eq!(names, expected, "{query}");
    }
    assert_eq!(server.get("/api/event-sinks?status=sleepy").await.status, 400);
    let waiting = server.post("/api/events/emit", json!({"type": "a"})).await;
    let shown = server.get("/api/event-sinks?q=beta").await.body["items"][0].clone();
    assert_eq!((&shown["status"], &shown["queue"]["depth"]), (&json!("active"), &json!(1)));
    let oldest = shown["queue"]["oldest_waiting_at"].as_str().unwrap();
    assert!(*oldest >= *waiting.text("event_ts"), "{oldest}");
    assert_eq!(shown["activity"]["delivered"].as_array().unwrap().len(), 12);
    server.stop().await;
}

#[tokio::test]
async fn events_are_found_by_text_in_their_payload() {
    let server = TestServer::start().await;
    for branch in ["main", "next"] {
        server.post("/api/events/emit", json!({"type": "a", "payload": {"branch": branch}})).await;
    }
    let found = server.get("/api/events?text=%22next%22").await.body;
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
    assert_eq!(found["items"][0]["data"]["branch"], "next");
    server.stop().await;
}

#[tokio::test]
async fn a_recorded_event_takes_the_place_of_a_sample() {
    let server = TestServer::start().await;
    let (_, ada) = server.user("ada", &["member"]).await;
    let id = server.post("/api/events/emit", json!({"type": "a.b", "payload": {"n": 7}})).await.text("event_id");
    let sink = json!({
        "name": "x", "events": "*", "type": "json-rpc",
        "template": "return { id = event.id, kind = event.type, n = event.data.n }",
    });
    let preview = server.post("/api/event-sinks/preview", json!({"sink": sink, "event_id": id})).await.text("body");
    let preview: Value = serde_json::from_str(&preview).unwrap();
    assert_eq!(preview, json!({"id": id, "kind": "custom.a.b", "n": 7}));
    let both = json!({"sink": sink, "event_id": id, "payload": {}});
    assert_eq!(server.post("/api/event-sinks/preview", both).await.status, 400);
    let hidden =
        server.call(&ada, "POST", "/api/event-sinks/preview", Some(json!({"sink": sink, "event_id": id}))).await;
    assert_eq!((hidden.status, hidden.code()), (404, "not_found"), "an event of somebody else looks absent");
    let explained = server.post("/api/events/explain", json!({"event_id": id})).await;
    assert_eq!((explained.status, explained.text("event_type")), (200, "custom.a.b".to_owned()));
    assert_eq!(server.post("/api/events/explain", json!({})).await.status, 400);
    server.stop().await;
}

#[tokio::test]
async fn lua_is_checked_without_being_stored() {
    let server = TestServer::start().await;
    let good = server.post("/api/scripts/check", json!({"content": "return 1"})).await;
    assert_eq!((good.status, good.body), (200, json!({})));
    let bad = server.post("/api/scripts/check", json!({"content": "return 1\nif then"})).await.body;
    assert_eq!(bad["error"]["line"], 2, "{bad}");
    assert_eq!(server.get("/api/scripts").await.body["items"], json!([]));
    server.stop().await;
}

#[tokio::test]
async fn a_script_lists_the_records_that_name_it_and_counts_hidden_ones() {
    let server = TestServer::start().await;
    let (_, ada) = server.user("ada", &["member"]).await;
    let script = json!({"name": "s", "owner": "global", "content": "return"});
    let id = server.post("/api/scripts", script).await.text("id");
    let sink = json!({"name": "of-ada", "events": "*", "type": "script", "script": {"script_id": id}});
    let sink = server.call(&ada, "POST", "/api/event-sinks", Some(sink)).await.text("id");
    let path = format!("/api/scripts/{id}/references");
    let hers = server.call(&ada, "GET", &path, None).await.body;
    assert_eq!(hers, json!({"records": [{"kind": "sink", "id": sink, "name": "of-ada"}], "hidden": 0}));
    assert_eq!(server.get(&path).await.body, json!({"records": [], "hidden": 1}), "her own sink is hers alone");
    server.stop().await;
}

#[tokio::test]
async fn a_password_that_somebody_else_chose_is_the_first_one_until_it_is_changed() {
    let server = TestServer::start().await;
    server.user("ada", &["member"]).await;
    let login = server.try_login("ada", "correct horse").await;
    assert_eq!((&login.body["has_first_password"], &login.body["zone"]), (&json!(true), &json!("default")));
    assert!(login.body["expires_at"].is_string(), "{login:?}");
    let cookie = login.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let body = json!({"current": "correct horse", "new": "battery staple"}).to_string();
    let change = server.request("POST", "/api/auth/password").header("Cookie", &cookie);
    let change = server.send(change.header("Content-Type", "application/json").body(body).unwrap()).await;
    assert_eq!(change.status, 204);
    let again = server.try_login("ada", "battery staple").await;
    assert_eq!(again.body["has_first_password"], false);
    server.stop().await;
}

#[tokio::test]
async fn another_page_cannot_log_its_visitor_in() {
    let server = TestServer::start().await;
    server.user("ada", &[]).await;
    let body = json!({"name": "ada", "password": "correct horse"}).to_string();
    let login = server.request("POST", "/api/auth/login").header("Content-Type", "application/json");
    let login = server.send(login.header("Origin", "https://evil.example").body(body).unwrap()).await;
    assert_eq!((login.status, login.code()), (403, "forbidden"));
    assert!(login.headers.get("set-cookie").is_none());
    server.stop().await;
}

#[tokio::test]
async fn the_page_of_the_console_is_open_and_closed_to_frames() {
    let server = TestServer::start().await;
    let page = server.send(server.request("GET", "/").body(()).unwrap()).await;
    assert_eq!(page.status, 200);
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    assert_eq!(page.headers["x-frame-options"], "DENY");
    assert!(page.headers["content-security-policy"].to_str().unwrap().contains("frame-ancestors 'none'"));
    for (method, path) in [("GET", "/console/x/main.js"), ("GET", "/console/"), ("POST", "/console/x"), ("POST", "/")] {
        let missing = server.send(server.request(method, path).body(()).unwrap()).await;
        assert_eq!(missing.code(), "not_found", "{method} {path}");
        for name in [
            "content-security-policy",
            "x-frame-options",
            "referrer-policy",
            "cross-origin-opener-policy",
            "x-content-type-options",
        ] {
            assert_eq!(missing.header(name), page.header(name), "{name} of {method} {path}");
            assert!(!missing.header(name).is_empty(), "{name}");
        }
        assert_eq!(missing.header("cache-control"), "no-store", "{method} {path}");
    }
    assert_eq!(server.get("/api/activity").await.header("content-security-policy"), "", "not for the API");
    server.stop().await;
}
