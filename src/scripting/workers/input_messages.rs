//! The inputs of runs in the messages to a worker: events, and requests at sources.

use super::wire::{FrameReader, FrameWriter, Malformed};
use crate::scripting::lua::{EventFields, EventInput, TransformInput};

pub(super) fn write_request(frame: &mut FrameWriter, input: &TransformInput) {
    let pair = |frame: &mut FrameWriter, (name, value): &(String, String)| {
        frame.text(name);
        frame.text(value);
    };
    frame.text(&input.slug);
    frame.list(input.headers.iter(), pair);
    frame.list(input.query.iter(), pair);
    frame.data(&input.body);
}

pub(super) fn read_request(frame: &mut FrameReader) -> Result<TransformInput, Malformed> {
    let pair = |frame: &mut FrameReader| Ok((frame.text()?, frame.text()?));
    Ok(TransformInput {
        slug: frame.text()?,
        headers: frame.list(pair)?,
        query: frame.list(pair)?,
        body: frame.data()?,
    })
}

/// Writes what a template, a script or a filter reads of an event. [`read_event`] reads it.
pub(super) fn write_event(frame: &mut FrameWriter, input: &EventInput) {
    let event = &*input.event;
    frame.text(&event.id.to_string());
    frame.text(event.kind.as_str());
    frame.text(&event.ts.to_string());
    frame.u64(input.sequence);
    frame.u32(input.attempt);
    frame.list(input.missed.iter(), |frame, range| {
        frame.u64(range.from);
        frame.u64(range.to);
        frame.text(range.reason.as_str());
    });
    frame.text(&input.replay.map(|replay| replay.to_string()).unwrap_or_default());
    frame.text(event.data.get());
    frame.text(&event.space_id.to_string());
    let origin = event.space.as_ref();
    frame.text(origin.map_or("", |origin| &origin.name));
    frame.list(origin.map_or(&[][..], |origin| &origin.urls).iter(), |frame, url| frame.text(url));
    match origin {
        Some(origin) => frame.list(origin.custom.iter(), |frame, (name, value)| {
            frame.text(name);
            frame.text(value);
        }),
        None => frame.u32(0),
    }
    frame.text(&event.actor.id.to_string());
    frame.text(&event.actor.username);
    frame.text(event.actor.kind.as_str());
}

pub(super) fn read_event(frame: &mut FrameReader) -> Result<EventFields, Malformed> {
    Ok(EventFields {
        id: frame.text()?,
        kind: frame.text()?,
        ts: frame.text()?,
        sequence: frame.u64()?,
        attempt: frame.u32()?,
        missed: frame.list(|frame| Ok((frame.u64()?, frame.u64()?, frame.text()?)))?,
        replay: frame.text()?,
        data: frame.text()?,
        space_id: frame.text()?,
        space_name: frame.text()?,
        space_urls: frame.list(FrameReader::text)?,
        custom: frame.list(|frame| Ok((frame.text()?, frame.text()?)))?,
        actor_id: frame.text()?,
        actor_username: frame.text()?,
        actor_kind: frame.text()?,
    })
}
