//! Outputs of handlers, which become responses: JSON with the status of its wrapper, plain text, a stream of events, or a backup.
//!
//! Each output describes itself, so that the OpenAPI document says what the code answers.

use super::{Response, error::ApiError, extract::Json};
use bytes::Bytes;
use hyper::{
    StatusCode,
    header::{CONTENT_TYPE, HeaderValue},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;

/// The successful result of a handler.
pub trait IntoResponse {
    const STATUS: StatusCode = StatusCode::OK;
    /// Other statuses that come with the same body.
    const OTHER_STATUSES: &'static [StatusCode] = &[];
    /// Statuses among these that come without a body.
    const EMPTY_STATUSES: &'static [StatusCode] = &[StatusCode::NO_CONTENT];
    const CONTENT_TYPE: &'static str = "application/json";

    /// Schema of the body; `None` for no body.
    fn schema(generator: &mut SchemaGenerator) -> Option<Schema>;

    fn into_response(self) -> Response;
}

/// 201 with the new record.
pub struct Created<T>(pub T);

/// 202 with a receipt.
pub struct Accepted<T>(pub T);

/// 204.
pub struct NoContent;

/// 200 with plain text, of the content type that Prometheus asks for.
pub struct PlainText(pub String);

/// Server-sent events: a response built by `warp::sse`, which this only describes.
pub struct EventStream(pub Response);

/// A backup: a stream of compressed bytes, which this only describes.
pub struct ArchiveStream(pub Response);

/// A JSON response with this status.
pub fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => with_content_type(status, "application/json", body),
        Err(error) => ApiError::Internal(format!("a response cannot be written as JSON: {error}")).into_response(),
    }
}

pub fn with_content_type(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(body.into().into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

impl<T: Serialize + JsonSchema> IntoResponse for Json<T> {
    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<T>())
    }

    fn into_response(self) -> Response {
        json(Self::STATUS, &self.0)
    }
}

impl<T: Serialize + JsonSchema> IntoResponse for Created<T> {
    const STATUS: StatusCode = StatusCode::CREATED;

    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<T>())
    }

    fn into_response(self) -> Response {
        json(Self::STATUS, &self.0)
    }
}

impl<T: Serialize + JsonSchema> IntoResponse for Accepted<T> {
    const STATUS: StatusCode = StatusCode::ACCEPTED;

    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<T>())
    }

    fn into_response(self) -> Response {
        json(Self::STATUS, &self.0)
    }
}

impl IntoResponse for NoContent {
    const STATUS: StatusCode = StatusCode::NO_CONTENT;

    fn schema(_: &mut SchemaGenerator) -> Option<Schema> {
        None
    }

    fn into_response(self) -> Response {
        let mut response = Response::default();
        *response.status_mut() = Self::STATUS;
        response
    }
}

impl IntoResponse for PlainText {
    const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<String>())
    }

    fn into_response(self) -> Response {
        with_content_type(Self::STATUS, Self::CONTENT_TYPE, self.0.into_bytes())
    }
}

impl IntoResponse for EventStream {
    const CONTENT_TYPE: &'static str = "text/event-stream";

    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<String>())
    }

    fn into_response(self) -> Response {
        self.0
    }
}

impl IntoResponse for ArchiveStream {
    const CONTENT_TYPE: &'static str = "application/zstd";

    fn schema(_: &mut SchemaGenerator) -> Option<Schema> {
        Some(json_schema!({"type": "string", "format": "binary", "description": "JSON lines, compressed"}))
    }

    fn into_response(self) -> Response {
        self.0
    }
}
