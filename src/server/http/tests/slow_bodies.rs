//! Requests whose bodies take long: the caller or the source may change meanwhile, and the memory for them is bounded.

use super::{TestServer, connections::LONG};
use futures_util::future::select_all;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// A request that passed authorization and whose body lacks its last byte.
struct UnfinishedRequest {
    stream: TcpStream,
    last: u8,
}

impl UnfinishedRequest {
    async fn send(server: &TestServer, request: &str, credential: &str, body: &str) -> Self {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let head = format!(
            "{request} HTTP/1.1\r\nHost: {}\r\n{credential}\r\nContent-Type: application/json\r\nConnection: close\r\n\
             Expect: 100-continue\r\nContent-Length: {}\r\n\r\n",
            server.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // The server asks for the body once the request is authorized.
        let mut interim = [0; 25];
        tokio::time::timeout(LONG, stream.read_exact(&mut interim)).await.expect("an answer").unwrap();
        assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
        let (last, begin) = body.as_bytes().split_last().unwrap();
        // A server that has no memory left closes the connection.
        let _ = stream.write_all(begin).await;
        Self { stream, last: *last }
    }

    /// Sends the last byte. Returns the status and the body of the response.
    async fn finish(mut self) -> (u16, Value) {
        self.stream.write_all(&[self.last]).await.unwrap();
        self.response().await
    }

    async fn response(&mut self) -> (u16, Value) {
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(LONG, self.stream.read_to_end(&mut bytes)).await.expect("an answer");
        // The server resets a connection whose body it does not read.
        assert!(read.is_ok() || !bytes.is_empty(), "{read:?}");
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or_default())
    }
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

#[tokio::test]
async fn a_credential_that_is_revoked_while_the_body_arrives_changes_nothing() {
    let server = TestServer::start().await;
    let (ada, token) = server.user("ada", &["admin"]).await;
    let cookie = format!("Cookie: {}", server.login("ada", "correct horse").await);
    let token_by_session = UnfinishedRequest::send(&server, "POST /api/tokens", &cookie, r#"{"name":"t"}"#).await;
    let change = json!({"password": "battery staple"});
    assert_eq!(server.call(&server.token, "PATCH", &format!("/api/users/{ada}"), Some(change)).await.status, 200);
    let (status, body) = token_by_session.finish().await;
    assert_eq!((status, &body["error"]["code"]), (401, &json!("unauthorized")), "{body}");

    let (eve, _) = server.user("eve", &[]).await;
    let promotion =
        UnfinishedRequest::send(&server, &format!("PATCH /api/users/{eve}"), &bearer(&token), r#"{"roles":["admin"]}"#)
            .await;
    let space = UnfinishedRequest::send(&server, "POST /api/spaces", &bearer(&token), r#"{"name":"s"}"#).await;
    assert_eq!(server.call(&server.token, "DELETE", &format!("/api/users/{ada}"), None).await.status, 204);
    for request in [promotion, space] {
        assert_eq!(request.finish().await.0, 401);
    }
    assert_eq!(server.get(&format!("/api/users/{eve}")).await.body["roles"], json!([]));
    assert_eq!(server.get("/api/spaces").await.body["items"], json!([]));
    server.stop().await;
}

#[tokio::test]
async fn a_permission_that_is_taken_while_the_body_arrives_is_missing() {
    let server = TestServer::start().await;
    let (ada, token) = server.user("ada", &["admin"]).await;
    let sink = r#"{"name":"s","owner":"global","events":"*","type":"script","script":{"source":"return"}}"#;
    let global = UnfinishedRequest::send(&server, "POST /api/event-sinks", &bearer(&token), sink).await;
    let group = UnfinishedRequest::send(&server, "POST /api/groups", &bearer(&token), r#"{"name":"g"}"#).await;
    let change = json!({"roles": ["member"]});
    assert_eq!(server.call(&server.token, "PATCH", &format!("/api/users/{ada}"), Some(change)).await.status, 200);
    for request in [global, group] {
        let (status, body) = request.finish().await;
        assert_eq!((status, &body["error"]["code"]), (403, &json!("forbidden")), "{body}");
    }
    for path in ["/api/event-sinks", "/api/groups"] {
        assert_eq!(server.get(path).await.body["items"], json!([]), "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_source_takes_no_request_that_ends_after_its_deactivation_or_deletion() {
    let server = TestServer::start().await;
    let source = json!({"slug": "in", "verify": {"type": "none", "insecure": true}});
    let id = server.post("/api/sources", source).await.text("id");
    let begin = || UnfinishedRequest::send(&server, "POST /in/in", "X-Nothing: 1", r#"{"n":1}"#);
    let (first, second) = (begin().await, begin().await);
    let path = format!("/api/sources/{id}");
    assert_eq!(server.call(&server.token, "PATCH", &path, Some(json!({"active": false}))).await.status, 200);
    assert_eq!(first.finish().await.0, 404);
    assert_eq!(server.call(&server.token, "DELETE", &path, None).await.status, 204);
    assert_eq!(second.finish().await.0, 404);
    assert_eq!(server.get("/api/events").await.body["items"], json!([]));
    server.stop().await;
}

#[tokio::test]
async fn strangers_cannot_fill_the_memory_with_bodies_that_do_not_end() {
    let server = TestServer::start().await;
    let source = json!({"slug": "in", "verify": {"type": "none", "insecure": true}});
    assert_eq!(server.post("/api/sources", source).await.status, 201);
    let large = format!("{{{}}}", " ".repeat((1 << 20) - 2));
    let mut unfinished = Vec::new();
    // One network gets 16 MiB.
    for _ in 0..17 {
        unfinished.push(UnfinishedRequest::send(&server, "POST /in/in", "X-Nothing: 1", &large).await);
    }
    let (refused, ..) = select_all(unfinished.iter_mut().map(|request| Box::pin(request.response()))).await;
    assert_eq!((refused.0, &refused.1["error"]["code"]), (503, &json!("unavailable")), "{}", refused.1);
    let emitted = server.post("/api/events/emit", json!({"type": "a", "payload": {"text": "x".repeat(60_000)}})).await;
    assert_eq!(emitted.status, 202, "users have memory of their own: {emitted:?}");
    drop(unfinished);
    let memory_is_free = async {
        // The last byte makes the body no JSON, which a source takes as text.
        while UnfinishedRequest::send(&server, "POST /in/in", "X-Nothing: 1", &large[1..]).await.finish().await.0 == 503
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, memory_is_free).await.expect("the memory is free again");
    server.stop().await;
}

#[tokio::test]
async fn a_head_that_grows_without_end_is_refused_at_64_kib() {
    let server = TestServer::start().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!("GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: {}", "x".repeat(70 << 10));
    let _ = stream.write_all(head.as_bytes()).await;
    let mut request = UnfinishedRequest { stream, last: 0 };
    assert_eq!(request.response().await.0, 431);
    server.stop().await;
}
