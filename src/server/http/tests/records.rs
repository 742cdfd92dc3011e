//! Users, roles, groups, tokens and the audit log; the OpenAPI document, health and metrics.

use super::TestServer;
use crate::model::owner::Owner;
use serde_json::{json, value::RawValue};

#[tokio::test]
async fn a_user_is_created_changed_and_deleted() {
    let server = TestServer::start().await;
    let group = server.post("/api/groups", json!({"name": "ops"})).await;
    assert_eq!(group.status, 201);
    let body = json!({"name": "ada", "password": "correct horse", "roles": ["member"], "groups": [group.text("id")]});
    let made = server.post("/api/users", body).await;
    assert_eq!(made.status, 201);
    assert_eq!((&made.body["roles"][0]["name"], &made.body["groups"][0]["name"]), (&json!("member"), &json!("ops")));
    assert_eq!(made.body["active"], true);
    assert!(!made.body.to_string().contains("password") && !made.body.to_string().contains("argon2"));
    let path = format!("/api/users/{}", made.text("id"));
    assert_eq!(server.get(&path).await.body, made.body);
    let patched = server.call(&server.token, "PATCH", &path, Some(json!({"name": "lovelace"}))).await;
    assert_eq!(
        (patched.status, &patched.body["name"], &patched.body["roles"]),
        (200, &json!("lovelace"), &made.body["roles"])
    );
    let replaced = server.call(&server.token, "PUT", &path, Some(json!({"name": "ada"}))).await;
    assert_eq!((replaced.status, &replaced.body["roles"], &replaced.body["groups"]), (200, &json!([]), &json!([])));
    server.login("ada", "correct horse").await;
    assert_eq!(server.call(&server.token, "DELETE", &path, None).await.status, 204);
    assert_eq!(server.get(&path).await.code(), "not_found");
    server.stop().await;
}

#[tokio::test]
async fn a_role_is_created_changed_and_deleted() {
    let server = TestServer::start().await;
    let made = server.post("/api/roles", json!({"name": "auditor", "permissions": ["view_audit_log"]})).await;
    assert_eq!((made.status, &made.body["permissions"]), (201, &json!(["view_audit_log"])));
    let wrong = server.post("/api/roles", json!({"name": "x", "permissions": ["view_audit_log", "fly"]})).await;
    assert!(wrong.message().starts_with("`permissions[1]`: unknown variant `fly`"), "{wrong:?}");
    let (_, auditor) = server.user("ada", &["auditor"]).await;
    assert_eq!(server.call(&auditor, "GET", "/api/audit", None).await.status, 200);
    let path = format!("/api/roles/{}", made.text("id"));
    let patch = json!({"permissions": ["use_spaces"]});
    let patched = server.call(&server.token, "PATCH", &path, Some(patch)).await;
    assert_eq!((&patched.body["name"], &patched.body["permissions"]), (&json!("auditor"), &json!(["use_spaces"])));
    assert_eq!(server.call(&auditor, "GET", "/api/audit", None).await.code(), "forbidden");
    assert_eq!(server.call(&server.token, "DELETE", &path, None).await.status, 204);
    assert_eq!(server.call(&auditor, "GET", "/api/whoami", None).await.body["roles"], json!([]));
    server.stop().await;
}

#[tokio::test]
async fn a_group_is_renamed_and_deleting_it_takes_it_from_its_members() {
    let server = TestServer::start().await;
    let path = format!("/api/groups/{}", server.post("/api/groups", json!({"name": "ops"})).await.text("id"));
    let user = server.post("/api/users", json!({"name": "ada", "groups": ["ops"]})).await.text("id");
    let renamed = server.call(&server.token, "PATCH", &path, Some(json!({"name": "sre"}))).await;
    assert_eq!((renamed.status, renamed.text("name")), (200, "sre".to_owned()));
    assert_eq!(server.get(&format!("/api/users/{user}")).await.body["groups"][0]["name"], "sre");
    assert_eq!(server.call(&server.token, "DELETE", &path, None).await.status, 204);
    assert_eq!(server.get(&format!("/api/users/{user}")).await.body["groups"], json!([]));
    server.stop().await;
}

#[tokio::test]
async fn a_token_is_shown_once_and_works_until_it_expires() {
    let server = TestServer::start().await;
    let body = json!({"name": "ci", "scopes": ["mcp", "methods", "mcp"], "expires_at": "2999-01-01T00:00:00Z"});
    let made = server.post("/api/tokens", body).await;
    assert_eq!((made.status, made.text("token").len()), (201, 47));
    assert_eq!(made.body["scopes"], json!(["methods", "mcp"]));
    assert_eq!(made.text("expires_at"), "2999-01-01T00:00:00.000000Z");
    let shown = server.get(&format!("/api/tokens/{}", made.text("id"))).await;
    assert_eq!((shown.status, shown.body.get("token"), &shown.body["last_used_at"]), (200, None, &json!(null)));
    let past = server.post("/api/tokens", json!({"name": "ci", "expires_at": "2001-01-01T00:00:00Z"})).await;
    assert_eq!((past.code(), past.message()), ("bad_request", "`expires_at`: has already passed"));
    let list = server.get("/api/tokens").await;
    assert_eq!(list.body["items"].as_array().unwrap().len(), 2, "the administrator's file holds the other");
    assert!(list.body["items"][0]["last_used_at"].is_string());
    server.stop().await;
}

#[tokio::test]
async fn lists_come_in_pages() {
    let server = TestServer::start().await;
    for number in 0..5 {
        server.post("/api/groups", json!({"name": format!("g{number}")})).await;
    }
    let mut names = Vec::new();
    let mut path = "/api/groups?limit=2".to_owned();
    loop {
        let page = server.get(&path).await;
        let items = page.body["items"].as_array().unwrap().clone();
        assert!(items.len() <= 2);
        names.extend(items.iter().map(|item| item["name"].as_str().unwrap().to_owned()));
        let Some(next) = page.body["next"].as_str() else { break };
        path = format!("/api/groups?limit=2&cursor={next}");
    }
    assert_eq!(names, ["g0", "g1", "g2", "g3", "g4"]);
    server.stop().await;
}

#[tokio::test]
async fn the_audit_log_is_read_back_by_actor_action_and_time() {
    let server = TestServer::start().await;
    server.post("/api/groups", json!({"name": "ops"})).await;
    server.try_login("eve", "a guess").await;
    let all = server.get("/api/audit?actor=admin").await;
    assert_eq!(
        (&all.body["items"][0]["action"], &all.body["items"][0]["object"]),
        (&json!("group.create"), &json!("ops"))
    );
    assert_eq!(all.body["items"][0]["actor"]["username"], "admin");
    // The entry of the failed login is written before the next write.
    server.post("/api/groups", json!({"name": "sre"})).await;
    let failures = server.get("/api/audit?action=login.*").await;
    assert_eq!(
        (&failures.body["items"][0]["object"], &failures.body["items"][0]["actor"]),
        (&json!("eve"), &json!(null))
    );
    assert_eq!(server.get("/api/audit?until=2001-01-01T00:00:00Z").await.body, json!({"items": [], "next": null}));
    server.stop().await;
}

#[tokio::test]
async fn the_openapi_document_matches_the_routes_of_the_running_server() {
    let server = TestServer::start().await;
    let document = server.get("/api/openapi.json").await.body;
    assert_eq!(document["openapi"], "3.1.0");
    for (path, operations) in document["paths"].as_object().unwrap() {
        let path = path.replace("{id}", &uuid::Uuid::now_v7().to_string());
        for method in operations.as_object().unwrap().keys().filter(|method| *method != "delete") {
            let response = server.call(&server.token, &method.to_uppercase(), &path, None).await;
            assert_ne!(response.status, 405, "{method} {path}");
            let unknown_path = response.body["error"]["message"] == "there is nothing at this path";
            assert!(!unknown_path, "{method} {path}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn health_readiness_and_metrics_are_served() {
    let server = TestServer::start().await;
    let open = |path: &str| server.send(server.request("GET", path).body(()).unwrap());
    assert_eq!(open("/healthz").await.body, json!({"status": "ok"}));
    assert_eq!(open("/readyz").await.body, json!({"status": "ready"}));
    let metrics = open("/metrics").await;
    assert!(metrics.headers["content-type"].to_str().unwrap().starts_with("text/plain; version=0.0.4"));
    assert!(metrics.body.as_str().unwrap().contains("svc_http_requests_total 2\n"), "{metrics:?}");
    let head = server.send(server.request("HEAD", "/healthz").body(()).unwrap()).await;
    assert_eq!((head.status, head.body), (200, json!(null)));
    server.stop().await;
}

#[tokio::test]
async fn health_tells_of_a_store_that_has_stopped() {
    let server = TestServer::start().await;
    let job = |_: &mut crate::platform::store::Batch<'_>| panic!("a job that stops the store");
    let _: Result<(), _> = server.services.store.write(job).await;
    server.services.store.stopped().await;
    let health = server.send(server.request("GET", "/healthz").body(()).unwrap()).await;
    assert_eq!((health.status, &health.body["status"]), (503, &json!("failed")));
    assert!(health.body["reason"].as_str().unwrap().contains("needs a restart"), "{}", health.body);
    server.stop().await;
}

#[tokio::test]
async fn deleting_a_user_deletes_the_data_of_its_scripts() {
    let server = TestServer::start().await;
    let (id, _) = server.user("ada", &["member"]).await;
    let ada = Owner::User(id.parse().unwrap());
    let value = || RawValue::from_string("1".to_owned()).unwrap();
    for owner in [ada, Owner::Global] {
        server.services.kv.set(owner, "k", value(), None).await.unwrap();
    }
    assert_eq!(server.call(&server.token, "DELETE", &format!("/api/users/{id}"), None).await.status, 204);
    assert!(server.services.kv.get(ada, "k").unwrap().is_none());
    assert!(server.services.kv.get(Owner::Global, "k").unwrap().is_some());
    // A run of one of its scripts that ended a moment later.
    server.services.kv.set(ada, "k", value(), None).await.unwrap();
    server.services.user_records().delete_orphans().await;
    assert!(server.services.kv.get(ada, "k").unwrap().is_none());
    assert!(server.services.kv.get(Owner::Global, "k").unwrap().is_some());
    server.stop().await;
}
