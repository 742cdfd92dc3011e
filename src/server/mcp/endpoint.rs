//! The endpoint: answers messages, and streams notifications to clients of older protocol versions.

use super::{
    catalog::CatalogDigest,
    error::EndpointError,
    handler::ToolsHandler,
    message::ClientMessage,
    raw_result::RawResult,
    request_state::RequestState,
    rmcp_service::{self, Reply},
    session,
    state::{EndpointDeps, EndpointState, SESSION_HEADER},
    tool_changes::ToolChanges,
};
use crate::{
    identity::Caller,
    model::jsonrpc::{ErrorObject, code},
    platform::config,
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use rmcp::model::{ProtocolVersion, ServerJsonRpcMessage, ServerNotification};
use serde_json::value::RawValue;
use std::sync::Arc;

static VERSION_HEADER: HeaderName = HeaderName::from_static("mcp-protocol-version");
static LAST_EVENT_HEADER: HeaderName = HeaderName::from_static("last-event-id");

/// The MCP endpoint. Cloning the handle is cheap.
#[derive(Clone)]
pub struct Endpoint(Arc<EndpointState>);

/// An event on a stream of notifications.
pub struct StreamEvent {
    /// Sent back by a client that reconnects, as the last event it received.
    pub id: String,
    /// The notification; `None` for an event that carries only the id.
    pub message: Option<String>,
}

impl Endpoint {
    pub fn new(config: &config::McpConfig, deps: EndpointDeps) -> Self {
        Self(Arc::new(EndpointState::new(config, deps)))
    }

    /// Answers a message.
    ///
    /// # Errors
    ///
    /// Fails before the message is read. Errors in the message itself are in the reply.
    pub async fn answer(
        &self,
        caller: &Caller,
        uri: &Uri,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Reply, EndpointError> {
        let state = &self.0;
        state.origin_check.check(uri, &headers)?;
        let session = state.session(caller, &headers)?;
        let message = match ClientMessage::read(&body) {
            Ok(message) => message,
            Err(error) => return Ok(rmcp_service::error_reply(None, error.code(), error.to_string())),
        };
        if let (Some(session), Some(id)) = (session, message.cancelled_request()) {
            state.in_flight.cancel(session, id);
        }
        let starts_session = message.is("initialize");
        let id = message.id.and_then(|id| serde_json::from_str(id).ok());
        if message.is("tools/call")
            && let Err(error) = state.calls.check_open()
        {
            let error = ErrorObject::from(error);
            let mut reply = rmcp_service::error_reply(id, error.code, error.message);
            *reply.status_mut() = StatusCode::OK;
            return Ok(reply);
        }
        let is_stream = message.is("subscriptions/listen");
        let request = Arc::new(RequestState {
            caller: caller.clone(),
            arguments: message.params.arguments.map(RawValue::to_owned),
            cursor: message.params.cursor.map(RawValue::to_owned),
            in_flight: session.zip(message.id).map(|(session, id)| state.in_flight.begin(session, id)),
            result: RawResult::new(),
            _stream_permit: if is_stream { Some(state.stream_permit(caller)?) } else { None },
        });
        let handler = ToolsHandler { state: state.clone(), request: request.clone() };
        let mut reply = rmcp_service::serve(handler.clone(), uri.clone(), headers.clone(), body.clone()).await;
        // rmcp cannot hold every argument, such as very large numbers. The handler reads arguments from the request's
        // state, so rmcp gets the message without them.
        if let Some(bare) = message.without_arguments(&body).filter(|_| rmcp_service::is_unreadable(&reply)) {
            let mut headers = headers;
            headers.remove(header::CONTENT_LENGTH);
            reply = rmcp_service::serve(handler, uri.clone(), headers, bare).await;
        }
        if request.result.is_set() {
            reply = rmcp_service::with_raw_result(reply, &request.result).await;
        }
        if rmcp_service::is_unreadable(&reply) {
            let message =
                "this is no message of the Model Context Protocol: it needs `jsonrpc`, and `method` with its params";
            return Ok(rmcp_service::error_reply(id, code::INVALID_REQUEST, message.to_owned()));
        }
        if starts_session && reply.status() == StatusCode::OK {
            let id = HeaderValue::from_str(&session::issue(caller.user.id)).expect("hexadecimal digits make a header");
            reply.headers_mut().insert(SESSION_HEADER.clone(), id);
        }
        Ok(reply)
    }

    /// Returns whether the config allows pages of this `Origin`.
    pub fn allows_origin(&self, origin: &HeaderValue) -> bool {
        self.0.origin_check.allows_origin(origin)
    }

    /// Number of streams that are open now, of all users.
    pub fn streams(&self) -> usize {
        self.0.streams.held()
    }

    /// The stream of notifications for clients up to version 2025-11-25. It ends when the client leaves, the server stops,
    /// or the caller would no longer be authorized.
    pub fn follow(
        &self,
        caller: &Caller,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<impl Stream<Item = StreamEvent> + Send + use<>, EndpointError> {
        let state = &self.0;
        state.origin_check.check(uri, headers)?;
        state.session(caller, headers)?;
        let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        if !text(&header::ACCEPT).is_some_and(|accept| accept.contains("text/event-stream") || accept.contains("*/*")) {
            return Err(EndpointError::StreamNotAccepted);
        }
        let version = text(&VERSION_HEADER).unwrap_or_default();
        if version >= ProtocolVersion::V_2026_07_28.as_str() {
            return Err(EndpointError::NoStreamInVersion);
        }
        let permit = state.stream_permit(caller)?;
        let changes = ToolChanges::of(&state.catalog, caller.user.id);
        // Clients before this version take an event without a message for a broken one.
        let takes_empty_events = version >= ProtocolVersion::V_2025_11_25.as_str();
        let first = takes_empty_events.then(|| StreamEvent { id: changes.known().to_text(), message: None });
        let changes = match text(&LAST_EVENT_HEADER).and_then(CatalogDigest::from_text) {
            Some(known) => changes.since(known),
            None => changes,
        };
        let notifications = stream::unfold((changes, permit), async |(mut changes, permit)| {
            let digest = changes.next().await;
            Some((StreamEvent { id: digest.to_text(), message: Some(list_changed()) }, (changes, permit)))
        });
        let (state, caller) = (state.clone(), caller.clone());
        let events = stream::iter(first).chain(notifications);
        Ok(events.take_until(async move { state.streams_must_end(&caller).await }))
    }
}

fn list_changed() -> String {
    let changed = ServerNotification::ToolListChangedNotification(Default::default());
    serde_json::to_string(&ServerJsonRpcMessage::notification(changed)).expect("a notification is JSON")
}
