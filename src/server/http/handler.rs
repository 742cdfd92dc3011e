//! Handlers of routes: `async fn(ApiRequest) -> Result<O, ApiError>` or `async fn(ApiRequest, I) -> Result<O, ApiError>`.
//!
//! `I` is a [`FromRequest`] and `O` an [`IntoResponse`]; both are in the handler's signature, and the OpenAPI document
//! is made from them.

use super::{
    Response,
    error::ApiError,
    extract::{FromRequest, HeaderUse, RequestBody},
    request::ApiRequest,
    response::IntoResponse,
};
use futures_util::future::BoxFuture;
use hyper::StatusCode;
use schemars::{Schema, SchemaGenerator};

/// An `async fn` of one of the forms above, which `Args` tells apart.
pub trait Handler<Args>: Clone + Send + Sync + 'static {
    const BODY: RequestBody;
    const HEADERS: HeaderUse;

    fn schema(generator: &mut SchemaGenerator) -> OperationSchema;

    fn handle(&self, request: ApiRequest) -> BoxFuture<'static, Result<Response, ApiError>>;
}

/// Schemas of what a handler takes and answers.
pub struct OperationSchema {
    pub query: Option<Schema>,
    pub body: Option<Schema>,
    pub status: StatusCode,
    pub other_statuses: &'static [StatusCode],
    pub empty_statuses: &'static [StatusCode],
    pub content_type: &'static str,
    pub response: Option<Schema>,
}

impl OperationSchema {
    fn of_output<O: IntoResponse>(generator: &mut SchemaGenerator) -> Self {
        Self {
            query: None,
            body: None,
            status: O::STATUS,
            other_statuses: O::OTHER_STATUSES,
            empty_statuses: O::EMPTY_STATUSES,
            content_type: O::CONTENT_TYPE,
            response: O::schema(generator),
        }
    }
}

impl<F, Fut, O> Handler<()> for F
where
    F: Fn(ApiRequest) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<O, ApiError>> + Send + 'static,
    O: IntoResponse,
{
    const BODY: RequestBody = RequestBody::None;
    const HEADERS: HeaderUse = HeaderUse::Unused;

    fn schema(generator: &mut SchemaGenerator) -> OperationSchema {
        OperationSchema::of_output::<O>(generator)
    }

    fn handle(&self, request: ApiRequest) -> BoxFuture<'static, Result<Response, ApiError>> {
        let handler = self.clone();
        Box::pin(async move {
            request.refuse_query()?;
            handler(request).await.map(O::into_response)
        })
    }
}

impl<F, Fut, I, O> Handler<(I,)> for F
where
    F: Fn(ApiRequest, I) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<O, ApiError>> + Send + 'static,
    I: FromRequest + 'static,
    O: IntoResponse,
{
    const BODY: RequestBody = I::BODY;
    const HEADERS: HeaderUse = I::HEADERS;

    fn schema(generator: &mut SchemaGenerator) -> OperationSchema {
        let (query, body) = (I::query_schema(generator), I::body_schema(generator));
        OperationSchema { query, body, ..OperationSchema::of_output::<O>(generator) }
    }

    fn handle(&self, mut request: ApiRequest) -> BoxFuture<'static, Result<Response, ApiError>> {
        let handler = self.clone();
        Box::pin(async move {
            let input = I::from_request(&mut request).await?;
            handler(request, input).await.map(O::into_response)
        })
    }
}
