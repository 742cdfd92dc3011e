//! The client of the local API of the space's agent. The API asks for no token: it serves programs inside the space.

use super::owner_libraries::{FetchedLibraries, LibrarySource};
use crate::{
    model::api::{
        agent::{AgentEmitBody, KvDeletedView, KvIncrementBody, KvPutBody, KvStoredView, KvValueView, RegisterBody},
        error::ErrorBody,
    },
    platform::percent,
    scripting::lua::{AgentReply, SpaceAgent, SpaceKv},
};
use futures_util::AsyncReadExt as _;
use isahc::{
    AsyncBody, HttpClient,
    config::{Configurable as _, RedirectPolicy},
    http::{Method, Request, Response, StatusCode, header},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use std::{io::Read as _, path::PathBuf, sync::OnceLock, time::Duration};

/// The default address of an agent.
pub const DEFAULT_URL: &str = "http://127.0.0.1:7301";

/// The timeout of a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The largest response, in bytes.
const MAX_RESPONSE: u64 = 64 << 20;

/// Connects to the agent of the space.
pub struct AgentClient {
    url: String,
    /// True if the address was given, false if it is the default.
    is_configured: bool,
    /// Made on first use, since most programs do not need it.
    http: OnceLock<HttpClient>,
}

impl AgentClient {
    /// Makes a client of the agent at this address, or at the default one.
    pub fn new(url: Option<&str>) -> Self {
        let url = url.filter(|url| !url.is_empty());
        let is_configured = url.is_some();
        Self { url: url.unwrap_or(DEFAULT_URL).trim_end_matches('/').to_owned(), is_configured, http: OnceLock::new() }
    }

    fn send(&self, method: Method, path: &str, body: Option<String>) -> AgentReply<Option<Box<RawValue>>> {
        let url = format!("{}{path}", self.url);
        let request = Request::builder().method(method).uri(url).header(header::CONTENT_TYPE, "application/json");
        let sent = request.body(AsyncBody::from(body.unwrap_or_default())).map_err(|error| self.unreachable(&error));
        let sent = sent.and_then(|request| Ok((self.http()?.clone(), request)));
        let url = self.url.clone();
        Box::pin(async move {
            let (http, request) = sent?;
            read_response(http.send_async(request).await.map_err(|error| unreachable(&url, &error))?).await
        })
    }

    fn http(&self) -> Result<&HttpClient, String> {
        if let Some(http) = self.http.get() {
            return Ok(http);
        }
        let client = HttpClient::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect_policy(RedirectPolicy::None)
            .proxy(None)
            .build()
            .map_err(|error| self.unreachable(&error))?;
        Ok(self.http.get_or_init(|| client))
    }

    fn unreachable(&self, why: &dyn std::fmt::Display) -> String {
        unreachable(&self.url, why)
    }
}

impl LibrarySource for AgentClient {
    fn libraries(&self, known: Option<&str>, timeout: Duration) -> Result<FetchedLibraries, String> {
        // Any other server may listen at the default address, so it is asked only if it was configured.
        if !self.is_configured {
            return Ok(FetchedLibraries::Absent);
        }
        let mut request = Request::get(format!("{}/packages/user-libraries.zip", self.url)).timeout(timeout);
        if let Some(tag) = known {
            request = request.header(header::IF_NONE_MATCH, tag);
        }
        let request = request.body(()).map_err(|error| self.unreachable(&error))?;
        let response = self.http()?.send(request).map_err(|error| self.unreachable(&error))?;
        match response.status() {
            StatusCode::NOT_FOUND => return Ok(FetchedLibraries::Absent),
            StatusCode::NOT_MODIFIED => return Ok(FetchedLibraries::Unchanged),
            status if !status.is_success() => return Err(format!("the agent answered {status}")),
            _ => {}
        }
        let tag = response.headers().get(header::ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
        let mut bytes = Vec::new();
        let read = response.into_body().take(MAX_RESPONSE).read_to_end(&mut bytes);
        read.map_err(|error| self.unreachable(&error))?;
        Ok(FetchedLibraries::Archive { bytes, tag })
    }
}

impl SpaceAgent for AgentClient {
    fn emit(&self, kind: &str, payload: Box<RawValue>) -> AgentReply<Box<RawValue>> {
        let body = AgentEmitBody { kind: kind.to_owned(), payload: Some(payload), id: None };
        required(self.send(Method::POST, "/event", Some(to_json(&body))))
    }

    fn methods(&self) -> AgentReply<Box<RawValue>> {
        required(self.send(Method::GET, "/api/methods", None))
    }

    fn call(&self, request: Box<RawValue>) -> AgentReply<Option<Box<RawValue>>> {
        self.send(Method::POST, "/api/methods/call", Some(request.get().to_owned()))
    }

    fn register(&self, directory: PathBuf, registration: Box<RawValue>) -> AgentReply<Box<RawValue>> {
        let body =
            RegisterBody { directory: Some(directory), registration: Some(registration), ..RegisterBody::default() };
        required(self.send(Method::POST, "/methods", Some(to_json(&body))))
    }

    fn unregister(&self, local_name: Option<&str>) -> AgentReply<Box<RawValue>> {
        let path = match local_name {
            Some(name) => format!("/methods/{}", percent::encode(name)),
            None => "/methods".to_owned(),
        };
        required(self.send(Method::DELETE, &path, None))
    }

    fn kv(&self) -> &dyn SpaceKv {
        self
    }
}

impl AgentClient {
    fn store(&self, key: &str, body: &KvPutBody) -> AgentReply<bool> {
        let path = format!("/kv?key={}", percent::encode(key));
        let answer = required(self.send(Method::PUT, &path, Some(to_json(body))));
        Box::pin(async move { Ok(parse::<KvStoredView>(&answer.await?)?.stored) })
    }
}

impl SpaceKv for AgentClient {
    fn get(&self, key: &str) -> AgentReply<Option<Box<RawValue>>> {
        let answer = self.send(Method::GET, &format!("/kv?key={}", percent::encode(key)), None);
        Box::pin(async move {
            let Some(answer) = answer.await? else { return Ok(None) };
            Ok(Some(parse::<KvValueView<Box<RawValue>>>(&answer)?.value))
        })
    }

    fn set(&self, key: &str, value: Box<RawValue>, ttl: Option<Duration>) -> AgentReply<()> {
        let stored = self.store(key, &KvPutBody { value, ttl: seconds(ttl), add: false });
        Box::pin(async move { stored.await.map(drop) })
    }

    fn add(&self, key: &str, value: Box<RawValue>, ttl: Option<Duration>) -> AgentReply<bool> {
        self.store(key, &KvPutBody { value, ttl: seconds(ttl), add: true })
    }

    fn increment(&self, key: &str, by: i64, ttl: Option<Duration>) -> AgentReply<i64> {
        let body = to_json(&KvIncrementBody { by: Some(by), ttl: seconds(ttl) });
        let answer =
            required(self.send(Method::POST, &format!("/kv/increment?key={}", percent::encode(key)), Some(body)));
        Box::pin(async move { Ok(parse::<KvValueView<i64>>(&answer.await?)?.value) })
    }

    fn delete(&self, key: &str) -> AgentReply<bool> {
        let answer = required(self.send(Method::DELETE, &format!("/kv?key={}", percent::encode(key)), None));
        Box::pin(async move { Ok(parse::<KvDeletedView>(&answer.await?)?.deleted) })
    }
}

fn seconds(ttl: Option<Duration>) -> Option<f64> {
    ttl.as_ref().map(Duration::as_secs_f64)
}

fn to_json(body: &impl Serialize) -> String {
    serde_json::to_string(body).expect("bodies have string keys and UTF-8 paths")
}

fn parse<T: DeserializeOwned>(answer: &RawValue) -> Result<T, String> {
    serde_json::from_str(answer.get()).map_err(|error| format!("the agent's answer makes no sense: {error}"))
}

/// A reply that must not be empty.
fn required(reply: AgentReply<Option<Box<RawValue>>>) -> AgentReply<Box<RawValue>> {
    Box::pin(async move { reply.await?.ok_or_else(|| "the agent gave no answer".to_owned()) })
}

async fn read_response(mut response: Response<AsyncBody>) -> Result<Option<Box<RawValue>>, String> {
    let mut body = String::new();
    let read = response.body_mut().take(MAX_RESPONSE).read_to_string(&mut body).await;
    read.map_err(|error| format!("the agent's answer broke off: {error}"))?;
    let status = response.status();
    if !status.is_success() {
        return Err(match serde_json::from_str::<ErrorBody>(&body) {
            Ok(said) => said.error.message,
            Err(_) => format!("the agent answered {status}"),
        });
    }
    if status == StatusCode::NO_CONTENT || body.is_empty() {
        return Ok(None);
    }
    RawValue::from_string(body).map(Some).map_err(|error| format!("the agent's answer is not JSON: {error}"))
}

fn unreachable(url: &str, why: &dyn std::fmt::Display) -> String {
    format!("cannot reach the agent at {url} ({why}): inside a space SVC_AGENT_URL says where it is")
}
