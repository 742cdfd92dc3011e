//! The key-value store of the space's programs, for the agent's own user: `/kv?key=NAME`.
//!
//! The key is in the query, because a path cannot carry every key: clients resolve `.` and `..` there, encoded or not.

use super::{
    error::{ApiRefusal, json},
    peer::SocketPair,
    request::{ApiResponse, check_user, read_json},
};
use crate::{
    agent::state::AgentState,
    model::{
        api::agent::{KvDeletedView, KvIncrementBody, KvPutBody, KvStoredView, KvValueView},
        owner::Owner,
    },
    platform::{kv::MAX_VALUE, percent},
};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use std::time::Duration;

/// The largest body: a value, and the members around it.
const MAX_BODY: usize = MAX_VALUE + (64 << 10);

/// The longest time to live, in seconds: it can be added to any time without overflow.
const MAX_TTL: f64 = u32::MAX as f64;

/// Answers with the value, or 204 if the key is absent.
pub async fn get(
    agent: &AgentState,
    sockets: SocketPair,
    request: &Request<Incoming>,
) -> Result<ApiResponse, ApiRefusal> {
    check_user(sockets).await?;
    let Some(value) = agent.kv.get(Owner::Global, &key(request)?)? else {
        let mut answer = Response::new(Full::default());
        *answer.status_mut() = StatusCode::NO_CONTENT;
        return Ok(answer);
    };
    Ok(json(StatusCode::OK, &KvValueView { value }))
}

/// Stores a value, and answers whether it was stored.
pub async fn put(
    agent: &AgentState,
    sockets: SocketPair,
    request: Request<Incoming>,
) -> Result<ApiResponse, ApiRefusal> {
    check_user(sockets).await?;
    let key = key(&request)?;
    let KvPutBody { value, ttl, add } = read_json(request, MAX_BODY).await?;
    let ttl = duration(ttl)?;
    let stored = match add {
        true => agent.kv.add(Owner::Global, &key, value, ttl).await?,
        false => {
            agent.kv.set(Owner::Global, &key, value, ttl).await?;
            true
        }
    };
    Ok(json(StatusCode::OK, &KvStoredView { stored }))
}

/// Adds to an integer, and answers with the sum.
pub async fn increment(
    agent: &AgentState,
    sockets: SocketPair,
    request: Request<Incoming>,
) -> Result<ApiResponse, ApiRefusal> {
    check_user(sockets).await?;
    let key = key(&request)?;
    let KvIncrementBody { by, ttl } = read_json(request, MAX_BODY).await?;
    let value = agent.kv.increment(Owner::Global, &key, by.unwrap_or(1), duration(ttl)?).await?;
    Ok(json(StatusCode::OK, &KvValueView { value }))
}

/// Deletes a key, and answers whether it existed.
pub async fn delete(
    agent: &AgentState,
    sockets: SocketPair,
    request: &Request<Incoming>,
) -> Result<ApiResponse, ApiRefusal> {
    check_user(sockets).await?;
    let deleted = agent.kv.delete(Owner::Global, &key(request)?).await?;
    Ok(json(StatusCode::OK, &KvDeletedView { deleted }))
}

/// The key in the query.
fn key<B>(request: &Request<B>) -> Result<String, ApiRefusal> {
    let mut keys = request.uri().query().unwrap_or_default().split('&').filter_map(|pair| pair.strip_prefix("key="));
    match (keys.next(), keys.next()) {
        (Some(key), None) => Ok(percent::decode_query_value(key)?),
        _ => Err(ApiRefusal::bad_request("say which key is meant, once: /kv?key=NAME")),
    }
}

fn duration(ttl: Option<f64>) -> Result<Option<Duration>, ApiRefusal> {
    let duration = |ttl: f64| Duration::try_from_secs_f64(ttl.min(MAX_TTL));
    let invalid = |_| ApiRefusal::bad_request("`ttl` must be a number of seconds from 0 up");
    ttl.map(duration).transpose().map_err(invalid)
}
