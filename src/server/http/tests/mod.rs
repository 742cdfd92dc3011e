//! The server on real sockets, driven by a real client.

mod access;
mod bodies;
mod connections;
mod console;
mod limits;
mod mcp;
mod methods;
mod records;
mod route_sweep;
mod scripts;
mod sessions;
mod slow_bodies;
mod sources;
mod spaces;
mod stored_tools;
mod subscriptions;

use super::{HttpServices, server};
use crate::{
    platform::{config::Config, store::Store},
    server::{services::Services, stop_phases::StopPhases},
};
use isahc::{AsyncReadResponseExt, HttpClient, Request};
use serde_json::{Value, json};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tempfile::TempDir;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

/// A running server in a directory of its own.
struct TestServer {
    services: Services,
    http: Arc<HttpServices>,
    address: SocketAddr,
    /// The administrator's token.
    token: String,
    client: HttpClient,
    shutdown: CancellationToken,
    serving: JoinHandle<()>,
    directory: TempDir,
}

/// A response, read to its end.
#[derive(Debug)]
struct TestResponse {
    status: u16,
    headers: isahc::http::HeaderMap,
    body: Value,
}

impl TestServer {
    async fn start() -> Self {
        Self::start_with(Duration::from_secs(5), |_| {}).await
    }

    async fn start_with(timeout: Duration, change: impl FnOnce(&mut Config)) -> Self {
        let directory = TempDir::new().unwrap();
        let mut config = Config::default();
        change(&mut config);
        let metrics = Arc::default();
        let store = Store::open(directory.path(), 0, Arc::clone(&metrics)).unwrap();
        let shutdown = CancellationToken::new();
        // No deliverer runs: these tests end at the HTTP API.
        let phases =
            StopPhases { stopping: shutdown.clone(), closing: shutdown.clone(), links_ending: shutdown.clone() };
        let (services, _) = Services::open(config, store, metrics, &phases).await.unwrap();
        let http = Arc::new(services.http());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let timeouts = server::ConnectionTimeouts { head: timeout, idle: timeout, drain: timeout };
        let serving = tokio::spawn(server::serve_with_timeouts(listener, http.clone(), phases, timeouts));
        let token = std::fs::read_to_string(directory.path().join("admin.token")).unwrap().trim().to_owned();
        Self { services, http, address, token, client: HttpClient::new().unwrap(), shutdown, serving, directory }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.serving.await.unwrap();
        self.services.store.close().await;
        self.directory.close().unwrap();
    }

    fn request(&self, method: &str, path: &str) -> isahc::http::request::Builder {
        Request::builder().method(method).uri(format!("http://{}{path}", self.address))
    }

    async fn send(&self, request: Request<impl Into<isahc::AsyncBody>>) -> TestResponse {
        let mut response = self.client.send_async(request).await.unwrap();
        // A stream of events has no end to wait for.
        let endless = response.headers().get("content-type").is_some_and(|kind| kind == "text/event-stream");
        let text = if endless { String::new() } else { response.text().await.unwrap() };
        let body = if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap_or(text.into()) };
        TestResponse { status: response.status().as_u16(), headers: response.headers().clone(), body }
    }

    /// Sends a request with a token and an optional JSON body.
    async fn call(&self, token: &str, method: &str, path: &str, body: Option<Value>) -> TestResponse {
        let request = self.request(method, path).header("Authorization", format!("Bearer {token}"));
        match body {
            Some(body) => {
                let request = request.header("Content-Type", "application/json");
                self.send(request.body(body.to_string()).unwrap()).await
            }
            None => self.send(request.body(()).unwrap()).await,
        }
    }

    async fn get(&self, path: &str) -> TestResponse {
        self.call(&self.token, "GET", path, None).await
    }

    async fn post(&self, path: &str, body: Value) -> TestResponse {
        self.call(&self.token, "POST", path, Some(body)).await
    }

    /// A user with these roles and the password `correct horse`: its id and a token of its own.
    async fn user(&self, name: &str, roles: &[&str]) -> (String, String) {
        let body = json!({"name": name, "password": "correct horse", "roles": roles});
        let made = self.post("/api/users", body).await;
        assert_eq!(made.status, 201, "{made:?}");
        let cookie = self.login(name, "correct horse").await;
        let request = self.request("POST", "/api/tokens").header("Cookie", cookie);
        let request = request.header("Content-Type", "application/json").body(json!({"name": "t"}).to_string());
        let token = self.send(request.unwrap()).await;
        assert_eq!(token.status, 201, "{token:?}");
        (made.text("id"), token.text("token"))
    }

    /// Logs in and returns the cookie to send.
    async fn login(&self, name: &str, password: &str) -> String {
        let response = self.try_login(name, password).await;
        assert_eq!(response.status, 200, "{response:?}");
        let cookie = response.headers["set-cookie"].to_str().unwrap();
        cookie.split(';').next().unwrap().to_owned()
    }

    async fn try_login(&self, name: &str, password: &str) -> TestResponse {
        let request = self.request("POST", "/api/auth/login").header("Content-Type", "application/json");
        let body = json!({"name": name, "password": password}).to_string();
        self.send(request.body(body).unwrap()).await
    }
}

impl TestResponse {
    /// A header; empty if it is absent.
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn text(&self, field: &str) -> String {
        self.body[field].as_str().unwrap_or_else(|| panic!("no `{field}` in {self:?}")).to_owned()
    }

    fn text_of_error(&self) -> &str {
        self.body["error"]["message"].as_str().unwrap_or_else(|| panic!("no error: {self:?}"))
    }

    /// The error's code, with the status checked against it.
    fn code(&self) -> &str {
        let code = self.body["error"]["code"].as_str().unwrap_or_else(|| panic!("no error: {self:?}"));
        let status = match code {
            "bad_request" => 400,
            "unauthorized" | "unverified" => 401,
            "forbidden" | "insufficient_scope" => 403,
            "not_found" => 404,
            "method_not_allowed" => 405,
            "not_acceptable" => 406,
            "timeout" => 408,
            "conflict" => 409,
            "too_large" => 413,
            "unsupported_media_type" => 415,
            "too_many_requests" => 429,
            "internal" | "damaged_record" => 500,
            "unavailable" | "disk_full" | "store_stopped" | "store_unreadable" | "stopping" => 503,
            other => panic!("unknown code {other}"),
        };
        assert_eq!(self.status, status, "{self:?}");
        code
    }

    fn message(&self) -> &str {
        self.body["error"]["message"].as_str().unwrap_or_else(|| panic!("no error: {self:?}"))
    }
}
