//! Events for tests and previews of sinks and for runs of scripts: samples that the caller describes, which are not stored and
//! are in no queue, and recorded events.

use super::ownership::sees_all_events;
use crate::{
    identity::Caller,
    model::{
        api::sinks::SampleEvent,
        event::{Event, EventType},
        id::{EventId, SpaceId},
        timestamp::Timestamp,
    },
    routing::{
        emit,
        queue::{Engine, Record},
    },
    scripting::lua::EventInput,
    server::http::error::ApiError,
};
use serde_json::value::RawValue;
use std::sync::Arc;

/// The event that a caller describes or names, as the input of a script's first attempt.
pub fn sample_input(
    caller: &Caller,
    zone: &Arc<str>,
    engine: &dyn Engine,
    sample: SampleEvent,
) -> Result<EventInput, ApiError> {
    if let Some(id) = sample.event_id {
        if sample.kind.is_some() || sample.payload.is_some() {
            return Err(ApiError::BadRequest("give either `event_id`, or `type` and `payload`".to_owned()));
        }
        let event = visible_record(engine, caller, id)?.event;
        return Ok(EventInput::sample(event));
    }
    let kind = custom_type(sample.kind.as_deref().unwrap_or("sample"))?;
    let data = sample.payload.unwrap_or_else(empty_object);
    emit::check_object(&data)?;
    let event = Event {
        id: EventId::new(),
        kind,
        ts: Timestamp::now(),
        zone: zone.clone(),
        space_id: SpaceId::NIL,
        user_id: caller.user.id,
        actor: caller.actor(),
        space: None,
        data,
    };
    Ok(EventInput::sample(Arc::new(event)))
}

/// A recorded event that the caller may see.
pub fn visible_record(engine: &dyn Engine, caller: &Caller, id: EventId) -> Result<Record, ApiError> {
    let record = engine.record(id)?;
    let record = record.filter(|record| record.event.user_id == caller.user.id || sees_all_events(caller));
    record.ok_or_else(|| ApiError::missing("event"))
}

/// The type of a custom event, from its name in a body's `type`.
pub fn custom_type(name: &str) -> Result<EventType, ApiError> {
    EventType::custom(name).map_err(|error| ApiError::BadRequest(format!("`type`: {error}")))
}

/// `{}`, for an event without a payload.
pub fn empty_object() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).expect("an empty object is JSON")
}
