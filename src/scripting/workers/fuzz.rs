//! Entry point of a fuzz target: messages of a worker, which the server does not trust.

use super::{
    messages::FromWorker,
    wire::{FrameBuffer, FrameReader, FrameWriter, MAX_FRAME},
};
use bytes::Bytes;

/// The bytes that arrive at once. A frame is often cut by that.
const PIECE: usize = 7;

/// Reads the bytes as one frame, and as frames with their lengths in a stream that arrives in pieces. A message reads
/// back as it was written, and the same frames are found wherever the stream is cut.
pub fn fuzz_messages(data: &[u8]) {
    check_message(FrameReader(Bytes::copy_from_slice(data)));
    let whole = frames(data, data.len().max(1));
    assert_eq!(whole, frames(data, PIECE));
    whole.into_iter().for_each(|frame| check_message(FrameReader(frame)));
}

fn check_message(frame: FrameReader) {
    let Ok(message) = FromWorker::read(frame) else { return };
    let written = write(&message);
    let again = FromWorker::read(FrameReader(written.clone())).expect("a written message is one");
    assert_eq!(again.run(), message.run());
    assert_eq!(write(&again), written, "{message:?}");
}

/// The frame of a message, without its length.
fn write(message: &FromWorker) -> Bytes {
    let mut writer = FrameWriter::default();
    message.write(&mut writer);
    let [frame] = <[Bytes; 1]>::try_from(frames(&writer.bytes, writer.bytes.len())).expect("a message is one frame");
    frame
}

/// The frames of a stream up to the first that is too long or incomplete.
fn frames(data: &[u8], piece: usize) -> Vec<Bytes> {
    let (mut buffer, mut found) = (FrameBuffer::default(), Vec::new());
    for piece in data.chunks(piece) {
        buffer.add(piece);
        loop {
            match buffer.next(MAX_FRAME) {
                Ok(Some(frame)) => found.push(frame.0),
                Ok(None) => break,
                Err(_) => return found,
            }
        }
    }
    found
}
