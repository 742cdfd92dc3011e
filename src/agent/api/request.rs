//! Reading a request: its user, its body, and a change that outlives its connection.

use super::{error::ApiRefusal, guard, peer::SocketPair};
use crate::{
    model::json_input::{self, InvalidJson},
    platform::task,
};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::task::JoinError;

/// Time for a request body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

pub type ApiResponse = Response<Full<Bytes>>;

/// Refuses a request that is not of the agent's own user. The check reads the machine's socket table, which may be
/// long.
pub async fn check_user(sockets: SocketPair) -> Result<(), ApiRefusal> {
    match tokio::task::spawn_blocking(move || guard::check_user(sockets)).await {
        Ok(checked) => checked,
        Err(error) => Err(panicked(&error)),
    }
}

/// Runs a change in a task of its own, so that it completes even if the client disconnects. A change that panics is
/// answered with an error, unlike one of `platform::run_to_completion`: the client waits for a response.
pub async fn run_detached<T: Send + 'static, E: Into<ApiRefusal> + Send + 'static>(
    change: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, ApiRefusal> {
    match task::run(change).await {
        Ok(changed) => changed.map_err(E::into),
        Err(error) => Err(panicked(&error)),
    }
}

/// Reads a JSON body of at most `limit` bytes.
pub async fn read_json<T: DeserializeOwned>(request: Request<Incoming>, limit: usize) -> Result<T, ApiRefusal> {
    guard::check_json(request.headers())?;
    let bytes = read_body(request, limit).await?;
    json_input::parse(&bytes).map_err(|error: InvalidJson| ApiRefusal::bad_request(error.to_string()))
}

/// Reads a body of at most `limit` bytes.
pub async fn read_body(request: Request<Incoming>, limit: usize) -> Result<Bytes, ApiRefusal> {
    let too_large = || {
        let message = format!("the request body is over the limit of {limit} bytes");
        ApiRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    };
    let body = Limited::new(request.into_body(), limit);
    let collected = tokio::time::timeout(BODY_TIMEOUT, body.collect()).await.map_err(|_| {
        ApiRefusal::new(StatusCode::REQUEST_TIMEOUT, "timeout", "the request body did not arrive in time")
    })?;
    let bytes = collected.map_err(|error| match error.is::<http_body_util::LengthLimitError>() {
        true => too_large(),
        false => ApiRefusal::bad_request(format!("the body broke off: {error}")),
    })?;
    Ok(bytes.to_bytes())
}

/// The refusal after a task panicked.
fn panicked(error: &JoinError) -> ApiRefusal {
    log::error!("a request failed: {error}");
    let message = "something went wrong in the agent; its log says what";
    ApiRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
}
