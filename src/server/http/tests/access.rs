//! Authentication, token scopes, permissions and visibility on every route.

use super::TestServer;
use crate::{
    platform::audit::{AuditFilter, AuditRoom},
    server::http::{route::Route, route_access::RouteAccess, route_table::TABLE},
};
use serde_json::json;

/// Every route that is not open, with a path that fits its template.
fn closed() -> impl Iterator<Item = (&'static Route, String)> {
    let id = uuid::Uuid::now_v7().to_string();
    TABLE
        .routes()
        .iter()
        .filter(|route| !matches!(route.access, RouteAccess::Open | RouteAccess::Metrics))
        .map(move |route| (route, route.path.replace("{id}", &id)))
}

#[tokio::test]
async fn without_a_credential_nothing_under_api_answers_anything_but_401() {
    let server = TestServer::start().await;
    let paths = closed().map(|(route, path)| (route.method.as_str(), path));
    let unknown = ["/api", "/api/", "/api/nothing", "/mcp", "/mcp/x"].map(|path| ("GET", path.to_owned()));
    for (method, path) in paths.chain(unknown).chain([("DELETE", "/api/users".to_owned())]) {
        let response = server.send(server.request(method, &path).body(()).unwrap()).await;
        assert_eq!(response.code(), "unauthorized", "{method} {path}");
        assert_eq!(response.headers["www-authenticate"], "Bearer");
        let response = server.call("svc_wrong", method, &path, None).await;
        assert_eq!(response.code(), "unauthorized", "{method} {path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_scoped_token_is_refused_everywhere_outside_its_scopes() {
    let server = TestServer::start().await;
    for scopes in [json!(["methods"]), json!(["mcp"]), json!(["mcp", "methods"])] {
        let token = server.post("/api/tokens", json!({"name": "s", "scopes": scopes})).await.text("token");
        let paths = closed().filter(|(route, _)| route.scope.is_none());
        let paths = paths.map(|(route, path)| (route.method.as_str(), path));
        for (method, path) in paths.chain([("GET", "/api/spaces".to_owned()), ("PUT", "/api/tokens".to_owned())]) {
            let response = server.call(&token, method, &path, None).await;
            assert_eq!(response.code(), "insufficient_scope", "{method} {path}");
            assert!(response.message().starts_with("this token has the scope m"), "{response:?}");
        }
        assert_eq!(server.call(&token, "GET", "/healthz", None).await.status, 200, "open to everybody");
    }
    server.stop().await;
}

#[tokio::test]
async fn an_unknown_scope_is_refused_with_the_known_ones() {
    let server = TestServer::start().await;
    let response = server.post("/api/tokens", json!({"name": "s", "scopes": ["methods", "everything"]})).await;
    assert_eq!(response.code(), "bad_request");
    let message = response.message();
    assert!(message.starts_with("`scopes[1]`"), "{message}");
    assert!(message.contains("`methods`") && message.contains("`mcp`"), "{message}");
    let token = server.post("/api/tokens", json!({"name": "s", "scopes": []})).await.text("token");
    assert_eq!(server.call(&token, "GET", "/api/whoami", None).await.status, 200, "no scopes, no limits");
    server.stop().await;
}

#[tokio::test]
async fn an_unknown_path_is_404_and_a_wrong_method_405_with_the_right_ones() {
    let server = TestServer::start().await;
    for path in ["/api/nothing", "/api/users/", "/api/users/x/y", "/nothing", "/console/"] {
        assert_eq!(server.get(path).await.code(), "not_found", "{path}");
    }
    let open = server.send(server.request("GET", "/nothing").body(()).unwrap()).await;
    assert_eq!(open.code(), "not_found", "outside of /api there is nothing to hide");
    let wrong = server.call(&server.token, "DELETE", "/api/users", None).await;
    assert_eq!((wrong.code(), wrong.headers["allow"].to_str().unwrap()), ("method_not_allowed", "GET, POST, HEAD"));
    let login = server.send(server.request("GET", "/api/auth/login").body(()).unwrap()).await;
    assert_eq!((login.code(), login.headers["allow"].to_str().unwrap()), ("method_not_allowed", "POST"));
    server.stop().await;
}

#[tokio::test]
async fn a_missing_permission_is_403_and_named() {
    let server = TestServer::start().await;
    let (_, nobody) = server.user("ada", &[]).await;
    for (route, path) in closed() {
        let response = server.call(&nobody, route.method.as_str(), &path, None).await;
        let permission = match route.access {
            RouteAccess::AnyOf(permissions) => permissions[0].as_str(),
            RouteAccess::AllPermissions => "all permissions",
            _ => {
                assert_ne!(response.status, 403, "{path}");
                continue;
            }
        };
        assert_eq!(response.code(), "forbidden", "{} {path}", route.method);
        assert!(response.message().contains(permission), "{response:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn records_of_other_users_are_404() {
    let server = TestServer::start().await;
    let (id, ada) = server.user("ada", &["member"]).await;
    let admin = server.get("/api/whoami").await.text("id");
    assert_eq!(server.call(&ada, "GET", &format!("/api/users/{id}"), None).await.status, 200);
    assert_eq!(server.call(&ada, "GET", &format!("/api/users/{admin}"), None).await.code(), "not_found");
    let token = format!("/api/tokens/{}", server.post("/api/tokens", json!({"name": "mine"})).await.text("id"));
    for method in ["GET", "DELETE"] {
        assert_eq!(server.call(&ada, method, &token, None).await.code(), "not_found");
    }
    assert_eq!(server.get(&token).await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_deleted_token_or_user_is_refused_from_the_response_on() {
    let server = TestServer::start().await;
    let (id, ada) = server.user("ada", &["member"]).await;
    let made = server.call(&ada, "POST", "/api/tokens", Some(json!({"name": "second"}))).await;
    let (token, token_id) = (made.text("token"), made.text("id"));
    let deleted = server.call(&ada, "DELETE", &format!("/api/tokens/{token_id}"), None).await;
    assert_eq!((deleted.status, deleted.body), (204, json!(null)));
    assert_eq!(server.call(&token, "GET", "/api/whoami", None).await.code(), "unauthorized");
    assert_eq!(server.call(&ada, "GET", "/api/whoami", None).await.status, 200);
    assert_eq!(server.call(&server.token, "DELETE", &format!("/api/users/{id}"), None).await.status, 204);
    assert_eq!(server.call(&ada, "GET", "/api/whoami", None).await.code(), "unauthorized");
    server.stop().await;
}

#[tokio::test]
async fn deleting_a_user_deletes_its_records_with_entries_in_the_administrative_room() {
    let server = TestServer::start().await;
    let (id, ada) = server.user("ada", &["member"]).await;
    let sink = json!({"name": "s", "events": "*", "type": "script", "owner": "me", "script": {"source": ""}});
    let made = server.call(&ada, "POST", "/api/event-sinks", Some(sink.clone())).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(server.post("/api/event-sinks", sink).await.status, 201);
    for (path, body) in
        [("/api/scripts", json!({"name": "s", "content": "return"})), ("/api/spaces", json!({"name": "s"}))]
    {
        assert_eq!(server.call(&ada, "POST", path, Some(body)).await.status, 201, "{path}");
    }
    assert_eq!(server.call(&server.token, "DELETE", &format!("/api/users/{id}"), None).await.status, 204);
    let left: Vec<_> = server.services.sinks.all().iter().map(|sink| sink.owner).collect();
    let admin = server.services.identity.users()[0].id;
    assert_eq!(left, [crate::model::owner::Owner::User(admin)]);
    let audited = server.get("/api/audit?action=sink.delete").await;
    assert_eq!(audited.body["items"][0]["object"], format!("sink:{}", made.text("id")));
    for action in ["sink.delete", "script.delete", "space.delete", "user.delete"] {
        let filter = AuditFilter { action: Some(action.to_owned()), ..AuditFilter::default() };
        let entries = server.services.audit.list(filter, None, 9).await.unwrap().entries;
        let rooms: Vec<_> = entries.iter().map(|entry| entry.room).collect();
        assert_eq!(rooms, [AuditRoom::Administrative], "{action}");
    }
    server.stop().await;
}

#[tokio::test]
async fn the_last_administrator_cannot_be_deleted() {
    let server = TestServer::start().await;
    let path = format!("/api/users/{}", server.get("/api/whoami").await.text("id"));
    assert_eq!(server.call(&server.token, "DELETE", &path, None).await.code(), "conflict");
    let off = server.call(&server.token, "PATCH", &path, Some(json!({"active": false}))).await;
    assert_eq!(off.code(), "conflict");
    server.stop().await;
}

#[tokio::test]
async fn a_name_that_is_a_uuid_is_refused_since_it_would_be_taken_for_an_id() {
    let server = TestServer::start().await;
    let web = server.post("/api/groups", json!({"name": "web"})).await.text("id");
    let bare = web.replace('-', "");
    for (path, body) in [
        ("/api/groups", json!({"name": web})),
        ("/api/groups", json!({"name": bare})),
        ("/api/roles", json!({"name": web, "permissions": []})),
        ("/api/users", json!({"name": web})),
        ("/api/templates", json!({"name": web})),
    ] {
        let response = server.post(path, body).await;
        assert_eq!(response.code(), "bad_request", "{path}");
        assert!(response.message().contains("`name`") && response.message().contains("UUID"), "{response:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_hidden_delivery_does_not_show_in_the_end_of_a_page() {
    let server = TestServer::start().await;
    let (_, ada) = server.user("ada", &["member"]).await;
    let sink = json!({"name": "s", "events": "*", "type": "script", "script": {"source": "return"}});
    let sink = server.call(&ada, "POST", "/api/event-sinks", Some(sink)).await.text("id");
    for _ in 0..2 {
        let emitted = server.call(&ada, "POST", "/api/events/emit", Some(json!({"type": "a"}))).await;
        assert_eq!(emitted.status, 202);
    }
    let absent = uuid::Uuid::now_v7();
    for query in ["limit=1&sink=", "limit=1&state=queued&sink=", "limit=1&managed=true&sink="] {
        let of = |id: &dyn std::fmt::Display| format!("/api/events?{query}{id}");
        let (hidden, absent) = (server.get(&of(&sink)).await, server.get(&of(&absent)).await);
        assert_eq!(hidden.body, json!({"items": [], "next": null}), "{query}");
        assert_eq!(hidden.body, absent.body);
        let own = server.call(&ada, "GET", &of(&sink), None).await;
        assert!(own.body["items"].as_array().unwrap().len() == 1 && own.body["next"].is_string(), "{own:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn an_explanation_tells_of_sinks_of_others_only_what_an_emit_tells() {
    let server = TestServer::start().await;
    let (_, ada) = server.user("ada", &["member"]).await;
    for (name, events) in [("watched", "custom.a"), ("secret", "custom.b")] {
        let script = json!({"source": "return"});
        let sink = json!({"name": name, "owner": "global", "events": events, "type": "script", "script": script});
        assert_eq!(server.post("/api/event-sinks", sink).await.status, 201);
    }
    let explained = server.call(&ada, "POST", "/api/events/explain", Some(json!({"type": "a"}))).await.body;
    let id = explained["sinks"][0]["sink_id"].clone();
    assert_eq!(
        explained["sinks"],
        json!([{
            "sink_id": id, "name": "watched", "owner": "global", "events": "", "type": "", "active": true,
            "matches": true, "reason": "it gets the event",
        }])
    );
    let explain = async |token: &str| {
        let explained = server.call(token, "POST", "/api/events/explain", Some(json!({"type": "a"}))).await;
        let sinks = explained.body["sinks"].as_array().unwrap().clone();
        let mut names: Vec<_> = sinks.iter().map(|sink| sink["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(explain(&ada).await, ["watched"]);
    assert_eq!(explain(&server.token).await, ["secret", "watched"], "its manager sees all of them");
    server.stop().await;
}
