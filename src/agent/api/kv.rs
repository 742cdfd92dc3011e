//! What the programs of a space remember, for the agent's own user: `/kv?key=NAME`.
//!
//! The key is in the query, since a path cannot carry every key: clients resolve `.` and `..` there, encoded or not.

use super::{Answer, Ends, Refusal, check_user, json, read};
use crate::{
    agent::Agent,
    model::owner::Owner,
    platform::{kv::MAX_VALUE, percent},
};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{json, value::RawValue};
use std::time::Duration;

/// The largest body: a value, and what is around it.
const BYTES: usize = MAX_VALUE + (64 << 10);

/// The longest time to live, in seconds. It can be added to any moment.
const MAX_TTL: f64 = u32::MAX as f64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Put {
    value: Box<RawValue>,
    ttl: Option<f64>,
    /// Only if nothing is there.
    #[serde(default)]
    add: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Increment {
    by: Option<i64>,
    ttl: Option<f64>,
}

/// The value, or 204 if there is none.
pub async fn get(agent: &Agent, ends: Ends, request: &Request<Incoming>) -> Result<Answer, Refusal> {
    check_user(ends).await?;
    let Some(value) = agent.kv.get(Owner::Global, &key(request)?)? else {
        let mut answer = Response::new(Full::default());
        *answer.status_mut() = StatusCode::NO_CONTENT;
        return Ok(answer);
    };
    Ok(json(StatusCode::OK, &Value { value }))
}

/// Stores a value, and says whether it did.
pub async fn put(agent: &Agent, ends: Ends, request: Request<Incoming>) -> Result<Answer, Refusal> {
    check_user(ends).await?;
    let key = key(&request)?;
    let Put { value, ttl, add } = read(request, BYTES).await?;
    let ttl = span(ttl)?;
    let stored = match add {
        true => agent.kv.add(Owner::Global, &key, value, ttl).await?,
        false => {
            agent.kv.set(Owner::Global, &key, value, ttl).await?;
            true
        }
    };
    Ok(json(StatusCode::OK, &json!({ "stored": stored })))
}

/// Adds to an integer, and gives the sum.
pub async fn increment(agent: &Agent, ends: Ends, request: Request<Incoming>) -> Result<Answer, Refusal> {
    check_user(ends).await?;
    let key = key(&request)?;
    let Increment { by, ttl } = read(request, BYTES).await?;
    let value = agent.kv.increment(Owner::Global, &key, by.unwrap_or(1), span(ttl)?).await?;
    Ok(json(StatusCode::OK, &json!({ "value": value })))
}

/// Removes a value, and says whether there was one.
pub async fn delete(agent: &Agent, ends: Ends, request: &Request<Incoming>) -> Result<Answer, Refusal> {
    check_user(ends).await?;
    let deleted = agent.kv.delete(Owner::Global, &key(request)?).await?;
    Ok(json(StatusCode::OK, &json!({ "deleted": deleted })))
}

/// A value as it was stored, to the byte.
#[derive(serde::Serialize)]
struct Value {
    value: Box<RawValue>,
}

/// The one key that is asked about.
fn key<B>(request: &Request<B>) -> Result<String, Refusal> {
    let mut keys = request.uri().query().unwrap_or_default().split('&').filter_map(|pair| pair.strip_prefix("key="));
    match (keys.next(), keys.next()) {
        (Some(key), None) => Ok(percent::decode_query_value(key)?),
        _ => Err(Refusal::bad_request("say which key is meant, once: /kv?key=NAME")),
    }
}

fn span(ttl: Option<f64>) -> Result<Option<Duration>, Refusal> {
    let span = |ttl: f64| Duration::try_from_secs_f64(ttl.min(MAX_TTL));
    let wrong = |_| Refusal::bad_request("`ttl` must be a number of seconds from 0 up");
    ttl.map(span).transpose().map_err(wrong)
}
