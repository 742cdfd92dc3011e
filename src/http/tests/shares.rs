//! What one user may have of what all need.

use super::Service;
use futures_util::future::join_all;
use serde_json::{Value, json};

fn sink(name: &str, owner: &str, url: &str) -> Value {
    json!({"name": name, "owner": owner, "type": "webhook", "events": "custom.*", "webhook": {"url": url}})
}

#[tokio::test]
async fn a_user_has_so_many_sinks_and_no_more() {
    let service = Service::start_with(super::connections::LONG, |config| config.limits.sinks = 2).await;
    let made = |name: &'static str, owner: &'static str| {
        let service = &service;
        async move { service.post("/api/event-sinks", sink(name, owner, "http://a.example")).await }
    };
    let statuses = join_all([made("a", "me"), made("b", "me"), made("c", "me")]).await;
    let mut statuses: Vec<_> = statuses.iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 201, 409], "however they come");
    let full = made("d", "me").await;
    assert_eq!(full.code(), "conflict");
    assert!(full.message().contains("delete one"), "{full:?}");
    let global = made("d", "global").await;
    assert_eq!(global.status, 201, "global ones are not counted");
    let path = format!("/api/event-sinks/{}", global.text("id"));
    let taken = service.call(&service.token, "PATCH", &path, Some(json!({"owner": "me"}))).await;
    assert_eq!(taken.code(), "conflict", "nor are they a way around");
    let own = service.get("/api/event-sinks?owner=me").await.body["items"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/event-sinks/{own}");
    assert_eq!(service.call(&service.token, "PATCH", &path, Some(json!({"name": "e"}))).await.status, 200);
    assert_eq!(service.call(&service.token, "DELETE", &path, None).await.status, 204);
    assert_eq!(made("f", "me").await.status, 201);
    service.stop().await;
}
