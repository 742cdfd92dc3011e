//! Connections: accepts them, bounds them, hands their requests to the guard and on to warp, and lets them finish
//! when the server stops.
//!
//! A place is held only by who uses it: a connection is closed once nothing is asked on it or taken from it
//! ([`pulse`](super::idle)), or its peer stops reading ([`stall`](super::write_timeout)), and one address gets half at most.
//!
//! Connections come from [`crate::platform::accept`] because warp's own accept loop has no header timeout, no bound on its
//! drain, and no place in front of its filters where a request's caller could be resolved.

use super::{
    App, Response, agent_socket, body,
    cors::Page,
    error::ApiError,
    guard::{self, Admission},
    idle::{Followed, Pulse},
    request::Call,
    write_timeout::Stalling,
};
use crate::{
    identity,
    platform::{
        accept::{AcceptLimits, accept_until},
        keyed_limit::Shares,
    },
};
use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::{BodyExt, Limited};
use hyper::{
    Request,
    body::{Body, Incoming},
    header::{CACHE_CONTROL, EXPECT, HeaderValue, X_CONTENT_TYPE_OPTIONS},
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
    service::TowerToHyperService,
};
use std::{convert::Infallible, net::SocketAddr, panic::AssertUnwindSafe, pin::pin, sync::Arc, time::Duration};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use warp::Filter;

/// How long the server waits for what.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    /// For the head of a request, the first of a connection and each after the one before.
    pub head: Duration,
    /// For anything to happen on a connection, and for its peer to take something of what there is to send.
    pub idle: Duration,
    /// For requests to finish once the server stops.
    pub drain: Duration,
}

/// A stopping daemon has ten seconds for everything; requests get half. A stream of events says something every
/// fifteen seconds, so that one that is read is never idle.
const PATIENCE: Patience =
    Patience { head: Duration::from_secs(5), idle: Duration::from_secs(30), drain: Duration::from_secs(5) };

/// How many times [`Patience::idle`] an idle connection has to take the rest of a large answer.
const LEAVE: u32 = 4;

/// What is read of a refused request's body, so that the caller gets to read the refusal instead of a reset.
const REFUSED_BYTES: usize = 4 << 20;
const REFUSED_TIME: Duration = Duration::from_secs(1);

/// Streams one HTTP/2 connection can have open.
const STREAMS: u32 = 256;

/// How often an HTTP/2 peer is asked whether it is still there, and how long it has to answer.
const HTTP2_PING: Duration = Duration::from_secs(20);

/// What the requests of one connection share.
struct Link<R> {
    app: Arc<App>,
    routes: R,
    peer: SocketAddr,
    pulse: Arc<Pulse>,
}

/// Serves until `shutdown`, then finishes the requests in flight, and cuts off those that take too long.
pub async fn serve(listener: TcpListener, app: Arc<App>, shutdown: CancellationToken) {
    serve_patiently(listener, app, shutdown, PATIENCE).await;
}

pub(super) async fn serve_patiently(
    listener: TcpListener,
    app: Arc<App>,
    shutdown: CancellationToken,
    patience: Patience,
) {
    let connections = app.config.limits.connections;
    let addresses = Shares::new(connections.div_ceil(2));
    let filter = agent_socket::filter(app.clone()).or(filter(app.clone(), shutdown.clone())).unify();
    let routes = TowerToHyperService::new(warp::service(filter));
    let limits = AcceptLimits { connections, drain: patience.drain };
    let admit = |stream, peer: SocketAddr| {
        let share = addresses.take(identity::network(peer.ip()))?;
        let link = Arc::new(Link { app: app.clone(), routes: routes.clone(), peer, pulse: Arc::new(Pulse::new()) });
        let shutdown = shutdown.clone();
        Some(async move {
            converse(stream, link, patience, shutdown).await;
            drop(share);
        })
    };
    accept_until(listener, limits, shutdown.clone(), admit).await;
}

/// One connection from its first byte to its last. How it ends is the peer's business, as long as it does.
async fn converse<R>(stream: TcpStream, link: Arc<Link<R>>, patience: Patience, shutdown: CancellationToken)
where
    R: Service<Request<Limited<Incoming>>, Response = Response, Error = Infallible> + Send + Sync + 'static,
    R::Future: Send,
{
    let Patience { head, idle, .. } = patience;
    let pulse = link.pulse.clone();
    let service = service_fn(move |request| answer(link.clone(), request));
    let builder = builder(patience);
    let stream = TokioIo::new(Stalling::new(stream, idle));
    let mut connection = pin!(builder.serve_connection_with_upgrades(stream, service));
    tokio::select! {
        _ = connection.as_mut() => return,
        // hyper's own timeout for a head starts only once it knows which version is spoken, for which a silent peer
        // could make it wait for ever.
        () = pulse.stops(head * 2, idle) => {}
        () = shutdown.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        _ = connection => {}
        () = tokio::time::sleep(idle * LEAVE) => {}
    }
}

fn builder(patience: Patience) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(patience.head);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .keep_alive_interval(HTTP2_PING)
        .keep_alive_timeout(HTTP2_PING);
    builder
}

/// Answers one request: the guard, then the routes.
async fn answer<R>(
    link: Arc<Link<R>>,
    request: Request<Incoming>,
) -> Result<hyper::Response<Followed<impl Body<Data = Bytes, Error = warp::Error>>>, Infallible>
where
    R: Service<Request<Limited<Incoming>>, Response = Response, Error = Infallible>,
{
    let _handling = link.pulse.handle();
    let app = &link.app;
    let page = Page::of(app, &request);
    let mut response = match page.as_ref().and_then(Page::consent) {
        Some(consent) => consent,
        None => respond(&link, request).await?,
    };
    app.metrics.http_requests.increment();
    if response.status().is_server_error() {
        app.metrics.http_failures.increment();
    }
    let headers = response.headers_mut();
    // Answers belong to their caller; nothing in between may keep or reinterpret them.
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Some(page) = page {
        page.show(headers);
    }
    Ok(response.map(|body| link.pulse.follow(body)))
}

async fn respond<R>(link: &Link<R>, request: Request<Incoming>) -> Result<Response, Infallible>
where
    R: Service<Request<Limited<Incoming>>, Response = Response, Error = Infallible>,
{
    let app = &link.app;
    match guard::admit(app, &request, link.peer) {
        Ok(admission) => {
            let limit = admission.route.body_limit(app.config.limits.body.bytes());
            let mut request = request.map(|body| Limited::new(body, limit));
            request.extensions_mut().insert(Arc::new(admission));
            link.routes.call(request).await
        }
        Err(error) => {
            swallow(request).await;
            Ok(error.into_response())
        }
    }
}

/// All of REST as one filter: the guard has found the route already, and warp's own chains of routes cost a compile
/// time and a lookup that grow with their number.
fn filter(
    app: Arc<App>,
    shutdown: CancellationToken,
) -> impl Filter<Extract = (Response,), Error = warp::Rejection> + Clone + Send + Sync + 'static {
    warp::ext::get::<Arc<Admission>>().and(warp::body::stream()).then(move |admission: Arc<Admission>, stream| {
        let call = Call { app: app.clone(), shutdown: shutdown.clone(), admission, body: body::incoming(stream) };
        handle(call)
    })
}

/// Runs the route's handler. One that panics has failed its own request and nothing else.
async fn handle(call: Call) -> Response {
    let route = call.admission.route;
    let handled = AssertUnwindSafe(route.handle(call)).catch_unwind().await;
    let handled = handled.unwrap_or_else(|_| {
        Err(ApiError::Internal(format!("the handler of {} {} panicked", route.method, route.path)))
    });
    handled.unwrap_or_else(ApiError::into_response)
}

/// Reads on after a refusal, within limits. A caller that asked first whether to send its body is simply not told to.
async fn swallow(request: Request<Incoming>) {
    if request.body().is_end_stream() || request.headers().contains_key(EXPECT) {
        return;
    }
    let mut body = Limited::new(request.into_body(), REFUSED_BYTES);
    let _ = tokio::time::timeout(REFUSED_TIME, async { while let Some(Ok(_)) = body.frame().await {} }).await;
}
