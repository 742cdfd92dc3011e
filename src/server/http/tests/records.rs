//! The records' own routes, from making to deleting, and what describes and measures the service.

use super::Service;
use crate::model::owner::Owner;
use serde_json::{json, value::RawValue};

#[tokio::test]
async fn a_user_goes_from_making_to_deleting() {
    let service = Service::start().await;
    let group = service.post("/api/groups", json!({"name": "ops"})).await;
    assert_eq!(group.status, 201);
    let body = json!({"name": "ada", "password": "correct horse", "roles": ["member"], "groups": [group.text("id")]});
    let made = service.post("/api/users", body).await;
    assert_eq!(made.status, 201);
    assert_eq!((&made.body["roles"][0]["name"], &made.body["groups"][0]["name"]), (&json!("member"), &json!("ops")));
    assert_eq!(made.body["active"], true);
    assert!(!made.body.to_string().contains("password") && !made.body.to_string().contains("argon2"));
    let path = format!("/api/users/{}", made.text("id"));
    assert_eq!(service.get(&path).await.body, made.body);
    let patched = service.call(&service.token, "PATCH", &path, Some(json!({"name": "lovelace"}))).await;
    assert_eq!(
        (patched.status, &patched.body["name"], &patched.body["roles"]),
        (200, &json!("lovelace"), &made.body["roles"])
    );
    let replaced = service.call(&service.token, "PUT", &path, Some(json!({"name": "ada"}))).await;
    assert_eq!((replaced.status, &replaced.body["roles"], &replaced.body["groups"]), (200, &json!([]), &json!([])));
    service.login("ada", "correct horse").await;
    assert_eq!(service.call(&service.token, "DELETE", &path, None).await.status, 204);
    assert_eq!(service.get(&path).await.code(), "not_found");
    service.stop().await;
}

#[tokio::test]
async fn a_role_goes_from_making_to_deleting() {
    let service = Service::start().await;
    let made = service.post("/api/roles", json!({"name": "auditor", "permissions": ["view_audit_log"]})).await;
    assert_eq!((made.status, &made.body["permissions"]), (201, &json!(["view_audit_log"])));
    let wrong = service.post("/api/roles", json!({"name": "x", "permissions": ["view_audit_log", "fly"]})).await;
    assert!(wrong.message().starts_with("`permissions[1]`: unknown variant `fly`"), "{wrong:?}");
    let (_, auditor) = service.user("ada", &["auditor"]).await;
    assert_eq!(service.call(&auditor, "GET", "/api/audit", None).await.status, 200);
    let path = format!("/api/roles/{}", made.text("id"));
    let patch = json!({"permissions": ["use_spaces"]});
    let patched = service.call(&service.token, "PATCH", &path, Some(patch)).await;
    assert_eq!((&patched.body["name"], &patched.body["permissions"]), (&json!("auditor"), &json!(["use_spaces"])));
    assert_eq!(service.call(&auditor, "GET", "/api/audit", None).await.code(), "forbidden");
    assert_eq!(service.call(&service.token, "DELETE", &path, None).await.status, 204);
    assert_eq!(service.call(&auditor, "GET", "/api/whoami", None).await.body["roles"], json!([]));
    service.stop().await;
}

#[tokio::test]
async fn a_group_is_renamed_and_leaves_its_members() {
    let service = Service::start().await;
    let path = format!("/api/groups/{}", service.post("/api/groups", json!({"name": "ops"})).await.text("id"));
    let user = service.post("/api/users", json!({"name": "ada", "groups": ["ops"]})).await.text("id");
    let renamed = service.call(&service.token, "PATCH", &path, Some(json!({"name": "sre"}))).await;
    assert_eq!((renamed.status, renamed.text("name")), (200, "sre".to_owned()));
    assert_eq!(service.get(&format!("/api/users/{user}")).await.body["groups"][0]["name"], "sre");
    assert_eq!(service.call(&service.token, "DELETE", &path, None).await.status, 204);
    assert_eq!(service.get(&format!("/api/users/{user}")).await.body["groups"], json!([]));
    service.stop().await;
}

#[tokio::test]
async fn a_token_is_shown_once_and_works_until_it_expires() {
    let service = Service::start().await;
    let body = json!({"name": "ci", "scopes": ["mcp", "methods", "mcp"], "expires_at": "2999-01-01T00:00:00Z"});
    let made = service.post("/api/tokens", body).await;
    assert_eq!((made.status, made.text("token").len()), (201, 47));
    assert_eq!(made.body["scopes"], json!(["methods", "mcp"]));
    assert_eq!(made.text("expires_at"), "2999-01-01T00:00:00.000000Z");
    let shown = service.get(&format!("/api/tokens/{}", made.text("id"))).await;
    assert_eq!((shown.status, shown.body.get("token"), &shown.body["last_used_at"]), (200, None, &json!(null)));
    let past = service.post("/api/tokens", json!({"name": "ci", "expires_at": "2001-01-01T00:00:00Z"})).await;
    assert_eq!((past.code(), past.message()), ("bad_request", "`expires_at`: has already passed"));
    let list = service.get("/api/tokens").await;
    assert_eq!(list.body["items"].as_array().unwrap().len(), 2, "the administrator's file holds the other");
    assert!(list.body["items"][0]["last_used_at"].is_string());
    service.stop().await;
}

#[tokio::test]
async fn lists_come_in_pages() {
    let service = Service::start().await;
    for number in 0..5 {
        service.post("/api/groups", json!({"name": format!("g{number}")})).await;
    }
    let mut names = Vec::new();
    let mut path = "/api/groups?limit=2".to_owned();
    loop {
        let page = service.get(&path).await;
        let items = page.body["items"].as_array().unwrap().clone();
        assert!(items.len() <= 2);
        names.extend(items.iter().map(|item| item["name"].as_str().unwrap().to_owned()));
        let Some(next) = page.body["next"].as_str() else { break };
        path = format!("/api/groups?limit=2&cursor={next}");
    }
    assert_eq!(names, ["g0", "g1", "g2", "g3", "g4"]);
    service.stop().await;
}

#[tokio::test]
async fn the_audit_log_is_read_back_by_actor_action_and_time() {
    let service = Service::start().await;
    service.post("/api/groups", json!({"name": "ops"})).await;
    service.try_login("eve", "a guess").await;
    let all = service.get("/api/audit?actor=admin").await;
    assert_eq!(
        (&all.body["items"][0]["action"], &all.body["items"][0]["object"]),
        (&json!("group.create"), &json!("ops"))
    );
    assert_eq!(all.body["items"][0]["actor"]["username"], "admin");
    // The failure is written by the time the next write is.
    service.post("/api/groups", json!({"name": "sre"})).await;
    let failures = service.get("/api/audit?action=login.*").await;
    assert_eq!(
        (&failures.body["items"][0]["object"], &failures.body["items"][0]["actor"]),
        (&json!("eve"), &json!(null))
    );
    assert_eq!(service.get("/api/audit?until=2001-01-01T00:00:00Z").await.body, json!({"items": [], "next": null}));
    service.stop().await;
}

#[tokio::test]
async fn the_running_server_describes_itself_and_its_routes_are_as_described() {
    let service = Service::start().await;
    let document = service.get("/api/openapi.json").await.body;
    assert_eq!(document["openapi"], "3.1.0");
    for (path, operations) in document["paths"].as_object().unwrap() {
        let path = path.replace("{id}", &uuid::Uuid::now_v7().to_string());
        for method in operations.as_object().unwrap().keys().filter(|method| *method != "delete") {
            let answer = service.call(&service.token, &method.to_uppercase(), &path, None).await;
            assert_ne!(answer.status, 405, "{method} {path}");
            let unknown_path = answer.body["error"]["message"] == "there is nothing at this path";
            assert!(!unknown_path, "{method} {path}");
        }
    }
    service.stop().await;
}

#[tokio::test]
async fn operators_see_whether_it_lives_is_ready_and_what_it_counted() {
    let service = Service::start().await;
    let open = |path: &str| service.send(service.request("GET", path).body(()).unwrap());
    assert_eq!(open("/healthz").await.body, json!({"status": "ok"}));
    assert_eq!(open("/readyz").await.body, json!({"status": "ready"}));
    let metrics = open("/metrics").await;
    assert!(metrics.headers["content-type"].to_str().unwrap().starts_with("text/plain; version=0.0.4"));
    assert!(metrics.body.as_str().unwrap().contains("svc_http_requests_total 2\n"), "{metrics:?}");
    let head = service.send(service.request("HEAD", "/healthz").body(()).unwrap()).await;
    assert_eq!((head.status, head.body), (200, json!(null)));
    service.stop().await;
}

#[tokio::test]
async fn what_a_users_scripts_remember_goes_with_the_user() {
    let service = Service::start().await;
    let (id, _) = service.user("ada", &["member"]).await;
    let ada = Owner::User(id.parse().unwrap());
    let value = || RawValue::from_string("1".to_owned()).unwrap();
    for owner in [ada, Owner::Global] {
        service.services.kv.set(owner, "k", value(), None).await.unwrap();
    }
    assert_eq!(service.call(&service.token, "DELETE", &format!("/api/users/{id}"), None).await.status, 204);
    assert!(service.services.kv.get(ada, "k").unwrap().is_none());
    assert!(service.services.kv.get(Owner::Global, "k").unwrap().is_some());
    service.stop().await;
}
