//! Turns a verified request into events: by the Lua of its source, or the JSON body as it is.

use super::source::Source;
use crate::{
    model::{
        event::{EventType, EventTypeError},
        id::EventId,
    },
    routing::emit::{EmitError, Emitter},
    scripting::{
        lua::{ScriptError, TransformInput},
        workers::LuaWorkers,
    },
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, HashMap};

/// The most events of one request.
const MAX_EVENTS: usize = 100;

/// The longest body of a response that a transform makes, in bytes.
const MAX_RESPONSE: usize = 64 << 10;

/// A verified request, without the credential that it carried. A dead letter is this.
#[derive(Clone, Debug)]
pub struct VerifiedRequest {
    /// Names in lower case, each once.
    pub headers: Vec<(String, String)>,
    pub query: Vec<(String, String)>,
    pub body: Bytes,
    pub delivery_id: Option<String>,
}

/// The result of a transform.
#[derive(Debug, Default)]
pub struct Transformed {
    pub events: Vec<SourceEvent>,
    pub response: Option<SourceResponse>,
    /// The lines the transform printed and logged.
    pub log: Vec<String>,
}

/// An event that passed every check.
#[derive(Debug)]
pub struct SourceEvent {
    pub kind: EventType,
    pub payload: Box<RawValue>,
    /// Derived from the provider's delivery id; absent without one.
    pub id: Option<EventId>,
}

/// The response that a transform chose, such as the answer to a challenge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceResponse {
    pub status: u16,
    pub content_type: ResponseType,
    pub body: String,
}

/// The content types that a transform can choose. Others could run in a browser, with the service's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResponseType {
    #[serde(rename = "text/plain")]
    Text,
    #[serde(rename = "application/json")]
    Json,
}

/// The reason that a request did not become events.
#[derive(Debug, thiserror::Error)]
pub enum TransformError {
    /// There is no transform, and the body cannot be a payload by itself.
    #[error("the body is no JSON object ({0}): send one, or give the source a transform")]
    Body(String),
    #[error("{0}")]
    Script(ScriptError),
    #[error("the transform returned {0}")]
    Result(String),
    #[error("event {number}: `type`: {error}")]
    Type { number: usize, error: EventTypeError },
    #[error("event {number}: {error}")]
    Payload { number: usize, error: EmitError },
}

/// The fields of a response, as a transform returns them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReturnedResponse {
    #[serde(default)]
    status: Option<u16>,
    #[serde(default)]
    content_type: Option<ResponseType>,
    #[serde(default)]
    body: Option<Value>,
}

impl TransformError {
    /// Returns true if the same request can succeed later without a change of the source.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Script(ScriptError::Busy | ScriptError::Stopped | ScriptError::Host))
    }
}

/// Turns a request into events. Nothing is emitted.
///
/// # Errors
///
/// Fails with the error and the lines that the transform printed.
pub async fn transform(
    source: &Source,
    request: &VerifiedRequest,
    workers: &LuaWorkers,
    emitter: &Emitter,
) -> Result<Transformed, (TransformError, Vec<String>)> {
    let Some(lua) = &source.transform else {
        let event = whole_body(source, request, emitter).map_err(|error| (error, Vec::new()))?;
        return Ok(Transformed { events: vec![event], ..Transformed::default() });
    };
    let input = TransformInput {
        slug: source.slug.clone(),
        headers: request.headers.clone(),
        query: request.query.clone(),
        body: request.body.clone(),
    };
    let run = workers.run_transform(lua.program(), source.owner, input).await;
    let transformed = run.result.map_err(TransformError::Script).and_then(|json| read_result(&json));
    let checked = transformed.and_then(|(events, response)| {
        let events = events.into_iter().enumerate();
        let events = events.map(|(index, event)| event.check(index, source, request, emitter));
        Ok((events.collect::<Result<Vec<_>, _>>()?, response))
    });
    match checked {
        Ok((events, response)) => Ok(Transformed { events, response, log: run.log }),
        Err(error) => Err((error, run.log)),
    }
}

/// Refuses two events with one id: the second would pass for a repetition of the first, and be lost.
fn refuse_repeated_ids(events: &[ReturnedEvent]) -> Result<(), TransformError> {
    let mut numbers = HashMap::new();
    for (index, event) in events.iter().enumerate() {
        let Some(id) = &event.id else { continue };
        if let Some(first) = numbers.insert(id, index + 1) {
            return Err(TransformError::Result(format!("the same `id` for the events {first} and {}", index + 1)));
        }
    }
    Ok(())
}

/// The event of a source without a transform.
fn whole_body(source: &Source, request: &VerifiedRequest, emitter: &Emitter) -> Result<SourceEvent, TransformError> {
    let not_json = |error: &dyn std::fmt::Display| TransformError::Body(error.to_string());
    let text = std::str::from_utf8(&request.body).map_err(|_| not_json(&"it is not UTF-8"))?;
    let payload: Box<RawValue> = serde_json::from_str(text).map_err(|error| not_json(&error))?;
    if !payload.get().starts_with('{') {
        return Err(not_json(&"it is JSON, but no object"));
    }
    let event = ReturnedEvent { kind: format!("source.{}", source.slug), payload: Some(payload), id: None };
    event.check(0, source, request, emitter)
}

/// An event as a transform returns it.
struct ReturnedEvent {
    kind: String,
    payload: Option<Box<RawValue>>,
    id: Option<String>,
}

impl ReturnedEvent {
    /// Reads the fields `type`, `payload` and `id` of a table.
    fn read(number: usize, mut fields: BTreeMap<String, Box<RawValue>>) -> Result<Self, TransformError> {
        let wrong = |what: &str| TransformError::Result(format!("{what} (event {number})"));
        let kind = fields.remove("type").ok_or_else(|| wrong("a table without `type`, which is no event"))?;
        let kind = serde_json::from_str(kind.get()).map_err(|_| wrong("an event whose `type` is no string"))?;
        let payload = fields.remove("payload");
        let id = match fields.remove("id").map(|id| serde_json::from_str::<Value>(id.get())) {
            None | Some(Ok(Value::Null)) => None,
            Some(Ok(Value::String(id))) => Some(id),
            Some(Ok(Value::Number(id))) => Some(id.to_string()),
            Some(_) => return Err(wrong("an event whose `id` is neither a string nor a number")),
        };
        match fields.keys().next() {
            Some(other) => Err(wrong(&format!("an event with `{other}`: it has `type`, `payload` and `id`"))),
            None => Ok(Self { kind, payload, id }),
        }
    }

    fn check(
        self,
        index: usize,
        source: &Source,
        request: &VerifiedRequest,
        emitter: &Emitter,
    ) -> Result<SourceEvent, TransformError> {
        let number = index + 1;
        let kind = EventType::custom(&self.kind).map_err(|error| TransformError::Type { number, error })?;
        let payload = match self.payload {
            // Lua does not tell an empty list from an empty object.
            Some(payload) if payload.get() != "[]" => payload,
            _ => RawValue::from_string("{}".to_owned()).expect("it is JSON"),
        };
        emitter.check_payload(&payload).map_err(|error| TransformError::Payload { number, error })?;
        let id = match (&self.id, &request.delivery_id) {
            (Some(id), _) => Some(derived_id(source, "id", id, 0)),
            (None, Some(delivery)) => Some(derived_id(source, "delivery", delivery, index)),
            (None, None) => None,
        };
        Ok(SourceEvent { kind, payload, id })
    }
}

/// The id of an event, the same whenever the provider sends the delivery again.
fn derived_id(source: &Source, what: &str, id: &str, index: usize) -> EventId {
    let mut digest = Sha256::new();
    digest.update(source.id.as_bytes());
    digest.update(format!("\n{what}\n{index}\n{id}"));
    EventId::derived(&digest.finalize().into())
}

/// Reads what a transform returned: nothing, an event, a list of them, or a response, which may have events beside it.
fn read_result(json: &str) -> Result<(Vec<ReturnedEvent>, Option<SourceResponse>), TransformError> {
    let wrong = |what: String| TransformError::Result(what);
    let object = |json: &str| serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(json);
    match json.trim_start().bytes().next() {
        Some(b'{') => {
            let mut fields = object(json).map_err(|error| wrong(error.to_string()))?;
            if fields.is_empty() {
                return Ok((Vec::new(), None));
            }
            let Some(response) = fields.remove("response") else {
                return Ok((vec![ReturnedEvent::read(1, fields)?], None));
            };
            let events = match fields.remove("events") {
                Some(events) => read_result(events.get())?.0,
                None => Vec::new(),
            };
            match fields.keys().next() {
                Some(other) => Err(wrong(format!("a response with `{other}` beside it: only `events` can be there"))),
                None => Ok((events, Some(read_response(&response)?))),
            }
        }
        Some(b'[') => {
            let items: Vec<Box<RawValue>> = serde_json::from_str(json).map_err(|error| wrong(error.to_string()))?;
            if items.len() > MAX_EVENTS {
                return Err(wrong(format!("{} events; at most {MAX_EVENTS} are allowed", items.len())));
            }
            let events = items.iter().enumerate().map(|(index, item)| {
                let fields = object(item.get());
                let fields = fields.map_err(|_| wrong(format!("a list whose item {} is no table", index + 1)))?;
                ReturnedEvent::read(index + 1, fields)
            });
            let events = events.collect::<Result<Vec<_>, _>>()?;
            refuse_repeated_ids(&events)?;
            Ok((events, None))
        }
        Some(b'n') => Ok((Vec::new(), None)),
        _ => Err(wrong("neither an event, nor a list of events, nor a response".to_owned())),
    }
}

fn read_response(json: &RawValue) -> Result<SourceResponse, TransformError> {
    let wrong = |what: &dyn std::fmt::Display| TransformError::Result(format!("a `response` that is wrong: {what}"));
    // Lua does not tell an empty list from an empty object.
    let text = if json.get() == "[]" { "{}" } else { json.get() };
    let returned: ReturnedResponse = serde_json::from_str(text).map_err(|error| wrong(&error))?;
    let status = returned.status.unwrap_or(200);
    if !matches!(status, 200..=299 | 400..=599) {
        return Err(wrong(&"`status` must be 200 to 299 or 400 to 599"));
    }
    let (body, natural) = match returned.body {
        None | Some(Value::Null) => (String::new(), ResponseType::Text),
        Some(Value::String(text)) => (text, ResponseType::Text),
        Some(other) => (other.to_string(), ResponseType::Json),
    };
    if body.len() > MAX_RESPONSE {
        return Err(wrong(&format!("`body` has more than {MAX_RESPONSE} bytes")));
    }
    Ok(SourceResponse { status, content_type: returned.content_type.unwrap_or(natural), body })
}

impl ResponseType {
    pub const fn header(self) -> &'static str {
        match self {
            Self::Text => "text/plain; charset=utf-8",
            Self::Json => "application/json",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(json: &str) -> Result<Vec<String>, String> {
        let (events, _) = read_result(json).map_err(|error| error.to_string())?;
        Ok(events.into_iter().map(|event| event.kind).collect())
    }

    #[test]
    fn a_transform_returns_an_event_a_list_or_nothing() {
        assert_eq!(kinds(r#"{"type": "a", "payload": {"n": 18446744073709551616}}"#).unwrap(), ["a"]);
        assert_eq!(kinds(r#"[{"type": "a"}, {"type": "b", "id": 7}]"#).unwrap(), ["a", "b"]);
        for nothing in ["null", "{}", "[]"] {
            assert_eq!(kinds(nothing).unwrap(), [""; 0], "{nothing}");
        }
        for (wrong, why) in [
            ("7", "neither an event"),
            ("\"a\"", "neither an event"),
            (r#"{"kind": "a"}"#, "without `type`"),
            (r#"{"type": 1}"#, "`type` is no string"),
            (r#"{"type": "a", "data": {}}"#, "with `data`"),
            (r#"{"type": "a", "id": {}}"#, "`id`"),
            (r#"[{"type": "a"}, 7]"#, "item 2 is no table"),
            (
                r#"[{"type": "a", "id": 7}, {"type": "b"}, {"type": "b", "id": "7"}]"#,
                "same `id` for the events 1 and 3",
            ),
        ] {
            let error = kinds(wrong).unwrap_err();
            assert!(error.contains(why), "{wrong}: {error}");
        }
        let many = format!("[{}]", vec![r#"{"type": "a"}"#; MAX_EVENTS + 1].join(","));
        assert!(kinds(&many).unwrap_err().contains("at most 100"));
    }

    #[test]
    fn a_response_is_text_or_json_and_may_have_events_beside_it() {
        let read = |json: &str| read_result(json).map_err(|error| error.to_string());
        let (events, response) = read(r#"{"response": {"body": "abc"}}"#).unwrap();
        assert!(events.is_empty());
        let text = SourceResponse { status: 200, content_type: ResponseType::Text, body: "abc".to_owned() };
        assert_eq!(response, Some(text));
        let (events, response) =
            read(r#"{"response": {"status": 202, "body": {"a": 1}}, "events": {"type": "a"}}"#).unwrap();
        let json = SourceResponse { status: 202, content_type: ResponseType::Json, body: "{\"a\":1}".to_owned() };
        assert_eq!((events.len(), response), (1, Some(json)));
        for (wrong, why) in [
            (r#"{"response": {"status": 302}}"#, "`status`"),
            (r#"{"response": {"content_type": "text/html"}}"#, "unknown variant `text/html`"),
            (r#"{"response": {"headers": {}}}"#, "unknown field `headers`"),
            (r#"{"response": {}, "type": "a"}"#, "`type` beside it"),
        ] {
            let error = read(wrong).err().unwrap();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }
}
