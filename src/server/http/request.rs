//! One request on its way through a handler: what it brings, what handlers take from it, what they answer.
//!
//! A handler is an `async fn(Call) -> Result<O, ApiError>` or an `async fn(Call, I) -> Result<O, ApiError>`. `I` is
//! an [`Input`] ([`Json`], `Option<Json>`, [`Query`]) and `O` an [`Output`] ([`Json`], [`Created`], …). Both
//! describe themselves, so that the OpenAPI document says what the code does.

use super::{App, Response, body, error::ApiError, guard::Admission};
use crate::{identity::Caller, model::json_input};
use futures_util::future::BoxFuture;
use hyper::{
    HeaderMap, StatusCode, Uri,
    header::{CONTENT_TYPE, HeaderValue},
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, de::DeserializeOwned};
use std::{net::IpAddr, str::FromStr, sync::Arc};
use tokio_util::sync::CancellationToken;

/// A request that the guard let pass.
pub struct Call {
    pub app: Arc<App>,
    /// Cancelled when the server stops. What streams for long must end then.
    pub shutdown: CancellationToken,
    pub(super) admission: Arc<Admission>,
    pub(super) body: body::Incoming,
}

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// The peer's address, or what a proxy on this machine says it is.
    pub address: IpAddr,
    pub transport: Transport,
}

/// How the caller reaches us, or the proxy in front of us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Plain,
    Encrypted,
}

/// Whether a route takes a body. The guard checks its type before anything is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    MaybeJson,
    Json,
}

/// What becomes of a request's headers once the guard has read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    Dropped,
    /// For protocols that speak in headers too.
    Kept,
}

/// What a handler takes from its call.
pub trait Input: Sized + Send {
    const TAKES: Takes = Takes::Nothing;
    const HEAD: Head = Head::Dropped;

    /// The object whose properties are the query's parameters.
    fn query(_: &mut SchemaGenerator) -> Option<Schema> {
        None
    }

    fn body(_: &mut SchemaGenerator) -> Option<Schema> {
        None
    }

    /// # Errors
    ///
    /// Fails if the caller sent something else.
    fn take(call: &mut Call) -> impl Future<Output = Result<Self, ApiError>> + Send;
}

/// What a handler answers.
pub trait Output {
    const STATUS: StatusCode = StatusCode::OK;
    /// Other statuses that come with the same body.
    const ALSO: &'static [StatusCode] = &[];
    /// Those of them that come without a body after all.
    const BARE: &'static [StatusCode] = &[StatusCode::NO_CONTENT];
    const CONTENT: &'static str = "application/json";

    /// The body's schema; `None` for no body.
    fn schema(generator: &mut SchemaGenerator) -> Option<Schema>;

    fn into_response(self) -> Response;
}

/// A JSON body, in or out (200).
pub struct Json<T>(pub T);

/// The query string.
pub struct Query<T>(pub T);

/// 201 with the new thing.
pub struct Created<T>(pub T);

/// 202 with a receipt.
pub struct Accepted<T>(pub T);

/// 204.
pub struct NoContent;

/// 200 with plain text, of the type Prometheus asks for.
pub struct Text(pub String);

/// Server-sent events: a response built by `warp::sse`, which this only describes.
pub struct Events(pub Response);

/// An `async fn` of one of the two forms, for which `I` tells them apart.
pub trait Handler<I>: Clone + Send + Sync + 'static {
    const TAKES: Takes;
    const HEAD: Head;

    fn shape(generator: &mut SchemaGenerator) -> Shape;

    fn handle(&self, call: Call) -> BoxFuture<'static, Result<Response, ApiError>>;
}

/// What goes in and out of a handler.
pub struct Shape {
    pub query: Option<Schema>,
    pub body: Option<Schema>,
    pub status: StatusCode,
    pub also: &'static [StatusCode],
    pub bare: &'static [StatusCode],
    pub content: &'static str,
    pub answer: Option<Schema>,
}

impl Call {
    /// Who calls.
    ///
    /// # Panics
    ///
    /// On an open route, which nobody has to be known for.
    pub fn caller(&self) -> &Caller {
        self.admission.caller.as_ref().expect("the guard lets nobody unknown to a route that is not open")
    }

    pub fn client(&self) -> Client {
        self.admission.client
    }

    /// Where the request was sent.
    pub fn uri(&self) -> &Uri {
        &self.admission.uri
    }

    /// The headers, for a handler that has them kept.
    pub fn headers(&self) -> &HeaderMap {
        &self.admission.headers
    }

    /// The path's parameter, read as an id.
    ///
    /// # Errors
    ///
    /// Fails if it is none.
    pub fn id<I: FromStr>(&self) -> Result<I, ApiError> {
        let text = self.parameter();
        text.parse().map_err(|_| ApiError::BadRequest(format!("`{text}` in the path is no UUID")))
    }

    /// The path's parameter as it stands there; empty if the route has none.
    pub fn parameter(&self) -> &str {
        &self.admission.uri.path()[self.admission.parameter.clone()]
    }

    /// For handlers that read no query: a parameter would be ignored otherwise.
    pub(super) fn refuse_query(&self) -> Result<(), ApiError> {
        match form_urlencoded::parse(self.admission.uri.query().unwrap_or_default().as_bytes()).next() {
            Some((name, _)) => Err(ApiError::BadRequest(format!("unknown parameter `{name}`: this route takes none"))),
            None => Ok(()),
        }
    }

    pub(super) async fn read_body(&mut self) -> Result<bytes::Bytes, ApiError> {
        let limit = self.admission.route.body_limit(self.app.config.limits.body.bytes());
        body::read(&mut self.body, limit).await
    }
}

impl<T: DeserializeOwned + JsonSchema + Send> Input for Json<T> {
    const TAKES: Takes = Takes::Json;

    fn body(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<T>())
    }

    async fn take(call: &mut Call) -> Result<Self, ApiError> {
        call.refuse_query()?;
        Ok(Self(json_input::parse(&call.read_body().await?)?))
    }
}

impl<T: DeserializeOwned + JsonSchema + Send> Input for Option<Json<T>> {
    const TAKES: Takes = Takes::MaybeJson;

    fn body(generator: &mut SchemaGenerator) -> Option<Schema> {
        Json::<T>::body(generator)
    }

    async fn take(call: &mut Call) -> Result<Self, ApiError> {
        call.refuse_query()?;
        let body = call.read_body().await?;
        if body.is_empty() { Ok(None) } else { Ok(Some(Json(json_input::parse(&body)?))) }
    }
}

impl<T: DeserializeOwned + JsonSchema + Send> Input for Query<T> {
    fn query(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(T::json_schema(generator))
    }

    async fn take(call: &mut Call) -> Result<Self, ApiError> {
        body::parse_query(call.admission.uri.query().unwrap_or_default()).map(Self)
    }
}

impl<T: Serialize + JsonSchema> Output for Json<T> {
    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<T>())
    }

    fn into_response(self) -> Response {
        json(StatusCode::OK, &self.0)
    }
}

impl<T: Serialize + JsonSchema> Output for Created<T> {
    const STATUS: StatusCode = StatusCode::CREATED;

    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<T>())
    }

    fn into_response(self) -> Response {
        json(Self::STATUS, &self.0)
    }
}

impl<T: Serialize + JsonSchema> Output for Accepted<T> {
    const STATUS: StatusCode = StatusCode::ACCEPTED;

    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<T>())
    }

    fn into_response(self) -> Response {
        json(Self::STATUS, &self.0)
    }
}

impl Output for NoContent {
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

impl Output for Text {
    const CONTENT: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<String>())
    }

    fn into_response(self) -> Response {
        with_type(StatusCode::OK, Self::CONTENT, self.0.into_bytes())
    }
}

impl Output for Events {
    const CONTENT: &'static str = "text/event-stream";

    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<String>())
    }

    fn into_response(self) -> Response {
        self.0
    }
}

/// A JSON answer with this status.
pub fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => with_type(status, "application/json", body),
        Err(error) => ApiError::Internal(format!("an answer is no JSON: {error}")).into_response(),
    }
}

pub(super) fn with_type(status: StatusCode, content: &'static str, body: Vec<u8>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content));
    response
}

impl<F, Fut, O> Handler<()> for F
where
    F: Fn(Call) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<O, ApiError>> + Send + 'static,
    O: Output,
{
    const TAKES: Takes = Takes::Nothing;
    const HEAD: Head = Head::Dropped;

    fn shape(generator: &mut SchemaGenerator) -> Shape {
        let answer = O::schema(generator);
        let (status, also, bare, content) = (O::STATUS, O::ALSO, O::BARE, O::CONTENT);
        Shape { query: None, body: None, status, also, bare, content, answer }
    }

    fn handle(&self, call: Call) -> BoxFuture<'static, Result<Response, ApiError>> {
        let handler = self.clone();
        Box::pin(async move {
            call.refuse_query()?;
            handler(call).await.map(O::into_response)
        })
    }
}

impl<F, Fut, I, O> Handler<(I,)> for F
where
    F: Fn(Call, I) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<O, ApiError>> + Send + 'static,
    I: Input + 'static,
    O: Output,
{
    const TAKES: Takes = I::TAKES;
    const HEAD: Head = I::HEAD;

    fn shape(generator: &mut SchemaGenerator) -> Shape {
        let (query, body, answer) = (I::query(generator), I::body(generator), O::schema(generator));
        let (status, also, bare, content) = (O::STATUS, O::ALSO, O::BARE, O::CONTENT);
        Shape { query, body, status, also, bare, content, answer }
    }

    fn handle(&self, mut call: Call) -> BoxFuture<'static, Result<Response, ApiError>> {
        let handler = self.clone();
        Box::pin(async move {
            let input = I::take(&mut call).await?;
            handler(call, input).await.map(O::into_response)
        })
    }
}
