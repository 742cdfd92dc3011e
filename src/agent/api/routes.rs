//! The routes of the API, and the handlers of events, registrations and forwarded requests.

use super::{
    error::{ApiRefusal, json},
    guard, kv, packages,
    peer::SocketPair,
    request::{ApiResponse, check_user, read_body, read_json, run_detached},
};
use crate::{
    agent::{
        registration_file::BuiltRegistration,
        setup,
        setup_changes::{self, RegisterCause, SetupChanges},
        state::AgentState,
    },
    model::{
        api::agent::{AgentEmitBody, RegisterBody, RegisteredView, UnregisteredView},
        id::EventId,
    },
    platform::percent,
};
use bytes::Bytes;
use http::{
    HeaderMap, Method, Request, Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE},
};
use http_body_util::Full;
use hyper::body::Incoming;
use std::sync::Arc;

/// The largest body of an event, unless larger payloads are allowed.
const MAX_EVENT_BODY: usize = 1 << 20;

/// Room for the members around a payload.
const AROUND_PAYLOAD: usize = 64 << 10;

/// The largest registration.
const MAX_REGISTRATION: usize = 8 << 20;

/// The largest body that is forwarded to a server, which may accept less.
const MAX_FORWARDED: usize = 16 << 20;

/// Answers one request.
pub async fn dispatch(
    agent: &Arc<AgentState>,
    sockets: SocketPair,
    request: Request<Incoming>,
) -> Result<ApiResponse, ApiRefusal> {
    guard::check_source(&request)?;
    let path = request.uri().path().to_owned();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    match (request.method(), &segments[..]) {
        (&Method::POST, ["event"]) => emit(agent, request).await,
        (&Method::GET, ["status"]) => Ok(json(StatusCode::OK, &agent.status())),
        (&Method::POST, ["methods"]) => register(agent, sockets, request).await,
        (&Method::DELETE, ["methods"]) => unregister(agent, sockets, request.headers(), None).await,
        (&Method::DELETE, ["methods", name]) => {
            unregister(agent, sockets, request.headers(), Some(percent::decode_segment(name)?)).await
        }
        (&Method::GET, ["api", "methods"] | ["api", "methods", _]) if segments.last() != Some(&"call") => {
            forward(agent, sockets, request).await
        }
        (&Method::POST, ["api", "methods", "call"]) => forward(agent, sockets, request).await,
        (&Method::GET, ["api", "events", id]) if id.parse::<EventId>().is_ok() => {
            forward(agent, sockets, request).await
        }
        (&Method::GET | &Method::HEAD, ["packages", "svc-libraries.zip"]) => {
            Ok(packages::answer(agent.packages.bundled(), request.headers()))
        }
        (&Method::GET | &Method::HEAD, ["packages", "user-libraries.zip"]) => {
            check_user(sockets).await?;
            Ok(packages::answer(&agent.packages.user(), request.headers()))
        }
        (&Method::GET, ["kv"]) => kv::get(agent, sockets, &request).await,
        (&Method::PUT, ["kv"]) => kv::put(agent, sockets, request).await,
        (&Method::DELETE, ["kv"]) => kv::delete(agent, sockets, &request).await,
        (&Method::POST, ["kv", "increment"]) => kv::increment(agent, sockets, request).await,
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
            let has = "/event, /methods, /status, /api/methods, /api/events/{id}, /packages and /kv";
            let message = format!("there is nothing at {path}: an agent has {has}");
            Err(ApiRefusal::new(StatusCode::NOT_FOUND, "not_found", message))
        }
    }
}

/// Emits an event, and answers once it is on disk.
async fn emit(agent: &AgentState, request: Request<Incoming>) -> Result<ApiResponse, ApiRefusal> {
    let limit = MAX_EVENT_BODY.max(agent.max_payload() + AROUND_PAYLOAD);
    let AgentEmitBody { kind, payload, id } = read_json(request, limit).await?;
    Ok(json(StatusCode::ACCEPTED, &agent.emit(&kind, payload, id).await?))
}

async fn register(
    agent: &Arc<AgentState>,
    sockets: SocketPair,
    request: Request<Incoming>,
) -> Result<ApiResponse, ApiRefusal> {
    check_user(sockets).await?;
    let by = setup_run_of(agent, request.headers());
    let body: RegisterBody = read_json(request, MAX_REGISTRATION).await?;
    let agent = agent.clone();
    match body {
        RegisterBody { path: Some(path), source: Some(source), registration: None, directory: None, script: None } => {
            let registering = async move { setup::register(&agent, &path, &source, RegisterCause::Command).await };
            Ok(json(StatusCode::OK, &run_detached(registering).await?))
        }
        RegisterBody {
            path: None,
            source: None,
            registration: Some(registration),
            directory: Some(directory),
            script,
        } => {
            let built = BuiltRegistration { directory, script, registration };
            let cause = by.as_ref().map_or(RegisterCause::Command, |by| by.cause);
            let links = agent.links.clone();
            let registering = async move { agent.registrar.register_built(&built, by.as_deref(), cause).await };
            let methods = run_detached(registering).await?;
            let view = RegisteredView { methods, removed: Vec::new(), output: None, warnings: links.warnings() };
            Ok(json(StatusCode::OK, &view))
        }
        _ => Err(ApiRefusal::bad_request("give `path` and `source` of a file, or `registration` and `directory`")),
    }
}

async fn unregister(
    agent: &Arc<AgentState>,
    sockets: SocketPair,
    headers: &HeaderMap,
    local_name: Option<String>,
) -> Result<ApiResponse, ApiRefusal> {
    check_user(sockets).await?;
    let by = setup_run_of(agent, headers);
    let agent = agent.clone();
    let unregistering = async move { agent.unregister(local_name.as_deref(), by.as_deref()).await };
    let removed = run_detached(unregistering).await?;
    Ok(json(StatusCode::OK, &UnregisteredView { removed }))
}

/// Forwards a request to a server, as the owner of the space.
async fn forward(
    agent: &Arc<AgentState>,
    sockets: SocketPair,
    request: Request<Incoming>,
) -> Result<ApiResponse, ApiRefusal> {
    check_user(sockets).await?;
    let method = request.method().clone();
    let path = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
    let body = match method {
        Method::POST => {
            guard::check_json(request.headers())?;
            read_body(request, MAX_FORWARDED).await?
        }
        _ => Bytes::new(),
    };
    let response = agent.proxy.forward(method, &path, body).await?;
    let mut answer = Response::new(Full::new(response.body));
    *answer.status_mut() = response.status;
    if let Some(content_type) = response.content_type {
        answer.headers_mut().insert(CONTENT_TYPE, content_type);
    }
    Ok(answer)
}

/// The set-up script that sent the request, if one did.
fn setup_run_of(agent: &AgentState, headers: &HeaderMap) -> Option<Arc<SetupChanges>> {
    agent.setup_runs.find(headers.get(setup_changes::HEADER)?.to_str().ok()?)
}

fn not_allowed(allow: &'static str) -> ApiResponse {
    let message = format!("this path does not take that method, only {allow}");
    let refusal = ApiRefusal::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message);
    let mut answer = ApiResponse::from(refusal);
    answer.headers_mut().insert(ALLOW, http::HeaderValue::from_static(allow));
    answer
}
