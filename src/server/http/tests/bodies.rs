//! Invalid bodies, queries and ids.

use super::TestServer;
use serde_json::json;

#[tokio::test]
async fn a_bad_body_is_400_and_says_what_is_wrong_with_it() {
    let server = TestServer::start().await;
    for (body, said) in [
        (&b"{"[..], "EOF"),
        (b"", "the body must be a JSON object"),
        (b" [\"a\"]", "the body must be a JSON object"),
        (b"null", "the body must be a JSON object"),
        (b"nonsense", "the body must be a JSON object"),
        (br#"{"name":"a"}x"#, "after its end"),
        (b"{\"name\":\"\xc3\x28\"}", "not UTF-8 at byte 9"),
        (br#"{"name":7}"#, "`name`: invalid type: integer `7`"),
        (br#"{"name":"a","roles":["x",{}]}"#, "`roles[1]`: invalid type: map"),
        (br#"{"name":"a","surname":"b"}"#, "unknown field `surname`"),
        (br#"{"roles":[]}"#, "missing field `name`"),
        (br#"{"name":"a","name":"b"}"#, "duplicate field `name`"),
        (br#"{"name":"not a name"}"#, "`name`: a name is"),
        (br#"{"name":"a","roles":["nobodys"]}"#, "`roles[0]`: there is no role named `nobodys`"),
        (br#"{"name":"a","password":"short"}"#, "`password`: a password has at least"),
    ] {
        let request = server.request("POST", "/api/users").header("Content-Type", "application/json");
        let request = request.header("Authorization", format!("Bearer {}", server.token));
        let response = server.send(request.body(body.to_vec()).unwrap()).await;
        assert_eq!(response.code(), "bad_request", "{}", String::from_utf8_lossy(body));
        assert!(response.message().contains(said), "{said} in {response:?}");
    }
    assert_eq!(server.get("/api/users").await.body["items"].as_array().unwrap().len(), 1, "none was made");
    server.stop().await;
}

#[tokio::test]
async fn a_list_is_refused_in_place_of_an_object_on_every_level() {
    let server = TestServer::start().await;
    for (path, body) in [
        ("/api/events/emit", json!(["a", {"q": 1}, null])),
        ("/api/tokens", json!(["nm", [], null])),
        ("/api/event-sinks", json!(["s", "", "*", "script", "me", true, null, ["return"], null])),
    ] {
        let response = server.post(path, body).await;
        assert_eq!((response.code(), response.message()), ("bad_request", "the body must be a JSON object"), "{path}");
    }
    let sink = json!({"name": "s", "events": "*", "type": "script", "script": {"source": "return"}});
    let made = server.post("/api/event-sinks", sink).await.text("id");
    let list = json!(["return"]);
    for (method, path, body, field) in [
        ("POST", "/api/event-sinks", json!({"name": "t", "events": "*", "type": "script", "script": list}), "script"),
        ("POST", "/api/event-sinks/preview", json!({"sink": ["s", "", "*", "script"]}), "sink"),
        ("PATCH", &format!("/api/event-sinks/{made}"), json!({"script": list}), "script"),
    ] {
        let response = server.call(&server.token, method, path, Some(body)).await;
        assert_eq!(response.code(), "bad_request", "{method} {path}");
        let said = format!("`{field}`: invalid type: sequence, expected an object");
        assert!(response.message().starts_with(&said), "{response:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn an_event_needs_a_valid_id_and_a_payload_of_valid_text() {
    let server = TestServer::start().await;
    let emit = |rest: &str| {
        let request = server.request("POST", "/api/events/emit").header("Content-Type", "application/json");
        let request = request.header("Authorization", format!("Bearer {}", server.token));
        server.send(request.body(format!("{{\"type\":\"a\",{rest}}}")).unwrap())
    };
    let null = emit(r#""payload":null"#).await;
    assert_eq!(null.code(), "bad_request");
    assert!(null.message().starts_with("`payload`: null is no payload: give a JSON object"), "{null:?}");
    let nil = emit(r#""id":"00000000-0000-0000-0000-000000000000""#).await;
    assert_eq!((nil.code(), nil.message()), ("bad_request", "`id`: must not be the nil UUID"));
    for half in [r#"{"a":"\ud800"}"#, r#"{"a":["\uDC00 x"]}"#, r#"{"\ud83d":1}"#] {
        let response = emit(&format!(r#""payload":{half}"#)).await;
        assert_eq!(response.code(), "bad_request", "{half}");
        assert!(response.message().starts_with("`payload`: "), "{response:?}");
    }
    for whole in [r#"{"a":"\ud83d\ude00"}"#, r#"{"a":"\\ud800"}"#] {
        assert_eq!(emit(&format!(r#""payload":{whole}"#)).await.status, 202, "{whole}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_is_not_json_is_415() {
    let server = TestServer::start().await;
    for kind in [None, Some("text/plain"), Some("application/x-www-form-urlencoded")] {
        let mut request = server.request("POST", "/api/tokens");
        request = request.header("Authorization", format!("Bearer {}", server.token));
        // An empty value keeps the client from choosing one.
        request = request.header("Content-Type", kind.unwrap_or(""));
        let response = server.send(request.body(json!({"name": "a"}).to_string()).unwrap()).await;
        assert_eq!(response.code(), "unsupported_media_type", "{kind:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_body_announced_over_the_limit_is_413() {
    let server = TestServer::start().await;
    let request = || {
        let request = server.request("POST", "/api/tokens").header("Content-Type", "application/json");
        request.header("Authorization", format!("Bearer {}", server.token))
    };
    let body = |bytes: usize| {
        let frame = json!({"name": ""}).to_string().len();
        json!({"name": "x".repeat(bytes - frame)}).to_string()
    };
    let announced = server.send(request().body(body((1 << 20) + 1)).unwrap()).await;
    assert_eq!(announced.code(), "too_large");
    let exact = server.send(request().body(body(1 << 20)).unwrap()).await;
    assert_eq!(exact.code(), "bad_request", "it is read, and refused for what it says");
    server.stop().await;
}

#[tokio::test]
async fn bodies_of_open_routes_have_a_low_limit() {
    let server = TestServer::start().await;
    let body = json!({"name": "admin", "password": "x".repeat(8 << 10)}).to_string();
    let request = || server.request("POST", "/api/auth/login").header("Content-Type", "application/json");
    let announced = server.send(request().body(body.clone()).unwrap()).await;
    assert_eq!(announced.code(), "too_large");
    let unannounced = isahc::AsyncBody::from_reader(futures_util::io::Cursor::new(body.into_bytes()));
    let unannounced = server.send(request().body(unannounced).unwrap()).await;
    assert_eq!(unannounced.code(), "too_large");
    assert!(unannounced.message().contains("8192"), "{unannounced:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_path_with_a_bad_uuid_is_400_and_with_an_unknown_one_404() {
    let server = TestServer::start().await;
    for kind in ["users", "roles", "groups", "tokens"] {
        for method in ["GET", "DELETE"] {
            let path = format!("/api/{kind}/not-a-uuid");
            let response = server.call(&server.token, method, &path, None).await;
            assert_eq!(response.code(), "bad_request", "{path}");
            assert!(response.message().contains("not-a-uuid"));
            let path = format!("/api/{kind}/{}", uuid::Uuid::now_v7());
            let response = server.call(&server.token, method, &path, None).await;
            assert_eq!(response.code(), "not_found", "{path}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn a_bad_query_is_400_and_named() {
    let server = TestServer::start().await;
    for (path, said) in [
        ("/api/users?limit=0", "`limit`: must be from 1 to 200"),
        ("/api/users?limit=201", "`limit`: must be from 1 to 200"),
        ("/api/users?limit=x", "`limit`"),
        ("/api/users?limt=5", "unknown field `limt`"),
        ("/api/users?limit=5&limit=6", "duplicate field `limit`"),
        ("/api/users?cursor=x", "`cursor`"),
        ("/api/audit?since=yesterday", "`since`: expected an RFC 3339 time"),
        ("/api/audit?cursor=x", "`cursor`"),
        ("/api/whoami?verbose=1", "unknown parameter `verbose`"),
    ] {
        let response = server.get(path).await;
        assert_eq!(response.code(), "bad_request", "{path}");
        assert!(response.message().contains(said), "{said} in {response:?}");
    }
    let response = server.post("/api/tokens?dry=1", json!({"name": "a"})).await;
    assert!(response.message().contains("unknown parameter `dry`"), "{response:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_name_that_is_taken_is_409() {
    let server = TestServer::start().await;
    server.user("ada", &[]).await;
    for (path, body) in [
        ("/api/users", json!({"name": "ada"})),
        ("/api/roles", json!({"name": "member", "permissions": []})),
        ("/api/groups", json!({"name": "ops"})),
    ] {
        server.post(path, body.clone()).await;
        assert_eq!(server.post(path, body).await.code(), "conflict", "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_store_that_cannot_write_is_503() {
    let server = TestServer::start().await;
    server.services.store.close().await;
    let refused = server.post("/api/groups", json!({"name": "ops"})).await;
    assert_eq!((refused.code(), refused.header("retry-after")), ("stopping", "5"));
    assert_eq!(server.get("/api/groups").await.body["items"], json!([]), "and shows nothing it did not keep");
    server.stop().await;
}
