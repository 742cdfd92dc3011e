//! Sample events for tests and previews of sinks and for runs of scripts. They are not stored and are in no queue.

use crate::{
    identity::Caller,
    model::{
        api::sinks::SampleEvent,
        event::{Event, EventType},
        id::{EventId, SpaceId},
        timestamp::Timestamp,
    },
    routing::emit,
    scripting::lua::EventInput,
    server::http::error::ApiError,
};
use serde_json::value::RawValue;
use std::sync::Arc;

/// The event that a caller describes, as the input of a script's first attempt.
pub fn sample_input(caller: &Caller, zone: &Arc<str>, sample: SampleEvent) -> Result<EventInput, ApiError> {
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

/// The type of a custom event, from its name in a body's `type`.
pub fn custom_type(name: &str) -> Result<EventType, ApiError> {
    EventType::custom(name).map_err(|error| ApiError::BadRequest(format!("`type`: {error}")))
}

/// `{}`, for an event without a payload.
pub fn empty_object() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).expect("an empty object is JSON")
}
