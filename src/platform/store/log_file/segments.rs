//! Reading the log a segment at a time, and walking through the messages of one.

use super::messages::{MESSAGE_HEADER, Message, MessageKind, SEGMENT, SEGMENT_HEADER, SEGMENT_LEN, SegmentHeader};
use std::{fs::File, io, os::unix::fs::FileExt};

/// sled reads the beginning of a message into a buffer of this length that is zero where the file has ended.
const READ_AHEAD: usize = 128;

/// Bytes that a disk writes as a whole or not at all.
const SECTOR: usize = 512;

/// Bytes of checksums that the search in one segment may cost, which bounds it over hostile bytes.
const SEARCH_BYTES: usize = 64 << 20;

/// The log file. A slot is the place of one segment in it.
pub(super) struct Slots {
    file: File,
    bytes: u64,
}

impl Slots {
    pub fn new(file: File) -> io::Result<Self> {
        let bytes = file.metadata()?.len();
        Ok(Self { file, bytes })
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Slots that hold a header at least.
    pub fn count(&self) -> u64 {
        self.bytes / SEGMENT + u64::from(self.bytes % SEGMENT >= SEGMENT_HEADER as u64)
    }

    /// The header of a slot, or `None` if its checksum is wrong or the first message belongs to another segment.
    pub fn header(&self, slot: u64) -> io::Result<Option<SegmentHeader>> {
        let mut bytes = [0; SEGMENT_HEADER + MESSAGE_HEADER];
        self.read_at(&mut bytes, slot * SEGMENT)?;
        let Some(header) = SegmentHeader::decode(&bytes) else { return Ok(None) };
        Ok(match Message::claim(&bytes[SEGMENT_HEADER..]) {
            Some((segment, ..)) if segment != header.lsn / SEGMENT => None,
            _ => Some(header),
        })
    }

    pub fn read(&self, slot: u64, into: &mut SlotBytes) -> io::Result<()> {
        into.bytes.resize(SEGMENT_LEN + READ_AHEAD, 0);
        into.len = self.read_at(&mut into.bytes[..SEGMENT_LEN], slot * SEGMENT)?;
        into.bytes[into.len..].fill(0);
        Ok(())
    }

    /// Reads the message at `offset`, which belongs to this segment, into `into`.
    pub fn message<'a>(&self, offset: u64, segment: u64, into: &'a mut Vec<u8>) -> io::Result<Option<Message<'a>>> {
        let room = usize::try_from(SEGMENT - offset % SEGMENT).expect("a segment is smaller than memory");
        if room < MESSAGE_HEADER {
            return Ok(None);
        }
        into.resize(room.min(READ_AHEAD), 0);
        self.read_at(into, offset)?;
        let claimed = Message::claim(into).and_then(|(.., len)| usize::try_from(len).ok());
        match claimed {
            Some(len) if len <= room => {
                into.resize((len + MESSAGE_HEADER).min(room), 0);
                self.read_at(into, offset)?;
                Ok(Message::decode(into, |found| found == segment))
            }
            _ => Ok(None),
        }
    }

    /// Fills the buffer, with zeros beyond the end of the file. Returns the bytes that the file had.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.file.read_at(&mut into[done..], offset.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        into[done..].fill(0);
        Ok(done)
    }
}

/// The bytes of one slot.
#[derive(Default)]
pub(super) struct SlotBytes {
    bytes: Vec<u8>,
    len: usize,
}

/// The end of a walk through a segment's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WalkEnd {
    /// A message says that the rest holds nothing, or the rest is too short for one.
    Complete,
    /// No message of the segment can be read here.
    Unreadable,
    /// The visitor has seen enough.
    Stopped,
}

impl SlotBytes {
    pub fn is_zero(&self) -> bool {
        self.bytes.iter().all(|byte| *byte == 0)
    }

    /// Visits the messages of a segment in order, as sled does, with their offset in the segment. Returns the offset of the
    /// message that ended the walk.
    pub fn walk(
        &self,
        segment: u64,
        from: usize,
        mut visit: impl FnMut(usize, &Message<'_>) -> bool,
    ) -> (usize, WalkEnd) {
        let mut at = from;
        loop {
            if at + MESSAGE_HEADER > SEGMENT_LEN {
                return (at, WalkEnd::Complete);
            }
            match Message::decode(self.from(at), |found| found == segment) {
                None => return (at, WalkEnd::Unreadable),
                Some(message) if message.kind == MessageKind::Cap => return (at, WalkEnd::Complete),
                Some(message) => {
                    if !visit(at, &message) {
                        return (at, WalkEnd::Stopped);
                    }
                    at += message.len;
                }
            }
        }
    }

    /// Searches for messages from `from` on, byte by byte, and visits them. `accept` is asked about their segment number.
    pub fn search(&self, from: usize, accept: impl Fn(u64) -> bool, mut visit: impl FnMut(usize, &Message<'_>)) {
        let mut at = from;
        let mut cost = 0;
        while at + MESSAGE_HEADER <= self.len.min(SEGMENT_LEN) && cost < SEARCH_BYTES {
            // Five zero bytes are no beginning of a message, and most of what is searched is zero.
            if self.bytes[at..].starts_with(&[0; 5]) {
                let zeros = self.bytes[at..self.len].iter().take_while(|byte| **byte == 0).count();
                at += zeros.saturating_sub(4).max(1);
                continue;
            }
            // The kind of a message is its fifth byte, and few bytes are one.
            if !(1..=11).contains(&self.bytes[at + 4]) {
                at += 1;
                continue;
            }
            let bytes = self.from(at);
            match Message::claim(bytes) {
                Some((segment, _, len)) if len <= bytes.len() as u64 && accept(segment) => {
                    cost += usize::try_from(len).unwrap_or(usize::MAX) + MESSAGE_HEADER;
                    if let Some(message) = Message::decode(bytes, |_| true) {
                        visit(at, &message);
                        at += message.len;
                        continue;
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// True if a sector from `from` on is zero, or the beginning of a message is there that `accept` takes for one of a
    /// newer segment by its segment number and page id. Such traces are left by a write that a power cut tore.
    pub fn has_torn_write(&self, from: usize, accept: impl Fn(u64, u64) -> bool) -> bool {
        let end = self.len.min(SEGMENT_LEN);
        let mut sectors = self.bytes[from.next_multiple_of(SECTOR).min(end)..end].chunks_exact(SECTOR);
        let is_claimed = |at: usize| {
            // The kind of a message is its fifth byte, and few bytes are one.
            (1..=11).contains(&self.bytes[at + 4])
                && Message::claim(self.from(at))
                    .is_some_and(|(segment, pid, len)| len <= (SEGMENT_LEN - at) as u64 && accept(segment, pid))
        };
        sectors.any(|sector| sector.iter().all(|byte| *byte == 0))
            || (from..end.saturating_sub(MESSAGE_HEADER)).any(is_claimed)
    }

    /// The message at this place, if it is one of the segment.
    pub fn message(&self, at: usize, segment: u64) -> Option<Message<'_>> {
        if at + MESSAGE_HEADER > SEGMENT_LEN || at < SEGMENT_HEADER {
            return None;
        }
        Message::decode(self.from(at), |found| found == segment)
    }

    fn from(&self, at: usize) -> &[u8] {
        &self.bytes[at..self.len.max(at + READ_AHEAD).min(SEGMENT_LEN)]
    }
}
