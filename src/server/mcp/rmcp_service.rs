//! Has rmcp answer one message, and adjusts its reply.

use super::{handler::ToolsHandler, raw_result::RawResult};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use rmcp::{
    model::{ErrorCode, ErrorData, JsonRpcError, RequestId},
    transport::{
        StreamableHttpServerConfig, StreamableHttpService, streamable_http_server::session::never::NeverSessionManager,
    },
};
use std::{convert::Infallible, sync::Arc};

/// A reply, whose body may be a stream.
pub type Reply = Response<BoxBody<Bytes, Infallible>>;

/// Has rmcp parse the message in `body` and answer it by `handler`.
pub async fn serve(handler: ToolsHandler, uri: Uri, headers: HeaderMap, body: Bytes) -> Reply {
    // Sessions, host, origin and body size are checked before.
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .disable_allowed_hosts()
        .with_max_request_body_bytes(body.len());
    // One service per message: rmcp asks for tools in places where it does not pass on the request, so the handler must
    // know the caller by itself.
    let service =
        StreamableHttpService::new(move || Ok(handler.clone()), Arc::new(NeverSessionManager::default()), config);
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    if accepts_any_type(request.headers()) {
        let both = HeaderValue::from_static("application/json, text/event-stream");
        request.headers_mut().insert(header::ACCEPT, both);
    }
    service.handle(request).await
}

/// Returns whether rmcp could not read the body as a message of the protocol.
pub fn is_unreadable(reply: &Reply) -> bool {
    reply.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE
}

/// Puts the raw result of a tool call into its reply. Such a reply is one JSON message, never a stream.
pub async fn with_raw_result(reply: Reply, result: &RawResult) -> Reply {
    let (head, body) = reply.into_parts();
    let whole = match body.collect().await {
        Ok(whole) => whole.to_bytes(),
        Err(never) => match never {},
    };
    Response::from_parts(head, Full::new(result.insert_into(whole)).boxed())
}

/// A JSON-RPC error with status 400, for a body that is no message.
pub fn error_reply(id: Option<RequestId>, code: i32, message: String) -> Reply {
    let error = JsonRpcError::new(id, ErrorData::new(ErrorCode(code), message, None));
    let json = serde_json::to_vec(&error).expect("a code and a text are JSON");
    let mut reply = Response::new(Full::new(Bytes::from(json)).boxed());
    *reply.status_mut() = StatusCode::BAD_REQUEST;
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

/// Returns whether the client takes every content type, as a plain HTTP client does that sends `*/*` or no `Accept` at
/// all. rmcp requires that a client names the two types there are.
fn accepts_any_type(headers: &HeaderMap) -> bool {
    headers.get(header::ACCEPT).is_none_or(|accept| accept.to_str().is_ok_and(|accept| accept.contains("*/*")))
}
