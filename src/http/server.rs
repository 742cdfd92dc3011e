//! Connections: accepts them, bounds them, hands their requests to the guard and on to warp, and lets them finish
//! when the server stops.
//!
//! This is our own accept loop because warp's has no header timeout, no bound on its drain, and no place in front of
//! its filters where a request's caller could be told.

use super::{
    App, Response, body,
    call::Call,
    error::ApiError,
    guard::{self, Admission},
};
use futures_util::FutureExt;
use http_body_util::{BodyExt, Limited};
use hyper::{
    Request,
    body::{Body as _, Incoming},
    header::{CACHE_CONTROL, EXPECT, HeaderValue, X_CONTENT_TYPE_OPTIONS},
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use std::{
    convert::Infallible,
    net::SocketAddr,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_util::sync::CancellationToken;
use warp::Filter;

/// How long the server waits for what.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    /// For the head of a request, the first of a connection and each after the one before.
    pub head: Duration,
    /// For requests to finish once the server stops.
    pub drain: Duration,
}

/// A stopping daemon has ten seconds for everything; requests get half.
const PATIENCE: Patience = Patience { head: Duration::from_secs(5), drain: Duration::from_secs(5) };

/// Pause after a failed accept, most likely for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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
    /// Whether it has brought a request yet.
    spoke: AtomicBool,
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
    let places = Arc::new(Semaphore::new(app.config.limits.connections.min(Semaphore::MAX_PERMITS)));
    let routes = TowerToHyperService::new(warp::service(filter(app.clone(), shutdown.clone())));
    let connections = GracefulShutdown::new();
    let cut = CancellationToken::new();
    loop {
        let accept = async {
            let place = places.clone().acquire_owned().await.expect("the semaphore is never closed");
            (place, listener.accept().await)
        };
        let (place, stream, peer) = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            (place, accepted) = accept => match accepted {
                Ok((stream, peer)) => (place, stream, peer),
                Err(error) => {
                    log::warn!("cannot accept connections: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        // Answers are small and whole; waiting to fill a packet only delays them.
        let _ = stream.set_nodelay(true);
        let link = Arc::new(Link { app: app.clone(), routes: routes.clone(), peer, spoke: AtomicBool::new(false) });
        let (watcher, cut) = (connections.watcher(), cut.clone());
        tokio::spawn(async move {
            let _place = place;
            let answering = link.clone();
            let service = service_fn(move |request| answer(answering.clone(), request));
            let builder = builder(patience);
            let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
            tokio::select! {
                // How a connection ends is the peer's business.
                _ = watcher.watch(connection) => {}
                () = silence(&link.spoke, patience.head) => {}
                () = cut.cancelled() => {}
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(patience.drain, connections.shutdown()).await.is_err() {
        log::warn!("some requests did not finish in time and are cut off");
        cut.cancel();
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

/// Ends if a connection has brought no request after twice the time for one. hyper's own timeout starts only once it
/// knows which version is spoken, for which a silent peer could make it wait for ever.
async fn silence(spoke: &AtomicBool, head: Duration) {
    tokio::time::sleep(head * 2).await;
    if spoke.load(Relaxed) {
        std::future::pending::<()>().await;
    }
}

/// Answers one request: the guard, then the routes.
async fn answer<R>(link: Arc<Link<R>>, request: Request<Incoming>) -> Result<Response, Infallible>
where
    R: Service<Request<Limited<Incoming>>, Response = Response, Error = Infallible>,
{
    link.spoke.store(true, Relaxed);
    let app = &link.app;
    let mut response = match guard::admit(app, &request, link.peer) {
        Ok(admission) => {
            let mut request = request.map(|body| Limited::new(body, app.config.limits.body.bytes()));
            request.extensions_mut().insert(Arc::new(admission));
            link.routes.call(request).await?
        }
        Err(error) => {
            swallow(request).await;
            error.into_response()
        }
    };
    app.metrics.http_requests.increment();
    if response.status().is_server_error() {
        app.metrics.http_failures.increment();
    }
    let headers = response.headers_mut();
    // Answers belong to their caller; nothing in between may keep or reinterpret them.
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
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
