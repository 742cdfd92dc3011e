//! `/mcp`: the caller's methods and stored tools as tools of the Model Context Protocol, all versions of it that rmcp
//! speaks.
//!
//! A message's way: [`http`](crate::server::http) authenticates it → [`origin_check`] checks by which name and from which page it comes →
//! [`message`] tells what it is → rmcp reads it and asks a [`handler`], made for its caller → [`catalog`] has what that
//! caller is offered, [`tool`] shows it as MCP has it, and a call goes the way of all calls ([`crate::calls::call`]), or to the
//! [`ToolRunner`].
//!
//! No request needs another one before it: nothing is kept between them, and each is answered as who sent it. Older
//! clients get a [`session`] all the same, whose id binds it to its user, so that they listen for [`tool_changes`].

mod catalog;
mod handler;
mod in_flight;
mod message;
mod origin_check;
mod raw_result;
mod session;
mod tool;
mod tool_changes;

pub use origin_check::Shut;

use crate::{
    calls::{call::Calls, registry::Registry},
    identity::{Caller, Identity},
    model::{id::UserId, jsonrpc::code, permission::Permission},
    platform::{
        config,
        keyed_limit::{Share, Shares},
    },
    scripting::scripts::{Scripts, ToolRunner},
};
use bytes::Bytes;
use catalog::{Catalog, Digest};
use futures_util::{Stream, StreamExt as _, stream};
use handler::{Desk, Visit};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use in_flight::Flights;
use message::Message;
use origin_check::Gate;
use raw_result::Inlay;
use rmcp::{
    model::{ErrorCode, ErrorData, JsonRpcError, ProtocolVersion, RequestId, ServerJsonRpcMessage, ServerNotification},
    transport::{
        StreamableHttpServerConfig, StreamableHttpService, streamable_http_server::session::never::NeverSessionManager,
    },
};
use serde_json::value::RawValue;
use std::{convert::Infallible, sync::Arc};
use tokio_util::sync::CancellationToken;
use tool_changes::News;

/// Streams of news that a user has open at once.
const STREAMS: usize = 16;

static SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
static VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
static LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// An answer, whose body may be a stream.
pub type Reply = Response<BoxBody<Bytes, Infallible>>;

/// The endpoint. Cloning the handle is cheap.
#[derive(Clone)]
pub struct Endpoint(Arc<Inner>);

/// What it is made of.
pub struct Parts {
    pub registry: Registry,
    pub identity: Identity,
    pub calls: Calls,
    pub scripts: Scripts,
    pub toolbox: ToolRunner,
    pub shutdown: CancellationToken,
}

struct Inner {
    gate: Gate,
    catalog: Catalog,
    calls: Calls,
    toolbox: ToolRunner,
    flights: Flights,
    streams: Shares<UserId>,
    shutdown: CancellationToken,
}

/// Why a request is not even read.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error(transparent)]
    Shut(#[from] Shut),
    #[error("there is no such session: initialize a new one")]
    NoSession,
    #[error("you listen on {STREAMS} streams already: close one first")]
    TooManyStreams,
    #[error("a stream needs a client that takes it: send `Accept: text/event-stream`")]
    NoStream,
    #[error("from protocol version 2026-07-28 on there is no stream here: send subscriptions/listen")]
    NoStreamInVersion,
}

/// Something told on a stream that is open for news.
pub struct Told {
    /// By which a client that comes back says what it has heard.
    pub id: String,
    /// The message; `None` if there is nothing but the id to tell.
    pub message: Option<String>,
}

impl Endpoint {
    pub fn new(config: &config::Mcp, parts: Parts) -> Self {
        let Parts { registry, identity, calls, scripts, toolbox, shutdown } = parts;
        Self(Arc::new(Inner {
            gate: Gate::new(config),
            catalog: Catalog::new(registry, identity, scripts),
            calls,
            toolbox,
            flights: Flights::default(),
            streams: Shares::new(STREAMS),
            shutdown,
        }))
    }

    /// Answers a message.
    ///
    /// # Errors
    ///
    /// Says why it is not even read. What is wrong with the message itself is in the reply.
    pub async fn answer(&self, caller: &Caller, uri: &Uri, headers: HeaderMap, body: Bytes) -> Result<Reply, Refused> {
        self.0.gate.check(uri, &headers)?;
        let session = self.0.session(caller, &headers)?;
        let message = match Message::read(&body) {
            Ok(message) => message,
            Err(error) => return Ok(refusal(None, error.code(), error.to_string())),
        };
        if let (Some(session), Some(id)) = (session, message.recalls()) {
            self.0.flights.recall(session, id);
        }
        let begins = message.is("initialize");
        let id = message.id.and_then(|id| serde_json::from_str(id).ok());
        let visit = Arc::new(Visit {
            caller: caller.clone(),
            arguments: message.params.arguments.map(RawValue::to_owned),
            cursor: message.params.cursor.map(RawValue::to_owned),
            flight: session.zip(message.id).map(|(session, id)| self.0.flights.begin(session, id)),
            inlay: Inlay::new(),
            _share: if message.is("subscriptions/listen") { Some(self.0.stream(caller)?) } else { None },
        });
        let desk = Desk { inner: self.0.clone(), visit: visit.clone() };
        let mut reply = serve(desk.clone(), uri.clone(), headers.clone(), body.clone()).await;
        // Arguments that rmcp cannot hold, such as very large numbers, are none of its business.
        if let Some(bare) = message.without_arguments(&body).filter(|_| is_unread(&reply)) {
            let mut headers = headers;
            headers.remove(header::CONTENT_LENGTH);
            reply = serve(desk, uri.clone(), headers, bare).await;
        }
        if visit.inlay.is_put() {
            reply = filled(reply, &visit.inlay).await;
        }
        if is_unread(&reply) {
            let why =
                "this is no message of the Model Context Protocol: it needs `jsonrpc`, and `method` with its params";
            return Ok(refusal(id, code::INVALID_REQUEST, why.to_owned()));
        }
        if begins && reply.status() == StatusCode::OK {
            let id = HeaderValue::from_str(&session::issue(caller.user.id)).expect("hexadecimal digits make a header");
            reply.headers_mut().insert(SESSION.clone(), id);
        }
        Ok(reply)
    }

    /// Whether the page of this `Origin` may call, wherever it comes from.
    pub fn lists_page(&self, origin: &HeaderValue) -> bool {
        self.0.gate.lists_page(origin)
    }

    /// Streams that are open now, everybody's.
    pub fn streams(&self) -> usize {
        self.0.streams.held()
    }

    /// The stream on which clients up to 2025-11-25 are told of news, until they leave, the server stops, or the caller
    /// would not be let in again.
    ///
    /// # Errors
    ///
    /// Says why there is none.
    pub fn follow(
        &self,
        caller: &Caller,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<impl Stream<Item = Told> + Send + use<>, Refused> {
        self.0.gate.check(uri, headers)?;
        self.0.session(caller, headers)?;
        let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        if !text(&header::ACCEPT).is_some_and(|accept| accept.contains("text/event-stream") || accept.contains("*/*")) {
            return Err(Refused::NoStream);
        }
        let version = text(&VERSION).unwrap_or_default();
        if version >= ProtocolVersion::V_2026_07_28.as_str() {
            return Err(Refused::NoStreamInVersion);
        }
        let share = self.0.stream(caller)?;
        let news = News::of(&self.0.catalog, caller.user.id);
        // Clients before that version take an event without a message for a broken one.
        let primes = version >= ProtocolVersion::V_2025_11_25.as_str();
        let first = primes.then(|| Told { id: news.told().to_text(), message: None });
        let news = match text(&LAST_EVENT).and_then(Digest::from_text) {
            Some(heard) => news.since(heard),
            None => news,
        };
        let told = stream::unfold((news, share), async |(mut news, share)| {
            let digest = news.next().await;
            Some((Told { id: digest.to_text(), message: Some(list_changed()) }, (news, share)))
        });
        let (inner, caller) = (self.0.clone(), caller.clone());
        Ok(stream::iter(first).chain(told).take_until(async move { inner.over(&caller).await }))
    }
}

impl Inner {
    /// The session that the headers name.
    fn session<'h>(&self, caller: &Caller, headers: &'h HeaderMap) -> Result<Option<&'h str>, Refused> {
        let Some(id) = headers.get(&SESSION) else { return Ok(None) };
        let id = id.to_str().ok().filter(|id| session::is_of(id, caller.user.id));
        id.map(Some).ok_or(Refused::NoSession)
    }

    fn stream(&self, caller: &Caller) -> Result<Share<UserId>, Refused> {
        self.streams.take(caller.user.id).ok_or(Refused::TooManyStreams)
    }

    /// Resolves once the caller's streams must end.
    async fn over(&self, caller: &Caller) {
        tokio::select! {
            () = self.calls.identity().barred(caller, Permission::UseMcpServer) => {}
            () = self.shutdown.cancelled() => {}
        }
    }
}

/// Has rmcp answer one message at this desk.
async fn serve(desk: Desk, uri: Uri, headers: HeaderMap, body: Bytes) -> Reply {
    // Sessions are ours, host and origin are checked, and the body is within the limit already.
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .disable_allowed_hosts()
        .with_max_request_body_bytes(body.len());
    // A service for this message alone: only so does it know whose tools are meant wherever it asks.
    let service =
        StreamableHttpService::new(move || Ok(desk.clone()), Arc::new(NeverSessionManager::default()), config);
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    if takes_anything(request.headers()) {
        let both = HeaderValue::from_static("application/json, text/event-stream");
        request.headers_mut().insert(header::ACCEPT, both);
    }
    service.handle(request).await
}

/// So rmcp says that a message is none of the protocol's.
fn is_unread(reply: &Reply) -> bool {
    reply.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE
}

/// Whether whoever sent this takes every type of answer, as a plain HTTP client says or means by saying nothing. rmcp would
/// have it name the two there are.
fn takes_anything(headers: &HeaderMap) -> bool {
    headers.get(header::ACCEPT).is_none_or(|accept| accept.to_str().is_ok_and(|accept| accept.contains("*/*")))
}

/// The reply to a call, with its result in place. It is one message, since nothing is told before it.
async fn filled(reply: Reply, inlay: &Inlay) -> Reply {
    let (head, body) = reply.into_parts();
    let whole = match body.collect().await {
        Ok(whole) => whole.to_bytes(),
        Err(never) => match never {},
    };
    Response::from_parts(head, Full::new(inlay.fill(whole)).boxed())
}

/// The answer to what is no message.
fn refusal(id: Option<RequestId>, code: i32, why: String) -> Reply {
    let error = JsonRpcError::new(id, ErrorData::new(ErrorCode(code), why, None));
    let json = serde_json::to_vec(&error).expect("a code and a text are JSON");
    let mut reply = Response::new(Full::new(Bytes::from(json)).boxed());
    *reply.status_mut() = StatusCode::BAD_REQUEST;
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

fn list_changed() -> String {
    let changed = ServerNotification::ToolListChangedNotification(Default::default());
    serde_json::to_string(&ServerJsonRpcMessage::notification(changed)).expect("a notification is JSON")
}
