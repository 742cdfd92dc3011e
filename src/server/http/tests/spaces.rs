//! Spaces and templates at the edge: who may do what, what is answered, and what is never shown again.

use super::{Answer, Service};
use crate::spaces::Arrival;
use serde_json::{Value, json};

const LUA: &str = "return true";

impl Service {
    async fn space(&self, token: &str, body: Value) -> Answer {
        self.call(token, "POST", "/api/spaces", Some(body)).await
    }
}

fn path(space: &Answer) -> String {
    format!("/api/spaces/{}", space.text("id"))
}

#[tokio::test]
async fn a_space_goes_from_making_to_deleting() {
    let service = Service::start().await;
    let (_, ada) = service.user("ada", &["member"]).await;
    let body = json!({
        "name": "web", "description": "the shop", "host": "box.example", "ports": [{"name": "web", "port": 8080}],
        "custom": {"TEAM": "ops"}, "health_check": {"type": "http", "port": 8080, "path": "/healthz"},
    });
    let made = service.space(&ada, body).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert!(made.text("agent_token").starts_with("sva_"));
    let shown = service.call(&ada, "GET", &path(&made), None).await;
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
    let patched = service.call(&ada, "PATCH", &path(&made), Some(patch)).await;
    assert_eq!((patched.status, &patched.body["description"]), (200, &json!("new")), "{patched:?}");
    assert_eq!((&patched.body["health_check"], &patched.body["host"]), (&json!(null), &json!("localhost")));
    assert_eq!(patched.body["custom"], json!({"TEAM": "ops"}), "what is not mentioned stays");
    let listed = service.call(&ada, "GET", "/api/spaces?name=web&state=created", None).await;
    assert_eq!(listed.body, json!({"items": [patched.body], "next": null}));
    let gone = service.call(&ada, "DELETE", &path(&made), None).await;
    assert_eq!((gone.status, gone.body), (204, json!(null)));
    assert_eq!(service.call(&ada, "GET", &path(&made), None).await.code(), "not_found");
    service.stop().await;
}

#[tokio::test]
async fn states_that_do_not_follow_are_409_with_what_to_do() {
    let service = Service::start().await;
    let made = service.post("/api/spaces", json!({"name": "web"})).await;
    let (start, stop) = (format!("{}/start", path(&made)), format!("{}/stop", path(&made)));
    let answer = service.call(&service.token, "POST", &start, None).await;
    assert!(answer.code() == "conflict" && answer.message().contains("svc agent start"), "{answer:?}");
    assert_eq!(service.call(&service.token, "POST", &stop, None).await.code(), "conflict");
    let id = made.text("id").parse().unwrap();
    service.services.spaces.linked(id, "n", Arrival::New).await.unwrap();
    let shown = service.get(&path(&made)).await;
    assert_eq!((&shown.body["state"], &shown.body["linked"]), (&json!("deployed"), &json!(true)));
    let stopped = service.call(&service.token, "POST", &stop, None).await;
    assert_eq!((stopped.status, &stopped.body["state"]), (200, &json!("stopped")));
    assert_eq!(service.post("/api/spaces", json!({"name": "web"})).await.code(), "conflict", "the name is taken");
    service.stop().await;
}

#[tokio::test]
async fn somebody_elses_space_is_404_but_for_who_manages_them() {
    let service = Service::start().await;
    let (_, ada) = service.user("ada", &["member"]).await;
    let (_, bob) = service.user("bob", &["member"]).await;
    let (_, nobody) = service.user("eve", &[]).await;
    let web = service.space(&ada, json!({"name": "web"})).await;
    for (method, rest, body) in [
        ("GET", "", None),
        ("PATCH", "", Some(json!({}))),
        ("DELETE", "", None),
        ("POST", "/start", None),
        ("POST", "/stop", None),
        ("POST", "/token", None),
    ] {
        let path = format!("{}{rest}", path(&web));
        assert_eq!(service.call(&bob, method, &path, body.clone()).await.code(), "not_found", "{method} {rest}");
        assert_eq!(service.call(&nobody, method, &path, body).await.code(), "forbidden", "{method} {rest}");
    }
    assert_eq!(service.call(&bob, "GET", "/api/spaces", None).await.body["items"], json!([]));
    service.post("/api/spaces", json!({"name": "web"})).await;
    let owners = |answer: Answer| -> Vec<Value> {
        answer.body["items"].as_array().unwrap().iter().map(|space| space["owner"].clone()).collect()
    };
    assert_eq!(owners(service.get("/api/spaces?name=web").await), ["ada", "admin"]);
    assert_eq!(owners(service.get("/api/spaces?owner=me").await), ["admin"]);
    assert_eq!(owners(service.get("/api/spaces?owner=ada").await), ["ada"]);
    assert_eq!(owners(service.get("/api/spaces?owner=nobody").await), [""; 0]);
    assert_eq!(service.get(&path(&web)).await.status, 200);
    service.stop().await;
}

#[tokio::test]
async fn an_agent_token_opens_for_its_owner_until_it_is_rotated() {
    let service = Service::start().await;
    let (_, ada) = service.user("ada", &["member"]).await;
    let web = service.space(&ada, json!({"name": "web"})).await;
    let first = web.text("agent_token");
    let me = service.call(&first, "GET", "/api/whoami", None).await;
    assert_eq!((me.text("name"), me.text("via")), ("ada".to_owned(), "agent".to_owned()));
    assert_eq!(service.call(&first, "GET", &path(&web), None).await.status, 200);
    // What is or makes a credential is not for agents.
    let password = json!({"current": "correct horse", "new": "battery staple"});
    let token = format!("{}/token", path(&web));
    for (method, path, body) in [
        ("POST", "/api/tokens", Some(json!({"name": "t"}))),
        ("DELETE", "/api/tokens/01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a77", None),
        ("POST", "/api/auth/password", Some(password)),
        ("POST", "/api/spaces", Some(json!({"name": "more"}))),
        ("POST", token.as_str(), None),
    ] {
        assert_eq!(service.call(&first, method, path, body).await.code(), "forbidden", "{method} {path}");
    }
    let rotated = service.call(&ada, "POST", &token, None).await;
    assert_eq!((rotated.status, rotated.text("id")), (200, web.text("id")));
    assert_eq!(service.call(&first, "GET", "/api/whoami", None).await.code(), "unauthorized");
    let second = rotated.text("agent_token");
    assert_eq!(service.call(&second, "GET", "/api/whoami", None).await.status, 200);
    service.call(&ada, "DELETE", &path(&web), None).await;
    assert_eq!(service.call(&second, "GET", "/api/whoami", None).await.code(), "unauthorized");
    service.stop().await;
}

#[tokio::test]
async fn the_driver_process_is_for_who_manages_spaces() {
    let service = Service::start().await;
    let (user, ada) = service.user("ada", &["admin"]).await;
    let body = json!({"name": "box", "driver": "process", "methods_file": "/srv/m.toml"});
    let made = service.space(&ada, body.clone()).await;
    assert_eq!((made.status, &made.body["agent_token"]), (201, &json!(null)), "{made:?}");
    let token = service.call(&ada, "POST", &format!("{}/token", path(&made)), None).await;
    assert_eq!(token.code(), "conflict", "{token:?}");
    let start = format!("{}/start", path(&made));
    let started = service.call(&ada, "POST", &start, None).await;
    assert_eq!((&started.body["launched"], &started.body["state"]), (&json!(true), &json!("created")), "{started:?}");
    assert_eq!(service.call(&ada, "POST", &start, None).await.code(), "conflict");
    // Whoever may no longer, may no longer change what the server runs, but end it.
    let member = json!({"roles": ["member"]});
    assert_eq!(service.call(&service.token, "PATCH", &format!("/api/users/{user}"), Some(member)).await.status, 200);
    let command = json!({"health_check": {"type": "command", "command": "sh"}});
    assert_eq!(service.call(&ada, "PATCH", &path(&made), Some(command)).await.code(), "forbidden");
    assert_eq!(service.space(&ada, json!({"name": "b", "driver": "process"})).await.code(), "forbidden");
    let stopped = service.call(&ada, "POST", &format!("{}/stop", path(&made)), None).await;
    assert_eq!((stopped.status, &stopped.body["launched"]), (200, &json!(false)));
    assert_eq!(service.call(&ada, "POST", &start, None).await.code(), "forbidden");
    assert_eq!(service.call(&ada, "DELETE", &path(&made), None).await.status, 204);
    service.stop().await;
}

#[tokio::test]
async fn a_wrong_field_is_named() {
    let service = Service::start().await;
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
        let answer = service.post("/api/spaces", body.clone()).await;
        assert!(answer.code() == "bad_request" && answer.message().contains(named), "{body}: {answer:?}");
    }
    let made = service.post("/api/spaces", with("health_check", json!({"type": "lua", "source": LUA}))).await;
    assert_eq!(made.status, 201, "{made:?}");
    for (patch, named) in [
        (json!({"name": "other"}), "`name` of a space cannot change"),
        (json!({"driver": "process"}), "`driver` of a space cannot change"),
        (json!({"colour": 1}), "`colour`"),
        (json!({"host": "a/b"}), "`host`"),
        (json!({"directory": "/x"}), "`directory` belongs to"),
        (json!({"health_check": {"type": "lua", "source": "("}}), "does not compile"),
    ] {
        let answer = service.call(&service.token, "PATCH", &path(&made), Some(patch.clone())).await;
        assert!(answer.code() == "bad_request" && answer.message().contains(named), "{patch}: {answer:?}");
    }
    service.stop().await;
}

#[tokio::test]
async fn so_many_spaces_a_user_and_no_more() {
    let service = Service::start_with(std::time::Duration::from_secs(5), |config| config.limits.spaces = 1).await;
    assert_eq!(service.post("/api/spaces", json!({"name": "a"})).await.status, 201);
    let more = service.post("/api/spaces", json!({"name": "b"})).await;
    assert!(more.code() == "conflict" && more.message().contains("limits.spaces"), "{more:?}");
    service.stop().await;
}

#[tokio::test]
async fn a_space_is_made_of_a_template_and_stays_when_that_changes() {
    let service = Service::start().await;
    let (_, ada) = service.user("ada", &["member"]).await;
    let script = service.post("/api/scripts", json!({"name": "set-up", "owner": "global", "content": ""})).await;
    let spec = json!({
        "name": "web", "description": "web servers", "ports": [{"name": "web", "port": 80}],
        "custom": {"TEAM": "ops", "TIER": "1"}, "startup_script_id": script.body["id"],
        "health_check": {"type": "tcp", "port": 80},
    });
    let template = service.post("/api/templates", spec.clone()).await;
    assert_eq!(template.status, 201, "{template:?}");
    let path = format!("/api/templates/{}", template.text("id"));
    let made = service.space(&ada, json!({"name": "one", "template": "web", "custom": {"TIER": "2"}})).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(made.body["template_id"], template.body["id"]);
    for field in ["description", "ports", "startup_script_id", "health_check"] {
        assert_eq!(made.body[field], template.body[field], "{field}");
    }
    assert_eq!(made.body["custom"], json!({"TEAM": "ops", "TIER": "2"}));
    let ports = json!([{"name": "db", "port": 5432, "protocol": "tcp"}]);
    let other = json!({"name": "two", "template": template.text("id"), "ports": ports, "description": "mine"});
    let other = service.space(&ada, other).await;
    assert_eq!((&other.body["urls"], &other.body["description"]), (&json!(["tcp://localhost:5432"]), &json!("mine")));

    let patched = service.call(&service.token, "PATCH", &path, Some(json!({"health_check": null}))).await;
    assert_eq!((patched.status, &patched.body["health_check"]), (200, &json!(null)), "{patched:?}");
    assert_eq!(patched.body["custom"], template.body["custom"]);
    let replaced = service.call(&service.token, "PUT", &path, Some(json!({"name": "site"}))).await;
    assert_eq!((replaced.status, &replaced.body["ports"]), (200, &json!([])), "{replaced:?}");
    assert_eq!(service.get("/api/templates?name=site").await.body["items"], json!([replaced.body]));
    let shown = service.call(&ada, "GET", &format!("/api/spaces/{}", made.text("id")), None).await;
    assert_eq!(shown.body["health_check"], made.body["health_check"]);
    assert_eq!(service.call(&service.token, "DELETE", &path, None).await.status, 204);
    assert_eq!(service.get(&path).await.code(), "not_found");
    service.stop().await;
}

#[tokio::test]
async fn templates_are_read_by_all_and_written_by_managers() {
    let service = Service::start().await;
    let (_, ada) = service.user("ada", &["member"]).await;
    let template = service.post("/api/templates", json!({"name": "web"})).await;
    let path = format!("/api/templates/{}", template.text("id"));
    assert_eq!(service.call(&ada, "GET", &path, None).await.body, template.body);
    assert_eq!(service.call(&ada, "GET", "/api/templates", None).await.body["items"], json!([template.body]));
    for (method, path, body) in [
        ("POST", "/api/templates", Some(json!({"name": "x"}))),
        ("PUT", path.as_str(), Some(json!({"name": "x"}))),
        ("PATCH", path.as_str(), Some(json!({}))),
        ("DELETE", path.as_str(), None),
    ] {
        let answer = service.call(&ada, method, path, body).await;
        assert!(answer.code() == "forbidden" && answer.message().contains("manage_spaces"), "{method} {answer:?}");
    }
    assert_eq!(service.post("/api/templates", json!({"name": "web"})).await.code(), "conflict");
    let wrong =
        service.post("/api/templates", json!({"name": "x", "health_check": {"type": "lua", "source": "("}})).await;
    assert!(wrong.message().contains("does not compile"), "{wrong:?}");
    service.stop().await;
}

#[tokio::test]
async fn a_deleted_users_spaces_go_with_it() {
    let service = Service::start().await;
    let (id, ada) = service.user("ada", &["member"]).await;
    let web = service.space(&ada, json!({"name": "web"})).await;
    service.post("/api/spaces", json!({"name": "mine"})).await;
    assert_eq!(service.call(&service.token, "DELETE", &format!("/api/users/{id}"), None).await.status, 204);
    let left = service.get("/api/spaces").await;
    assert_eq!(left.body["items"].as_array().unwrap().len(), 1);
    assert_eq!(service.call(&web.text("agent_token"), "GET", "/api/whoami", None).await.code(), "unauthorized");
    let audited = service.get("/api/audit?action=space.delete").await;
    assert_eq!(audited.body["items"][0]["object"], format!("space:{}", web.text("id")));
    let event = service.get("/api/events?pattern=space.deleted").await;
    assert_eq!(event.body["items"][0]["data"]["space_name"], "web");
    assert_eq!(event.body["items"][0]["user_id"], json!(id));
    service.stop().await;
}

#[tokio::test]
async fn spaces_come_in_pages_and_are_counted_by_state() {
    let service = Service::start().await;
    let mut ids = Vec::new();
    for name in ["a", "b", "c"] {
        ids.push(service.post("/api/spaces", json!({"name": name})).await.text("id"));
    }
    service.services.spaces.linked(ids[1].parse().unwrap(), "n", Arrival::New).await.unwrap();
    let first = service.get("/api/spaces?limit=2").await;
    let next = first.text("next");
    let rest = service.get(&format!("/api/spaces?limit=2&cursor={next}")).await;
    let listed = [&first, &rest].map(|page| page.body["items"].as_array().unwrap().clone()).concat();
    assert_eq!(listed.iter().map(|space| space["id"].as_str().unwrap()).collect::<Vec<_>>(), ids);
    assert_eq!(rest.body["next"], json!(null));
    let metrics = service.get("/metrics").await.body;
    for line in ["svc_spaces{state=\"created\"} 2\n", "svc_spaces{state=\"deployed\"} 1\n", "svc_spaces_linked 1\n"] {
        assert!(metrics.as_str().unwrap().contains(line), "{metrics}");
    }
    service.stop().await;
}
