//! Subscriptions: visibility of their queues, dead letters, history and explanations.

use super::{
    TestServer,
    methods::{TestSpace, method as published},
};
use crate::{
    delivery::subscriptions::test_support::method,
    model::{
        agent_protocol::Goodbye,
        id::{EventId, SinkId, UserId},
        timestamp::Timestamp,
    },
    routing::queue::{Attempt, AttemptOutcome, SettledAttempt, Settlement},
};
use serde_json::{Value, json};

/// Ada's space `notes`, whose method `m` is called for her events. Ada has only the permission to use spaces.
struct SubscribedSpace {
    server: TestServer,
    ada: String,
    space: TestSpace,
    queue: SinkId,
}

impl SubscribedSpace {
    async fn new() -> Self {
        let server = TestServer::start().await;
        let ada = server.member("ada", &["use_spaces"], &[]).await;
        let space = TestSpace::new("notes");
        let owner = owner(&server, "ada");
        let m = method("m", Some("custom.deploy.*"), &["absent", "shape"]);
        server.services.subscriptions.replace(space.id, "notes", owner, &[m]).await.unwrap();
        let queue = server.services.subscriptions.all()[0].id;
        Self { server, ada, space, queue }
    }

    /// Registers the method for the space's agent.
    fn serve(&self) {
        let methods = json!([published("m", json!({"events": ["custom.deploy.*"]}))]);
        self.space.register(&self.server, owner(&self.server, "ada"), methods).unwrap();
    }

    async fn emit(&self) -> EventId {
        let emitted = self.as_ada("POST", "/api/events/emit", Some(json!({"type": "deploy.done"}))).await;
        assert_eq!(emitted["matched"], json!([{"sink_id": self.queue, "name": "notes/m"}]));
        emitted["event_id"].as_str().unwrap().parse().unwrap()
    }

    /// Gives up on the event at the head of the queue, as the third failed attempt would.
    async fn give_up(&self) {
        let engine = &self.server.services.engine;
        let pending = engine.next_delivery(self.queue).await.unwrap().unwrap();
        let attempt = Attempt {
            number: 3,
            at: Timestamp::now(),
            duration_ms: 1.0,
            outcome: AttemptOutcome::Failed,
            status: None,
            error: Some("no (7)".to_owned()),
            response: None,
            log: Vec::new(),
        };
        let settlement = Settlement::DeadLetter("no (7)".to_owned());
        engine.settle(pending, SettledAttempt { attempt, settlement }).await;
        self.server.services.store.write(|_| ()).await.unwrap();
    }

    async fn as_ada(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let response = self.server.call(&self.ada, method, path, body).await;
        assert!(response.status < 300, "{method} {path}: {response:?}");
        response.body
    }
}

fn owner(server: &TestServer, name: &str) -> UserId {
    server.services.identity.user_named(name).unwrap().id
}

#[tokio::test]
async fn the_owner_sees_a_subscription_with_its_queue_and_availability() {
    let fixture = SubscribedSpace::new().await;
    fixture.emit().await;
    let mut expected = json!({
        "id": fixture.queue, "space_id": fixture.space.id, "space": "notes", "method": "m", "events": "custom.deploy.*",
        "event_sinks": ["absent", "shape"], "queue": {"depth": 1, "next_sequence": 2, "dead": 0}, "open": false,
    });
    let listed = fixture.as_ada("GET", "/api/subscriptions", None).await;
    expected["queue"]["oldest_waiting_at"] = listed["items"][0]["queue"]["oldest_waiting_at"].clone();
    assert!(expected["queue"]["oldest_waiting_at"].is_string(), "{listed}");
    assert_eq!(listed, json!({"items": [expected], "next": null}));
    fixture.serve();
    expected["open"] = json!(true);
    assert_eq!(fixture.as_ada("GET", "/api/subscriptions", None).await["items"], json!([expected]));
    fixture.space.link.end(Goodbye::Stopped);
    assert_eq!(fixture.as_ada("GET", "/api/subscriptions", None).await["items"][0]["open"], false);
    assert_eq!(fixture.server.get("/api/subscriptions").await.body["items"], json!([]), "others see none of it");
    let metrics = fixture.server.send(fixture.server.request("GET", "/metrics").body(()).unwrap()).await;
    let depth = format!("{{sink=\"{}\",name=\"\"}} 1\n", fixture.queue);
    assert!(metrics.body.as_str().unwrap().contains(&depth), "{metrics:?}");
    fixture.server.stop().await;
}

#[tokio::test]
async fn the_owner_of_a_method_sees_and_redelivers_its_dead_letters() {
    let fixture = SubscribedSpace::new().await;
    let event = fixture.emit().await;
    fixture.give_up().await;
    let (letters, redeliver) = (
        format!("/api/event-sinks/{}/dead-letters", fixture.queue),
        format!("/api/event-sinks/{}/redeliver", fixture.queue),
    );
    let seen = fixture.as_ada("GET", &letters, None).await;
    assert_eq!(seen["items"][0]["event_id"], json!(event));
    assert_eq!((&seen["items"][0]["why"], &seen["items"][0]["attempts"]), (&json!("no (7)"), &json!(3)));

    // To managers of sinks, global ones included, the subscription looks absent. Others learn the missing permission.
    let eve = fixture.server.member("eve", &["use_spaces"], &[]).await;
    for (method, path) in [("GET", &letters), ("POST", &redeliver)] {
        assert_eq!(fixture.server.call(&fixture.server.token, method, path, None).await.code(), "not_found");
        let refused = fixture.server.call(&eve, method, path, None).await;
        assert_eq!(refused.code(), "forbidden");
        assert!(refused.message().contains("manage_own_event_sinks"), "{refused:?}");
    }

    let done = fixture.as_ada("POST", &redeliver, None).await;
    assert_eq!(done, json!({"redelivered": 1, "remaining": 0}));
    assert_eq!(fixture.as_ada("GET", &letters, None).await["items"], json!([]));
    assert_eq!(fixture.server.services.engine.depth(fixture.queue).queued, 1);
    let audit = fixture.server.get("/api/audit?action=sink.redeliver").await;
    assert_eq!(audit.body["items"][0]["object"], format!("sink:{}", fixture.queue));
    fixture.server.stop().await;
}

#[tokio::test]
async fn without_the_permission_for_sinks_only_subscriptions_are_accessible() {
    let fixture = SubscribedSpace::new().await;
    let role = json!({"name": "sinks", "permissions": ["manage_own_event_sinks", "use_spaces"]});
    assert_eq!(fixture.server.post("/api/roles", role).await.status, 201);
    let user = format!("/api/users/{}", owner(&fixture.server, "ada"));
    let server = &fixture.server;
    let grant = |roles: Value| server.call(&server.token, "PATCH", &user, Some(json!({"roles": roles})));
    assert_eq!(grant(json!(["sinks"])).await.status, 200);
    let sink = json!({"name": "s", "events": "*", "type": "script", "script": {"source": "return"}});
    let sink = fixture.as_ada("POST", "/api/event-sinks", Some(sink)).await["id"].as_str().unwrap().to_owned();
    let letters = |id: &str| format!("/api/event-sinks/{id}/dead-letters");
    fixture.as_ada("GET", &letters(&sink), None).await;
    assert_eq!(grant(json!(["role-ada"])).await.status, 200);
    assert_eq!(server.call(&fixture.ada, "GET", &letters(&sink), None).await.code(), "forbidden");
    fixture.as_ada("GET", &letters(&fixture.queue.to_string()), None).await;
    fixture.server.stop().await;
}

#[tokio::test]
async fn history_shows_a_delivery_in_full_to_its_owner_and_not_to_others() {
    let fixture = SubscribedSpace::new().await;
    let event = fixture.emit().await;
    fixture.give_up().await;
    for path in [format!("/api/events/{event}"), format!("/api/events?sink={}&state=dead", fixture.queue)] {
        let mine = fixture.as_ada("GET", &path, None).await;
        let mine = if mine["items"].is_null() { mine } else { mine["items"][0].clone() };
        let delivery = &mine["deliveries"][0];
        assert_eq!((&delivery["name"], &delivery["state"]), (&json!("notes/m"), &json!("dead")));
        assert_eq!(delivery["attempts"][0]["error"], "no (7)");
    }
    // The administrator sees every event, as global sinks do, and not this delivery.
    let theirs = fixture.server.get(&format!("/api/events/{event}")).await;
    assert_eq!((theirs.status, &theirs.body["deliveries"]), (200, &json!([])));

    // Once the method is deleted, only the fact of the delivery is shown.
    fixture.server.services.subscriptions.remove(fixture.space.id).await.unwrap();
    let mine = fixture.as_ada("GET", &format!("/api/events/{event}"), None).await;
    assert_eq!(mine["deliveries"][0]["name"], "notes/m");
    assert!(mine["deliveries"][0]["attempts"][0]["error"].is_null());
    fixture.server.stop().await;
}

#[tokio::test]
async fn explaining_an_event_names_the_callers_methods_and_what_shapes_it() {
    let fixture = SubscribedSpace::new().await;
    let explain = async |kind: &str| {
        let explained = fixture.as_ada("POST", "/api/events/explain", Some(json!({"type": kind}))).await;
        explained["sinks"].as_array().unwrap().iter().find(|sink| sink["type"] == "method").cloned().unwrap()
    };
    let mut expected = json!({
        "sink_id": fixture.queue, "name": "notes/m", "owner": "me", "events": "custom.deploy.*", "type": "method",
        "active": false, "matches": true,
        "reason": "its pattern `custom.deploy.*` matches; its space is away, so the event would wait in its queue",
    });
    assert_eq!(explain("deploy.done").await, expected);
    fixture.serve();
    let shape = json!({"name": "shape", "events": "*", "type": "json-rpc", "owner": "global", "template": "return {}"});
    assert_eq!(fixture.server.post("/api/event-sinks", shape).await.status, 201);
    expected["active"] = json!(true);
    expected["reason"] = json!("its pattern `custom.deploy.*` matches; the sink `shape` shapes it");
    assert_eq!(explain("deploy.done").await, expected);
    let other = explain("other").await;
    assert_eq!(
        (&other["matches"], &other["reason"]),
        (&json!(false), &json!("none of its patterns `custom.deploy.*` matches `custom.other`"),)
    );
    let theirs = fixture.server.post("/api/events/explain", json!({"type": "deploy.done"})).await;
    assert!(!theirs.body.to_string().contains("notes/m"), "{theirs:?}");
    fixture.server.stop().await;
}
