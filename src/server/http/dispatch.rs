//! Answers one request: CORS, the files of the console, authorization, the route's handler, and the headers that every response has.

use super::{
    Response, agent_socket,
    authorize::{Authorized, authorize},
    body, console,
    cors::CorsOrigin,
    error::ApiError,
    idle::{IdleTimer, TrackedBody},
    request::ApiRequest,
    route_table::TABLE,
    services::HttpServices,
};
use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::{BodyExt, Limited};
use hyper::{
    Request,
    body::{Body, Incoming},
    header::{CACHE_CONTROL, EXPECT, HeaderValue, X_CONTENT_TYPE_OPTIONS},
    service::Service,
};
use std::{convert::Infallible, net::SocketAddr, panic::AssertUnwindSafe, sync::Arc};
use tokio_util::sync::CancellationToken;
use warp::Filter;

/// State that the requests of one connection share.
pub struct ConnectionContext<R> {
    pub services: Arc<HttpServices>,
    /// Runs the handler of an authorized request.
    pub routes: R,
    pub peer: SocketAddr,
    pub idle: Arc<IdleTimer>,
}

/// The warp filter behind authorization: the agents' WebSocket, and the handlers of all routes.
pub fn routes(
    services: Arc<HttpServices>,
    shutdown: CancellationToken,
) -> impl Filter<Extract = (Response,), Error = warp::Rejection> + Clone + Send + Sync + 'static {
    agent_socket::filter(services.agents.clone()).or(handlers(services, shutdown)).unify()
}

/// Answers one request.
pub async fn answer<R>(
    connection: Arc<ConnectionContext<R>>,
    request: Request<Incoming>,
) -> Result<hyper::Response<TrackedBody<impl Body<Data = Bytes, Error = warp::Error>>>, Infallible>
where
    R: Service<Request<Limited<Incoming>>, Response = Response, Error = Infallible>,
{
    let _active = connection.idle.begin_request();
    let services = &connection.services;
    let _under_way = services.under_way.token();
    let origin = CorsOrigin::of(&services.mcp, &request);
    let is_console = console::is_console_path(request.uri().path());
    let mut response = match origin.as_ref().and_then(CorsOrigin::preflight_response) {
        Some(response) => response,
        None => match console::answer(&request).await {
            Some(response) => response,
            None => respond(&connection, request).await?,
        },
    };
    services.metrics.http_requests.increment();
    if response.status().is_server_error() {
        services.metrics.http_failures.increment();
    }
    let headers = response.headers_mut();
    // Responses belong to their caller: no cache may keep them and no browser reinterpret them.
    if is_console {
        headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    } else {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if is_console {
        console::protect(headers);
    }
    if let Some(origin) = origin {
        origin.allow(headers);
    }
    Ok(response.map(|body| connection.idle.track(body)))
}

async fn respond<R>(connection: &ConnectionContext<R>, request: Request<Incoming>) -> Result<Response, Infallible>
where
    R: Service<Request<Limited<Incoming>>, Response = Response, Error = Infallible>,
{
    let HttpServices { identity, settings, .. } = &*connection.services;
    match authorize(&TABLE, identity, settings, &request, connection.peer) {
        Ok(authorized) => {
            let limit = authorized.head.body_limit;
            let mut request = request.map(|body| Limited::new(body, limit));
            request.extensions_mut().insert(authorized);
            connection.routes.call(request).await
        }
        Err(error) => {
            discard_body(request).await;
            Ok(error.into_response())
        }
    }
}

/// All routes as one filter: authorization has found the route already, and a chain of warp filters would cost compile
/// time and a lookup that grow with the number of routes.
fn handlers(
    services: Arc<HttpServices>,
    shutdown: CancellationToken,
) -> impl Filter<Extract = (Response,), Error = warp::Rejection> + Clone + Send + Sync + 'static {
    warp::ext::get::<Authorized>().and(warp::body::stream()).then(move |authorized: Authorized, stream| {
        let Authorized { route, head } = authorized;
        let (identity, memory) = (services.identity.clone(), services.body_memory.clone());
        let request = ApiRequest::new(head, body::boxed(stream), identity, memory, shutdown.clone());
        let handling = route.handle(&services, request);
        async move {
            // A handler that panics fails its own request only.
            let handled = AssertUnwindSafe(handling).catch_unwind().await;
            let handled = handled.unwrap_or_else(|_| {
                Err(ApiError::Internal(format!("the handler of {} {} panicked", route.method, route.path)))
            });
            handled.unwrap_or_else(ApiError::into_response)
        }
    })
}

/// Reads on after a refusal. A caller that waits for `100 Continue` gets none and sends no body.
async fn discard_body(request: Request<Incoming>) {
    if request.body().is_end_stream() || request.headers().contains_key(EXPECT) {
        return;
    }
    body::discard(request.into_body().into_data_stream()).await;
}
