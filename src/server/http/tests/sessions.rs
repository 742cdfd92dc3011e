//! Logging in, by cookie.

use super::Service;
use serde_json::json;

#[tokio::test]
async fn a_login_opens_a_session_until_logout() {
    let service = Service::start().await;
    service.user("ada", &["member"]).await;
    let answer = service.try_login("ada", "correct horse").await;
    assert_eq!((answer.status, answer.text("name")), (200, "ada".to_owned()));
    assert_eq!(answer.text("via"), "session");
    let set = answer.headers["set-cookie"].to_str().unwrap().to_owned();
    for attribute in ["svc_session=", "; Path=/", "; HttpOnly", "; SameSite=Strict", "; Max-Age=43200"] {
        assert!(set.contains(attribute), "{attribute} in {set}");
    }
    assert!(!set.contains("Secure"), "not over plain HTTP, where it would never come back");
    let cookie = set.split(';').next().unwrap();
    let whoami = service.send(service.request("GET", "/api/whoami").header("Cookie", cookie).body(()).unwrap()).await;
    assert_eq!(whoami.text("name"), "ada");
    let logout = service.request("POST", "/api/auth/logout").header("Cookie", cookie);
    let logout = service.send(logout.body(()).unwrap()).await;
    assert_eq!(logout.status, 204);
    assert!(logout.headers["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    let after = service.send(service.request("GET", "/api/whoami").header("Cookie", cookie).body(()).unwrap()).await;
    assert_eq!(after.code(), "unauthorized");
    service.stop().await;
}

#[tokio::test]
async fn a_wrong_password_and_an_unknown_name_look_alike() {
    let service = Service::start().await;
    service.user("ada", &[]).await;
    let (wrong, unknown) = (service.try_login("ada", "a guess").await, service.try_login("eve", "a guess").await);
    assert_eq!(wrong.code(), "unauthorized");
    assert_eq!((wrong.status, wrong.body), (unknown.status, unknown.body));
    service.stop().await;
}

#[tokio::test]
async fn too_many_failures_are_429_with_the_time_to_wait() {
    let service = Service::start().await;
    for _ in 0..5 {
        assert_eq!(service.try_login("admin", "a guess").await.code(), "unauthorized");
    }
    let answer = service.try_login("admin", "a guess").await;
    assert_eq!((answer.code(), answer.headers["retry-after"].to_str().unwrap()), ("too_many_requests", "1"));
    service.stop().await;
}

#[tokio::test]
async fn a_change_by_cookie_from_a_foreign_page_is_refused() {
    let service = Service::start().await;
    service.user("ada", &["member"]).await;
    let cookie = service.login("ada", "correct horse").await;
    let request = |origin: &str, kind: &str| {
        let request = service.request("POST", "/api/tokens").header("Cookie", &cookie);
        let request = request.header("Origin", origin).header("Content-Type", kind);
        request.body(json!({"name": "t"}).to_string()).unwrap()
    };
    let own = format!("http://{}", service.address);
    assert_eq!(service.send(request("https://evil.example", "application/json")).await.code(), "forbidden");
    assert_eq!(service.send(request("null", "application/json")).await.code(), "forbidden");
    assert_eq!(service.send(request(&own, "text/plain")).await.code(), "unsupported_media_type");
    assert_eq!(service.send(request(&own, "application/json")).await.status, 201);
    service.stop().await;
}

#[tokio::test]
async fn users_change_their_own_password_with_the_old_one() {
    let service = Service::start().await;
    let (_, ada) = service.user("ada", &[]).await;
    let path = "/api/auth/password";
    let wrong = json!({"current": "a guess", "new": "battery staple"});
    assert_eq!(service.call(&ada, "POST", path, Some(wrong)).await.code(), "unauthorized");
    let right = json!({"current": "correct horse", "new": "battery staple"});
    assert_eq!(service.call(&ada, "POST", path, Some(right)).await.status, 204);
    assert_eq!(service.try_login("ada", "correct horse").await.code(), "unauthorized");
    service.login("ada", "battery staple").await;
    service.stop().await;
}
