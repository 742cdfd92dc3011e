//! Sessions: logging in and out, throttling, and requests by cookie.

use super::TestServer;
use serde_json::json;

#[tokio::test]
async fn a_login_opens_a_session_until_logout() {
    let server = TestServer::start().await;
    server.user("ada", &["member"]).await;
    let response = server.try_login("ada", "correct horse").await;
    assert_eq!((response.status, response.text("name")), (200, "ada".to_owned()));
    assert_eq!(response.text("via"), "session");
    let set = response.headers["set-cookie"].to_str().unwrap().to_owned();
    for attribute in ["svc_session=", "; Path=/", "; HttpOnly", "; SameSite=Strict", "; Max-Age=43200"] {
        assert!(set.contains(attribute), "{attribute} in {set}");
    }
    assert!(!set.contains("Secure"), "not over plain HTTP, where it would never come back");
    let cookie = set.split(';').next().unwrap();
    let whoami = server.send(server.request("GET", "/api/whoami").header("Cookie", cookie).body(()).unwrap()).await;
    assert_eq!(whoami.text("name"), "ada");
    let logout = server.request("POST", "/api/auth/logout").header("Cookie", cookie);
    let logout = server.send(logout.body(()).unwrap()).await;
    assert_eq!(logout.status, 204);
    assert!(logout.headers["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    let after = server.send(server.request("GET", "/api/whoami").header("Cookie", cookie).body(()).unwrap()).await;
    assert_eq!(after.code(), "unauthorized");
    server.stop().await;
}

#[tokio::test]
async fn a_wrong_password_and_an_unknown_name_look_alike() {
    let server = TestServer::start().await;
    server.user("ada", &[]).await;
    let (wrong, unknown) = (server.try_login("ada", "a guess").await, server.try_login("eve", "a guess").await);
    assert_eq!(wrong.code(), "unauthorized");
    assert_eq!((wrong.status, wrong.body), (unknown.status, unknown.body));
    server.stop().await;
}

#[tokio::test]
async fn too_many_failures_are_429_with_the_time_to_wait() {
    let server = TestServer::start().await;
    for _ in 0..5 {
        assert_eq!(server.try_login("admin", "a guess").await.code(), "unauthorized");
    }
    let response = server.try_login("admin", "a guess").await;
    assert_eq!((response.code(), response.headers["retry-after"].to_str().unwrap()), ("too_many_requests", "1"));
    server.stop().await;
}

#[tokio::test]
async fn a_change_by_cookie_from_a_foreign_origin_is_refused() {
    let server = TestServer::start().await;
    server.user("ada", &["member"]).await;
    let cookie = server.login("ada", "correct horse").await;
    let request = |origin: &str, kind: &str| {
        let request = server.request("POST", "/api/tokens").header("Cookie", &cookie);
        let request = request.header("Origin", origin).header("Content-Type", kind);
        request.body(json!({"name": "t"}).to_string()).unwrap()
    };
    let own = format!("http://{}", server.address);
    assert_eq!(server.send(request("https://evil.example", "application/json")).await.code(), "forbidden");
    assert_eq!(server.send(request("null", "application/json")).await.code(), "forbidden");
    assert_eq!(server.send(request(&own, "text/plain")).await.code(), "unsupported_media_type");
    assert_eq!(server.send(request(&own, "application/json")).await.status, 201);
    server.stop().await;
}

#[tokio::test]
async fn users_change_their_own_password_with_the_old_one() {
    let server = TestServer::start().await;
    let (_, ada) = server.user("ada", &[]).await;
    let path = "/api/auth/password";
    let wrong = json!({"current": "a guess", "new": "battery staple"});
    assert_eq!(server.call(&ada, "POST", path, Some(wrong)).await.code(), "unauthorized");
    let right = json!({"current": "correct horse", "new": "battery staple"});
    assert_eq!(server.call(&ada, "POST", path, Some(right)).await.status, 204);
    assert_eq!(server.try_login("ada", "correct horse").await.code(), "unauthorized");
    server.login("ada", "battery staple").await;
    server.stop().await;
}
