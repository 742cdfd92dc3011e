//! Connections: bounds them, hands their requests to [`super::dispatch`], and lets them finish when the server stops.
//!
//! A connection is closed once it is [`idle`](super::idle) or its peer stops reading
//! ([`write_timeout`](super::write_timeout)), and one address gets half of the connections at most.
//!
//! Connections come from [`crate::platform::accept`] because warp's own accept loop has no header timeout, no bound on its
//! drain, and no place in front of its filters where a request could be authorized.

use super::{
    Response, console,
    dispatch::{self, ConnectionContext},
    idle::IdleTimer,
    services::HttpServices,
    write_timeout::WriteTimeoutStream,
};
use crate::{
    identity,
    platform::{
        accept::{AcceptLimits, accept_until},
        keyed_limit::KeyedLimit,
        task,
    },
    server::stop_phases::StopPhases,
};
use http_body_util::Limited;
use hyper::{
    Request,
    body::Incoming,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
    service::TowerToHyperService,
};
use std::{convert::Infallible, net::SocketAddr, pin::pin, sync::Arc, time::Duration};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// Timeouts of a connection.
#[derive(Clone, Copy)]
pub(super) struct ConnectionTimeouts {
    /// Time for the head of the first request, and of each further one after the response before it.
    pub head: Duration,
    /// Longest time without activity on a connection, and without progress of a write to its peer.
    pub idle: Duration,
    /// Time for requests to finish once the server stops.
    pub drain: Duration,
}

/// Time for the head of a request.
const HEAD: Duration = Duration::from_secs(5);

/// A stream of events sends something every fifteen seconds, so that one that is read is never idle.
const IDLE: Duration = Duration::from_secs(30);

/// Time for a closing connection to take the rest of a large response, in multiples of [`ConnectionTimeouts::idle`].
const CLOSE_FACTOR: u32 = 4;

/// Concurrent streams of one HTTP/2 connection.
const HTTP2_STREAMS: u32 = 128;

/// Memory for the head of a request. Requests have small heads, and anybody may begin one.
const HEAD_BYTES: usize = 64 << 10;

/// Interval of HTTP/2 keep-alive pings, and time for the peer to answer one.
const HTTP2_PING: Duration = Duration::from_secs(20);

/// Serves until the server is closing, then finishes the requests in flight, and cuts off those that take longer than `drain`.
pub async fn serve(listener: TcpListener, services: Arc<HttpServices>, phases: StopPhases, drain: Duration) {
    let timeouts = ConnectionTimeouts { head: HEAD, idle: IDLE, drain };
    task::spawn(console::preload());
    serve_with_timeouts(listener, services, phases, timeouts).await;
}

pub(super) async fn serve_with_timeouts(
    listener: TcpListener,
    services: Arc<HttpServices>,
    StopPhases { stopping, closing, .. }: StopPhases,
    timeouts: ConnectionTimeouts,
) {
    let connections = services.settings.connections;
    let addresses = KeyedLimit::new(connections.div_ceil(2));
    let routes = TowerToHyperService::new(warp::service(dispatch::routes(services.clone(), stopping)));
    let limits = AcceptLimits { connections, drain: timeouts.drain };
    let admit = |stream, peer: SocketAddr| {
        let permit = addresses.take(identity::network(peer.ip()))?;
        let idle = Arc::new(IdleTimer::new());
        let context = Arc::new(ConnectionContext { services: services.clone(), routes: routes.clone(), peer, idle });
        let closing = closing.clone();
        Some(async move {
            serve_connection(stream, context, timeouts, closing).await;
            drop(permit);
        })
    };
    accept_until(listener, limits, closing.clone(), admit).await;
}

/// Serves one connection from its first byte to its last. Its errors are the peer's and are ignored.
async fn serve_connection<R>(
    stream: TcpStream,
    context: Arc<ConnectionContext<R>>,
    timeouts: ConnectionTimeouts,
    closing: CancellationToken,
) where
    R: Service<Request<Limited<Incoming>>, Response = Response, Error = Infallible> + Send + Sync + 'static,
    R::Future: Send,
{
    let ConnectionTimeouts { head, idle, .. } = timeouts;
    let idle_timer = context.idle.clone();
    let service = service_fn(move |request| dispatch::answer(context.clone(), request));
    let builder = http_builder(timeouts);
    let stream = TokioIo::new(WriteTimeoutStream::new(stream, idle));
    let mut connection = pin!(builder.serve_connection_with_upgrades(stream, service));
    tokio::select! {
        _ = connection.as_mut() => return,
        // hyper's own header timeout starts only once it knows the HTTP version, for which a silent peer could make it
        // wait for ever.
        () = idle_timer.expired(head * 2, idle) => {}
        () = closing.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        _ = connection => {}
        () = tokio::time::sleep(idle * CLOSE_FACTOR) => {}
    }
}

fn http_builder(timeouts: ConnectionTimeouts) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(timeouts.head).max_buf_size(HEAD_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(HTTP2_STREAMS)
        .keep_alive_interval(HTTP2_PING)
        .keep_alive_timeout(HTTP2_PING);
    builder
}
