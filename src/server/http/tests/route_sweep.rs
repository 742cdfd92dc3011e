//! Every route with every kind of credential, and every object of one user with the credentials of another.
//!
//! The table below is written by hand, apart from the route table: a new route needs a line here, and a change of its access
//! shows as a change of that line.

use super::{
    TestResponse, TestServer,
    methods::{TestSpace, method},
};
use crate::{delivery::subscriptions::test_support::method as subscribed, server::http::route_table::TABLE};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Credentials in the order of the columns of [`EXPECTED`]: none, one that is wrong, a user without permissions, a member, the
/// agent of that member, a token of the administrator with the scope `methods` and one with `mcp`, the administrator.
const COLUMNS: usize = 8;

/// Answers by credential: `u` unauthorized (401), `f` forbidden (403), `s` insufficient scope (403), `o` let in. The number is
/// the status for those who are let in, of a request without a body, for an id or a name that does not exist.
const EXPECTED: [(&str, &str, u16, &str); 102] = [
    ("GET", "/healthz", 200, OPEN),
    ("GET", "/readyz", 200, OPEN),
    ("GET", "/metrics", 200, OPEN),
    ("POST", "/api/auth/login", 415, OPEN),
    ("GET", "/api/openapi.json", 200, READ_BY_USERS),
    ("POST", "/api/auth/logout", 204, CHANGED_BY_USERS),
    ("POST", "/api/auth/password", 415, CHANGED_BY_USERS),
    ("GET", "/api/whoami", 200, READ_BY_USERS),
    ("GET", "/api/tokens", 200, READ_BY_USERS),
    ("POST", "/api/tokens", 415, CHANGED_BY_USERS),
    ("GET", "/api/tokens/{id}", 404, READ_BY_USERS),
    ("DELETE", "/api/tokens/{id}", 404, CHANGED_BY_USERS),
    ("GET", "/api/users", 200, ADMINISTRATION),
    ("POST", "/api/users", 415, ADMINISTRATION),
    ("GET", "/api/users/{id}", 404, READ_BY_USERS),
    ("PUT", "/api/users/{id}", 415, ADMINISTRATION),
    ("PATCH", "/api/users/{id}", 415, ADMINISTRATION),
    ("DELETE", "/api/users/{id}", 404, ADMINISTRATION),
    ("GET", "/api/users/{id}/tokens", 404, ADMINISTRATION),
    ("POST", "/api/users/{id}/tokens", 415, ADMINISTRATION),
    ("GET", "/api/roles", 200, READ_BY_USERS),
    ("POST", "/api/roles", 415, ADMINISTRATION),
    ("GET", "/api/roles/{id}", 404, READ_BY_USERS),
    ("PUT", "/api/roles/{id}", 415, ADMINISTRATION),
    ("PATCH", "/api/roles/{id}", 415, ADMINISTRATION),
    ("DELETE", "/api/roles/{id}", 404, ADMINISTRATION),
    ("GET", "/api/groups", 200, READ_BY_USERS),
    ("POST", "/api/groups", 415, ADMINISTRATION),
    ("GET", "/api/groups/{id}", 404, READ_BY_USERS),
    ("PUT", "/api/groups/{id}", 415, ADMINISTRATION),
    ("PATCH", "/api/groups/{id}", 415, ADMINISTRATION),
    ("DELETE", "/api/groups/{id}", 404, ADMINISTRATION),
    ("POST", "/api/events/emit", 415, BY_MEMBERS_AND_AGENTS),
    ("POST", "/api/events/explain", 415, BY_MEMBERS_AND_AGENTS),
    ("GET", "/api/events", 200, BY_MEMBERS_AND_AGENTS),
    ("GET", "/api/events/stream", 200, BY_MEMBERS_AND_AGENTS),
    ("GET", "/api/events/{id}", 404, BY_MEMBERS_AND_AGENTS),
    ("GET", "/api/event-sinks", 200, BY_MEMBERS_AND_AGENTS),
    ("POST", "/api/event-sinks", 415, BY_MEMBERS_AND_AGENTS),
    ("POST", "/api/event-sinks/preview", 415, BY_MEMBERS_AND_AGENTS),
    ("GET", "/api/event-sinks/{id}", 404, BY_MEMBERS_AND_AGENTS),
    ("PUT", "/api/event-sinks/{id}", 415, BY_MEMBERS_AND_AGENTS),
    ("PATCH", "/api/event-sinks/{id}", 415, BY_MEMBERS_AND_AGENTS),
    ("DELETE", "/api/event-sinks/{id}", 404, BY_MEMBERS_AND_AGENTS),
    ("POST", "/api/event-sinks/{id}/test", 404, BY_MEMBERS_AND_AGENTS),
    ("GET", "/api/event-sinks/{id}/dead-letters", 404, BY_MEMBERS_AND_AGENTS),
    ("GET", "/api/event-sinks/{id}/sequence", 404, BY_MEMBERS_AND_AGENTS),
    ("POST", "/api/event-sinks/{id}/replay", 404, BY_MEMBERS_AND_AGENTS),
    ("DELETE", "/api/event-sinks/{id}/replay", 404, BY_MEMBERS_AND_AGENTS),
    ("POST", "/api/event-sinks/{id}/replay/pause", 404, BY_MEMBERS_AND_AGENTS),
    ("POST", "/api/event-sinks/{id}/replay/resume", 404, BY_MEMBERS_AND_AGENTS),
    ("GET", "/api/event-sinks/{id}/replays", 404, BY_MEMBERS_AND_AGENTS),
    ("POST", "/api/event-sinks/{id}/redeliver", 404, BY_MEMBERS_AND_AGENTS),
    ("POST", "/api/event-sinks/{id}/rotate-secret", 404, BY_MEMBERS_AND_AGENTS),
    ("GET", "/api/event-sinks/{id}/public-key", 404, BY_MEMBERS_AND_AGENTS),
    ("POST", "/in/{slug}", 404, OPEN),
    ("GET", "/api/sources", 200, BY_MEMBERS_AND_AGENTS),
    ("POST", "/api/sources", 415, BY_MEMBERS),
    ("GET", "/api/sources/{id}", 404, BY_MEMBERS_AND_AGENTS),
    ("PUT", "/api/sources/{id}", 415, BY_MEMBERS),
    ("PATCH", "/api/sources/{id}", 415, BY_MEMBERS),
    ("DELETE", "/api/sources/{id}", 404, BY_MEMBERS),
    ("POST", "/api/sources/{id}/test", 404, BY_MEMBERS),
    ("GET", "/api/sources/{id}/dead-letters", 404, BY_MEMBERS_AND_AGENTS),
    ("POST", "/api/sources/{id}/redeliver", 404, BY_MEMBERS),
    ("GET", "/api/activity", 200, BY_MEMBERS_AND_AGENTS),
    ("GET", "/api/subscriptions", 200, BY_MEMBERS_AND_AGENTS),
    ("GET", "/api/spaces", 200, BY_MEMBERS_AND_AGENTS),
    ("POST", "/api/spaces", 415, BY_MEMBERS),
    ("GET", "/api/spaces/{id}", 404, BY_MEMBERS_AND_AGENTS),
    ("PATCH", "/api/spaces/{id}", 415, BY_MEMBERS),
    ("DELETE", "/api/spaces/{id}", 404, BY_MEMBERS),
    ("POST", "/api/spaces/{id}/start", 404, BY_MEMBERS),
    ("POST", "/api/spaces/{id}/stop", 404, BY_MEMBERS),
    ("POST", "/api/spaces/{id}/token", 404, BY_MEMBERS),
    ("GET", "/api/templates", 200, BY_MEMBERS_AND_AGENTS),
    ("POST", "/api/templates", 415, ADMINISTRATION),
    ("GET", "/api/templates/{id}", 404, BY_MEMBERS_AND_AGENTS),
    ("PUT", "/api/templates/{id}", 415, ADMINISTRATION),
    ("PATCH", "/api/templates/{id}", 415, ADMINISTRATION),
    ("DELETE", "/api/templates/{id}", 404, ADMINISTRATION),
    ("GET", "/api/scripts", 200, READ_BY_USERS),
    ("POST", "/api/scripts", 415, BY_MEMBERS),
    ("POST", "/api/scripts/check", 415, BY_MEMBERS),
    ("GET", "/api/scripts/{id}", 404, READ_BY_USERS),
    ("GET", "/api/scripts/{id}/references", 404, READ_BY_USERS),
    ("PUT", "/api/scripts/{id}", 415, BY_MEMBERS),
    ("PATCH", "/api/scripts/{id}", 415, BY_MEMBERS),
    ("DELETE", "/api/scripts/{id}", 404, BY_MEMBERS),
    ("POST", "/api/scripts/{id}/run", 404, BY_MEMBERS),
    ("GET", "/api/methods", 200, IN_SCOPE_METHODS),
    ("POST", "/api/methods/call", 415, IN_SCOPE_METHODS),
    ("GET", "/api/methods/{name}", 404, IN_SCOPE_METHODS),
    ("POST", "/mcp", 415, IN_SCOPE_MCP),
    ("GET", "/mcp", 200, IN_SCOPE_MCP),
    ("GET", "/api/agent", 400, READ_BY_USERS),
    ("GET", "/api/audit", 200, ADMINISTRATION),
    ("GET", "/api/backup", 200, ADMINISTRATION),
    // Paths and methods that are not there, for which a credential is asked all the same.
    ("GET", "/api/nothing", 404, "uuooosso"),
    ("DELETE", "/api/users", 405, "uuooosso"),
    ("PUT", "/api/methods", 405, "uuooooso"),
    ("GET", "/nothing", 404, OPEN),
];

const OPEN: &str = "oooooooo";
const READ_BY_USERS: &str = "uuooosso";
const CHANGED_BY_USERS: &str = "uuoofsso";
const ADMINISTRATION: &str = "uufffsso";
const BY_MEMBERS: &str = "uufofsso";
const BY_MEMBERS_AND_AGENTS: &str = "uufoosso";
const IN_SCOPE_METHODS: &str = "uuooooso";
const IN_SCOPE_MCP: &str = "uufoosoo";

#[test]
fn every_route_has_its_line_in_the_sweep() {
    let listed: BTreeSet<_> = EXPECTED.iter().map(|(method, path, ..)| (*method, *path)).collect();
    assert_eq!(listed.len(), EXPECTED.len());
    let routes: BTreeSet<_> = TABLE.routes().iter().map(|route| (route.method.as_str(), route.path)).collect();
    let missing: Vec<_> = routes.difference(&listed).collect();
    assert_eq!(missing, [&("", ""); 0], "these routes need a line in EXPECTED");
    assert_eq!(listed.difference(&routes).count(), 4, "the lines of routes that are gone");
}

#[tokio::test]
async fn every_route_answers_every_credential_as_expected() {
    let server = TestServer::start().await;
    let (_, nobody) = server.user("nobody", &[]).await;
    let (_, ada) = server.user("ada", &["member"]).await;
    let agent = server.call(&ada, "POST", "/api/spaces", Some(json!({"name": "s"}))).await.text("agent_token");
    let mut scoped = Vec::new();
    for scope in ["methods", "mcp"] {
        scoped.push(server.post("/api/tokens", json!({"name": scope, "scopes": [scope]})).await.text("token"));
    }
    let tokens: [Option<&str>; COLUMNS] = [
        None,
        Some("svc_wrong"),
        Some(&nobody),
        Some(&ada),
        Some(&agent),
        Some(&scoped[0]),
        Some(&scoped[1]),
        Some(&server.token),
    ];
    let mut wrong = Vec::new();
    for (method, template, let_in, answers) in EXPECTED {
        let path = template
            .replace("{id}", &uuid::Uuid::now_v7().to_string())
            .replace("{name}", "user.eve.nothing")
            .replace("{slug}", "nothing");
        for (token, answer) in tokens.iter().zip(answers.chars()) {
            let response = match token {
                Some(token) => server.call(token, method, &path, None).await,
                None => server.send(server.request(method, &path).body(()).unwrap()).await,
            };
            let code = response.body["error"]["code"].as_str().unwrap_or_default();
            let expected = match answer {
                'u' => (401, "unauthorized"),
                'f' => (403, "forbidden"),
                's' => (403, "insufficient_scope"),
                'o' => (let_in, code),
                other => panic!("unknown letter {other}"),
            };
            if (response.status, code) != expected {
                wrong.push(format!("{method} {template} {answer}: {} {code}, not {expected:?}", response.status));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
    server.stop().await;
}

/// An object of a user: the path of its kind, its id, and bodies that would change it.
struct OwnedObject {
    collection: &'static str,
    id: String,
    put: Value,
    patch: Value,
}

#[tokio::test]
async fn every_object_of_one_user_looks_absent_to_another() {
    let server = TestServer::start().await;
    let (ada_id, ada) = server.user("ada", &["member"]).await;
    let (_, eve) = server.user("eve", &["member"]).await;
    let agent = server.call(&eve, "POST", "/api/spaces", Some(json!({"name": "of-eve"}))).await.text("agent_token");
    let (mut objects, owner) = (objects_of(&server, &ada, &ada_id).await, ada_id.parse().unwrap());
    let space = TestSpace::new("notes");
    let methods = [subscribed("m", Some("custom.*"), &[])];
    server.services.subscriptions.replace(space.id, "notes", owner, &methods).await.unwrap();
    let queue = server.services.subscriptions.all()[0].id.to_string();
    objects.push(OwnedObject { collection: "/api/event-sinks", id: queue, put: json!({}), patch: json!({}) });
    space.register(&server, owner, json!([method("m", json!({}))])).unwrap();
    let as_ada = async || {
        let mut seen = Vec::new();
        for object in &objects {
            seen.push(server.call(&ada, "GET", &format!("{}/{}", object.collection, object.id), None).await.body);
        }
        seen
    };
    let before = as_ada().await;
    let mut compared = 0;
    for object in &objects {
        let prefix = format!("{}/{{id}}", object.collection);
        for route in TABLE.routes().iter().filter(|route| route.path.starts_with(&prefix)) {
            let method = route.method.as_str();
            let body = match method {
                "PUT" => Some(object.put.clone()),
                "PATCH" => Some(object.patch.clone()),
                _ => None,
            };
            for token in [&eve, &agent] {
                let call = async |id: &str| {
                    let path = route.path.replace("{id}", id);
                    let TestResponse { status, body, .. } = server.call(token, method, &path, body.clone()).await;
                    (status, body)
                };
                let (found, absent) = (call(&object.id).await, call(&uuid::Uuid::now_v7().to_string()).await);
                assert_eq!(found, absent, "{method} {}", route.path);
                // Some changes are closed to members or agents, whatever the id.
                assert!(matches!(found.0, 403 | 404), "{method} {}: {found:?}", route.path);
                compared += 1;
            }
        }
    }
    assert!(compared >= 50, "only {compared} pairs");
    let sink = &objects.iter().find(|object| object.collection == "/api/event-sinks").unwrap().id;
    for id in [sink, &uuid::Uuid::now_v7().to_string()] {
        let preview = server.call(&eve, "POST", "/api/event-sinks/preview", Some(json!({"sink_id": id}))).await;
        assert_eq!((preview.code(), preview.message()), ("not_found", "there is no such sink"));
    }
    let mut answers = Vec::new();
    for name in ["m", "n"] {
        let call = json!({"jsonrpc": "2.0", "method": format!("user.ada.{name}"), "id": 1});
        let called = server.call(&eve, "POST", "/api/methods/call", Some(call)).await.body.to_string();
        let shown = server.call(&eve, "GET", &format!("/api/methods/user.ada.{name}"), None).await;
        assert_eq!(shown.code(), "not_found");
        answers.push((called.replace(&format!("user.ada.{name}"), "NAME"), shown.body));
    }
    assert_eq!(answers[0], answers[1], "a method that is not shared, and one that is not there");
    assert_eq!(server.call(&ada, "GET", "/api/methods/m", None).await.status, 200);
    let explain = server.call(&eve, "POST", "/api/events/explain", Some(json!({"type": "x"}))).await;
    assert!(!explain.body.to_string().contains(sink.as_str()), "{explain:?}");
    for list in TABLE.routes().iter().filter(|route| route.method == "GET" && !route.path.contains('{')) {
        // The first has no end, and the others are no lists of objects.
        if ["/api/events/stream", "/metrics", "/api/openapi.json", "/mcp"].contains(&list.path) {
            continue;
        }
        for token in [&eve, &agent] {
            let seen = server.call(token, "GET", list.path, None).await.body.to_string();
            for object in &objects {
                assert!(!seen.contains(&object.id), "{} shows {} {}", list.path, object.collection, object.id);
            }
        }
    }
    assert_eq!(as_ada().await, before, "nothing has changed");
    server.stop().await;
}

/// One object of each kind that a user owns.
async fn objects_of(server: &TestServer, token: &str, user: &str) -> Vec<OwnedObject> {
    let create = async |path: &str, body: Value| {
        let made = server.call(token, "POST", path, Some(body)).await;
        assert!(matches!(made.status, 201 | 202), "{made:?}");
        made
    };
    let sink = json!({"name": "s", "events": "*", "type": "webhook", "webhook": {"url": "https://a.example/"}});
    let source = json!({"slug": "of-ada", "verify": {"type": "none", "insecure": true}});
    let script = json!({"name": "t", "kind": "tool", "content": "return 1"});
    let event = create("/api/events/emit", json!({"type": "x"})).await.text("event_id");
    let mut objects = vec![
        OwnedObject {
            collection: "/api/users",
            id: user.to_owned(),
            put: json!({"name": "x"}),
            patch: json!({"name": "x"}),
        },
        OwnedObject { collection: "/api/events", id: event, put: json!({}), patch: json!({}) },
    ];
    for (collection, body, patch) in [
        ("/api/tokens", json!({"name": "t"}), json!({})),
        ("/api/event-sinks", sink, json!({"description": "mine"})),
        ("/api/sources", source, json!({"description": "mine"})),
        ("/api/scripts", script, json!({"description": "mine"})),
        ("/api/spaces", json!({"name": "of-ada"}), json!({"description": "mine"})),
    ] {
        let id = create(collection, body.clone()).await.text("id");
        objects.push(OwnedObject { collection, id, put: body, patch });
    }
    objects
}
