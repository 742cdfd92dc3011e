//! What is sent of an event: the fields of SPEC 2.2, or what the sink's template makes of it.

use super::compiled::Compiled;
use crate::{
    model::{
        body_template::BodyTemplate,
        event::{Event, EventType},
        id::EventId,
        owner::Owner,
        timestamp::Timestamp,
    },
    scripting::lua::{BodyFormat, CompileError, EventInput, Runtime, ScriptError},
};
use bytes::Bytes;
use serde::{Serialize, de::IgnoredAny};
use serde_json::value::RawValue;

/// A body ready to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    pub bytes: Bytes,
    /// What it is, unless the sink's own headers say otherwise.
    pub content_type: &'static str,
    /// What the template printed.
    pub log: Vec<String>,
}

/// Why a template gave no body.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("the template does not compile: {0}")]
    Compile(CompileError),
    #[error("the template failed: {0}")]
    Script(#[from] ScriptError),
}

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

/// The body of SPEC 2.2.
#[derive(Serialize)]
struct Default<'a> {
    event_id: EventId,
    event_type: &'a EventType,
    event_ts: Timestamp,
    data: &'a RawValue,
}

/// The default body; the event's data passes through byte for byte.
pub fn default(event: &Event) -> Body {
    let body = Default { event_id: event.id, event_type: &event.kind, event_ts: event.ts, data: &event.data };
    let bytes = serde_json::to_vec(&body).expect("an event has string keys and no failing serializers");
    Body { bytes: bytes.into(), content_type: JSON, log: vec![] }
}

/// What the template makes of the event, or the default without one.
///
/// # Errors
///
/// Fails if the template does, with line and message.
pub async fn render(
    runtime: &Runtime,
    template: Option<&Compiled<BodyTemplate>>,
    owner: Owner,
    input: EventInput,
) -> Result<Body, BodyError> {
    let Some(template) = template else { return Ok(default(&input.event)) };
    let program = template.program().map_err(|error| BodyError::Compile(error.clone()))?;
    let rendered = runtime.render(program, owner, input).await?;
    let content_type = match rendered.kind {
        BodyFormat::Json => JSON,
        // A text template that spells JSON means JSON.
        BodyFormat::Text if serde_json::from_slice::<IgnoredAny>(&rendered.body).is_ok() => JSON,
        BodyFormat::Text => TEXT,
    };
    Ok(Body { bytes: rendered.body, content_type, log: rendered.log })
}
