//! `/mcp`: hands messages of the Model Context Protocol to [`crate::server::mcp`], and the news it has to who listens.

use crate::server::{
    http::{
        ApiError, Call, Events, Response,
        request::{Head, Input, Output, Takes},
    },
    mcp::{McpError, OriginError, Reply, StreamEvent},
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

/// How often a stream without news says that it is still there.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// When a client that lost its stream should come back.
const RETRY: Duration = Duration::from_secs(3);

/// When to ask again for what is used up.
const AGAIN: Duration = Duration::from_secs(1);

/// A message, read later: what is wrong with it is answered in its own protocol.
pub struct Message(Bytes);

/// A request of which the headers matter.
pub struct Asked;

/// What rmcp answers: JSON, a stream of events, or nothing.
pub struct Answered(Response);

pub async fn answer(call: Call, Message(body): Message) -> Result<Answered, ApiError> {
    let endpoint = call.app.mcp.clone();
    let reply = endpoint.answer(call.caller(), call.uri(), call.headers().clone(), body).await?;
    response(reply).await.map(Answered)
}

pub async fn follow(call: Call, _: Asked) -> Result<Events, ApiError> {
    let told = call.app.mcp.follow(call.caller(), call.uri(), call.headers())?;
    let events = told.map(|StreamEvent { id, message }| {
        let event = sse::Event::default().id(id);
        Ok::<_, Infallible>(match message {
            Some(message) => event.data(message),
            None => event.retry(RETRY).data(""),
        })
    });
    let reply = sse::reply(sse::keep_alive().interval(HEARTBEAT).stream(events));
    Ok(Events(warp::Reply::into_response(reply)))
}

/// The reply with a body of ours. What rmcp refuses before it is asked in its own protocol, it refuses in plain text,
/// and we in the way of all routes.
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
        let said = || String::from_utf8_lossy(&whole).into_owned();
        match head.status {
            status if status.is_success() || is_json => Response::new(whole.into()),
            StatusCode::NOT_ACCEPTABLE => return Err(ApiError::NotAcceptable(said())),
            status if status.is_client_error() => return Err(ApiError::BadRequest(said())),
            _ => return Err(ApiError::Internal(said())),
        }
    };
    *response.status_mut() = head.status;
    let headers = head.headers.into_iter().filter_map(|(name, value)| Some((name?, value)));
    response.headers_mut().extend(headers.filter(|(name, _)| *name != CONTENT_LENGTH));
    Ok(response)
}

impl Input for Message {
    const BODY: Takes = Takes::Json;
    const HEADERS: Head = Head::Read;

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

    async fn from_request(call: &mut Call) -> Result<Self, ApiError> {
        call.refuse_query()?;
        call.read_body().await.map(Self)
    }
}

impl Input for Asked {
    const HEADERS: Head = Head::Read;

    async fn from_request(call: &mut Call) -> Result<Self, ApiError> {
        call.refuse_query().map(|()| Self)
    }
}

impl Output for Answered {
    const OTHER_STATUSES: &'static [StatusCode] =
        &[StatusCode::ACCEPTED, StatusCode::BAD_REQUEST, StatusCode::NOT_FOUND];
    /// A notification has no answer.
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

impl From<McpError> for ApiError {
    fn from(error: McpError) -> Self {
        let message = error.to_string();
        match error {
            McpError::Origin(OriginError::NoHost) => Self::BadRequest(message),
            McpError::Origin(OriginError::Host(_) | OriginError::Origin(_)) => Self::Forbidden(message),
            McpError::StreamNotAccepted => Self::NotAcceptable(message),
            McpError::UnknownSession => Self::NotFound(message),
            McpError::NoStreamInVersion => Self::MethodNotAllowed { allow: "POST".to_owned() },
            McpError::TooManyStreams => Self::TooManyRequests { message, wait: AGAIN },
        }
    }
}
