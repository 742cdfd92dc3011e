//! The page table: the places in the log from which each page of the tree is put together.

use super::messages::MessageKind;
use std::collections::HashMap;

/// Links that a page has at most. sled writes a page as a whole once it has as many, so more of them show that a
/// message between them is lost.
pub(super) const MAX_LINKS: usize = 9;

/// The place of a message that a page consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageRef {
    pub lsn: u64,
    pub offset: u64,
    /// True if sled would pass over the message because of damage before it.
    pub hidden: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PageEntry {
    Free(PageRef),
    Present { base: PageRef, links: Vec<PageRef> },
}

impl PageEntry {
    /// The places of all its messages, the oldest first.
    pub fn parts(&self) -> impl Iterator<Item = &PageRef> + Clone {
        let (first, links) = match self {
            Self::Free(found) => (found, &[][..]),
            Self::Present { base, links } => (base, links.as_slice()),
        };
        std::iter::once(first).chain(links)
    }

    /// The newest message of the page.
    pub fn last(&self) -> PageRef {
        match self {
            Self::Free(found) => *found,
            Self::Present { base, links } => *links.last().unwrap_or(base),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct PageTable {
    pages: HashMap<u64, PageEntry>,
    /// One more than the highest page id, as sled counts them.
    length: u64,
}

impl PageTable {
    pub fn insert(&mut self, pid: u64, entry: PageEntry) {
        self.length = self.length.max(pid.saturating_add(1));
        self.pages.insert(pid, entry);
    }

    pub fn get(&self, pid: u64) -> Option<&PageEntry> {
        self.pages.get(&pid)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, &PageEntry)> {
        self.pages.iter().map(|(pid, entry)| (*pid, entry))
    }

    /// Pages of the table. Page ids are given out without gaps, so this is its length too if nothing is missing.
    pub fn len(&self) -> u64 {
        self.pages.len() as u64
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    /// Takes a message of the log into the table. Messages come in the order of the log. Returns false if the message
    /// changes a page of which nothing is known.
    pub fn apply(&mut self, kind: MessageKind, pid: u64, found: PageRef) -> bool {
        // Only a message that was found by searching can be older than the state it meets.
        if self.pages.get(&pid).is_some_and(|entry| entry.last().lsn >= found.lsn) {
            return true;
        }
        match kind {
            MessageKind::Free => self.insert(pid, PageEntry::Free(found)),
            MessageKind::Counter | MessageKind::Meta | MessageKind::Node => {
                self.insert(pid, PageEntry::Present { base: found, links: Vec::new() });
            }
            MessageKind::Link => match self.pages.get_mut(&pid) {
                Some(PageEntry::Present { links, .. }) => links.push(found),
                _ => {
                    // sled makes room for the page and takes back one place.
                    self.length = self.length.max(pid);
                    return false;
                }
            },
            MessageKind::Canceled | MessageKind::Cap | MessageKind::Batch | MessageKind::Blob => {}
        }
        true
    }
}
