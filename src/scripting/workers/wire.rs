//! The bytes between the server and a worker: frames of a length and that many bytes, and the values inside a frame.
//!
//! Numbers are little-endian; a text or a list begins with its length. The receiver of a frame owns its bytes, so that
//! a body or a JSON text passes through without being parsed. [`super::messages`] says what a frame means.

use bytes::{Buf, Bytes};

/// The largest frame that the server reads from a worker: the largest body, and room for what goes with it.
pub(super) const MAX_FRAME: usize = 4 << 20;

/// The most bytes of one read, at both ends. Most messages are smaller.
pub(super) const READ_SIZE: usize = 64 << 10;

/// The length of a frame's own length.
const PREFIX: usize = 4;

/// A frame that does not have the form it should have.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame is malformed")]
pub(super) struct Malformed;

/// Writes the values of frames, one after the other, into a buffer.
#[derive(Default)]
pub(super) struct FrameWriter {
    pub bytes: Vec<u8>,
}

impl FrameWriter {
    /// Appends a frame with the values that `fill` writes.
    pub fn frame(&mut self, fill: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; PREFIX]);
        fill(self);
        let length = u32::try_from(self.bytes.len() - start - PREFIX).expect("a frame has less than 4 GiB");
        self.bytes[start..start + PREFIX].copy_from_slice(&length.to_le_bytes());
    }

    pub fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub fn i64(&mut self, value: i64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub fn data(&mut self, data: &[u8]) {
        self.length(data.len());
        self.bytes.extend_from_slice(data);
    }

    pub fn text(&mut self, text: &str) {
        self.data(text.as_bytes());
    }

    /// Appends a list of texts or of pairs of them.
    pub fn list<T>(&mut self, items: impl ExactSizeIterator<Item = T>, mut each: impl FnMut(&mut Self, T)) {
        self.length(items.len());
        items.for_each(|item| each(self, item));
    }

    pub fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.u8(u8::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
    }

    fn length(&mut self, length: usize) {
        self.u32(u32::try_from(length).expect("a value has less than 4 GiB"));
    }
}

/// Reads the values of one frame.
pub(super) struct FrameReader(pub Bytes);

impl FrameReader {
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.0.try_get_u8().map_err(|_| Malformed)
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.0.try_get_u32_le().map_err(|_| Malformed)
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.0.try_get_u64_le().map_err(|_| Malformed)
    }

    pub fn i64(&mut self) -> Result<i64, Malformed> {
        self.0.try_get_i64_le().map_err(|_| Malformed)
    }

    pub fn data(&mut self) -> Result<Bytes, Malformed> {
        let length = self.u32()? as usize;
        if length > self.0.len() {
            return Err(Malformed);
        }
        Ok(self.0.split_to(length))
    }

    pub fn text(&mut self) -> Result<String, Malformed> {
        String::from_utf8(self.data()?.into()).map_err(|_| Malformed)
    }

    pub fn list<T>(&mut self, mut each: impl FnMut(&mut Self) -> Result<T, Malformed>) -> Result<Vec<T>, Malformed> {
        let length = self.u32()? as usize;
        // Each item has at least one byte, so a length that lies is found before it costs memory.
        if length > self.0.len() {
            return Err(Malformed);
        }
        (0..length).map(|_| each(self)).collect()
    }

    pub fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Malformed>) -> Result<Option<T>, Malformed> {
        match self.u8()? {
            0 => Ok(None),
            1 => read(self).map(Some),
            _ => Err(Malformed),
        }
    }

    /// Checks that nothing is left of the frame.
    pub fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

/// Collects received bytes and splits them into frames.
#[derive(Default)]
pub(super) struct FrameBuffer {
    bytes: bytes::BytesMut,
}

impl FrameBuffer {
    /// Adds received bytes.
    pub fn add(&mut self, received: &[u8]) {
        // A long frame gets its room at once, as far as its length may be believed.
        self.bytes.reserve(self.missing().min(1 << 20));
        self.bytes.extend_from_slice(received);
    }

    /// Takes the next frame, if it is complete.
    ///
    /// # Errors
    ///
    /// Fails if the frame is longer than `most`.
    pub fn next(&mut self, most: usize) -> Result<Option<FrameReader>, Malformed> {
        let Some(length) = self.announced() else { return Ok(None) };
        if length > most {
            return Err(Malformed);
        }
        if self.bytes.len() < PREFIX + length {
            return Ok(None);
        }
        self.bytes.advance(PREFIX);
        let frame = self.bytes.split_to(length).freeze();
        if self.bytes.is_empty() && self.bytes.capacity() > 256 << 10 {
            self.bytes = bytes::BytesMut::new();
        }
        Ok(Some(FrameReader(frame)))
    }

    fn announced(&self) -> Option<usize> {
        let prefix = self.bytes.first_chunk::<PREFIX>()?;
        Some(u32::from_le_bytes(*prefix) as usize)
    }

    /// The number of bytes that the next frame still lacks.
    fn missing(&self) -> usize {
        self.announced().map_or(0, |length| (PREFIX + length).saturating_sub(self.bytes.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_in_a_stream_that_is_cut_anywhere() {
        let mut writer = FrameWriter::default();
        writer.frame(|frame| frame.text("one"));
        writer.frame(|_| ());
        writer.frame(|frame| frame.list([1, 2].into_iter(), |frame, n| frame.u64(n)));
        let mut buffer = FrameBuffer::default();
        let mut frames = Vec::new();
        for byte in writer.bytes {
            buffer.add(&[byte]);
            frames.extend(buffer.next(100).unwrap());
        }
        let [mut one, two, mut three] = <[_; 3]>::try_from(frames).ok().unwrap();
        assert_eq!(one.text().unwrap(), "one");
        assert!(one.end().is_ok() && two.end().is_ok());
        assert_eq!(three.list(FrameReader::u64).unwrap(), [1, 2]);
    }

    #[test]
    fn a_length_that_lies_is_refused_before_it_costs_memory() {
        let mut buffer = FrameBuffer::default();
        buffer.add(&u32::MAX.to_le_bytes());
        assert!(buffer.next(MAX_FRAME).is_err());
        let lying = || FrameReader(Bytes::from_static(&[255, 255, 255, 255, 1]));
        assert_eq!(lying().data(), Err(Malformed));
        assert_eq!(lying().list(FrameReader::u8), Err(Malformed));
        assert_eq!(lying().text(), Err(Malformed));
        assert_eq!(lying().end(), Err(Malformed));
    }
}
