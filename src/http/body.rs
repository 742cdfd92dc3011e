//! Reading what callers send: bodies and query strings, with errors that name the field.

use super::{error::ApiError, strict::Strict};
use bytes::{Buf, Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use http_body_util::LengthLimitError;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use std::{error::Error, pin::Pin, time::Duration};

/// How long a body may take to arrive.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request's body as it comes in, already limited by the guard.
pub type Incoming = Pin<Box<dyn Stream<Item = Result<Bytes, warp::Error>> + Send + Sync>>;

/// The body as warp hands it out, in a form that has a name.
pub fn incoming(body: impl Stream<Item = Result<impl Buf, warp::Error>> + Send + Sync + 'static) -> Incoming {
    Box::pin(body.map(|chunk| chunk.map(|mut chunk| chunk.copy_to_bytes(chunk.remaining()))))
}

/// Whether the headers announce JSON.
pub fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()) else { return false };
    let kind = value.split_once(';').map_or(value, |(kind, _)| kind).trim();
    kind.eq_ignore_ascii_case("application/json")
}

/// The whole body.
///
/// # Errors
///
/// Fails if it grows over `limit` (which the guard enforces), stalls, or breaks off.
pub async fn read(body: &mut Incoming, limit: usize) -> Result<Bytes, ApiError> {
    tokio::time::timeout(PATIENCE, collect(body, limit)).await.unwrap_or(Err(ApiError::Timeout))
}

/// What a JSON body says.
///
/// # Errors
///
/// Says where the body is not UTF-8 or not JSON, and which field is not as it should be.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let text = std::str::from_utf8(body)
        .map_err(|error| ApiError::BadRequest(format!("the body is not UTF-8 at byte {}", error.valid_up_to())))?;
    if !text.trim_ascii_start().starts_with('{') {
        return Err(ApiError::BadRequest("the body must be a JSON object".to_owned()));
    }
    let mut json = serde_json::Deserializer::from_str(text);
    let value = interpret(&mut json)?;
    json.end().map_err(|error| ApiError::BadRequest(format!("the body goes on after its end: {error}")))?;
    Ok(value)
}

/// What a JSON value says, or a text that is read as one.
///
/// # Errors
///
/// Says which field is not as it should be.
pub fn interpret<'de, T: Deserialize<'de>>(
    json: impl Deserializer<'de, Error = serde_json::Error>,
) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(Strict(json))
        .map_err(|error| ApiError::BadRequest(describe(&error.path().to_string(), &error.into_inner().to_string())))
}

/// What a record becomes with these fields put over it; null takes a field away, as if it had never been given. One
/// that is not there stays null for the record to judge: it may be unset, or no field of its at all.
///
/// # Errors
///
/// Says which field is not as it should be.
pub fn patched<T: DeserializeOwned>(record: &impl Serialize, fields: Map<String, Value>) -> Result<T, ApiError> {
    let Ok(Value::Object(mut kept)) = serde_json::to_value(record) else {
        return Err(ApiError::Internal("a record is no object".to_owned()));
    };
    for (field, value) in fields {
        if !value.is_null() || kept.remove(&field).is_none() {
            kept.insert(field, value);
        }
    }
    interpret(Value::Object(kept))
}

/// What a query string says.
///
/// # Errors
///
/// Names the parameter that is unknown, repeated, missing or wrong.
pub fn parse_query<T: DeserializeOwned>(query: &str) -> Result<T, ApiError> {
    let pairs = serde_urlencoded::Deserializer::new(form_urlencoded::parse(query.as_bytes()));
    serde_path_to_error::deserialize(pairs)
        .map_err(|error| ApiError::BadRequest(describe(&error.path().to_string(), &error.into_inner().to_string())))
}

async fn collect(body: &mut Incoming, limit: usize) -> Result<Bytes, ApiError> {
    let failed = |error: warp::Error| match is_limit(&error) {
        true => ApiError::TooLarge { limit },
        false => ApiError::BadRequest(format!("the body broke off: {error}")),
    };
    // Most bodies come in one piece, which then needs no copy.
    let Some(first) = body.next().await.transpose().map_err(failed)? else { return Ok(Bytes::new()) };
    let Some(second) = body.next().await.transpose().map_err(failed)? else { return Ok(first) };
    let mut whole = BytesMut::from(first);
    whole.extend_from_slice(&second);
    while let Some(chunk) = body.next().await.transpose().map_err(failed)? {
        whole.extend_from_slice(&chunk);
    }
    Ok(whole.freeze())
}

fn is_limit(error: &warp::Error) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The field and what is wrong with it. At the top there is no field, and serde's text names the one it misses.
fn describe(path: &str, reason: &str) -> String {
    if path == "." || path == "?" { reason.to_owned() } else { format!("`{path}`: {reason}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only its errors are looked at")]
    struct Sample {
        name: String,
        #[serde(default)]
        items: Vec<Item>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only its errors are looked at")]
    struct Item {
        count: u32,
    }

    fn error(body: &[u8]) -> String {
        parse::<Sample>(body).unwrap_err().to_string()
    }

    #[test]
    fn an_error_names_the_path_of_the_field() {
        assert!(error(br#"{"name":"a","items":[{"count":1},{"count":"x"}]}"#).starts_with("`items[1].count`: "));
        assert!(error(br#"{"name":7}"#).starts_with("`name`: invalid type"));
        assert!(error(br#"{"name":"a","extra":1}"#).contains("unknown field `extra`"));
        assert!(error(br#"{"items":[]}"#).contains("missing field `name`"));
        assert!(error(br#"{"name":"a","name":"b"}"#).contains("duplicate field `name`"));
    }

    #[test]
    fn what_is_no_json_is_refused_with_its_place() {
        assert!(error(b"{\"name\":").contains("line 1"));
        assert!(error(b"{\"name\":\"a\"} x").contains("goes on after its end"));
        assert_eq!(error(b"{\"name\":\"\xff\"}"), "the body is not UTF-8 at byte 9");
        assert!(error(b"{").contains("EOF"));
    }

    #[test]
    fn only_an_object_is_read_as_one() {
        for body in ["", "  ", "[\"a\"]", "null", "7", "\"name\""] {
            assert_eq!(error(body.as_bytes()), "the body must be a JSON object", "{body}");
        }
        let said = "`items[0]`: invalid type: sequence, expected an object";
        assert!(error(br#"{"name":"a","items":[[7]]}"#).starts_with(said));
        assert!(error(br#"{"name":"a","items":[7]}"#).contains("expected an object"));
        assert_eq!(parse::<Sample>(br#" {"name":"a","items":[{"count":7}]}"#).unwrap().items[0].count, 7);
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only its errors are looked at")]
    struct Wanted {
        limit: Option<u8>,
    }

    #[test]
    fn a_query_string_is_checked_like_a_body() {
        let error = |query| parse_query::<Wanted>(query).unwrap_err().to_string();
        assert!(error("limit=x").starts_with("`limit`: "), "{}", error("limit=x"));
        assert!(error("lmit=1").contains("unknown field `lmit`"), "{}", error("lmit=1"));
        assert!(error("limit=1&limit=2").contains("duplicate field `limit`"));
        assert_eq!(parse_query::<Wanted>("").unwrap().limit, None);
        assert_eq!(parse_query::<Wanted>("limit=7").unwrap().limit, Some(7));
    }

    #[test]
    fn json_is_json_with_parameters_and_in_capitals() {
        let kind = |text: &str| HeaderMap::from_iter([(CONTENT_TYPE, text.parse().unwrap())]);
        assert!(is_json(&kind("application/json")));
        assert!(is_json(&kind("Application/JSON; charset=utf-8")));
        assert!(!is_json(&kind("text/plain")));
        assert!(!is_json(&kind("application/jsonp")));
        assert!(!is_json(&HeaderMap::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_given_up() {
        let mut body: Incoming = Box::pin(stream::pending());
        assert!(matches!(read(&mut body, 10).await, Err(ApiError::Timeout)));
    }

    #[tokio::test]
    async fn a_body_in_pieces_is_put_together() {
        let pieces = ["ab", "cd", "e"].map(|piece| Ok(Bytes::from(piece)));
        let mut body: Incoming = Box::pin(stream::iter(pieces));
        assert_eq!(read(&mut body, 10).await.unwrap(), "abcde");
    }
}
