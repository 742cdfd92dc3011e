//! Spaces and templates: lifecycle, permissions, agent tokens and validation.

use super::{TestResponse, TestServer};
use crate::spaces::AgentConnect;
use serde_json::{Value, json};

const LUA: &str = "return true";

impl TestServer {
    async fn space(&self, token: &str, body: Value) -> TestResponse {
        self.call(token, "POST", "/api/spaces", Some(body)).await
    }
}

fn path(space: &TestResponse) -> String {
    format!("/api/spaces/{}", space.text("id"))
}

#[tokio::test]
async fn a_space_is_created_changed_and_deleted() {
    let server = TestServer::start().await;
    let (_, ada) = server.user("ada", &["member"]).await;
    let body = json!({
        "name": "web", "description": "the shop", "host": "box.example", "ports": [{"name": "web", "port": 8080}],
        "custom": {"TEAM": "ops"}, "health_check": {"type": "http", "port": 8080, "path": "/healthz"},
    });
    let made = server.space(&ada, body).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert!(made.text("agent_token").starts_with("sva_"));
    let shown = server.call(&ada, "GET", &path(&made), None).await;
    assert_eq!(shown.body.get("agent_token"), None, "shown once");
    for (field, value) in [
        ("name", json!("web")),
        ("owner", json!("ada")),
        ("driver", json!("external")),
        ("state", json!("created")),
        ("linked", json!(false)),
        ("health", json!("unknown")),
        ("urls", json!(["http://box.example:8080"])),
        ("ports", json!([{"name": "web", "port": 8080, "protocol": "http"}])),
        ("process", json!(null)),
        ("started_at", json!(null)),
    ] {
        assert_eq!(shown.body[field], value, "{field}");
    }
    let check = json!({
        "type": "http", "port": 8080, "path": "/healthz", "interval": "10s", "timeout": "5s", "failures": 3,
    });
    assert_eq!(shown.body["health_check"], check);
    let patch = json!({"description": "new", "health_check": null, "host": null});
    let patched = server.call(&ada, "PATCH", &path(&made), Some(patch)).await;
    assert_eq!((patched.status, &patched.body["description"]), (200, &json!("new")), "{patched:?}");
    assert_eq!((&patched.body["health_check"], &patched.body["host"]), (&json!(null), &json!("localhost")));
    assert_eq!(patched.body["custom"], json!({"TEAM": "ops"}), "absent fields stay");
    let listed = server.call(&ada, "GET", "/api/spaces?name=web&state=created", None).await;
    assert_eq!(listed.body, json!({"items": [patched.body], "next": null}));
    let gone = server.call(&ada, "DELETE", &path(&made), None).await;
    assert_eq!((gone.status, gone.body), (204, json!(null)));
    assert_eq!(server.call(&ada, "GET", &path(&made), None).await.code(), "not_found");
    server.stop().await;
}

#[tokio::test]
async fn an_impossible_state_change_is_409_with_advice() {
    let server = TestServer::start().await;
    let made = server.post("/api/spaces", json!({"name": "web"})).await;
    let (start, stop) = (format!("{}/start", path(&made)), format!("{}/stop", path(&made)));
    let response = server.call(&server.token, "POST", &start, None).await;
    assert!(response.code() == "conflict" && response.message().contains("svc agent start"), "{response:?}");
    assert_eq!(server.call(&server.token, "POST", &stop, None).await.code(), "conflict");
    let id = made.text("id").parse().unwrap();
    server.services.spaces.linked(id, "n", AgentConnect::Started).await.unwrap();
    let shown = server.get(&path(&made)).await;
    assert_eq!((&shown.body["state"], &shown.body["linked"]), (&json!("deployed"), &json!(true)));
    let stopped = server.call(&server.token, "POST", &stop, None).await;
    assert_eq!((stopped.status, &stopped.body["state"]), (200, &json!("stopped")));
    assert_eq!(server.post("/api/spaces", json!({"name": "web"})).await.code(), "conflict", "the name is taken");
    server.stop().await;
}

#[tokio::test]
async fn a_space_of_another_user_is_404_except_for_managers_of_spaces() {
    let server = TestServer::start().await;
    let (_, ada) = server.user("ada", &["member"]).await;
    let (_, bob) = server.user("bob", &["member"]).await;
    let (_, nobody) = server.user("eve", &[]).await;
    let web = server.space(&ada, json!({"name": "web"})).await;
    for (method, rest, body) in [
        ("GET", "", None),
        ("PATCH", "", Some(json!({}))),
        ("DELETE", "", None),
        ("POST", "/start", None),
        ("POST", "/stop", None),
        ("POST", "/token", None),
    ] {
        let path = format!("{}{rest}", path(&web));
        assert_eq!(server.call(&bob, method, &path, body.clone()).await.code(), "not_found", "{method} {rest}");
        assert_eq!(server.call(&nobody, method, &path, body).await.code(), "forbidden", "{method} {rest}");
    }
    assert_eq!(server.call(&bob, "GET", "/api/spaces", None).await.body["items"], json!([]));
    server.post("/api/spaces", json!({"name": "web"})).await;
    let owners = |response: TestResponse| -> Vec<Value> {
        response.body["items"].as_array().unwrap().iter().map(|space| space["owner"].clone()).collect()
    };
    assert_eq!(owners(server.get("/api/spaces?name=web").await), ["ada", "admin"]);
    assert_eq!(owners(server.get("/api/spaces?owner=me").await), ["admin"]);
    assert_eq!(owners(server.get("/api/spaces?owner=ada").await), ["ada"]);
    assert_eq!(owners(server.get("/api/spaces?owner=nobody").await), [""; 0]);
    assert_eq!(server.get(&path(&web)).await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn an_agent_token_acts_for_its_owner_until_it_is_rotated() {
    let server = TestServer::start().await;
    let (_, ada) = server.user("ada", &["member"]).await;
    let web = server.space(&ada, json!({"name": "web"})).await;
    let first = web.text("agent_token");
    let me = server.call(&first, "GET", "/api/whoami", None).await;
    assert_eq!((me.text("name"), me.text("via")), ("ada".to_owned(), "agent".to_owned()));
    assert_eq!(server.call(&first, "GET", &path(&web), None).await.status, 200);
    // Agents reach no route that shows or makes credentials.
    let password = json!({"current": "correct horse", "new": "battery staple"});
    let token = format!("{}/token", path(&web));
    for (method, path, body) in [
        ("POST", "/api/tokens", Some(json!({"name": "t"}))),
        ("DELETE", "/api/tokens/01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a77", None),
        ("POST", "/api/auth/password", Some(password)),
        ("POST", "/api/spaces", Some(json!({"name": "more"}))),
        ("POST", token.as_str(), None),
    ] {
        assert_eq!(server.call(&first, method, path, body).await.code(), "forbidden", "{method} {path}");
    }
    let rotated = server.call(&ada, "POST", &token, None).await;
    assert_eq!((rotated.status, rotated.text("id")), (200, web.text("id")));
    assert_eq!(server.call(&first, "GET", "/api/whoami", None).await.code(), "unauthorized");
    let second = rotated.text("agent_token");
    assert_eq!(server.call(&second, "GET", "/api/whoami", None).await.status, 200);
    server.call(&ada, "DELETE", &path(&web), None).await;
    assert_eq!(server.call(&second, "GET", "/api/whoami", None).await.code(), "unauthorized");
    server.stop().await;
}

#[tokio::test]
async fn the_driver_process_needs_the_permission_to_manage_spaces() {
    let server = TestServer::start().await;
    let (user, ada) = server.user("ada", &["admin"]).await;
    let body = json!({"name": "box", "driver": "process", "methods_file": "/srv/m.toml"});
    let made = server.space(&ada, body.clone()).await;
    assert_eq!((made.status, &made.body["agent_token"]), (201, &json!(null)), "{made:?}");
    let token = server.call(&ada, "POST", &format!("{}/token", path(&made)), None).await;
    assert_eq!(token.code(), "conflict", "{token:?}");
    let start = format!("{}/start", path(&made));
    let started = server.call(&ada, "POST", &start, None).await;
    assert_eq!((&started.body["launched"], &started.body["state"]), (&json!(true), &json!("created")), "{started:?}");
    assert_eq!(server.call(&ada, "POST", &start, None).await.code(), "conflict");
    // A user who lost the permission can stop the process, and not change it.
    let member = json!({"roles": ["member"]});
    assert_eq!(server.call(&server.token, "PATCH", &format!("/api/users/{user}"), Some(member)).await.status, 200);
    let command = json!({"health_check": {"type": "command", "command": "sh"}});
    assert_eq!(server.call(&ada, "PATCH", &path(&made), Some(command)).await.code(), "forbidden");
    assert_eq!(server.space(&ada, json!({"name": "b", "driver": "process"})).await.code(), "forbidden");
    let stopped = server.call(&ada, "POST", &format!("{}/stop", path(&made)), None).await;
    assert_eq!((stopped.status, &stopped.body["launched"]), (200, &json!(false)));
    assert_eq!(server.call(&ada, "POST", &start, None).await.code(), "forbidden");
    assert_eq!(server.call(&ada, "DELETE", &path(&made), None).await.status, 204);
    server.stop().await;
}

#[tokio::test]
async fn a_wrong_field_is_named() {
    let server = TestServer::start().await;
    let with = |field: &str, value: Value| {
        let mut body = json!({"name": "web"});
        body[field] = value;
        body
    };
    for (body, named) in [
        (json!({}), "`name`"),
        (with("name", json!("a.b")), "`name`: a name is"),
        (with("colour", json!(1)), "`colour`"),
        (with("driver", json!("docker")), "`driver`"),
        (with("template", json!("none")), "`template`"),
        (with("ports", json!([{"name": "a", "port": 1}, {"name": "b", "port": 0}])), "`ports[1].port`"),
        (with("custom", json!({"a b": "c"})), "`custom.a b`"),
        (with("health_check", json!({"type": "tcp"})), "`health_check`: `port` is required"),
        (with("health_check", json!({"type": "lua", "source": "x ="})), "`health_check.source` does not compile"),
        (with("methods_file", json!("/x")), "`methods_file` belongs to"),
    ] {
        let response = server.post("/api/spaces", body.clone()).await;
        assert!(response.code() == "bad_request" && response.message().contains(named), "{body}: {response:?}");
    }
    let made = server.post("/api/spaces", with("health_check", json!({"type": "lua", "source": LUA}))).await;
    assert_eq!(made.status, 201, "{made:?}");
    for (patch, named) in [
        (json!({"name": "other"}), "`name` of a space cannot change"),
        (json!({"driver": "process"}), "`driver` of a space cannot change"),
        (json!({"colour": 1}), "`colour`"),
        (json!({"host": "a/b"}), "`host`"),
        (json!({"directory": "/x"}), "`directory` belongs to"),
        (json!({"health_check": {"type": "lua", "source": "("}}), "does not compile"),
    ] {
        let response = server.call(&server.token, "PATCH", &path(&made), Some(patch.clone())).await;
        assert!(response.code() == "bad_request" && response.message().contains(named), "{patch}: {response:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn the_number_of_spaces_of_a_user_is_limited() {
    let server = TestServer::start_with(std::time::Duration::from_secs(5), |config| config.limits.spaces = 1).await;
    assert_eq!(server.post("/api/spaces", json!({"name": "a"})).await.status, 201);
    let more = server.post("/api/spaces", json!({"name": "b"})).await;
    assert!(more.code() == "conflict" && more.message().contains("limits.spaces"), "{more:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_space_made_from_a_template_does_not_change_with_it() {
    let server = TestServer::start().await;
    let (_, ada) = server.user("ada", &["member"]).await;
    let script = server.post("/api/scripts", json!({"name": "set-up", "owner": "global", "content": ""})).await;
    let spec = json!({
        "name": "web", "description": "web servers", "ports": [{"name": "web", "port": 80}],
        "custom": {"TEAM": "ops", "TIER": "1"}, "startup_script_id": script.body["id"],
        "health_check": {"type": "tcp", "port": 80},
    });
    let template = server.post("/api/templates", spec.clone()).await;
    assert_eq!(template.status, 201, "{template:?}");
    let path = format!("/api/templates/{}", template.text("id"));
    let made = server.space(&ada, json!({"name": "one", "template": "web", "custom": {"TIER": "2"}})).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(made.body["template_id"], template.body["id"]);
    for field in ["description", "ports", "startup_script_id", "health_check"] {
        assert_eq!(made.body[field], template.body[field], "{field}");
    }
    assert_eq!(made.body["custom"], json!({"TEAM": "ops", "TIER": "2"}));
    let ports = json!([{"name": "db", "port": 5432, "protocol": "tcp"}]);
    let other = json!({"name": "two", "template": template.text("id"), "ports": ports, "description": "mine"});
    let other = server.space(&ada, other).await;
    assert_eq!((&other.body["urls"], &other.body["description"]), (&json!(["tcp://localhost:5432"]), &json!("mine")));

    let patched = server.call(&server.token, "PATCH", &path, Some(json!({"health_check": null}))).await;
    assert_eq!((patched.status, &patched.body["health_check"]), (200, &json!(null)), "{patched:?}");
    assert_eq!(patched.body["custom"], template.body["custom"]);
    let replaced = server.call(&server.token, "PUT", &path, Some(json!({"name": "site"}))).await;
    assert_eq!((replaced.status, &replaced.body["ports"]), (200, &json!([])), "{replaced:?}");
    assert_eq!(server.get("/api/templates?name=site").await.body["items"], json!([replaced.body]));
    let shown = server.call(&ada, "GET", &format!("/api/spaces/{}", made.text("id")), None).await;
    assert_eq!(shown.body["health_check"], made.body["health_check"]);
    assert_eq!(server.call(&server.token, "DELETE", &path, None).await.status, 204);
    assert_eq!(server.get(&path).await.code(), "not_found");
    server.stop().await;
}

#[tokio::test]
async fn users_of_spaces_read_templates_and_managers_change_them() {
    let server = TestServer::start().await;
    let (_, ada) = server.user("ada", &["member"]).await;
    let template = server.post("/api/templates", json!({"name": "web"})).await;
    let path = format!("/api/templates/{}", template.text("id"));
    assert_eq!(server.call(&ada, "GET", &path, None).await.body, template.body);
    assert_eq!(server.call(&ada, "GET", "/api/templates", None).await.body["items"], json!([template.body]));
    for (method, path, body) in [
        ("POST", "/api/templates", Some(json!({"name": "x"}))),
        ("PUT", path.as_str(), Some(json!({"name": "x"}))),
        ("PATCH", path.as_str(), Some(json!({}))),
        ("DELETE", path.as_str(), None),
    ] {
        let response = server.call(&ada, method, path, body).await;
        assert!(
            response.code() == "forbidden" && response.message().contains("manage_spaces"),
            "{method} {response:?}"
        );
    }
    assert_eq!(server.post("/api/templates", json!({"name": "web"})).await.code(), "conflict");
    let wrong =
        server.post("/api/templates", json!({"name": "x", "health_check": {"type": "lua", "source": "("}})).await;
    assert!(wrong.message().contains("does not compile"), "{wrong:?}");
    server.stop().await;
}

#[tokio::test]
async fn deleting_a_user_deletes_its_spaces() {
    let server = TestServer::start().await;
    let (id, ada) = server.user("ada", &["member"]).await;
    let web = server.space(&ada, json!({"name": "web"})).await;
    server.post("/api/spaces", json!({"name": "mine"})).await;
    assert_eq!(server.call(&server.token, "DELETE", &format!("/api/users/{id}"), None).await.status, 204);
    let left = server.get("/api/spaces").await;
    assert_eq!(left.body["items"].as_array().unwrap().len(), 1);
    assert_eq!(server.call(&web.text("agent_token"), "GET", "/api/whoami", None).await.code(), "unauthorized");
    let audited = server.get("/api/audit?action=space.delete").await;
    assert_eq!(audited.body["items"][0]["object"], format!("space:{}", web.text("id")));
    let event = server.get("/api/events?pattern=space.deleted").await;
    assert_eq!(event.body["items"][0]["data"]["space_name"], "web");
    assert_eq!(event.body["items"][0]["user_id"], json!(id));
    server.stop().await;
}

#[tokio::test]
async fn spaces_come_in_pages_and_are_counted_by_state() {
    let server = TestServer::start().await;
    let mut ids = Vec::new();
    for name in ["a", "b", "c"] {
        ids.push(server.post("/api/spaces", json!({"name": name})).await.text("id"));
    }
    server.services.spaces.linked(ids[1].parse().unwrap(), "n", AgentConnect::Started).await.unwrap();
    let first = server.get("/api/spaces?limit=2").await;
    let next = first.text("next");
    let rest = server.get(&format!("/api/spaces?limit=2&cursor={next}")).await;
    let listed = [&first, &rest].map(|page| page.body["items"].as_array().unwrap().clone()).concat();
    assert_eq!(listed.iter().map(|space| space["id"].as_str().unwrap()).collect::<Vec<_>>(), ids);
    assert_eq!(rest.body["next"], json!(null));
    let metrics = server.get("/metrics").await.body;
    for line in ["svc_spaces{state=\"created\"} 2\n", "svc_spaces{state=\"deployed\"} 1\n", "svc_spaces_linked 1\n"] {
        assert!(metrics.as_str().unwrap().contains(line), "{metrics}");
    }
    server.stop().await;
}
