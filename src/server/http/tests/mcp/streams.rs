//! Streams of notifications: when they report changes, and when they end.

use super::{NEWEST, changed, tool};
use crate::server::http::tests::{
    TestServer,
    connections::LONG,
    methods::{TestSpace, method},
};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Time within which a notification would have come.
const NOTIFICATION_TIME: Duration = Duration::from_millis(1500);

#[tokio::test]
async fn changes_are_reported_to_affected_users_at_most_once_a_second() {
    let server = TestServer::start_with(LONG, |_| {}).await;
    let uma = server.member("uma", &["use_methods", "use_mcp_server"], &[]).await;
    let (mut admins, mut umas) = (server.open_stream(&server.token, &[]).await, server.open_stream(&uma, &[]).await);
    // The first event only carries an id.
    assert_eq!((admins.next().await.unwrap().1, umas.next().await.unwrap().1), (Value::Null, Value::Null));
    let space = TestSpace::new("s");
    let began = Instant::now();
    for n in 0..20 {
        let name = format!("n{n}");
        space.register(&server, server.admin(), json!([tool(&name, json!({}))])).unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut notifications = 0;
    while let Ok(notification) = tokio::time::timeout(NOTIFICATION_TIME, admins.next()).await {
        assert_eq!(notification.unwrap().1, changed());
        notifications += 1;
    }
    let seconds = began.elapsed().as_secs();
    assert!((1..=seconds + 1).contains(&notifications), "{notifications} notifications in {seconds} s");
    // Nothing changed for the other user, and a method that is no tool changes nothing.
    space.register(&server, server.admin(), json!([tool("n19", json!({})), method("m", json!({}))])).unwrap();
    let (admin, uma) = tokio::join!(admins.is_silent(NOTIFICATION_TIME), umas.is_silent(NOTIFICATION_TIME));
    assert!(admin && uma);
    // A shared tool changes the list of both users.
    let shared = json!([tool("n19", json!({"scope": "shared"}))]);
    space.register(&server, server.admin(), shared.clone()).unwrap();
    assert_eq!(umas.next().await.unwrap().1, changed());
    // An identical registration is no change.
    space.register(&server, server.admin(), shared).unwrap();
    assert!(umas.is_silent(NOTIFICATION_TIME).await);
    server.stop().await;
    assert!(umas.next().await.is_none() && admins.next().await.is_none(), "streams end with the server");
}

#[tokio::test]
async fn a_client_that_reconnects_to_a_stream_gets_the_change_it_missed() {
    let server = TestServer::start_with(LONG, |_| {}).await;
    let mut stream = server.open_stream(&server.token, &[]).await;
    let known = stream.next().await.unwrap().0;
    drop(stream);
    let space = TestSpace::new("s");
    space.register(&server, server.admin(), json!([tool("n", json!({}))])).unwrap();
    let mut stream = server.open_stream(&server.token, &[("Last-Event-ID", &known)]).await;
    assert_eq!(stream.next().await.unwrap().1, Value::Null);
    let (id, notification) = stream.next().await.unwrap();
    assert_eq!(notification, changed());
    drop(stream);
    let mut stream = server.open_stream(&server.token, &[("Last-Event-ID", &id)]).await;
    assert_eq!(stream.next().await.unwrap().1, Value::Null);
    assert!(stream.is_silent(NOTIFICATION_TIME).await, "nothing was missed");
    server.stop().await;
}

#[tokio::test]
async fn the_newest_version_subscribes_to_changes_by_a_request() {
    let server = TestServer::start_with(LONG, |_| {}).await;
    let mut stream = server.subscribe(&server.token).await;
    let begun = stream.next().await.unwrap().1;
    assert_eq!(begun["method"], "notifications/subscriptions/acknowledged", "{begun}");
    assert_eq!(begun["params"]["notifications"], json!({"toolsListChanged": true}), "{begun}");
    let space = TestSpace::new("s");
    space.register(&server, server.admin(), json!([tool("n", json!({}))])).unwrap();
    let notification = stream.next().await.unwrap().1;
    assert_eq!(notification["method"], "notifications/tools/list_changed");
    assert_eq!(notification["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "s", "{notification}");
    assert_eq!(server.services.mcp.streams(), 1);
    let services = server.services.clone();
    server.stop().await;
    let end = stream.next().await.unwrap().1;
    assert_eq!((&end["id"], end["result"].is_object()), (&json!("s"), true), "the end is announced: {end}");
    assert!(stream.next().await.is_none());
    assert_eq!(services.mcp.streams(), 0);
}

#[tokio::test]
async fn a_stream_ends_when_its_token_is_deleted() {
    let server = TestServer::start_with(LONG, |_| {}).await;
    let made = server.post("/api/tokens", json!({"name": "t", "scopes": ["mcp"]})).await;
    let mut stream = server.open_stream(&made.text("token"), &[]).await;
    assert!(stream.next().await.is_some());
    let path = format!("/api/tokens/{}", made.text("id"));
    assert_eq!(server.call(&server.token, "DELETE", &path, None).await.status, 204);
    assert!(stream.next().await.is_none());
    server.stop().await;
}

#[tokio::test]
async fn a_stream_reports_permission_changes_and_ends_with_the_permission_it_needs() {
    let server = TestServer::start_with(LONG, |_| {}).await;
    let uma = server.member("uma", &["use_mcp_server"], &[]).await;
    let roles = server.services.identity.roles();
    let path = format!("/api/roles/{}", roles.iter().find(|role| role.name.as_str() == "role-uma").unwrap().id);
    let permit = async |permissions: Value| {
        let change = json!({ "permissions": permissions });
        assert_eq!(server.call(&server.token, "PATCH", &path, Some(change)).await.status, 200);
    };
    let space = TestSpace::new("s");
    space.register(&server, server.admin(), json!([tool("n", json!({"scope": "shared"}))])).unwrap();
    assert_eq!(server.tools(&uma).await, [""; 0]);
    let (mut older, mut newest) = (server.open_stream(&uma, &[]).await, server.subscribe(&uma).await);
    assert_eq!(older.next().await.unwrap().1, Value::Null);
    assert_eq!(newest.next().await.unwrap().1["method"], "notifications/subscriptions/acknowledged");
    permit(json!(["use_mcp_server", "use_methods"])).await;
    assert_eq!(server.tools(&uma).await, ["user_admin_n"]);
    assert_eq!(older.next().await.unwrap().1, changed());
    assert_eq!(newest.next().await.unwrap().1["method"], "notifications/tools/list_changed");
    permit(json!(["use_methods"])).await;
    assert!(older.next().await.is_none());
    assert_eq!(newest.next().await.unwrap().1["id"], "s", "the end is announced");
    assert!(newest.next().await.is_none());
    server.stop().await;
}

#[tokio::test]
async fn the_number_of_streams_of_a_user_is_limited() {
    let server = TestServer::start_with(LONG, |_| {}).await;
    let other = server.member("uma", &["use_mcp_server"], &[]).await;
    let mut streams = Vec::new();
    for _ in 0..15 {
        streams.push(server.open_stream(&server.token, &[]).await);
    }
    let mut last = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\nAuthorization: Bearer {}\r\n\r\n",
        server.token
    );
    tokio::io::AsyncWriteExt::write_all(&mut last, head.as_bytes()).await.unwrap();
    while server.services.mcp.streams() < 16 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let listen = json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": {"notifications": {}}});
    assert_eq!(server.send_message(&server.token, NEWEST, &listen, &[]).await.code(), "too_many_requests");
    server.open_stream(&other, &[]).await;
    // A closed stream makes room for another.
    drop(last);
    while server.services.mcp.streams() > 16 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    server.open_stream(&server.token, &[]).await;
    server.stop().await;
}
