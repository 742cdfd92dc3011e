//! Rendered bodies in the messages of a worker.

use super::wire::{FrameReader, FrameWriter, Malformed};
use crate::scripting::lua::{BodyFormat, RenderedBody, bounded_log};

pub(super) fn write_bodies(frame: &mut FrameWriter, bodies: &[RenderedBody]) {
    frame.list(bodies.iter(), |frame, RenderedBody { body, kind, log }| {
        frame.u8(format_code(*kind));
        frame.data(body);
        frame.list(log.iter(), |frame, line| frame.text(line));
    });
}

pub(super) fn read_bodies(frame: &mut FrameReader) -> Result<Vec<RenderedBody>, Malformed> {
    frame.list(|frame| {
        let kind = match frame.u8()? {
            0 => BodyFormat::Json,
            1 => BodyFormat::Text,
            _ => return Err(Malformed),
        };
        Ok(RenderedBody { kind, body: frame.data()?, log: bounded_log(&frame.list(FrameReader::text)?) })
    })
}

pub(super) fn format_code(kind: BodyFormat) -> u8 {
    match kind {
        BodyFormat::Json => 0,
        BodyFormat::Text => 1,
    }
}
