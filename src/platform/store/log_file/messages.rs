//! The log's messages and the headers of its segments, each with a checksum of its own.

use super::decode::{Decoder, Undecodable};

/// Bytes of a segment. The log is a row of them, and each holds one stretch of log sequence numbers.
pub(super) const SEGMENT: u64 = 512 * 1024;
pub(super) const SEGMENT_LEN: usize = SEGMENT as usize;

pub(super) const SEGMENT_HEADER: usize = 20;

/// The longest header of a message. No message begins in the last bytes of a segment that are fewer than these.
pub(super) const MESSAGE_HEADER: usize = 32;

/// The pages of fixed meaning.
pub(super) const META_PID: u64 = 0;
pub(super) const COUNTER_PID: u64 = 1;

/// The header of a segment whose checksum is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    /// The log sequence number of the segment's first byte.
    pub lsn: u64,
    /// The log is complete on disk up to here, as of the segment's beginning; -1 before the first write.
    pub stable: i64,
}

impl SegmentHeader {
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let body = bytes.get(4..SEGMENT_HEADER)?;
        let mut from = Decoder(bytes);
        if from.u32().ok()? ^ u32::MAX != crc32fast::hash(body) {
            return None;
        }
        let lsn = u64::try_from(from.i64().ok()? ^ i64::MAX).ok()?;
        let stable = from.i64().ok()? ^ i64::MAX;
        (lsn.is_multiple_of(SEGMENT) && lsn < 1 << 62 && stable < 1 << 62).then_some(Self { lsn, stable })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageKind {
    /// A place that was reserved and not used.
    Canceled,
    /// The rest of the segment holds nothing.
    Cap,
    /// The messages up to the noted number count together or not at all.
    Batch,
    /// The page is free.
    Free,
    Counter,
    Meta,
    /// The page as a whole.
    Node,
    /// A change of the page.
    Link,
    /// A message whose body is in a file of its own. This store keeps its pages below the size for which sled does that.
    Blob,
}

/// A message whose checksum is right.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message<'a> {
    pub kind: MessageKind,
    /// The number of the segment for which it was written.
    pub segment: u64,
    pub pid: u64,
    pub body: &'a [u8],
    /// Its bytes in the log, header included.
    pub len: usize,
}

/// The beginning of a message, before its checksum is looked at.
struct Start {
    crc: u32,
    kind: MessageKind,
    len: u64,
    segment: u64,
    pid: u64,
}

impl Start {
    fn decode(from: &mut Decoder<'_>) -> Result<Self, Undecodable> {
        let crc = from.u32()?;
        let kind = match from.byte()? {
            1 => MessageKind::Canceled,
            2 => MessageKind::Cap,
            3 => MessageKind::Batch,
            4 => MessageKind::Free,
            5 => MessageKind::Counter,
            6 => MessageKind::Meta,
            8 => MessageKind::Node,
            10 => MessageKind::Link,
            7 | 9 | 11 => MessageKind::Blob,
            _ => return Err(Undecodable),
        };
        Ok(Self { crc, kind, len: from.varint()?, segment: from.varint()?, pid: from.varint()? })
    }
}

impl<'a> Message<'a> {
    /// Reads the message at the beginning of `bytes`, which reach to the end of the segment.
    ///
    /// `accept` is asked about the segment number before the checksum is computed.
    pub fn decode(bytes: &'a [u8], accept: impl FnOnce(u64) -> bool) -> Option<Self> {
        let mut from = Decoder(bytes);
        let start = Start::decode(&mut from).ok()?;
        if !accept(start.segment) {
            return None;
        }
        let header = bytes.len() - from.0.len();
        let body = from.take(usize::try_from(start.len).ok()?).ok()?;
        let mut crc = crc32fast::Hasher::new();
        crc.update(body);
        crc.update(&bytes[4..header]);
        let well_formed = start.kind != MessageKind::Batch || body.len() == size_of::<u64>();
        (crc.finalize() ^ u32::MAX == start.crc && well_formed).then_some(Self {
            kind: start.kind,
            segment: start.segment,
            pid: start.pid,
            body,
            len: header + body.len(),
        })
    }

    /// Segment number, page id and length of the body as the message at the beginning of `bytes` claims them, whether its
    /// checksum is right or not.
    pub fn claim(bytes: &[u8]) -> Option<(u64, u64, u64)> {
        Start::decode(&mut Decoder(bytes)).ok().map(|start| (start.segment, start.pid, start.len))
    }

    /// The last number of a batch, out of the message that opens it.
    pub fn batch_end(&self) -> u64 {
        Decoder(self.body).lsn().unwrap_or(u64::MAX)
    }
}
