//! The body that is sent for an event: four fields by default, the whole event, or the output of the sink's template.

use super::lazy_program::LazyProgram;
use crate::{
    delivery::{CompletedAttempt, Postponed},
    model::{
        body_template::BodyTemplate,
        event::{Actor, Event, EventType},
        id::{EventId, ReplayId, SpaceId, UserId},
        owner::Owner,
        sequence::MissedRange,
        sink_spec::WebhookBody,
        timestamp::Timestamp,
    },
    scripting::{
        lua::{BodyFormat, EventInput, RenderedBody, ScriptError},
        workers::LuaWorkers,
    },
};
use bytes::Bytes;
use serde::{Serialize, de::IgnoredAny};
use serde_json::value::RawValue;

/// Bytes that the default body has beside the data of most events.
const ENVELOPE: usize = 256;

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

/// A body ready to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventBody {
    pub bytes: Bytes,
    /// The content type, unless the sink's own headers override it.
    pub content_type: &'static str,
    /// Lines that the template printed.
    pub log: Vec<String>,
}

impl EventBody {
    pub(super) fn json(bytes: Vec<u8>) -> Self {
        Self { bytes: bytes.into(), content_type: JSON, log: vec![] }
    }
}

/// The reason that a template gave no body.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("the template failed: {0}")]
    Script(#[from] ScriptError),
}

impl BodyError {
    /// Turns the error into the attempt that it ends. A lack of room to run the template is not the template's fault
    /// and soon over, so it postpones the attempt.
    pub fn into_attempt(self) -> Result<CompletedAttempt, Postponed> {
        match self {
            Self::Script(ScriptError::Busy | ScriptError::Stopped) => Err(Postponed(self.to_string())),
            Self::Script(_) => Ok(CompletedAttempt::failed(self.to_string())),
        }
    }
}

/// The body of a sink without a template.
#[derive(Serialize)]
struct DefaultBody<'a> {
    event_id: EventId,
    event_type: &'a EventType,
    event_ts: Timestamp,
    #[serde(flatten)]
    place: Option<BatchPlace<'a>>,
    data: &'a RawValue,
}

/// The fields of an event in a batch that a single event has as headers.
#[derive(Clone, Copy, Serialize)]
struct BatchPlace<'a> {
    sequence: u64,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    missed: &'a [MissedRange],
    #[serde(skip_serializing_if = "Option::is_none")]
    replay: Option<ReplayId>,
}

/// Returns the default body. The event's data passes through byte for byte.
pub fn default(event: &Event) -> EventBody {
    EventBody::json(default_bytes(event, None))
}

fn default_bytes(event: &Event, place: Option<BatchPlace<'_>>) -> Vec<u8> {
    let Event { id: event_id, kind: event_type, ts: event_ts, data, .. } = event;
    let body = DefaultBody { event_id: *event_id, event_type, event_ts: *event_ts, place, data };
    let mut bytes = Vec::with_capacity(data.get().len() + ENVELOPE);
    serde_json::to_writer(&mut bytes, &body).expect("an event has string keys and no failing serializers");
    bytes
}

/// Returns the body of an event of a batch, which has its sequence number.
pub(super) fn numbered(input: &EventInput, form: WebhookBody) -> Vec<u8> {
    let place = BatchPlace { sequence: input.sequence, missed: &input.missed, replay: input.replay };
    match form {
        WebhookBody::Default => default_bytes(&input.event, Some(place)),
        WebhookBody::Full => full_bytes(&input.event, Some(place)),
    }
}

/// The body of a webhook that asks for the whole event: the default fields and those that say whose event it is.
#[derive(Serialize)]
struct FullBody<'a> {
    event_id: EventId,
    event_type: &'a EventType,
    event_ts: Timestamp,
    #[serde(flatten)]
    place: Option<BatchPlace<'a>>,
    zone: &'a str,
    /// `null` for an event that comes from no space.
    space: Option<FullBodySpace<'a>>,
    user: FullBodyUser,
    actor: &'a Actor,
    data: &'a RawValue,
}

/// The space that an event comes from, as templates see it.
#[derive(Serialize)]
struct FullBodySpace<'a> {
    id: SpaceId,
    name: &'a str,
    urls: &'a [String],
}

/// The user that an event belongs to.
#[derive(Serialize)]
struct FullBodyUser {
    id: UserId,
}

/// Returns the whole event. Its data passes through byte for byte.
pub fn full(event: &Event) -> EventBody {
    EventBody::json(full_bytes(event, None))
}

fn full_bytes(event: &Event, place: Option<BatchPlace<'_>>) -> Vec<u8> {
    let body = FullBody {
        event_id: event.id,
        event_type: &event.kind,
        event_ts: event.ts,
        place,
        zone: &event.zone,
        space: (event.space_id != SpaceId::NIL).then(|| FullBodySpace {
            id: event.space_id,
            name: event.space.as_ref().map_or("", |space| &space.name),
            urls: event.space.as_ref().map_or(&[], |space| &space.urls),
        }),
        user: FullBodyUser { id: event.user_id },
        actor: &event.actor,
        data: &event.data,
    };
    serde_json::to_vec(&body).expect("an event has string keys and no failing serializers")
}

/// Renders the event with the template.
pub async fn render(
    workers: &LuaWorkers,
    template: &LazyProgram<BodyTemplate>,
    owner: Owner,
    input: EventInput,
) -> Result<EventBody, BodyError> {
    Ok(rendered_body(workers.render(template.program(), owner, input).await?))
}

/// Renders a batch with the template.
pub async fn render_batch(
    workers: &LuaWorkers,
    template: &LazyProgram<BodyTemplate>,
    owner: Owner,
    inputs: Vec<EventInput>,
) -> Result<EventBody, BodyError> {
    Ok(rendered_body(workers.render_batch(template.program(), owner, inputs).await?))
}

/// The bodies of the first of some events.
#[derive(Debug, Default)]
pub struct FirstBodies {
    pub bodies: Vec<EventBody>,
    /// The next event failed.
    pub failed: bool,
}

/// Renders the first of these events, each as [`render`] does, as many as are quick.
pub async fn render_each(
    workers: &LuaWorkers,
    template: &LazyProgram<BodyTemplate>,
    owner: Owner,
    inputs: Vec<EventInput>,
) -> Result<FirstBodies, ScriptError> {
    let (rendered, failed) = workers.render_each(template.program(), owner, inputs).await?;
    Ok(FirstBodies { bodies: rendered.into_iter().map(rendered_body).collect(), failed })
}

fn rendered_body(rendered: RenderedBody) -> EventBody {
    let content_type = match rendered.kind {
        BodyFormat::Json => JSON,
        // The output of a text template that is valid JSON is sent as JSON.
        BodyFormat::Text if serde_json::from_slice::<IgnoredAny>(&rendered.body).is_ok() => JSON,
        BodyFormat::Text => TEXT,
    };
    EventBody { bytes: rendered.body, content_type, log: rendered.log }
}
