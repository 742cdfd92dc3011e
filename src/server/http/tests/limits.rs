//! Limits per user: sinks, test runs, calls of tools, checks of schemas and event streams.

use super::{
    TestServer,
    connections::watching,
    mcp::{self, OLDER},
};
use crate::model::{
    event::{Event, EventType},
    id::{EventId, SpaceId},
    timestamp::Timestamp,
};
use futures_util::future::join_all;
use serde_json::{Value, json, value::RawValue};
use std::{sync::Arc, time::Duration};
use tokio::net::TcpListener;

fn sink(name: &str, owner: &str, url: &str) -> Value {
    json!({"name": name, "owner": owner, "type": "webhook", "events": "custom.*", "webhook": {"url": url}})
}

#[tokio::test]
async fn the_number_of_sinks_of_a_user_is_limited() {
    let server = TestServer::start_with(super::connections::LONG, |config| config.limits.sinks = 2).await;
    let made = |name: &'static str, owner: &'static str| {
        let server = &server;
        async move { server.post("/api/event-sinks", sink(name, owner, "http://a.example")).await }
    };
    let statuses = join_all([made("a", "me"), made("b", "me"), made("c", "me")]).await;
    let mut statuses: Vec<_> = statuses.iter().map(|response| response.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 201, 409], "however they come");
    let full = made("d", "me").await;
    assert_eq!(full.code(), "conflict");
    assert!(full.message().contains("delete one"), "{full:?}");
    let global = made("d", "global").await;
    assert_eq!(global.status, 201, "global ones are not counted");
    let path = format!("/api/event-sinks/{}", global.text("id"));
    let taken = server.call(&server.token, "PATCH", &path, Some(json!({"owner": "me"}))).await;
    assert_eq!(taken.code(), "conflict", "nor are they a way around");
    let own = server.get("/api/event-sinks?owner=me").await.body["items"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/event-sinks/{own}");
    assert_eq!(server.call(&server.token, "PATCH", &path, Some(json!({"name": "e"}))).await.status, 200);
    assert_eq!(server.call(&server.token, "DELETE", &path, None).await.status, 204);
    assert_eq!(made("f", "me").await.status, 201);
    server.stop().await;
}

#[tokio::test]
async fn a_user_tests_eight_sinks_at_once() {
    let server = TestServer::start().await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let made = server.post("/api/event-sinks", sink("a", "global", &url)).await;
    let path = format!("/api/event-sinks/{}/test", made.text("id"));
    let tests = join_all((0..8).map(|_| server.post(&path, json!({}))));
    let ninth = async {
        let mut held = Vec::new();
        while held.len() < 8 {
            held.push(silent.accept().await.unwrap().0);
        }
        let preview = json!({"sink": sink("b", "me", &url)});
        (server.post(&path, json!({})).await, server.post("/api/event-sinks/preview", preview).await)
    };
    let (tests, (test, preview)) = tokio::join!(tests, ninth);
    assert!(tests.iter().all(|test| test.status == 200), "{tests:?}");
    for refused in [test, preview] {
        assert_eq!((refused.code(), refused.headers["retry-after"].to_str().unwrap()), ("too_many_requests", "1"));
    }
    assert_eq!(server.post("/api/event-sinks/preview", json!({"sink": sink("b", "me", &url)})).await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_check_of_a_schema_waits_only_for_those_of_the_same_user() {
    let server = TestServer::start().await;
    let (ada, token) = server.user("ada", &["member"]).await;
    let ada = ada.parse().unwrap();
    let limits = &server.http.scripts.user_limits;
    let running = limits.schema_check(ada).await.unwrap();
    let tool = |name: String| json!({"name": name, "kind": "tool", "content": "return 1", "params_schema": {}});
    let save = |name: String| server.call(&token, "POST", "/api/scripts", Some(tool(name)));
    let mut saving = Box::pin(join_all((0..16).map(|n| save(format!("a{n}")))));
    let others = async {
        assert_eq!(server.post("/api/scripts", tool("other".to_owned())).await.status, 201, "another user's");
        let script = json!({"name": "plain", "content": "return 1"});
        let plain = server.call(&token, "POST", "/api/scripts", Some(script)).await;
        assert_eq!(plain.status, 201, "without a schema there is nothing to wait for");
        loop {
            let refused = save("b".to_owned());
            // Until all sixteen have arrived, this one waits instead, and hangs up.
            if let Ok(refused) = tokio::time::timeout(Duration::from_millis(50), refused).await {
                break assert_eq!(refused.code(), "too_many_requests");
            }
        }
    };
    tokio::select! {
        saved = &mut saving => panic!("it did not wait: {saved:?}"),
        () = others => {}
    }
    drop(running);
    assert!(saving.await.iter().all(|saved| saved.status == 201));
    server.stop().await;
}

#[tokio::test]
async fn calls_of_tools_over_mcp_count_as_those_over_http_do() {
    let server = TestServer::start().await;
    let tool = json!({"name": "echo", "kind": "tool", "content": "return params"});
    let path = format!("/api/scripts/{}/run", server.post("/api/scripts", tool).await.text("id"));
    let limit = &server.services.tools.run_limit;
    let held: Vec<_> = std::iter::from_fn(|| limit.take(server.admin()).ok()).collect();
    assert_eq!(held.len(), 8);
    let reason = "8 tests, previews and calls of tools of yours are under way: wait for one of them";
    let over_http = server.post(&path, json!({})).await;
    assert_eq!((over_http.code(), over_http.body["error"]["message"].as_str()), ("too_many_requests", Some(reason)));
    let over_mcp = async || {
        let answer = server.send_message(&server.token, OLDER, &mcp::call("echo", json!({})), &[]).await;
        answer.body["result"].clone()
    };
    let refused = over_mcp().await;
    assert_eq!(
        (&refused["isError"], &refused["content"][0]["text"]),
        (&json!(true), &json!(format!("`echo`: {reason}")))
    );
    drop(held);
    assert_eq!(over_mcp().await["isError"], false);
    server.stop().await;
}

#[tokio::test]
async fn a_user_has_sixteen_event_streams_at_once() {
    let server = TestServer::start().await;
    let mut streams = Vec::new();
    for _ in 0..16 {
        streams.push(watching(&server, &server.token).await);
    }
    assert_eq!(server.get("/api/events/stream").await.code(), "too_many_requests");
    let (_, ada) = server.user("ada", &["member"]).await;
    watching(&server, &ada).await;
    drop(streams.pop());
    while server.get("/api/events/stream").await.status != 200 {}
    drop(streams);
    server.stop().await;
}

/// An event of a megabyte, as the feed shows it.
fn large(server: &TestServer) -> Arc<Event> {
    let user = server.services.identity.users()[0].clone();
    Arc::new(Event {
        id: EventId::new(),
        kind: EventType::custom("large").unwrap(),
        ts: Timestamp::now(),
        zone: "default".into(),
        space_id: SpaceId::NIL,
        user_id: user.id,
        actor: user.actor(),
        space: None,
        data: RawValue::from_string(json!({"text": "x".repeat(1 << 20)}).to_string()).unwrap(),
    })
}

#[tokio::test]
async fn events_that_a_client_does_not_read_stay_in_the_feed() {
    let server = TestServer::start().await;
    let stream = watching(&server, &server.token).await;
    let events: Vec<_> = (0..40).map(|_| large(&server)).collect();
    events.iter().for_each(|event| server.services.feed.accepted(event));
    // The feed drops an event that its only receiver has taken.
    let taken = || events.iter().filter(|event| Arc::strong_count(event) == 1).count();
    let (mut before, mut settled) = (0, 0);
    while settled < 50 {
        assert_eq!(server.get("/healthz").await.status, 200);
        settled = if taken() == before { settled + 1 } else { 0 };
        before = taken();
    }
    assert!((1..25).contains(&before), "{before} events were made text for a socket that holds a few");
    drop(stream);
    server.stop().await;
}
