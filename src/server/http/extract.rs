//! Inputs of handlers, read from the request: a JSON body, an optional one, or the query string.
//!
//! Each input describes itself, so that the OpenAPI document says what the code reads.

use super::{error::ApiError, query, request::ApiRequest};
use crate::model::json_input;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::DeserializeOwned;

/// Last argument of a handler, read from the request.
pub trait FromRequest: Sized + Send {
    const BODY: RequestBody = RequestBody::None;
    const HEADERS: HeaderUse = HeaderUse::Unused;

    /// Schema of the object whose properties are the query's parameters.
    fn query_schema(_: &mut SchemaGenerator) -> Option<Schema> {
        None
    }

    fn body_schema(_: &mut SchemaGenerator) -> Option<Schema> {
        None
    }

    fn from_request(request: &mut ApiRequest) -> impl Future<Output = Result<Self, ApiError>> + Send;
}

/// Body that a route takes. Its type is checked by authorization, before anything is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBody {
    None,
    OptionalJson,
    Json,
    /// Any bytes of any content type.
    Raw,
}

/// Use of a request's headers by its handler. Unused ones are dropped after authorization instead of cloned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderUse {
    Unused,
    Read,
}

/// A JSON body, of a request or of a response (200).
pub struct Json<T>(pub T);

/// The query string.
pub struct Query<T>(pub T);

/// A body of any content type, which the handler reads itself once it knows that it wants it. The handler gets all headers
/// and any query.
pub struct RawBody;

impl<T: DeserializeOwned + JsonSchema + Send> FromRequest for Json<T> {
    const BODY: RequestBody = RequestBody::Json;

    fn body_schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<T>())
    }

    async fn from_request(request: &mut ApiRequest) -> Result<Self, ApiError> {
        request.refuse_query()?;
        Ok(Self(json_input::parse(&request.read_body().await?)?))
    }
}

impl<T: DeserializeOwned + JsonSchema + Send> FromRequest for Option<Json<T>> {
    const BODY: RequestBody = RequestBody::OptionalJson;

    fn body_schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Json::<T>::body_schema(generator)
    }

    async fn from_request(request: &mut ApiRequest) -> Result<Self, ApiError> {
        request.refuse_query()?;
        let body = request.read_body().await?;
        if body.is_empty() { Ok(None) } else { Ok(Some(Json(json_input::parse(&body)?))) }
    }
}

impl<T: DeserializeOwned + JsonSchema + Send> FromRequest for Query<T> {
    fn query_schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(T::json_schema(generator))
    }

    async fn from_request(request: &mut ApiRequest) -> Result<Self, ApiError> {
        query::parse(request.uri().query().unwrap_or_default()).map(Self)
    }
}

impl FromRequest for RawBody {
    const BODY: RequestBody = RequestBody::Raw;
    const HEADERS: HeaderUse = HeaderUse::Read;

    fn body_schema(_: &mut SchemaGenerator) -> Option<Schema> {
        Some(json_schema!({"description": "Any bytes"}))
    }

    async fn from_request(_: &mut ApiRequest) -> Result<Self, ApiError> {
        Ok(Self)
    }
}
