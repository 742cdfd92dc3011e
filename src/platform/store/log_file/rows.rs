//! Puts leaves together from their messages.

use super::{
    decode::{Link, Node, NodeData},
    messages::{Message, MessageKind, SEGMENT},
    page_table::{PageEntry, PageTable},
    segments::Slots,
};
use std::{collections::BTreeMap, io};

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
    pub lo: Vec<u8>,
    /// The first key beyond the leaf; empty means that there is no end.
    pub hi: Vec<u8>,
    pub rows: BTreeMap<Vec<u8>, Vec<u8>>,
    /// True if a change cannot be read or does not fit.
    pub is_stale: bool,
}

/// A place of a message: its number and its offset.
pub(super) type Place = (u64, u64);

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
    let mut leaf = LeafRows { lo: node.lo.to_vec(), hi: node.hi.to_vec(), rows, is_stale: false };
    let prefix = node.prefix.to_vec();
    for (lsn, offset) in links {
        let message = slots.message(*offset, lsn / SEGMENT, &mut bytes)?;
        let link = message.filter(|message| message.pid == pid && message.kind == MessageKind::Link);
        match link.and_then(|message| Link::decode(message.body).ok()) {
            Some(Link::Set(key, value)) => {
                let key = [&prefix, key].concat();
                // A key outside the page shows that the change was made to another state of it.
                if covers(&leaf.lo, &leaf.hi, &key) {
                    leaf.rows.insert(key, value.to_vec());
                } else {
                    leaf.is_stale = true;
                }
            }
            Some(Link::Delete(key)) => _ = leaf.rows.remove(&[&prefix, key].concat()),
            Some(Link::MergeChild(_) | Link::ChildMerged | Link::Merging) => {}
            None => leaf.is_stale = true,
        }
    }
    Ok(Some(leaf))
}

/// The leaf with this page id as the page table has it.
pub(super) fn leaf_of(slots: &Slots, table: &PageTable, pid: u64) -> io::Result<Option<LeafRows>> {
    match places(table, pid) {
        Some((base, links)) => leaf(slots, pid, base, &links),
        None => Ok(None),
    }
}

/// The places of a page's whole state and of its changes as the page table has them.
pub(super) fn places(table: &PageTable, pid: u64) -> Option<(Place, Vec<Place>)> {
    let Some(PageEntry::Present { base, links }) = table.get(pid) else { return None };
    Some(((base.lsn, base.offset), links.iter().map(|link| (link.lsn, link.offset)).collect()))
}

/// True if a leaf with these bounds has the key.
pub(super) fn covers(lo: &[u8], hi: &[u8], key: &[u8]) -> bool {
    lo <= key && (hi.is_empty() || key < hi)
}
