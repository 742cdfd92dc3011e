//! The listener of the metrics, if `http.metrics` names an address: it answers `GET /metrics` to anybody, and nothing else.

use super::{
    Response, error::ApiError, response::IntoResponse as _, routes::status::render_metrics, services::StatusServices,
};
use crate::platform::accept::{AcceptLimits, accept_until, http1_with_head_timeout};
use hyper::{Method, Request, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// Time for the head of a request.
const HEAD: Duration = Duration::from_secs(5);

/// Time for one connection, so that a peer that stops reading does not keep its place.
const CONNECTION: Duration = Duration::from_secs(60);

/// Connections at once, and time for requests to finish once the server stops.
const LIMITS: AcceptLimits = AcceptLimits { connections: 64, drain: Duration::from_secs(1) };

/// Serves until `shutdown`.
pub async fn serve_metrics(listener: TcpListener, services: Arc<StatusServices>, shutdown: CancellationToken) {
    let admit = |stream, _| Some(serve_connection(stream, services.clone(), shutdown.clone()));
    accept_until(listener, LIMITS, shutdown.clone(), admit).await;
}

async fn serve_connection(stream: TcpStream, services: Arc<StatusServices>, shutdown: CancellationToken) {
    let service = service_fn(move |request| {
        let response = answer(&services, &request);
        async move { Ok::<_, Infallible>(response) }
    });
    let mut connection = pin!(http1_with_head_timeout(HEAD).serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ = connection.as_mut() => return,
        () = tokio::time::sleep(CONNECTION) => {}
        () = shutdown.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(HEAD, connection).await;
}

fn answer(services: &StatusServices, request: &Request<Incoming>) -> Response {
    match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => render_metrics(services).into_response(),
        (_, "/metrics") => ApiError::MethodNotAllowed { allow: "GET, HEAD".to_owned() }.into_response(),
        _ => {
            ApiError::NotFound("there is nothing at this path: the metrics are at /metrics".to_owned()).into_response()
        }
    }
}
