//! What callers see of methods that are called for events, and whose business that is.

use super::{
    Service,
    methods::{Space, method as published},
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

/// Ada has a space `notes` whose method `m` is called for her events, and may do nothing but use it.
struct Scene {
    service: Service,
    ada: String,
    space: Space,
    queue: SinkId,
}

impl Scene {
    async fn new() -> Self {
        let service = Service::start().await;
        let ada = service.member("ada", &["use_spaces"], &[]).await;
        let space = Space::new("notes");
        let owner = owner(&service, "ada");
        let m = method("m", Some("custom.deploy.*"), &["absent", "shape"]);
        service.services.subscriptions.replace(space.id, "notes", owner, &[m]).await.unwrap();
        let queue = service.services.subscriptions.all()[0].id;
        Self { service, ada, space, queue }
    }

    /// Has the space's agent serve the method.
    fn serve(&self) {
        let methods = json!([published("m", json!({"events": ["custom.deploy.*"]}))]);
        self.space.register(&self.service, owner(&self.service, "ada"), methods).unwrap();
    }

    async fn emit(&self) -> EventId {
        let emitted = self.as_ada("POST", "/api/events/emit", Some(json!({"type": "deploy.done"}))).await;
        assert_eq!(emitted["matched"], json!([{"sink_id": self.queue, "name": "notes/m"}]));
        emitted["event_id"].as_str().unwrap().parse().unwrap()
    }

    /// Gives up on the event at the head of the queue, as the third failed attempt would.
    async fn give_up(&self) {
        let engine = &self.service.services.engine;
        let pending = engine.head(self.queue).await.unwrap().unwrap();
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
        self.service.services.store.write(|_| ()).await.unwrap();
    }

    async fn as_ada(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let answer = self.service.call(&self.ada, method, path, body).await;
        assert!(answer.status < 300, "{method} {path}: {answer:?}");
        answer.body
    }
}

fn owner(service: &Service, name: &str) -> UserId {
    service.services.identity.user_named(name).unwrap().id
}

#[tokio::test]
async fn the_owner_sees_a_subscription_with_its_queue_and_whether_it_is_served() {
    let scene = Scene::new().await;
    scene.emit().await;
    let mut expected = json!({
        "id": scene.queue, "space_id": scene.space.id, "space": "notes", "method": "m", "events": "custom.deploy.*",
        "event_sinks": ["absent", "shape"], "queue": {"depth": 1, "next_sequence": 2, "dead": 0}, "open": false,
    });
    let listed = scene.as_ada("GET", "/api/subscriptions", None).await;
    assert_eq!(listed, json!({"items": [expected], "next": null}));
    scene.serve();
    expected["open"] = json!(true);
    assert_eq!(scene.as_ada("GET", "/api/subscriptions", None).await["items"], json!([expected]));
    scene.space.link.end(Goodbye::Stopped);
    assert_eq!(scene.as_ada("GET", "/api/subscriptions", None).await["items"][0]["open"], false);
    assert_eq!(scene.service.get("/api/subscriptions").await.body["items"], json!([]), "others see none of it");
    let metrics = scene.service.send(scene.service.request("GET", "/metrics").body(()).unwrap()).await;
    let depth = format!("{{sink=\"{}\",name=\"\"}} 1\n", scene.queue);
    assert!(metrics.body.as_str().unwrap().contains(&depth), "{metrics:?}");
    scene.service.stop().await;
}

#[tokio::test]
async fn dead_letters_of_a_method_are_its_owners_to_see_and_to_send_again() {
    let scene = Scene::new().await;
    let event = scene.emit().await;
    scene.give_up().await;
    let (letters, redeliver) = (
        format!("/api/event-sinks/{}/dead-letters", scene.queue),
        format!("/api/event-sinks/{}/redeliver", scene.queue),
    );
    let seen = scene.as_ada("GET", &letters, None).await;
    assert_eq!(seen["items"][0]["event_id"], json!(event));
    assert_eq!((&seen["items"][0]["why"], &seen["items"][0]["attempts"]), (&json!("no (7)"), &json!(3)));

    // To whoever manages sinks, even everybody's, it is not there; who manages none is told what it would take.
    let eve = scene.service.member("eve", &["use_spaces"], &[]).await;
    for (method, path) in [("GET", &letters), ("POST", &redeliver)] {
        assert_eq!(scene.service.call(&scene.service.token, method, path, None).await.code(), "not_found");
        let refused = scene.service.call(&eve, method, path, None).await;
        assert_eq!(refused.code(), "forbidden");
        assert!(refused.message().contains("manage_own_event_sinks"), "{refused:?}");
    }

    let done = scene.as_ada("POST", &redeliver, None).await;
    assert_eq!(done, json!({"redelivered": 1, "remaining": 0}));
    assert_eq!(scene.as_ada("GET", &letters, None).await["items"], json!([]));
    assert_eq!(scene.service.services.engine.depth(scene.queue).queued, 1);
    let audit = scene.service.get("/api/audit?action=sink.redeliver").await;
    assert_eq!(audit.body["items"][0]["object"], format!("sink:{}", scene.queue));
    scene.service.stop().await;
}

#[tokio::test]
async fn without_the_permission_for_sinks_only_subscriptions_are_within_reach() {
    let scene = Scene::new().await;
    let role = json!({"name": "sinks", "permissions": ["manage_own_event_sinks", "use_spaces"]});
    assert_eq!(scene.service.post("/api/roles", role).await.status, 201);
    let user = format!("/api/users/{}", owner(&scene.service, "ada"));
    let service = &scene.service;
    let grant = |roles: Value| service.call(&service.token, "PATCH", &user, Some(json!({"roles": roles})));
    assert_eq!(grant(json!(["sinks"])).await.status, 200);
    let sink = json!({"name": "s", "events": "*", "type": "script", "script": {"source": "return"}});
    let sink = scene.as_ada("POST", "/api/event-sinks", Some(sink)).await["id"].as_str().unwrap().to_owned();
    let letters = |id: &str| format!("/api/event-sinks/{id}/dead-letters");
    scene.as_ada("GET", &letters(&sink), None).await;
    assert_eq!(grant(json!(["role-ada"])).await.status, 200);
    assert_eq!(service.call(&scene.ada, "GET", &letters(&sink), None).await.code(), "forbidden");
    scene.as_ada("GET", &letters(&scene.queue.to_string()), None).await;
    scene.service.stop().await;
}

#[tokio::test]
async fn history_tells_the_owner_all_of_a_delivery_and_others_nothing() {
    let scene = Scene::new().await;
    let event = scene.emit().await;
    scene.give_up().await;
    for path in [format!("/api/events/{event}"), format!("/api/events?sink={}&state=dead", scene.queue)] {
        let mine = scene.as_ada("GET", &path, None).await;
        let mine = if mine["items"].is_null() { mine } else { mine["items"][0].clone() };
        let delivery = &mine["deliveries"][0];
        assert_eq!((&delivery["name"], &delivery["state"]), (&json!("notes/m"), &json!("dead")));
        assert_eq!(delivery["attempts"][0]["error"], "no (7)");
    }
    // The administrator sees every event, as the global sinks do, and is no party to this delivery.
    let theirs = scene.service.get(&format!("/api/events/{event}")).await;
    assert_eq!((theirs.status, &theirs.body["deliveries"]), (200, &json!([])));

    // Once the method is gone, that it was is all that is left to tell.
    scene.service.services.subscriptions.remove(scene.space.id).await.unwrap();
    let mine = scene.as_ada("GET", &format!("/api/events/{event}"), None).await;
    assert_eq!(mine["deliveries"][0]["name"], "notes/m");
    assert!(mine["deliveries"][0]["attempts"][0]["error"].is_null());
    scene.service.stop().await;
}

#[tokio::test]
async fn explaining_an_event_names_the_callers_methods_and_what_shapes_it() {
    let scene = Scene::new().await;
    let explain = async |kind: &str| {
        let explained = scene.as_ada("POST", "/api/events/explain", Some(json!({"type": kind}))).await;
        explained["sinks"].as_array().unwrap().iter().find(|sink| sink["type"] == "method").cloned().unwrap()
    };
    let mut expected = json!({
        "sink_id": scene.queue, "name": "notes/m", "owner": "me", "events": "custom.deploy.*", "type": "method",
        "active": false, "matches": true,
        "reason": "its pattern `custom.deploy.*` matches; its space is away, so the event would wait in its queue",
    });
    assert_eq!(explain("deploy.done").await, expected);
    scene.serve();
    let shape = json!({"name": "shape", "events": "*", "type": "json-rpc", "owner": "global", "template": "return {}"});
    assert_eq!(scene.service.post("/api/event-sinks", shape).await.status, 201);
    expected["active"] = json!(true);
    expected["reason"] = json!("its pattern `custom.deploy.*` matches; the sink `shape` shapes it");
    assert_eq!(explain("deploy.done").await, expected);
    let other = explain("other").await;
    assert_eq!(
        (&other["matches"], &other["reason"]),
        (&json!(false), &json!("none of its patterns `custom.deploy.*` matches `custom.other`"),)
    );
    let theirs = scene.service.post("/api/events/explain", json!({"type": "deploy.done"})).await;
    assert!(!theirs.body.to_string().contains("notes/m"), "{theirs:?}");
    scene.service.stop().await;
}
