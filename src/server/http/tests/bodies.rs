//! Bodies, queries and ids that are not as they should be.

use super::Service;
use serde_json::json;

#[tokio::test]
async fn a_bad_body_is_400_and_says_what_is_wrong_with_it() {
    let service = Service::start().await;
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
        let request = service.request("POST", "/api/users").header("Content-Type", "application/json");
        let request = request.header("Authorization", format!("Bearer {}", service.token));
        let answer = service.send(request.body(body.to_vec()).unwrap()).await;
        assert_eq!(answer.code(), "bad_request", "{}", String::from_utf8_lossy(body));
        assert!(answer.message().contains(said), "{said} in {answer:?}");
    }
    assert_eq!(service.get("/api/users").await.body["items"].as_array().unwrap().len(), 1, "none was made");
    service.stop().await;
}

#[tokio::test]
async fn a_list_does_not_pass_for_an_object_on_any_level() {
    let service = Service::start().await;
    for (path, body) in [
        ("/api/events/emit", json!(["a", {"q": 1}, null])),
        ("/api/tokens", json!(["nm", [], null])),
        ("/api/event-sinks", json!(["s", "", "*", "script", "me", true, null, ["return"], null])),
    ] {
        let answer = service.post(path, body).await;
        assert_eq!((answer.code(), answer.message()), ("bad_request", "the body must be a JSON object"), "{path}");
    }
    let sink = json!({"name": "s", "events": "*", "type": "script", "script": {"source": "return"}});
    let made = service.post("/api/event-sinks", sink).await.text("id");
    let list = json!(["return"]);
    for (method, path, body, field) in [
        ("POST", "/api/event-sinks", json!({"name": "t", "events": "*", "type": "script", "script": list}), "script"),
        ("POST", "/api/event-sinks/preview", json!({"sink": ["s", "", "*", "script"]}), "sink"),
        ("PATCH", &format!("/api/event-sinks/{made}"), json!({"script": list}), "script"),
    ] {
        let answer = service.call(&service.token, method, path, Some(body)).await;
        assert_eq!(answer.code(), "bad_request", "{method} {path}");
        let said = format!("`{field}`: invalid type: sequence, expected an object");
        assert!(answer.message().starts_with(&said), "{answer:?}");
    }
    service.stop().await;
}

#[tokio::test]
async fn an_event_needs_an_id_that_is_one_and_a_payload_that_is_text() {
    let service = Service::start().await;
    let emit = |rest: &str| {
        let request = service.request("POST", "/api/events/emit").header("Content-Type", "application/json");
        let request = request.header("Authorization", format!("Bearer {}", service.token));
        service.send(request.body(format!("{{\"type\":\"a\",{rest}}}")).unwrap())
    };
    let nil = emit(r#""id":"00000000-0000-0000-0000-000000000000""#).await;
    assert_eq!((nil.code(), nil.message()), ("bad_request", "`id`: must not be the nil UUID"));
    for half in [r#"{"a":"\ud800"}"#, r#"{"a":["\uDC00 x"]}"#, r#"{"\ud83d":1}"#] {
        let answer = emit(&format!(r#""payload":{half}"#)).await;
        assert_eq!(answer.code(), "bad_request", "{half}");
        assert!(answer.message().starts_with("`payload`: "), "{answer:?}");
    }
    for whole in [r#"{"a":"\ud83d\ude00"}"#, r#"{"a":"\\ud800"}"#, "null"] {
        assert_eq!(emit(&format!(r#""payload":{whole}"#)).await.status, 202, "{whole}");
    }
    service.stop().await;
}

#[tokio::test]
async fn a_body_that_is_not_json_is_415() {
    let service = Service::start().await;
    for kind in [None, Some("text/plain"), Some("application/x-www-form-urlencoded")] {
        let mut request = service.request("POST", "/api/tokens");
        request = request.header("Authorization", format!("Bearer {}", service.token));
        // An empty value keeps the client from choosing one.
        request = request.header("Content-Type", kind.unwrap_or(""));
        let answer = service.send(request.body(json!({"name": "a"}).to_string()).unwrap()).await;
        assert_eq!(answer.code(), "unsupported_media_type", "{kind:?}");
    }
    service.stop().await;
}

#[tokio::test]
async fn a_body_announced_over_the_limit_is_413() {
    let service = Service::start().await;
    let request = || {
        let request = service.request("POST", "/api/tokens").header("Content-Type", "application/json");
        request.header("Authorization", format!("Bearer {}", service.token))
    };
    let body = |bytes: usize| {
        let frame = json!({"name": ""}).to_string().len();
        json!({"name": "x".repeat(bytes - frame)}).to_string()
    };
    let announced = service.send(request().body(body((1 << 20) + 1)).unwrap()).await;
    assert_eq!(announced.code(), "too_large");
    let exact = service.send(request().body(body(1 << 20)).unwrap()).await;
    assert_eq!(exact.code(), "bad_request", "it is read, and refused for what it says");
    service.stop().await;
}

#[tokio::test]
async fn who_is_not_known_yet_cannot_send_much() {
    let service = Service::start().await;
    let body = json!({"name": "admin", "password": "x".repeat(8 << 10)}).to_string();
    let request = || service.request("POST", "/api/auth/login").header("Content-Type", "application/json");
    let announced = service.send(request().body(body.clone()).unwrap()).await;
    assert_eq!(announced.code(), "too_large");
    let unannounced = isahc::AsyncBody::from_reader(futures_util::io::Cursor::new(body.into_bytes()));
    let unannounced = service.send(request().body(unannounced).unwrap()).await;
    assert_eq!(unannounced.code(), "too_large");
    assert!(unannounced.message().contains("8192"), "{unannounced:?}");
    service.stop().await;
}

#[tokio::test]
async fn a_path_with_a_bad_uuid_is_400_and_with_an_unknown_one_404() {
    let service = Service::start().await;
    for kind in ["users", "roles", "groups", "tokens"] {
        for method in ["GET", "DELETE"] {
            let path = format!("/api/{kind}/not-a-uuid");
            let answer = service.call(&service.token, method, &path, None).await;
            assert_eq!(answer.code(), "bad_request", "{path}");
            assert!(answer.message().contains("not-a-uuid"));
            let path = format!("/api/{kind}/{}", uuid::Uuid::now_v7());
            let answer = service.call(&service.token, method, &path, None).await;
            assert_eq!(answer.code(), "not_found", "{path}");
        }
    }
    service.stop().await;
}

#[tokio::test]
async fn a_bad_query_is_400_and_named() {
    let service = Service::start().await;
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
        let answer = service.get(path).await;
        assert_eq!(answer.code(), "bad_request", "{path}");
        assert!(answer.message().contains(said), "{said} in {answer:?}");
    }
    let answer = service.post("/api/tokens?dry=1", json!({"name": "a"})).await;
    assert!(answer.message().contains("unknown parameter `dry`"), "{answer:?}");
    service.stop().await;
}

#[tokio::test]
async fn a_name_that_is_taken_is_409() {
    let service = Service::start().await;
    service.user("ada", &[]).await;
    for (path, body) in [
        ("/api/users", json!({"name": "ada"})),
        ("/api/roles", json!({"name": "member", "permissions": []})),
        ("/api/groups", json!({"name": "ops"})),
    ] {
        service.post(path, body.clone()).await;
        assert_eq!(service.post(path, body).await.code(), "conflict", "{path}");
    }
    service.stop().await;
}

#[tokio::test]
async fn a_store_that_cannot_write_is_503() {
    let service = Service::start().await;
    service.services.store.close().await;
    assert_eq!(service.post("/api/groups", json!({"name": "ops"})).await.code(), "unavailable");
    assert_eq!(service.get("/api/groups").await.body["items"], json!([]), "and shows nothing it did not keep");
    service.stop().await;
}
