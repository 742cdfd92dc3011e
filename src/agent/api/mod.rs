//! The agent's own API, for what runs in the space: raise an event, register methods, find and call methods, load
//! libraries, remember things, ask how things are.
//!
//! A request's way: accepted here, within bounds → [`guard`] → one of the things there are to ask. Whoever is on the
//! machine may raise events; only the agent's user may change what it runs, and act as the owner of the space.

mod error;
mod guard;
mod kv;
mod packages;
mod peer;

pub use error::NOT_CONNECTED;

use super::{
    Agent,
    registration_file::Built,
    setup,
    setup_changes::{self, Doings},
};
use crate::{
    model::json_input::{self, InvalidJson},
    platform::percent,
};
use bytes::Bytes;
use error::{Refusal, json};
use http::{
    HeaderMap, Method, Request, Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE},
};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use std::{convert::Infallible, net::SocketAddr, path::PathBuf, pin::pin, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinError,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Connections at once; the next one waits until another closes.
const CONNECTIONS: usize = 256;

/// How long the head of a request may take, and its body.
const HEAD: Duration = Duration::from_secs(5);
const BODY: Duration = Duration::from_secs(30);

/// How long requests may take to finish once the agent ends.
const DRAIN: Duration = Duration::from_secs(1);

/// Pause after a failed accept, most likely for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The largest body of an event, unless payloads may be larger: what is around them then.
const EVENT_BYTES: usize = 1 << 20;
const AROUND_PAYLOAD: usize = 64 << 10;

/// The largest registration.
const METHODS_BYTES: usize = 8 << 20;

/// The largest body that is passed on to a server, which may well take less.
const CALL_BYTES: usize = 16 << 20;

/// The two ends of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    pub peer: SocketAddr,
    pub local: SocketAddr,
}

type Answer = Response<Full<Bytes>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raise {
    #[serde(rename = "type")]
    kind: String,
    payload: Option<Box<RawValue>>,
}

/// A file, or what a script has built.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Register {
    /// The whole path of the file, in whose directory the method server runs.
    path: Option<PathBuf>,
    /// What is in it.
    source: Option<String>,
    /// The server and its methods, as a file would have them.
    registration: Option<Box<RawValue>>,
    /// Where the method server is to run.
    directory: Option<PathBuf>,
    /// The script that has built it, for people.
    script: Option<PathBuf>,
}

/// Serves until `closing`, then finishes the requests in flight, and cuts off those that take too long.
pub async fn serve(listener: TcpListener, agent: Arc<Agent>, closing: CancellationToken) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let connections = TaskTracker::new();
    loop {
        let accept = async {
            let place = places.clone().acquire_owned().await.expect("the semaphore is never closed");
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            biased;
            () = closing.cancelled() => break,
            accepted = accept => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                log::warn!("cannot accept connections: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (agent, closing) = (agent.clone(), closing.clone());
        connections.spawn(async move {
            converse(stream, peer, agent, closing).await;
            drop(place);
        });
    }
    drop(listener);
    connections.close();
    let _ = tokio::time::timeout(DRAIN, connections.wait()).await;
}

/// One connection. How it ends is the peer's business, as long as it does.
async fn converse(stream: TcpStream, peer: SocketAddr, agent: Arc<Agent>, closing: CancellationToken) {
    let Ok(local) = stream.local_addr() else { return };
    let _ = stream.set_nodelay(true);
    let ends = Ends { peer, local };
    let service = service_fn(move |request| {
        let agent = agent.clone();
        async move { Ok::<_, Infallible>(answer(&agent, ends, request).await.unwrap_or_else(Answer::from)) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ = connection.as_mut() => return,
        () = closing.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = tokio::time::timeout(DRAIN, connection).await;
}

async fn answer(agent: &Arc<Agent>, ends: Ends, request: Request<Incoming>) -> Result<Answer, Refusal> {
    guard::check_source(&request)?;
    let path = request.uri().path().to_owned();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    match (request.method(), &segments[..]) {
        (&Method::POST, ["event"]) => raise(agent, request).await,
        (&Method::GET, ["status"]) => Ok(json(StatusCode::OK, &agent.status())),
        (&Method::POST, ["methods"]) => register(agent, ends, request).await,
        (&Method::DELETE, ["methods"]) => unregister(agent, ends, request.headers(), None).await,
        (&Method::DELETE, ["methods", name]) => {
            unregister(agent, ends, request.headers(), Some(percent::decode_segment(name)?)).await
        }
        (&Method::GET, ["api", "methods"] | ["api", "methods", _]) if segments.last() != Some(&"call") => {
            pass(agent, ends, request).await
        }
        (&Method::POST, ["api", "methods", "call"]) => pass(agent, ends, request).await,
        (&Method::GET | &Method::HEAD, ["packages", "svc-libraries.zip"]) => {
            Ok(packages::answer(agent.packages.ours(), request.headers()))
        }
        (&Method::GET | &Method::HEAD, ["packages", "user-libraries.zip"]) => {
            check_user(ends).await?;
            Ok(packages::answer(&agent.packages.theirs(), request.headers()))
        }
        (&Method::GET, ["kv"]) => kv::get(agent, ends, &request).await,
        (&Method::PUT, ["kv"]) => kv::put(agent, ends, request).await,
        (&Method::DELETE, ["kv"]) => kv::delete(agent, ends, &request).await,
        (&Method::POST, ["kv", "increment"]) => kv::increment(agent, ends, request).await,
        (_, ["event"]) => Ok(not_allowed("POST")),
        (_, ["api", "methods", "call"]) => Ok(not_allowed("POST")),
        (_, ["api", "methods"] | ["api", "methods", _]) => Ok(not_allowed("GET")),
        (_, ["packages", "svc-libraries.zip" | "user-libraries.zip"]) => Ok(not_allowed("GET, HEAD")),
        (_, ["kv"]) => Ok(not_allowed("GET, PUT, DELETE")),
        (_, ["kv", "increment"]) => Ok(not_allowed("POST")),
        (_, ["status"]) => Ok(not_allowed("GET")),
        (_, ["methods"]) => Ok(not_allowed("POST, DELETE")),
        (_, ["methods", _]) => Ok(not_allowed("DELETE")),
        _ => {
            let has = "/event, /methods, /status, /api/methods, /packages and /kv";
            let message = format!("there is nothing at {path}: an agent has {has}");
            Err(Refusal::new(StatusCode::NOT_FOUND, "not_found", message))
        }
    }
}

/// Takes an event, and answers once it is on disk.
async fn raise(agent: &Agent, request: Request<Incoming>) -> Result<Answer, Refusal> {
    let max_payload = agent.max_payload();
    let Raise { kind, payload } = read(request, EVENT_BYTES.max(max_payload + AROUND_PAYLOAD)).await?;
    Ok(json(StatusCode::ACCEPTED, &agent.raise(&kind, payload).await?))
}

async fn register(agent: &Arc<Agent>, ends: Ends, request: Request<Incoming>) -> Result<Answer, Refusal> {
    check_user(ends).await?;
    let by = script_of(agent, request.headers());
    let asked: Register = read(request, METHODS_BYTES).await?;
    let agent = agent.clone();
    match asked {
        Register { path: Some(path), source: Some(source), registration: None, directory: None, script: None } => {
            let done = to_the_end(async move { setup::register(&agent, &path, &source).await }).await?;
            Ok(json(StatusCode::OK, &done))
        }
        Register { path: None, source: None, registration: Some(registration), directory: Some(directory), script } => {
            let built = Built { directory, script, registration };
            let methods =
                to_the_end(async move { agent.registrar.register_built(&built, by.as_deref()).await }).await?;
            Ok(json(StatusCode::OK, &serde_json::json!({ "methods": methods })))
        }
        _ => Err(Refusal::bad_request("give `path` and `source` of a file, or `registration` and `directory`")),
    }
}

/// Asks a server as the owner of the space.
async fn pass(agent: &Arc<Agent>, ends: Ends, request: Request<Incoming>) -> Result<Answer, Refusal> {
    check_user(ends).await?;
    let method = request.method().clone();
    let path = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
    let body = match method {
        Method::POST => {
            guard::check_json(request.headers())?;
            body(request, CALL_BYTES).await?
        }
        _ => Bytes::new(),
    };
    let passed = agent.pass(method, &path, body).await?;
    let mut answer = Response::new(Full::new(passed.body));
    *answer.status_mut() = passed.status;
    if let Some(kind) = passed.kind {
        answer.headers_mut().insert(CONTENT_TYPE, kind);
    }
    Ok(answer)
}

async fn unregister(
    agent: &Arc<Agent>,
    ends: Ends,
    headers: &HeaderMap,
    name: Option<String>,
) -> Result<Answer, Refusal> {
    check_user(ends).await?;
    let by = script_of(agent, headers);
    let agent = agent.clone();
    let removed = to_the_end(async move { agent.unregister(name.as_deref(), by.as_deref()).await }).await?;
    Ok(json(StatusCode::OK, &serde_json::json!({ "removed": removed })))
}

/// The set-up script that asks, if one does.
fn script_of(agent: &Agent, headers: &HeaderMap) -> Option<Arc<Doings>> {
    agent.scripts.find(headers.get(setup_changes::HEADER)?.to_str().ok()?)
}

/// Whether who asks may change what the agent runs. On a machine with many sockets it takes a while to find out.
async fn check_user(ends: Ends) -> Result<(), Refusal> {
    match tokio::task::spawn_blocking(move || guard::check_user(ends)).await {
        Ok(checked) => checked,
        Err(error) => Err(broken(&error)),
    }
}

/// Runs a change that must not be left half done because whoever asked for it went away.
async fn to_the_end<T: Send + 'static, E: Into<Refusal> + Send + 'static>(
    change: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, Refusal> {
    match tokio::spawn(change).await {
        Ok(changed) => changed.map_err(E::into),
        Err(error) => Err(broken(&error)),
    }
}

/// A task of ours panicked.
fn broken(error: &JoinError) -> Refusal {
    log::error!("a request failed: {error}");
    let message = "something went wrong in the agent; its log says what";
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
}

/// What a JSON body says.
async fn read<T: DeserializeOwned>(request: Request<Incoming>, limit: usize) -> Result<T, Refusal> {
    guard::check_json(request.headers())?;
    let bytes = body(request, limit).await?;
    json_input::parse(&bytes).map_err(|error: InvalidJson| Refusal::bad_request(error.to_string()))
}

/// A whole body.
async fn body(request: Request<Incoming>, limit: usize) -> Result<Bytes, Refusal> {
    let too_large = || {
        let message = format!("the request body is over the limit of {limit} bytes");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    };
    let body = Limited::new(request.into_body(), limit);
    let collected = tokio::time::timeout(BODY, body.collect())
        .await
        .map_err(|_| Refusal::new(StatusCode::REQUEST_TIMEOUT, "timeout", "the request body did not arrive in time"))?;
    let bytes = collected.map_err(|error| match error.is::<http_body_util::LengthLimitError>() {
        true => too_large(),
        false => Refusal::bad_request(format!("the body broke off: {error}")),
    })?;
    Ok(bytes.to_bytes())
}

fn not_allowed(allow: &'static str) -> Answer {
    let message = format!("this path does not take that method, only {allow}");
    let mut answer = Answer::from(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message));
    answer.headers_mut().insert(ALLOW, http::HeaderValue::from_static(allow));
    answer
}
