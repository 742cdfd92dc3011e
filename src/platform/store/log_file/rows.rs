//! Puts pages together from their messages and visits their rows.
//!
//! In a sound tree the leaves are visited in the order of their keys. In a broken one every leaf that can be read is, the
//! newest first: a row counts only if no newer page covers its key. A page whose newest state cannot be read is taken in an
//! older one, as far as the log still has it.

use super::{
    decode::{Link, Node, NodeData},
    messages::{Message, MessageKind, SEGMENT, SEGMENT_HEADER},
    page_table::{PageEntry, PageTable},
    pages::Pages,
    segments::{SlotBytes, Slots},
};
use std::{
    collections::{BTreeMap, HashMap},
    io,
    ops::Bound,
};

/// The number of rows that were visited, and of the leaves that could not be read as they were last written.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RowsRead {
    pub rows: u64,
    /// Leaves that were visited without their newest changes.
    pub stale_pages: u64,
    /// Pages of which no state can be read. Some of them may have been index pages, which have no rows.
    pub lost_pages: u64,
}

/// The rows of one leaf.
pub(super) struct LeafRows {
    lo: Vec<u8>,
    hi: Vec<u8>,
    pub rows: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The number of the newest message in it.
    last: u64,
    is_stale: bool,
}

/// A place of a message: its number and its offset.
type Place = (u64, u64);

/// Reads the leaf that consists of these messages. Returns `None` if the first cannot be read or is no leaf.
pub(super) fn leaf(slots: &Slots, pid: u64, base: Place, links: &[Place]) -> io::Result<Option<LeafRows>> {
    let mut bytes = Vec::new();
    let message = slots.message(base.1, base.0 / SEGMENT, &mut bytes)?;
    let Some(Message { kind: MessageKind::Node, body, .. }) = message.filter(|message| message.pid == pid) else {
        return Ok(None);
    };
    let Ok(node) = Node::decode(body) else { return Ok(None) };
    let NodeData::Leaf(values) = node.data else { return Ok(None) };
    let full = |key: &[u8]| [node.prefix, key].concat();
    let rows = node.keys.iter().zip(values).map(|(key, value)| (full(key), value.to_vec())).collect();
    let mut leaf = LeafRows { lo: node.lo.to_vec(), hi: node.hi.to_vec(), rows, last: base.0, is_stale: false };
    let prefix = node.prefix.to_vec();
    for (lsn, offset) in links {
        let message = slots.message(*offset, lsn / SEGMENT, &mut bytes)?;
        let link = message.filter(|message| message.pid == pid && message.kind == MessageKind::Link);
        match link.and_then(|message| Link::decode(message.body).ok()) {
            Some(Link::Set(key, value)) => {
                let key = [&prefix, key].concat();
                // A key outside the page shows that the change was made to another state of it.
                if leaf.covers(&key) {
                    leaf.rows.insert(key, value.to_vec());
                } else {
                    leaf.is_stale = true;
                }
            }
            Some(Link::Delete(key)) => _ = leaf.rows.remove(&[&prefix, key].concat()),
            Some(Link::MergeChild(_) | Link::ChildMerged | Link::Merging) => {}
            None => {
                leaf.is_stale = true;
                continue;
            }
        }
        leaf.last = *lsn;
    }
    Ok(Some(leaf))
}

/// The leaf with this page id as the page table has it.
pub(super) fn leaf_of(slots: &Slots, table: &PageTable, pid: u64) -> io::Result<Option<LeafRows>> {
    let Some(PageEntry::Present { base, links }) = table.get(pid) else { return Ok(None) };
    let links: Vec<Place> = links.iter().map(|link| (link.lsn, link.offset)).collect();
    leaf(slots, pid, (base.lsn, base.offset), &links)
}

impl LeafRows {
    fn covers(&self, key: &[u8]) -> bool {
        *self.lo <= *key && (self.hi.is_empty() || *key < *self.hi)
    }
}

/// Visits what can be read of a broken tree.
pub(super) fn salvage(
    slots: &Slots,
    table: &PageTable,
    pages: &Pages,
    mut visit: impl FnMut(&[u8], &[u8]),
) -> io::Result<RowsRead> {
    let mut read = RowsRead::default();
    let is_whole = |pid: u64| !pages.broken.contains(&pid) && pages.outlines.contains_key(&pid);
    let older =
        Older::search(slots, |pid| pid > 1 && !is_whole(pid) && !matches!(table.get(pid), Some(PageEntry::Free(_))))?;
    // The newest number of each leaf, to visit the newest first without holding their rows.
    let mut order = Vec::new();
    for (pid, outline) in &pages.outlines {
        if is_whole(*pid) && outline.children.is_none() {
            order.push((outline.last, *pid));
        }
    }
    let lost =
        table.iter().filter(|(pid, entry)| *pid > 1 && !is_whole(*pid) && matches!(entry, PageEntry::Present { .. }));
    let mut broken: Vec<u64> = lost.map(|(pid, _)| pid).chain(older.pids()).collect();
    broken.sort_unstable();
    broken.dedup();
    for pid in broken {
        match older.leaf(slots, table, pid)? {
            Some(leaf) => order.push((leaf.last, pid)),
            None => read.lost_pages += 1,
        }
    }
    order.sort_unstable_by(|one, other| other.cmp(one));
    let mut covered = Intervals::default();
    for (_, pid) in order {
        let leaf = if is_whole(pid) { leaf_of(slots, table, pid)? } else { older.leaf(slots, table, pid)? };
        let Some(leaf) = leaf else { continue };
        read.stale_pages += u64::from(leaf.is_stale);
        for (key, value) in &leaf.rows {
            if !covered.contains(key) {
                read.rows += 1;
                visit(key, value);
            }
        }
        covered.add(leaf.lo, leaf.hi);
    }
    Ok(read)
}

/// Messages of broken pages that are anywhere in the log, by page and in the order of their numbers.
struct Older(HashMap<u64, Vec<(u64, u64, MessageKind)>>);

impl Older {
    fn search(slots: &Slots, wanted: impl Fn(u64) -> bool) -> io::Result<Self> {
        let mut found: HashMap<u64, Vec<_>> = HashMap::new();
        let mut bytes = SlotBytes::default();
        for slot in 0..slots.bytes().div_ceil(SEGMENT) {
            slots.read(slot, &mut bytes)?;
            // A segment lies nowhere before the place of its number, because segments are only ever reused.
            let accept = |segment: u64| segment >= slot && segment < 1 << 40;
            bytes.search(SEGMENT_HEADER, accept, |at, message| {
                if matches!(message.kind, MessageKind::Node | MessageKind::Link) && wanted(message.pid) {
                    let at = at as u64;
                    let place = (message.segment * SEGMENT + at, slot * SEGMENT + at, message.kind);
                    found.entry(message.pid).or_default().push(place);
                }
            });
        }
        for places in found.values_mut() {
            places.sort_unstable_by_key(|(lsn, ..)| *lsn);
        }
        Ok(Self(found))
    }

    fn pids(&self) -> impl Iterator<Item = u64> {
        self.0.keys().copied()
    }

    /// The newest state of the leaf that can be read.
    fn leaf(&self, slots: &Slots, table: &PageTable, pid: u64) -> io::Result<Option<LeafRows>> {
        if let Some(leaf) = leaf_of(slots, table, pid)? {
            return Ok(Some(leaf));
        }
        // A change counts only for the state that it was made to, because its key is kept relative to that one.
        let mut before = table.get(pid).map_or(u64::MAX, |entry| match entry {
            PageEntry::Present { base, .. } => base.lsn,
            PageEntry::Free(found) => found.lsn,
        });
        let places = self.0.get(&pid).map_or(&[][..], Vec::as_slice);
        for (index, (lsn, offset, kind)) in places.iter().enumerate().rev() {
            if *kind != MessageKind::Node || *lsn >= before {
                continue;
            }
            let links: Vec<Place> = places[index + 1..]
                .iter()
                .take_while(|(lsn, _, kind)| *kind == MessageKind::Link && *lsn < before)
                .map(|(lsn, offset, _)| (*lsn, *offset))
                .collect();
            if let Some(mut leaf) = leaf(slots, pid, (*lsn, *offset), &links)? {
                leaf.is_stale = true;
                return Ok(Some(leaf));
            }
            before = *lsn;
        }
        Ok(None)
    }
}

/// A set of keys as intervals without overlap: first key to the key behind the last, where empty means no end.
#[derive(Default)]
struct Intervals(BTreeMap<Vec<u8>, Vec<u8>>);

impl Intervals {
    fn contains(&self, key: &[u8]) -> bool {
        let before = self.0.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back();
        before.is_some_and(|(_, hi)| hi.is_empty() || *key < **hi)
    }

    fn add(&mut self, mut lo: Vec<u8>, mut hi: Vec<u8>) {
        if let Some((before, end)) = self.0.range::<[u8], _>((Bound::Unbounded, Bound::Included(&lo[..]))).next_back()
            && (end.is_empty() || **end >= *lo)
        {
            lo = before.clone();
            hi = later(hi, end.clone());
            self.0.remove(&lo);
        }
        while let Some((next, end)) = self.0.range::<[u8], _>((Bound::Included(&lo[..]), Bound::Unbounded)).next() {
            if !hi.is_empty() && *next > hi {
                break;
            }
            let (next, end) = (next.clone(), end.clone());
            hi = later(hi, end);
            self.0.remove(&next);
        }
        self.0.insert(lo, hi);
    }
}

fn later(one: Vec<u8>, other: Vec<u8>) -> Vec<u8> {
    match (one.is_empty(), other.is_empty()) {
        (true, _) => one,
        (_, true) => other,
        _ => one.max(other),
    }
}
