//! The readable leaves of a broken tree.
//!
//! Every leaf that can be read counts, in its newest readable state. Where two overlap, the one that was written as a whole
//! last has the keys, because a split or a merge writes both pages as a whole. Keys that no leaf has are taken from older states
//! of any page, as far as the log still has them.
//!
//! A change of a page has its key relative to the prefix that the page's bounds share. If the state that a change was made to is
//! lost, the bounds follow from the neighbours: such changes are kept as single rows.

use super::{
    decode::{Link, Node, NodeData},
    messages::{MessageKind, SEGMENT, SEGMENT_HEADER},
    owners::{Interval, Owners},
    page_table::{PageEntry, PageTable},
    pages::Pages,
    rows::{Place, RowsRead, covers, leaf, places},
    segments::{SlotBytes, Slots},
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
};

/// The longest prefix that sled shares among the keys of a page.
const MAX_PREFIX: usize = u8::MAX as usize;

pub(super) struct Salvage {
    /// The leaves, the newest whole state first.
    leaves: Vec<LeafState>,
    /// The leaf that counts for each key, by its place in the list.
    owners: Owners,
    /// The last value of each key whose change has no leaf to be applied to; `None` if it was deleted.
    single_rows: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    lost: u64,
}

/// A readable state of a leaf.
struct LeafState {
    pid: u64,
    base: Place,
    links: Vec<Place>,
    lo: Vec<u8>,
    hi: Vec<u8>,
    is_stale: bool,
}

impl LeafState {
    fn read(slots: &Slots, pid: u64, base: Place, links: Vec<Place>) -> io::Result<Option<Self>> {
        let read = leaf(slots, pid, base, &links)?;
        Ok(read.map(|rows| Self { pid, base, links, lo: rows.lo, hi: rows.hi, is_stale: rows.is_stale }))
    }

    /// The number of its newest message.
    fn last(&self) -> u64 {
        self.links.last().unwrap_or(&self.base).0
    }
}

impl Salvage {
    /// Finds the leaves and the keys for which each of them counts.
    pub fn search(slots: &Slots, table: &PageTable, pages: &Pages) -> io::Result<Self> {
        let is_whole = |pid: u64| !pages.broken.contains(&pid) && pages.outlines.contains_key(&pid);
        let is_free = |pid: u64| matches!(table.get(pid), Some(PageEntry::Free(_)));
        let older = Older::search(slots, |pid| pid > 1 && !is_whole(pid) && !is_free(pid))?;
        let mut leaves = Vec::new();
        for (pid, outline) in pages.outlines.iter().filter(|(pid, _)| is_whole(**pid)) {
            if let (None, Some((base, links))) = (&outline.children, places(table, *pid)) {
                let (lo, hi) = (outline.lo.to_vec(), outline.hi.to_vec());
                leaves.push(LeafState { pid: *pid, base, links, lo, hi, is_stale: false });
            }
        }
        let lost_of_table =
            table.iter().map(|(pid, _)| pid).filter(|pid| *pid > 1 && !is_whole(*pid) && !is_free(*pid));
        let broken: BTreeSet<u64> = lost_of_table.chain(older.pids()).collect();
        let mut lost = Vec::new();
        for pid in broken {
            match older.newest(slots, table, pid)? {
                Some(state) => leaves.push(state),
                None => lost.push(pid),
            }
        }
        leaves.sort_unstable_by_key(|state| Reverse((state.base.0, state.pid)));
        let mut owners = Owners::default();
        for (number, state) in leaves.iter().enumerate() {
            owners.add(state.lo.clone(), state.hi.clone(), number);
        }
        let single_rows = BTreeMap::new();
        let mut salvage = Self { leaves, owners, single_rows, lost: lost.len() as u64 };
        salvage.take_changes_after_lost_splits(slots)?;
        salvage.take_changes_of_lost_pages(slots, pages, &older, &lost)?;
        salvage.fill_gaps(slots)?;
        Ok(salvage)
    }

    /// Visits every row that counts.
    pub fn rows(&self, slots: &Slots, mut visit: impl FnMut(&[u8], &[u8])) -> io::Result<RowsRead> {
        let mut read = RowsRead { lost_pages: self.lost, ..RowsRead::default() };
        let mut visit = |key: &[u8], value: &[u8]| {
            read.rows += 1;
            visit(key, value);
        };
        for (key, value) in self.single_rows.iter().filter_map(|(key, value)| Some((key, value.as_ref()?))) {
            visit(key, value);
        }
        let mut newest_first: Vec<usize> = (0..self.leaves.len()).collect();
        newest_first.sort_by_key(|number| Reverse(self.leaves[*number].last()));
        for number in newest_first {
            let LeafState { pid, base, links, .. } = &self.leaves[number];
            let Some(leaf) = leaf(slots, *pid, *base, links)? else { continue };
            for (key, value) in &leaf.rows {
                if self.owners.of(key) == Some(number) && !self.single_rows.contains_key(key) {
                    visit(key, value);
                }
            }
        }
        read.stale_pages = self.leaves.iter().filter(|state| state.is_stale).count() as u64;
        Ok(read)
    }

    pub fn get(&self, slots: &Slots, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        if let Some(value) = self.single_rows.get(key) {
            return Ok(value.clone());
        }
        let Some(number) = self.owners.of(key) else { return Ok(None) };
        let LeafState { pid, base, links, .. } = &self.leaves[number];
        Ok(leaf(slots, *pid, *base, links)?.and_then(|mut leaf| leaf.rows.remove(key)))
    }

    /// Finds leaves whose state after a split is lost: a newer leaf has the end of their keys. Changes after the split were
    /// made to the shorter leaf.
    fn take_changes_after_lost_splits(&mut self, slots: &Slots) -> io::Result<()> {
        let mut shortened = Vec::new();
        for (number, state) in self.leaves.iter().enumerate() {
            let Some(end) = self.owners.end(&state.lo, number).filter(|end| **end != *state.hi) else { continue };
            if let Some(right) = self.owners.of(end) {
                shortened.push((number, end.to_vec(), self.leaves[right].pid));
            }
        }
        if shortened.is_empty() {
            return Ok(());
        }
        let rights: BTreeSet<u64> = shortened.iter().map(|(.., right)| *right).collect();
        let rights = Older::search(slots, |pid| rights.contains(&pid))?;
        for (number, end, right) in shortened {
            let state = &mut self.leaves[number];
            state.is_stale = true;
            let Some(split) = rights.first_node(right, state.base.0) else { continue };
            let late = state.links.split_off(state.links.partition_point(|(lsn, _)| *lsn < split));
            let (pid, lo) = (state.pid, state.lo.clone());
            self.take_changes(slots, pid, &late, &(lo, end))?;
        }
        Ok(())
    }

    /// Takes the changes of pages of which no whole state can be read and whose bounds are known from their neighbours.
    fn take_changes_of_lost_pages(
        &mut self,
        slots: &Slots,
        pages: &Pages,
        older: &Older,
        lost: &[u64],
    ) -> io::Result<()> {
        let gaps = self.owners.gaps();
        for pid in lost {
            let links = older.links(*pid);
            let Some(lo) = first_key(pages, *pid).filter(|_| !links.is_empty()) else { continue };
            if let Some(gap) = gaps.iter().find(|gap| *gap.0 == *lo) {
                self.take_changes(slots, *pid, &links, gap)?;
            }
        }
        Ok(())
    }

    /// Takes changes that were made to a leaf with these bounds as single rows.
    fn take_changes(&mut self, slots: &Slots, pid: u64, links: &[Place], bounds: &Interval) -> io::Result<()> {
        let (lo, hi) = bounds;
        let shared = lo.iter().zip(hi).take(MAX_PREFIX).take_while(|(one, other)| one == other).count();
        let mut bytes = Vec::new();
        for (lsn, offset) in links {
            let message = slots.message(*offset, lsn / SEGMENT, &mut bytes)?;
            let link = message.filter(|message| message.pid == pid && message.kind == MessageKind::Link);
            let (key, value) = match link.and_then(|message| Link::decode(message.body).ok()) {
                Some(Link::Set(key, value)) => (key, Some(value.to_vec())),
                Some(Link::Delete(key)) => (key, None),
                _ => continue,
            };
            let key = [&lo[..shared], key].concat();
            if covers(lo, hi, &key) {
                self.single_rows.insert(key, value);
            }
        }
        Ok(())
    }

    /// Takes the rows for keys that no leaf has from older states of any page, the newest first.
    fn fill_gaps(&mut self, slots: &Slots) -> io::Result<()> {
        let gaps = self.owners.gaps();
        if gaps.is_empty() {
            return Ok(());
        }
        let is_in_gap = |lo: &[u8], hi: &[u8]| {
            let next = gaps.partition_point(|(_, to)| !to.is_empty() && **to <= *lo);
            gaps.get(next).is_some_and(|(from, _)| hi.is_empty() || **from < *hi)
        };
        let mut wanted = BTreeSet::new();
        for_each_message(slots, |_, kind, pid, body| {
            if kind == MessageKind::Node
                && let Ok(Node { lo, hi, data: NodeData::Leaf(_), .. }) = Node::decode(body)
                && is_in_gap(lo, hi)
            {
                wanted.insert(pid);
            }
        })?;
        let older = Older::search(slots, |pid| wanted.contains(&pid))?;
        let mut states = Vec::new();
        for pid in wanted {
            states.extend(older.states(pid, u64::MAX).map(|(base, links)| (pid, base, links)));
        }
        states.sort_by_key(|(_, base, _)| Reverse(base.0));
        for (pid, base, links) in states {
            let Some(mut state) = LeafState::read(slots, pid, base, links)? else { continue };
            if self.owners.add(state.lo.clone(), state.hi.clone(), self.leaves.len()) {
                state.is_stale = true;
                self.leaves.push(state);
            }
        }
        Ok(())
    }
}

/// The first key of a page that cannot be read, as its left sibling or the page above it tells.
fn first_key(pages: &Pages, pid: u64) -> Option<&[u8]> {
    let whole = pages.outlines.iter().filter(|(other, _)| !pages.broken.contains(other));
    whole.map(|(_, outline)| outline).find_map(|outline| {
        let mut below = outline.children.iter().flatten();
        let above = below.find(|(_, child)| *child == pid).map(|(key, _)| &**key);
        above.or_else(|| (outline.next == pid).then_some(&*outline.hi))
    })
}

/// Visits every message in the log with its place, whether it is outdated or not.
fn for_each_message(slots: &Slots, mut visit: impl FnMut(Place, MessageKind, u64, &[u8])) -> io::Result<()> {
    let mut bytes = SlotBytes::default();
    for slot in 0..slots.bytes().div_ceil(SEGMENT) {
        slots.read(slot, &mut bytes)?;
        // A segment lies nowhere before the place of its number, because segments are only ever reused.
        let accept = |segment: u64| segment >= slot && segment < 1 << 40;
        bytes.search(SEGMENT_HEADER, accept, |at, message| {
            let at = at as u64;
            let place = (message.segment * SEGMENT + at, slot * SEGMENT + at);
            visit(place, message.kind, message.pid, message.body);
        });
    }
    Ok(())
}

/// Messages of some pages that are anywhere in the log, by page and in the order of their numbers.
struct Older(HashMap<u64, Vec<(Place, MessageKind)>>);

impl Older {
    fn search(slots: &Slots, wanted: impl Fn(u64) -> bool) -> io::Result<Self> {
        let mut found: HashMap<u64, Vec<_>> = HashMap::new();
        for_each_message(slots, |place, kind, pid, _| {
            if matches!(kind, MessageKind::Node | MessageKind::Link) && wanted(pid) {
                found.entry(pid).or_default().push((place, kind));
            }
        })?;
        for places in found.values_mut() {
            places.sort_unstable_by_key(|((lsn, _), _)| *lsn);
        }
        Ok(Self(found))
    }

    fn pids(&self) -> impl Iterator<Item = u64> {
        self.0.keys().copied()
    }

    fn of(&self, pid: u64) -> &[(Place, MessageKind)] {
        self.0.get(&pid).map_or(&[], Vec::as_slice)
    }

    /// The number of the first whole state of the page after this number.
    fn first_node(&self, pid: u64, after: u64) -> Option<u64> {
        let mut nodes = self.of(pid).iter().filter(|(_, kind)| *kind == MessageKind::Node);
        nodes.find(|((lsn, _), _)| *lsn > after).map(|((lsn, _), _)| *lsn)
    }

    /// The changes of the page.
    fn links(&self, pid: u64) -> Vec<Place> {
        self.of(pid).iter().filter(|(_, kind)| *kind == MessageKind::Link).map(|(place, _)| *place).collect()
    }

    /// The states of the page before this number, the newest first, each with its changes: a change counts only for the state that it was made
    /// to, because its key is kept relative to that one.
    fn states(&self, pid: u64, before: u64) -> impl Iterator<Item = (Place, Vec<Place>)> {
        let messages = self.of(pid);
        let messages = &messages[..messages.partition_point(|((lsn, _), _)| *lsn < before)];
        messages.iter().enumerate().rev().filter(|(_, (_, kind))| *kind == MessageKind::Node).map(
            |(index, (base, _))| {
                let links = messages[index + 1..].iter().take_while(|(_, kind)| *kind == MessageKind::Link);
                (*base, links.map(|(place, _)| *place).collect())
            },
        )
    }

    /// The newest state of the leaf that can be read.
    fn newest(&self, slots: &Slots, table: &PageTable, pid: u64) -> io::Result<Option<LeafState>> {
        if let Some((base, links)) = places(table, pid)
            && let Some(state) = LeafState::read(slots, pid, base, links)?
        {
            return Ok(Some(state));
        }
        let before = match table.get(pid) {
            Some(PageEntry::Present { base, .. }) => base.lsn,
            Some(PageEntry::Free(found)) => found.lsn,
            None => u64::MAX,
        };
        for (base, links) in self.states(pid, before) {
            if let Some(mut state) = LeafState::read(slots, pid, base, links)? {
                state.is_stale = true;
                return Ok(Some(state));
            }
        }
        Ok(None)
    }
}
