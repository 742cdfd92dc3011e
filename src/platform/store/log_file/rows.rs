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
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
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

/// The readable leaves of a broken tree.
pub(super) struct Salvage {
    /// The leaves, the newest first, each with the number of its newest message.
    leaves: Vec<(u64, u64)>,
    older: Older,
    owners: Owners,
    lost: u64,
}

impl Salvage {
    /// Finds the leaves and the keys for which each of them counts.
    pub fn search(slots: &Slots, table: &PageTable, pages: &Pages) -> io::Result<Self> {
        let is_whole = |pid: u64| !pages.broken.contains(&pid) && pages.outlines.contains_key(&pid);
        let is_free = |pid: u64| matches!(table.get(pid), Some(PageEntry::Free(_)));
        let older = Older::search(slots, |pid| pid > 1 && !is_whole(pid) && !is_free(pid))?;
        let mut found = Vec::new();
        for (pid, outline) in pages.outlines.iter().filter(|(pid, _)| is_whole(**pid)) {
            if outline.children.is_none() {
                found.push((outline.last, *pid, outline.lo.to_vec(), outline.hi.to_vec()));
            }
        }
        let lost_of_table =
            table.iter().map(|(pid, _)| pid).filter(|pid| *pid > 1 && !is_whole(*pid) && !is_free(*pid));
        let broken: BTreeSet<u64> = lost_of_table.chain(older.pids()).collect();
        let mut lost = 0;
        for pid in broken {
            match older.leaf(slots, table, pid)? {
                Some(leaf) => found.push((leaf.last, pid, leaf.lo, leaf.hi)),
                None => lost += 1,
            }
        }
        found.sort_unstable_by_key(|(last, pid, ..)| Reverse((*last, *pid)));
        let mut owners = Owners::default();
        let leaves = found.into_iter().map(|(last, pid, lo, hi)| {
            owners.add(lo, hi, pid);
            (last, pid)
        });
        Ok(Self { leaves: leaves.collect(), older, owners, lost })
    }

    /// Visits every row that counts.
    pub fn rows(&self, slots: &Slots, table: &PageTable, mut visit: impl FnMut(&[u8], &[u8])) -> io::Result<RowsRead> {
        let mut read = RowsRead { lost_pages: self.lost, ..RowsRead::default() };
        for (_, pid) in &self.leaves {
            let Some(leaf) = self.older.leaf(slots, table, *pid)? else { continue };
            read.stale_pages += u64::from(leaf.is_stale);
            for (key, value) in &leaf.rows {
                if self.owners.of(key) == Some(*pid) {
                    read.rows += 1;
                    visit(key, value);
                }
            }
        }
        Ok(read)
    }

    pub fn get(&self, slots: &Slots, table: &PageTable, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let Some(pid) = self.owners.of(key) else { return Ok(None) };
        Ok(self.older.leaf(slots, table, pid)?.and_then(|mut leaf| leaf.rows.remove(key)))
    }
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

/// The page that counts for each key, as intervals without overlap: first key to the key behind the last, where empty means
/// no end, and the page.
#[derive(Default)]
struct Owners(BTreeMap<Vec<u8>, (Vec<u8>, u64)>);

impl Owners {
    fn of(&self, key: &[u8]) -> Option<u64> {
        let (_, (hi, pid)) = self.0.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
        (hi.is_empty() || *key < **hi).then_some(*pid)
    }

    /// Gives the page those keys of its interval that no page has yet.
    fn add(&mut self, lo: Vec<u8>, hi: Vec<u8>, pid: u64) {
        let is_before_end = |key: &[u8]| hi.is_empty() || *key < *hi;
        let mut at = lo;
        if let Some((_, (end, _))) = self.0.range::<[u8], _>((Bound::Unbounded, Bound::Included(&at[..]))).next_back() {
            if end.is_empty() {
                return;
            }
            if *at < **end {
                at = end.clone();
            }
        }
        while is_before_end(&at) {
            let next = self.0.range::<[u8], _>((Bound::Included(&at[..]), Bound::Unbounded)).next();
            let next = next.filter(|(lo, _)| is_before_end(lo)).map(|(lo, (end, _))| (lo.clone(), end.clone()));
            let (end, after) = next.map_or_else(|| (hi.clone(), None), |(lo, end)| (lo, Some(end)));
            if at != end {
                self.0.insert(at, (end, pid));
            }
            match after {
                Some(after) if !after.is_empty() => at = after,
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_belongs_to_the_first_page_that_covers_it() {
        let mut owners = Owners::default();
        for (lo, hi, pid) in [("c", "e", 1), ("g", "i", 2), ("a", "h", 3), ("d", "", 4), ("", "b", 5), ("", "", 6)] {
            owners.add(lo.into(), hi.into(), pid);
        }
        let of = |key: &str| owners.of(key.as_bytes());
        let found: Vec<_> =
            ["", "a", "b", "c", "d", "e", "f", "g", "h", "i", "z"].map(of).into_iter().flatten().collect();
        assert_eq!(found, [5, 3, 3, 1, 1, 3, 3, 2, 2, 4, 4]);
        let mut owners = Owners::default();
        owners.add(b"b".to_vec(), b"d".to_vec(), 1);
        assert_eq!([&b"a"[..], b"b", b"d"].map(|key| owners.of(key)), [None, Some(1), None]);
    }
}
