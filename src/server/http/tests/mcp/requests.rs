//! Requests that are refused, and the protocol versions that are spoken.

use super::{NEWEST, OLDER, call, request};
use crate::{
    platform::config::Size,
    server::http::tests::{TestServer, connections::LONG},
};
use serde_json::{Value, json};

#[tokio::test]
async fn every_http_method_of_the_endpoint_checks_scope_and_permission() {
    let server = TestServer::start().await;
    let token = async |scopes: Value| {
        let made = server.post("/api/tokens", json!({"name": "t", "scopes": scopes})).await;
        made.text("token")
    };
    let (mcp, methods) = (token(json!(["mcp"])).await, token(json!(["methods"])).await);
    let unpermitted = server.member("uma", &["use_methods"], &[]).await;
    let list = request("tools/list", json!({}));
    assert_eq!(server.send_message(&mcp, OLDER, &list, &[]).await.status, 200);
    for (token, code) in [(&methods, "insufficient_scope"), (&unpermitted, "forbidden")] {
        assert_eq!(server.send_message(token, OLDER, &list, &[]).await.code(), code);
        assert_eq!(server.call(token, "GET", "/mcp", None).await.code(), code);
    }
    assert_eq!(server.call(&methods, "DELETE", "/mcp", None).await.code(), "insufficient_scope");
    for method in ["GET", "POST", "DELETE"] {
        assert_eq!(server.call("svc_wrong", method, "/mcp", None).await.code(), "unauthorized");
        let nobody = server.send(server.request(method, "/mcp").body(()).unwrap()).await;
        assert_eq!(nobody.code(), "unauthorized");
    }
    // Sessions cannot be deleted, which clients accept.
    assert_eq!(server.call(&mcp, "DELETE", "/mcp", None).await.code(), "method_not_allowed");
    server.stop().await;
}

#[tokio::test]
async fn a_session_works_only_for_its_user() {
    let server = TestServer::start().await;
    let other = server.member("uma", &["use_mcp_server"], &[]).await;
    let session = server.start_session(&server.token).await;
    let list = request("tools/list", json!({}));
    let with = [("Mcp-Session-Id", session.as_str())];
    assert_eq!(server.send_message(&server.token, OLDER, &list, &with).await.status, 200);
    assert_eq!(server.send_message(&other, OLDER, &list, &with).await.code(), "not_found");
    let follow = server.request("GET", "/mcp").header("Authorization", format!("Bearer {other}"));
    let follow = follow.header("Accept", "text/event-stream").header("Mcp-Session-Id", &session);
    assert_eq!(server.send(follow.body(()).unwrap()).await.code(), "not_found");
    let made_up = [("Mcp-Session-Id", "made-up")];
    assert_eq!(server.send_message(&server.token, OLDER, &list, &made_up).await.code(), "not_found");
    server.stop().await;
}

#[tokio::test]
async fn a_foreign_origin_or_host_is_refused() {
    let server = TestServer::start_with(LONG, |config| {
        config.mcp.hosts = vec!["svc.example".to_owned()];
        config.mcp.origins = vec!["https://inspector.example".to_owned()];
    })
    .await;
    let list = request("tools/list", json!({}));
    let own = format!("http://{}", server.address);
    for (headers, status) in [
        (vec![], 200),
        (vec![("Origin", own.as_str())], 200),
        (vec![("Origin", "https://inspector.example")], 200),
        (vec![("Origin", "https://evil.example")], 403),
        (vec![("Origin", "null")], 403),
        (vec![("Host", "svc.example")], 200),
        (vec![("Host", "svc.example"), ("Origin", "https://svc.example")], 200),
        (vec![("Host", "evil.example")], 403),
        (vec![("Host", "evil.example"), ("Origin", "http://evil.example")], 403),
    ] {
        assert_eq!(server.send_message(&server.token, OLDER, &list, &headers).await.status, status, "{headers:?}");
        let request = server.request("GET", "/mcp").header("Authorization", format!("Bearer {}", server.token));
        let request = request.header("Accept", "text/event-stream").header("MCP-Protocol-Version", OLDER);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        assert_eq!(server.send(request.body(()).unwrap()).await.status, status, "{headers:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn preflight_requests_succeed_for_configured_origins_only() {
    let page = "https://inspector.example";
    let server = TestServer::start_with(LONG, |config| config.mcp.origins = vec![page.to_owned()]).await;
    let asks = async |path: &str, origin: &str| {
        let request = server.request("OPTIONS", path).header("Origin", origin);
        let request = request.header("Access-Control-Request-Method", "POST");
        server.send(request.body(()).unwrap()).await
    };
    let consent = asks("/mcp", page).await;
    assert_eq!((consent.status, consent.header("access-control-allow-origin")), (204, page));
    assert!(consent.header("access-control-allow-headers").contains("Authorization"), "{consent:?}");
    for (path, origin) in [("/mcp", "https://evil.example"), ("/api/tokens", page)] {
        let refused = asks(path, origin).await;
        assert_eq!((refused.status, refused.header("access-control-allow-origin")), (401, ""), "{path} {origin}");
    }
    let list = request("tools/list", json!({}));
    let shown = server.send_message(&server.token, OLDER, &list, &[("Origin", page)]).await;
    assert_eq!((shown.status, shown.header("access-control-allow-origin")), (200, page));
    // Errors are readable too, so that the page can show them to its user.
    let refused = server.send_message("svc_none", OLDER, &list, &[("Origin", page)]).await;
    assert_eq!((refused.status, refused.header("access-control-allow-origin")), (401, page));
    server.stop().await;
}

#[tokio::test]
async fn an_invalid_or_oversized_message_is_refused() {
    let server = TestServer::start_with(LONG, |config| config.limits.body = Size(10_000)).await;
    let post = async |body: String, kind: &str| {
        let request = server
            .request("POST", "/mcp")
            .header("Authorization", format!("Bearer {}", server.token))
            .header("Accept", "application/json, text/event-stream")
            .header("Content-Type", kind);
        server.send(request.body(body).unwrap()).await
    };
    let json = "application/json";
    let large = call("x", json!({"text": "x".repeat(10_000)})).to_string();
    assert_eq!(post(large, json).await.code(), "too_large");
    for (body, code) in [
        ("{", -32700),
        ("[]", -32600),
        ("7", -32600),
        (r#"{"method":7}"#, -32600),
        (r#"{"id":7}"#, -32600),
        (r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#, -32600),
    ] {
        let response = post(body.to_owned(), json).await;
        assert_eq!((response.status, response.body["error"]["code"].as_i64()), (400, Some(code)), "{response:?}");
    }
    assert_eq!(post(request("ping", json!({})).to_string(), "text/plain").await.code(), "unsupported_media_type");
    let get = async |version: &str, accept: &str| {
        let request = server.request("GET", "/mcp").header("Authorization", format!("Bearer {}", server.token));
        let request = request.header("Accept", accept).header("MCP-Protocol-Version", version);
        server.send(request.body(()).unwrap()).await
    };
    for (body, code) in [
        (request("tools/call", json!({"name": 7})), -32602),
        (request("tools/call", json!({"name": "x", "arguments": [1]})), -32602),
        (request("tools/fly", json!({})), -32601),
    ] {
        let response = post(body.to_string(), json).await;
        assert_eq!((response.status, response.body["error"]["code"].as_i64()), (200, Some(code)), "{response:?}");
    }
    let ping = request("ping", json!({})).to_string();
    // A client without preferences is served; one that names content types must name both.
    for (accept, status) in [(None, 200), (Some("*/*"), 200), (Some("application/json"), 406)] {
        let request = server.request("POST", "/mcp").header("Authorization", format!("Bearer {}", server.token));
        let request = accept.into_iter().fold(request, |request, accept| request.header("Accept", accept));
        let request = request.header("Content-Type", json).body(ping.clone()).unwrap();
        assert_eq!(server.send(request).await.status, status, "{accept:?}");
    }
    let future = server.send_message(&server.token, "2099-01-01", &request("ping", json!({})), &[]).await;
    assert_eq!(future.code(), "bad_request");
    assert_eq!(get(OLDER, json).await.code(), "not_acceptable");
    assert_eq!(get(NEWEST, "text/event-stream").await.code(), "method_not_allowed");
    server.stop().await;
}

#[tokio::test]
async fn every_version_is_spoken_and_missing_features_are_unknown_methods() {
    let server = TestServer::start().await;
    let client = json!({"name": "test", "version": "1"});
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client});
        let response = server.send_message(&server.token, version, &request("initialize", params), &[]).await;
        assert_eq!(response.body["result"]["protocolVersion"], version, "{response:?}");
        assert_eq!(response.body["result"]["capabilities"], json!({"tools": {"listChanged": true}}));
        let response = server.send_message(&server.token, version, &request("tools/list", json!({})), &[]).await;
        assert_eq!(response.body["result"], json!({"tools": []}), "{response:?}");
    }
    let response = server.send_message(&server.token, NEWEST, &request("server/discover", json!({})), &[]).await;
    assert_eq!(response.body["result"]["supportedVersions"].as_array().unwrap().len(), 5, "{response:?}");
    let response = server.send_message(&server.token, NEWEST, &request("tools/list", json!({})), &[]).await;
    assert_eq!(response.body["result"]["cacheScope"], "private", "{response:?}");
    for absent in ["prompts/list", "resources/list", "resources/templates/list", "logging/setLevel"] {
        let params = json!({"level": "info"});
        let response = server.send_message(&server.token, OLDER, &request(absent, params), &[]).await;
        assert_eq!(response.body["error"]["code"], -32601, "{absent}: {response:?}");
    }
    server.stop().await;
}
