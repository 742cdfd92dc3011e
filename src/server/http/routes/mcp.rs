//! `/mcp`: hands messages of the Model Context Protocol to [`crate::server::mcp`], and streams its notifications.

use crate::server::{
    http::{
        ApiError, ApiRequest, EventStream, Response,
        extract::{FromRequest, HeaderUse, RequestBody},
        response::IntoResponse,
    },
    mcp::{Endpoint, EndpointError, OriginError, Reply, StreamEvent},
};
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use http_body_util::{BodyDataStream, BodyExt as _};
use hyper::{
    StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
};
use schemars::{Schema, SchemaGenerator, json_schema};
use std::{convert::Infallible, time::Duration};
use warp::sse;

/// Interval of keep-alive comments on a silent stream.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Time after which a client that lost its stream should reconnect.
const RECONNECT: Duration = Duration::from_secs(3);

/// Advice to a caller that has too many streams.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A message with its headers, not parsed yet: its errors are answered in JSON-RPC.
pub struct McpMessage(Bytes);

/// A request of which only the headers matter.
pub struct HeadersOnly;

/// The reply of rmcp: JSON, a stream of events, or nothing.
pub struct McpResponse(Response);

pub async fn answer(
    endpoint: Endpoint,
    request: ApiRequest,
    McpMessage(body): McpMessage,
) -> Result<McpResponse, ApiError> {
    let reply = endpoint.answer(request.caller(), request.uri(), request.headers().clone(), body).await?;
    response(reply).await.map(McpResponse)
}

pub async fn follow(endpoint: Endpoint, request: ApiRequest, _: HeadersOnly) -> Result<EventStream, ApiError> {
    let events = endpoint.follow(request.caller(), request.uri(), request.headers())?;
    let events = events.map(|StreamEvent { id, message }| {
        let event = sse::Event::default().id(id);
        Ok::<_, Infallible>(match message {
            Some(message) => event.data(message),
            None => event.retry(RECONNECT).data(""),
        })
    });
    let reply = sse::reply(sse::keep_alive().interval(HEARTBEAT).stream(events));
    Ok(EventStream(warp::Reply::into_response(reply)))
}

/// Converts a reply of rmcp. An error that rmcp answers in plain text, because it comes before any message, becomes an
/// error as on all routes.
async fn response(reply: Reply) -> Result<Response, ApiError> {
    let (head, body) = reply.into_parts();
    let streams = head.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    let is_json = head.headers.get(CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    let mut response = if streams {
        let pieces = BodyDataStream::new(body).map_err(|never: Infallible| match never {});
        warp::Reply::into_response(warp::reply::stream(pieces))
    } else {
        let whole = match body.collect().await {
            Ok(whole) => whole.to_bytes(),
            Err(never) => match never {},
        };
        let text = || String::from_utf8_lossy(&whole).into_owned();
        match head.status {
            status if status.is_success() || is_json => Response::new(whole.into()),
            StatusCode::NOT_ACCEPTABLE => return Err(ApiError::NotAcceptable(text())),
            status if status.is_client_error() => return Err(ApiError::BadRequest(text())),
            _ => return Err(ApiError::Internal(text())),
        }
    };
    *response.status_mut() = head.status;
    let headers = head.headers.into_iter().filter_map(|(name, value)| Some((name?, value)));
    response.headers_mut().extend(headers.filter(|(name, _)| *name != CONTENT_LENGTH));
    Ok(response)
}

impl FromRequest for McpMessage {
    const BODY: RequestBody = RequestBody::Json;
    const HEADERS: HeaderUse = HeaderUse::Read;

    fn body_schema(_: &mut SchemaGenerator) -> Option<Schema> {
        Some(json_schema!({
            "type": "object",
            "description": "A JSON-RPC message of the Model Context Protocol",
            "properties": {
                "jsonrpc": {"const": "2.0"},
                "method": {"type": "string"},
                "params": {"type": "object"},
                "id": {"type": ["string", "number"], "description": "Absent for a notification"},
            },
            "required": ["jsonrpc"],
        }))
    }

    async fn from_request(request: &mut ApiRequest) -> Result<Self, ApiError> {
        request.refuse_query()?;
        request.read_body().await.map(Self)
    }
}

impl FromRequest for HeadersOnly {
    const HEADERS: HeaderUse = HeaderUse::Read;

    async fn from_request(request: &mut ApiRequest) -> Result<Self, ApiError> {
        request.refuse_query().map(|()| Self)
    }
}

impl IntoResponse for McpResponse {
    const OTHER_STATUSES: &'static [StatusCode] =
        &[StatusCode::ACCEPTED, StatusCode::BAD_REQUEST, StatusCode::NOT_FOUND];
    /// A notification has no response.
    const EMPTY_STATUSES: &'static [StatusCode] = &[StatusCode::ACCEPTED];

    fn schema(_: &mut SchemaGenerator) -> Option<Schema> {
        Some(json_schema!({
            "type": "object",
            "description": "The answer; it is an event of a `text/event-stream` if there is more to tell",
            "properties": {
                "jsonrpc": {"const": "2.0"},
                "result": {"type": "object"},
                "error": {
                    "type": "object",
                    "properties": {
                        "code": {"type": ["integer", "string"], "description": "A word if no message was read at all"},
                        "message": {"type": "string"},
                        "data": {},
                    },
                    "required": ["code", "message"],
                },
                "id": {"type": ["string", "number", "null"]},
            },
        }))
    }

    fn into_response(self) -> Response {
        self.0
    }
}

impl From<EndpointError> for ApiError {
    fn from(error: EndpointError) -> Self {
        let message = error.to_string();
        match error {
            EndpointError::Origin(OriginError::NoHost) => Self::BadRequest(message),
            EndpointError::Origin(OriginError::Host(_) | OriginError::Origin(_)) => Self::Forbidden(message),
            EndpointError::StreamNotAccepted => Self::NotAcceptable(message),
            EndpointError::UnknownSession => Self::NotFound(message),
            EndpointError::NoStreamInVersion => Self::MethodNotAllowed { allow: "POST".to_owned() },
            EndpointError::TooManyStreams => Self::TooManyRequests { message, wait: RETRY_AFTER },
        }
    }
}
