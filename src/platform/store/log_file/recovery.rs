//! Replays the log from the snapshot to its end, as sled does when it opens, and tells where sled would pass over
//! something that it had written.
//!
//! sled reads the segments in the order of their numbers. It finds the end of the log first: the first place in the newest
//! segments at which no message can be read. It writes several messages at a time, in any order, so that whole ones behind
//! that place are no proof that it was on disk once. A caller who knows more says so ([`LogEnd`]). Before the end, sled takes
//! an unreadable place for the rest of a segment that was freed and is being written anew. That is true only if messages of a
//! newer segment follow in the same slot. A power cut may have torn all of them; then traces of the write must be there, and
//! no page may consist of anything else in the slot.

use super::{
    damage::Damages,
    messages::{Message, MessageKind, SEGMENT, SEGMENT_HEADER},
    page_table::{MAX_LINKS, PageRef, PageTable},
    segments::{SlotBytes, Slots, WalkEnd},
    snapshot::PageSnapshot,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    io,
};

/// Segment numbers above the newest one that a message under way can have.
const AHEAD: u64 = 4096;

/// The same for a message whose checksum is wrong, and page ids above the highest one that it can have.
const TORN_AHEAD: u64 = 64;
const NEW_PAGES: u64 = 4096;

/// The place up to which the messages of the log count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogEnd {
    /// The first place that cannot be read, as for sled.
    FirstUnreadable,
    /// The same, unless two batches begin behind it. The caller knows that each batch was on disk before the next one
    /// began.
    FirstUnreadableUnlessBatchesFollow,
    /// The last message that can be read. The caller knows that the log was on disk beyond the first unreadable place.
    LastReadable,
}

/// A message found outside the way that sled takes through the log.
struct Stray {
    lsn: u64,
    offset: u64,
    kind: MessageKind,
    pid: u64,
}

struct Recovery<'a> {
    slots: &'a Slots,
    damages: &'a mut Damages,
    log_end: LogEnd,
    table: PageTable,
    /// Messages below this number are in the snapshot.
    stable: u64,
    /// The valid headers from the snapshot on: log sequence number to slot.
    headers: BTreeMap<u64, u64>,
    /// The number up to which the headers call the log complete.
    header_stable: u64,
    /// The first number behind the last message in a row.
    end: u64,
    /// The opening of a batch that does not end before `end`. sled stops there.
    cut: Option<u64>,
    /// Messages in slots without a valid header, by the first number of their segment.
    headerless: BTreeMap<u64, Vec<Stray>>,
    /// Messages behind the end.
    late: Vec<Stray>,
    /// Pages that were changed before anything was known of them.
    unknown: HashSet<u64>,
    /// Unreadable places before the end, each with true if a torn write explains it.
    gaps: Vec<(u64, bool)>,
}

/// The result of a replay.
pub(super) struct Recovered {
    pub table: PageTable,
    /// True if whole messages are behind the end of the log, and do not count.
    pub ends_early: bool,
}

/// Returns the page table that the log gives. If sled would come to another one, `damages` says so.
pub(super) fn recover(
    slots: &Slots,
    snapshot: Option<PageSnapshot>,
    log_end: LogEnd,
    damages: &mut Damages,
) -> io::Result<Recovered> {
    let snapshot = snapshot.unwrap_or_default();
    let mut recovery = Recovery {
        slots,
        damages,
        log_end,
        table: snapshot.table,
        stable: snapshot.stable,
        headers: BTreeMap::new(),
        header_stable: 0,
        end: 0,
        cut: None,
        headerless: BTreeMap::new(),
        late: Vec::new(),
        unknown: HashSet::new(),
        gaps: Vec::new(),
    };
    let mut bytes = SlotBytes::default();
    let without_header = recovery.read_headers()?;
    recovery.find_end(snapshot.active, &mut bytes)?;
    for slot in without_header {
        recovery.search_headerless(slot, &mut bytes)?;
    }
    recovery.replay(&mut bytes)?;
    recovery.judge_gaps();
    recovery.judge_end();
    recovery.judge_length()?;
    recovery.judge_table();
    Ok(Recovered { table: recovery.table, ends_early: !recovery.late.is_empty() })
}

impl Recovery<'_> {
    /// Reads the header of every slot. Returns the slots that have none.
    fn read_headers(&mut self) -> io::Result<Vec<u64>> {
        let first = self.stable / SEGMENT * SEGMENT;
        self.header_stable = first;
        let mut without = Vec::new();
        for slot in 0..self.slots.count() {
            let Some(header) = self.slots.header(slot)? else {
                without.push(slot);
                continue;
            };
            if header.lsn < first {
                continue;
            }
            self.header_stable = self.header_stable.max(u64::try_from(header.stable).unwrap_or(0));
            if let Some(other) = self.headers.insert(header.lsn, slot) {
                let other = other * SEGMENT;
                self.damages
                    .log(Some(slot * SEGMENT), format!("the segment has the number of the one at byte {other}"));
            }
        }
        Ok(without)
    }

    /// Finds the end of the log in the segments from the last number on that a header calls complete.
    fn find_end(&mut self, active: Option<u64>, bytes: &mut SlotBytes) -> io::Result<()> {
        let first = self.header_stable / SEGMENT * SEGMENT;
        let mut tail = Vec::new();
        let mut missing = None;
        for (number, (&lsn, &slot)) in (0..).zip(self.headers.range(first..)) {
            let expected = first + number * SEGMENT;
            if lsn != expected {
                missing = Some(expected);
                break;
            }
            tail.push((lsn, slot));
        }
        if tail.is_empty() {
            if !self.headers.is_empty() || active.is_some() {
                self.damages.log(active, "the segment in which the log was last known to be complete is missing");
                self.end = u64::MAX;
            }
            return Ok(());
        }
        for (lsn, slot) in tail {
            self.slots.read(slot, bytes)?;
            let (at, walk_end) = bytes.walk(lsn / SEGMENT, SEGMENT_HEADER, |_, message| {
                let torn =
                    message.kind == MessageKind::Batch && missing.is_some_and(|missing| message.batch_end() > missing);
                !torn
            });
            self.end = lsn + at as u64;
            if walk_end != WalkEnd::Complete {
                break;
            }
        }
        if self.end < self.stable {
            let what =
                format!("the log ends {} bytes before the state that the snapshot holds", self.stable - self.end);
            self.damages.log(None, what);
            self.end = u64::MAX;
        }
        Ok(())
    }

    /// Looks for messages in a slot whose header is missing or wrong.
    fn search_headerless(&mut self, slot: u64, bytes: &mut SlotBytes) -> io::Result<()> {
        self.slots.read(slot, bytes)?;
        if bytes.is_zero() {
            return Ok(());
        }
        let first = self.stable / SEGMENT;
        let last = self.last_segment();
        let mut strays = Vec::new();
        bytes.search(
            SEGMENT_HEADER,
            |segment| (first..=last).contains(&segment),
            |at, message| strays.extend(stray(slot, at, message)),
        );
        for stray in strays {
            if stray.lsn >= self.end {
                self.late.push(stray);
            } else {
                self.headerless.entry(stray.lsn / SEGMENT * SEGMENT).or_default().push(stray);
            }
        }
        Ok(())
    }

    /// The highest segment number that a message can have.
    fn last_segment(&self) -> u64 {
        let newest = self.headers.last_key_value().map_or(self.stable, |(lsn, _)| *lsn);
        newest / SEGMENT + AHEAD
    }

    fn replay(&mut self, bytes: &mut SlotBytes) -> io::Result<()> {
        let mut order: BTreeSet<u64> = self.headers.keys().copied().collect();
        order.extend(self.headerless.keys().copied());
        for base in order {
            if let Some(slot) = self.headers.get(&base).copied() {
                self.replay_segment(base, slot, bytes)?;
            }
            for stray in self.headerless.remove(&base).unwrap_or_default() {
                let found = PageRef { lsn: stray.lsn, offset: stray.offset, hidden: true };
                self.apply(stray.kind, stray.pid, found);
            }
        }
        Ok(())
    }

    fn replay_segment(&mut self, base: u64, slot: u64, bytes: &mut SlotBytes) -> io::Result<()> {
        self.slots.read(slot, bytes)?;
        let segment = base / SEGMENT;
        let (at, walk_end) = bytes.walk(segment, SEGMENT_HEADER, |at, message| {
            let lsn = base + at as u64;
            if message.kind == MessageKind::Batch
                && self.cut.is_none()
                && lsn < self.end
                && message.batch_end() >= self.end
            {
                self.cut = Some(lsn);
            }
            if lsn >= self.end || self.cut.is_some() {
                self.late.extend(stray(slot, at, message));
            } else {
                let found = PageRef { lsn, offset: slot * SEGMENT + at as u64, hidden: false };
                self.apply(message.kind, message.pid, found);
            }
            true
        });
        if walk_end != WalkEnd::Unreadable {
            return Ok(());
        }
        let mut rest = Vec::new();
        let last = self.last_segment();
        bytes.search(
            at,
            |found| (segment..=last).contains(&found),
            |at, message| rest.extend(stray(slot, at, message)),
        );
        let end = if self.cut.is_some() { base + at as u64 } else { self.end };
        let overwritten = rest.iter().any(|stray| stray.lsn / SEGMENT > segment && stray.lsn >= end);
        if base + (at as u64) < end && !overwritten {
            let newer = end / SEGMENT..=end / SEGMENT + TORN_AHEAD;
            let pages = self.table.length() + NEW_PAGES;
            let is_torn =
                bytes.has_torn_write(at, |found, pid| newer.contains(&found) && found > segment && pid < pages);
            self.gaps.push((slot * SEGMENT + at as u64, is_torn));
        }
        for stray in rest {
            if stray.lsn >= end {
                self.late.push(stray);
            } else if stray.lsn / SEGMENT == segment {
                let found = PageRef { lsn: stray.lsn, offset: stray.offset, hidden: true };
                self.apply(stray.kind, stray.pid, found);
            }
        }
        Ok(())
    }

    fn apply(&mut self, kind: MessageKind, pid: u64, found: PageRef) {
        if found.lsn < self.stable {
            return;
        }
        if kind == MessageKind::Blob {
            self.damages.log(Some(found.offset), "a page is kept in a file of its own, which this store never does");
        }
        if !self.table.apply(kind, pid, found) {
            self.unknown.insert(pid);
        }
    }

    /// Tells freed segments that are being written anew from damage.
    fn judge_gaps(&mut self) {
        if self.gaps.is_empty() {
            return;
        }
        let parts = self.table.iter().flat_map(|(_, entry)| entry.parts());
        let used: HashSet<u64> = parts.map(|part| part.offset / SEGMENT).collect();
        for (offset, is_torn) in std::mem::take(&mut self.gaps) {
            if !is_torn || used.contains(&(offset / SEGMENT)) {
                let what = "a part of the log cannot be read, and changes after the last start were in it";
                self.damages.log(Some(offset), what);
            }
        }
    }

    /// Takes the messages behind the end too if they count.
    fn judge_end(&mut self) {
        let was_on_disk = match self.log_end {
            LogEnd::FirstUnreadable => false,
            LogEnd::FirstUnreadableUnlessBatchesFollow => {
                let batches = self.late.iter().filter(|stray| stray.kind == MessageKind::Batch);
                batches.map(|stray| stray.lsn).collect::<BTreeSet<u64>>().len() >= 2
            }
            LogEnd::LastReadable => !self.late.is_empty(),
        };
        if !was_on_disk {
            return;
        }
        let end = self.cut.unwrap_or(self.end);
        let place = self.headers.get(&(end / SEGMENT * SEGMENT)).map(|slot| slot * SEGMENT + end % SEGMENT);
        self.damages.log(place, "the log cannot be read from here on, and later changes were on disk");
        self.late.sort_by_key(|stray| stray.lsn);
        for stray in std::mem::take(&mut self.late) {
            let found = PageRef { lsn: stray.lsn, offset: stray.offset, hidden: true };
            self.apply(stray.kind, stray.pid, found);
        }
    }

    /// Tells a file that was cut short: only the segment that is being filled may end before its size.
    fn judge_length(&mut self) -> io::Result<()> {
        let length = self.slots.bytes();
        if length.is_multiple_of(SEGMENT) {
            return Ok(());
        }
        let slot = length / SEGMENT;
        let filling = self.end / SEGMENT * SEGMENT;
        let under_way = match self.slots.header(slot)? {
            _ if length % SEGMENT < SEGMENT_HEADER as u64 => false,
            Some(header) => header.lsn >= filling,
            // A torn write of zeros or of the next segment.
            None => true,
        };
        if !under_way {
            self.damages.log(Some(length), "the file ends inside a segment that was complete");
        }
        Ok(())
    }

    fn judge_table(&mut self) {
        let missing = self.table.length() - self.table.len();
        if missing > 0 {
            self.damages.log(None, format!("{missing} pages are missing from the log"));
        }
        let table = &self.table;
        self.unknown.retain(|pid| *pid >= table.length() && table.get(*pid).is_none());
        if !self.unknown.is_empty() {
            let count = self.unknown.len();
            self.damages.log(None, format!("{count} pages are changed and were never written"));
        }
        for (_, entry) in self.table.iter() {
            let parts = entry.parts();
            if parts.clone().count() > MAX_LINKS + 1 {
                let what = "a page has more changes than sled leaves, so a newer state of it is lost";
                self.damages.log(Some(entry.last().offset), what);
            }
            if let Some(hidden) = parts.clone().find(|part| part.hidden) {
                self.damages
                    .log(Some(hidden.offset), "sled would pass over this change, because of the damage before it");
            }
        }
    }
}

fn stray(slot: u64, at: usize, message: &Message<'_>) -> Option<Stray> {
    let lsn = message.segment.checked_mul(SEGMENT)?.checked_add(at as u64)?;
    Some(Stray { lsn, offset: slot * SEGMENT + at as u64, kind: message.kind, pid: message.pid })
}
