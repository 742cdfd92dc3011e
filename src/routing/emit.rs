//! The event's way in: ingress → stamp → route → queue. The way goes on in [`crate::delivery::deliver`].
//!
//! Every door (the HTTP API, agents, the service's own system events) comes through [`Emitter::emit`].

use crate::{
    model::{
        event::{Actor, Event, EventType, Origin},
        id::{EventId, SpaceId, UserId},
        timestamp::Timestamp,
    },
    routing::{
        matcher::Routes,
        queue::{AcceptError, Engine, Receipt, Target},
    },
};
use serde_json::value::RawValue;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Payload that may wait for the disk at once, in KiB. Further emits queue for their turn, so that a slow disk
/// costs time and not memory.
const WAITING_KIB: usize = 64 << 10;

/// How deep a payload may be nested. Deeper ones break receivers, and no template could read them.
const MAX_DEPTH: usize = 64;

/// Takes events in.
pub struct Emitter {
    zone: Arc<str>,
    routes: Arc<Routes<Target>>,
    engine: Arc<dyn Engine>,
    max_payload: usize,
    waiting: Semaphore,
}

/// An event somebody wants to raise.
#[derive(Debug)]
pub struct Raise {
    /// Makes a repeat of the same raise harmless; assigned if absent.
    pub id: Option<EventId>,
    pub kind: EventType,
    pub space_id: SpaceId,
    pub space: Option<Origin>,
    pub user_id: UserId,
    pub actor: Actor,
    pub payload: Box<RawValue>,
}

/// Why an event was not taken. Nothing is stored then.
#[derive(Debug, thiserror::Error)]
pub enum EmitError {
    #[error("`id`: must not be the nil UUID")]
    NilId,
    #[error("`payload` must be a JSON object")]
    PayloadNotObject,
    #[error("`payload`: {0}")]
    PayloadUnreadable(serde_json::Error),
    #[error("`payload` has {bytes} bytes; the limit is {limit}")]
    PayloadTooLarge { bytes: usize, limit: usize },
    #[error("`payload` is nested more than {MAX_DEPTH} deep")]
    PayloadTooDeep,
    #[error(transparent)]
    Accept(#[from] AcceptError),
}

impl Emitter {
    /// An emitter for one zone.
    pub fn new(zone: &str, routes: Arc<Routes<Target>>, engine: Arc<dyn Engine>, max_payload: usize) -> Self {
        Self { zone: zone.into(), routes, engine, max_payload, waiting: Semaphore::new(WAITING_KIB) }
    }

    /// Accepts an event and returns its receipt once every matching queue holds it on disk.
    ///
    /// A sink whose queue is full loses the event, and only that sink; the drop is audited and named in the
    /// receipt. Delivery happens later, in [`crate::delivery::deliver`].
    ///
    /// # Errors
    ///
    /// Fails if the payload is no readable object, too large or too deep, if the id is nil or was used for another
    /// event, or if the store cannot be written. Nothing is queued then.
    pub async fn emit(&self, raise: Raise) -> Result<Receipt, EmitError> {
        if raise.id.is_some_and(|id| *id.as_bytes() == [0; 16]) {
            return Err(EmitError::NilId);
        }
        check_payload(&raise.payload, self.max_payload)?;
        let bytes = raise.payload.get().len();
        let kib = u32::try_from(bytes / 1024 + 1).unwrap_or(u32::MAX).min(WAITING_KIB as u32);
        let _turn = self.waiting.acquire_many(kib).await.expect("the semaphore is never closed");

        let event = Arc::new(self.stamp(raise));
        let targets = self.routes.matches(event.kind.segments(), event.user_id);
        Ok(self.engine.accept(event, targets).await?)
    }

    fn stamp(&self, raise: Raise) -> Event {
        let Raise { id, kind, space_id, space, user_id, actor, payload } = raise;
        Event {
            id: id.unwrap_or_else(EventId::new),
            kind,
            ts: Timestamp::now(),
            zone: self.zone.clone(),
            space_id,
            user_id,
            actor,
            space,
            data: payload,
        }
    }
}

/// Whether a payload can be raised where payloads have at most `limit` bytes.
///
/// # Errors
///
/// Fails if it is no readable object, too large or too deep.
pub fn check_payload(payload: &RawValue, limit: usize) -> Result<(), EmitError> {
    check_object(payload)?;
    let bytes = payload.get().len();
    if bytes > limit {
        return Err(EmitError::PayloadTooLarge { bytes, limit });
    }
    if depth(payload.get()) > MAX_DEPTH {
        return Err(EmitError::PayloadTooDeep);
    }
    Ok(())
}

/// Whether a payload is an object that can be read later. It is kept unread, so it is read here only where there may be
/// half a surrogate pair, `"\ud800"`, which stands for no character.
///
/// # Errors
///
/// Fails if it is no object, or has such a half.
pub fn check_object(payload: &RawValue) -> Result<(), EmitError> {
    let json = payload.get();
    if !json.starts_with('{') {
        return Err(EmitError::PayloadNotObject);
    }
    if json.contains("\\ud") || json.contains("\\uD") {
        serde_json::from_str::<serde_json::Value>(json).map_err(EmitError::PayloadUnreadable)?;
    }
    Ok(())
}

/// How deep the brackets of a JSON text are nested.
fn depth(json: &str) -> usize {
    let (mut now, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                now += 1;
                deepest = deepest.max(now);
            }
            b'}' | b']' if !in_string => now = now.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::depth;

    #[test]
    fn brackets_in_strings_are_not_depth() {
        assert_eq!(depth(r#"{"a":[1,{"b":[]}],"c":{}}"#), 4);
        assert_eq!(depth(r#"{"a":"[[[{{{","b":"\\\"[["}"#), 1);
    }
}
