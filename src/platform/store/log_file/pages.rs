//! Reads every message that the page table refers to, checks it, and keeps the outline of each page.
//!
//! The log is read once from front to back, a segment at a time and by several threads. Memory is bounded by the number of
//! pages: an outline has the page's bounds and pointers, not its rows.

use super::{
    damage::Damages,
    decode::{Link, Node, NodeData, default_root},
    messages::{COUNTER_PID, META_PID, MessageKind, SEGMENT},
    page_table::{PageEntry, PageTable},
    segments::{SlotBytes, Slots},
};
use std::{
    collections::{HashMap, HashSet},
    io, iter,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

const THREADS: usize = 4;

/// The bounds and pointers of a page of the tree.
#[derive(Debug)]
pub(super) struct Outline {
    pub lo: Box<[u8]>,
    /// The first key beyond the page; empty means that there is no end.
    pub hi: Box<[u8]>,
    /// The sibling to the right, or 0.
    pub next: u64,
    pub merging_child: u64,
    pub merging: bool,
    prefix: usize,
    /// The separators and pages below an index page; `None` for a leaf.
    pub children: Option<Vec<(Box<[u8]>, u64)>>,
}

impl Outline {
    pub fn covers(&self, key: &[u8]) -> bool {
        *self.lo <= *key && (self.hi.is_empty() || *key < *self.hi)
    }
}

#[derive(Default)]
pub(super) struct Pages {
    pub outlines: HashMap<u64, Outline>,
    /// Pages of which a message cannot be read.
    pub broken: HashSet<u64>,
    /// The root of the tree, if the page that names it can be read.
    pub root: Option<u64>,
    pub has_meta: bool,
    /// Bytes of the messages that the pages consist of.
    pub live: u64,
}

/// A message to check.
struct Part {
    pid: u64,
    lsn: u64,
    offset: u64,
    role: PartRole,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PartRole {
    Base,
    Link,
    /// sled does not read the message that frees a page again, so only its place counts.
    Free,
}

/// A message that could be read, and its length.
struct Sound(Checked, usize);

enum Checked {
    Outline(Box<Outline>),
    Meta(Option<u64>),
    Counter,
    Set(Box<[u8]>),
    Delete,
    MergeChild(u64),
    ChildMerged,
    Merging,
    Free,
}

impl Pages {
    pub fn read(slots: &Slots, table: &PageTable, damages: &mut Damages) -> io::Result<Self> {
        let mut parts = Vec::new();
        for (pid, entry) in table.iter() {
            match entry {
                PageEntry::Free(found) => {
                    parts.push(Part { pid, lsn: found.lsn, offset: found.offset, role: PartRole::Free });
                }
                PageEntry::Present { base, links } => {
                    let roles =
                        iter::once((base, PartRole::Base)).chain(links.iter().zip(iter::repeat(PartRole::Link)));
                    parts.extend(roles.map(|(found, role)| Part { pid, lsn: found.lsn, offset: found.offset, role }));
                }
            }
        }
        parts.sort_unstable_by_key(|part| part.offset);
        let groups: Vec<&[Part]> =
            parts.chunk_by(|one, other| one.offset / SEGMENT == other.offset / SEGMENT).collect();
        let mut pages = Self::default();
        let mut links = Vec::new();
        for checked in check_all(slots, &groups)? {
            for (part, result) in checked {
                match result.map(|Sound(checked, length)| {
                    pages.live += length as u64;
                    checked
                }) {
                    Ok(Checked::Outline(outline)) => _ = pages.outlines.insert(part.pid, *outline),
                    Ok(Checked::Meta(root)) => {
                        pages.has_meta = true;
                        pages.root = root;
                    }
                    Ok(Checked::Counter | Checked::Free | Checked::Delete) => {}
                    Ok(link) => links.push((part, link)),
                    Err(why) => {
                        pages.broken.insert(part.pid);
                        damages.log(Some(part.offset), format!("page {} cannot be read: {why}", part.pid));
                    }
                }
            }
        }
        links.sort_unstable_by_key(|(part, _)| part.lsn);
        for (part, link) in links {
            pages.apply(part, link, damages);
        }
        Ok(pages)
    }

    fn apply(&mut self, part: &Part, link: Checked, damages: &mut Damages) {
        let Some(outline) = self.outlines.get_mut(&part.pid) else { return };
        let fits = match link {
            Checked::Set(key) => {
                outline.children.is_none() && outline.covers(&[&outline.lo[..outline.prefix], &*key].concat())
            }
            Checked::MergeChild(child) => {
                outline.merging_child = child;
                true
            }
            Checked::ChildMerged => {
                let child = std::mem::take(&mut outline.merging_child);
                let children = outline.children.as_mut();
                children.is_some_and(|children| {
                    let before = children.len();
                    children.retain(|(_, pid)| *pid != child);
                    children.len() + 1 == before
                })
            }
            _ => {
                outline.merging = true;
                true
            }
        };
        if !fits {
            self.broken.insert(part.pid);
            damages.log(Some(part.offset), format!("a change of page {} does not fit the page's state", part.pid));
        }
    }
}

/// The parts of one slot, each with what it holds or the reason for which it cannot be used.
type CheckedParts<'a> = Vec<(&'a Part, Result<Sound, &'static str>)>;

/// Checks the parts of all slots, each slot read once.
fn check_all<'a>(slots: &Slots, groups: &[&'a [Part]]) -> io::Result<Vec<CheckedParts<'a>>> {
    let next = AtomicUsize::new(0);
    let work = || -> io::Result<Vec<_>> {
        let mut bytes = SlotBytes::default();
        let mut done = Vec::new();
        while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
            slots.read(group[0].offset / SEGMENT, &mut bytes)?;
            let segment = group[0].lsn / SEGMENT;
            done.push(group.iter().map(|part| (part, check(slots, &bytes, segment, part))).collect());
        }
        Ok(done)
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS).min(groups.len().max(1));
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut all = work()?;
        for other in others {
            all.extend(other.join().expect("checking bytes does not panic")?);
        }
        Ok(all)
    })
}

fn check(slots: &Slots, bytes: &SlotBytes, segment: u64, part: &Part) -> Result<Sound, &'static str> {
    if part.offset >= slots.bytes() {
        return Err("the file ends before it");
    }
    if part.lsn / SEGMENT != segment || part.lsn % SEGMENT != part.offset % SEGMENT {
        return Err("two states of the segment are in use");
    }
    if part.role == PartRole::Free {
        return Ok(Sound(Checked::Free, 0));
    }
    let at = usize::try_from(part.offset % SEGMENT).expect("a segment is smaller than memory");
    let message = bytes.message(at, segment).ok_or("its checksum is wrong")?;
    if message.pid != part.pid {
        return Err("another page is in its place");
    }
    let undecodable = "it cannot be decoded";
    let checked = match (part.role, message.kind, part.pid) {
        (PartRole::Base, MessageKind::Meta, META_PID) => {
            default_root(message.body).map(Checked::Meta).map_err(|_| undecodable)
        }
        (PartRole::Base, MessageKind::Counter, COUNTER_PID) => Ok(Checked::Counter),
        (PartRole::Base, MessageKind::Node, 2..) => {
            Node::decode(message.body).map(|node| Checked::Outline(Box::new(outline(&node)))).map_err(|_| undecodable)
        }
        (PartRole::Link, MessageKind::Link, 2..) => match Link::decode(message.body) {
            Ok(Link::Set(key, _)) => Ok(Checked::Set(key.into())),
            Ok(Link::Delete(_)) => Ok(Checked::Delete),
            Ok(Link::MergeChild(pid)) => Ok(Checked::MergeChild(pid)),
            Ok(Link::ChildMerged) => Ok(Checked::ChildMerged),
            Ok(Link::Merging) => Ok(Checked::Merging),
            Err(_) => Err(undecodable),
        },
        _ => Err("a message of another kind is in its place"),
    }?;
    Ok(Sound(checked, message.len))
}

pub(super) fn outline(node: &Node<'_>) -> Outline {
    let children = match &node.data {
        NodeData::Leaf(_) => None,
        NodeData::Index(pids) => {
            let keys = node.keys.iter().map(|key| [node.prefix, key].concat().into());
            Some(keys.zip(pids.iter().copied()).collect())
        }
    };
    Outline {
        lo: node.lo.into(),
        hi: node.hi.into(),
        next: node.next,
        merging_child: node.merging_child,
        merging: node.merging,
        prefix: node.prefix.len(),
        children,
    }
}
