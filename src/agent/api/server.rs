//! Serves the API's connections ([`crate::platform::accept`]), each over HTTP/1.

use super::{peer::SocketPair, request::ApiResponse, routes};
use crate::{
    agent::state::AgentState,
    platform::accept::{AcceptLimits, accept_until, http1_with_head_timeout},
};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::{convert::Infallible, net::SocketAddr, pin::pin, sync::Arc, time::Duration};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// Time for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections at once, and time for requests to finish once the agent stops.
const LIMITS: AcceptLimits = AcceptLimits { connections: 256, drain: Duration::from_secs(1) };

/// Serves until `shutdown`, then finishes the requests in flight, and cuts off those that take too long.
pub async fn serve(listener: TcpListener, agent: Arc<AgentState>, shutdown: CancellationToken) {
    let admit = |stream, peer| Some(serve_connection(stream, peer, agent.clone(), shutdown.clone()));
    accept_until(listener, LIMITS, shutdown.clone(), admit).await;
}

async fn serve_connection(stream: TcpStream, peer: SocketAddr, agent: Arc<AgentState>, shutdown: CancellationToken) {
    let Ok(local) = stream.local_addr() else { return };
    let sockets = SocketPair { peer, local };
    let service = service_fn(move |request| {
        let agent = agent.clone();
        async move {
            let answered = routes::dispatch(&agent, sockets, request).await;
            Ok::<_, Infallible>(answered.unwrap_or_else(ApiResponse::from))
        }
    });
    let builder = http1_with_head_timeout(HEAD_TIMEOUT);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ = connection.as_mut() => return,
        () = shutdown.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
