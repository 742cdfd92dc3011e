//! Handlers of routes: `async fn(services, ApiRequest, input) -> Result<output, ApiError>`.
//!
//! The first argument is a group of services ([`FromServices`]), the last one is read from the request ([`FromRequest`]),
//! and the output becomes the response ([`IntoResponse`]). A handler leaves out what it does not use. The OpenAPI document
//! is made from these types.

use super::{
    Response,
    error::ApiError,
    extract::{FromRequest, HeaderUse, RequestBody},
    request::ApiRequest,
    response::IntoResponse,
    services::{FromServices, HttpServices},
};
use futures_util::future::BoxFuture;
use hyper::StatusCode;
use schemars::{Schema, SchemaGenerator};

/// An `async fn` of one of the forms above, which `Args` tells apart.
pub trait Handler<Args>: Send + Sync + 'static {
    const BODY: RequestBody = RequestBody::None;
    const HEADERS: HeaderUse = HeaderUse::Unused;

    fn schema(generator: &mut SchemaGenerator) -> OperationSchema;

    fn handle(&self, services: &HttpServices, request: ApiRequest) -> BoxFuture<'static, Result<Response, ApiError>>;
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

impl<F, Fut, O> Handler<(ApiRequest,)> for F
where
    F: Fn(ApiRequest) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<O, ApiError>> + Send + 'static,
    O: IntoResponse,
{
    fn schema(generator: &mut SchemaGenerator) -> OperationSchema {
        OperationSchema::of_output::<O>(generator)
    }

    fn handle(&self, _: &HttpServices, request: ApiRequest) -> BoxFuture<'static, Result<Response, ApiError>> {
        let handler = self.clone();
        Box::pin(async move {
            request.refuse_query()?;
            handler(request).await.map(O::into_response)
        })
    }
}

impl<F, Fut, S, O> Handler<(S, ApiRequest)> for F
where
    F: Fn(S, ApiRequest) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<O, ApiError>> + Send + 'static,
    S: FromServices,
    O: IntoResponse,
{
    fn schema(generator: &mut SchemaGenerator) -> OperationSchema {
        OperationSchema::of_output::<O>(generator)
    }

    fn handle(&self, services: &HttpServices, request: ApiRequest) -> BoxFuture<'static, Result<Response, ApiError>> {
        let (handler, services) = (self.clone(), S::from_services(services));
        Box::pin(async move {
            request.refuse_query()?;
            handler(services, request).await.map(O::into_response)
        })
    }
}

impl<F, Fut, S, I, O> Handler<(S, ApiRequest, I)> for F
where
    F: Fn(S, ApiRequest, I) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<O, ApiError>> + Send + 'static,
    S: FromServices,
    I: FromRequest + 'static,
    O: IntoResponse,
{
    const BODY: RequestBody = I::BODY;
    const HEADERS: HeaderUse = I::HEADERS;

    fn schema(generator: &mut SchemaGenerator) -> OperationSchema {
        let (query, body) = (I::query_schema(generator), I::body_schema(generator));
        OperationSchema { query, body, ..OperationSchema::of_output::<O>(generator) }
    }

    fn handle(
        &self,
        services: &HttpServices,
        mut request: ApiRequest,
    ) -> BoxFuture<'static, Result<Response, ApiError>> {
        let (handler, services) = (self.clone(), S::from_services(services));
        Box::pin(async move {
            let input = I::from_request(&mut request).await?;
            handler(services, request, input).await.map(O::into_response)
        })
    }
}
