//! Checks that the pages form one tree: on every level the pages follow each other without a gap, and each pointer leads to
//! the page that begins at its key.
//!
//! A split that is not yet known to the parent and a merge under way are sound states, for sled finishes them on its way.

use super::{
    damage::Damages,
    page_table::PageTable,
    pages::{Outline, Pages},
};
use std::collections::HashSet;

/// Pages that exist before the tree has its name: the two of fixed meaning, an empty leaf and its root.
const FIRST_PAGES: u64 = 4;

/// Returns the leaves in the order of their keys, or `None` if the tree has a gap.
pub(super) fn leaves(pages: &Pages, table: &PageTable, damages: &mut Damages) -> Option<Vec<u64>> {
    let Some(root) = pages.root else {
        // A database that was just created has no tree yet.
        if table.length() <= FIRST_PAGES && pages.broken.is_empty() {
            return Some(Vec::new());
        }
        if pages.has_meta || table.get(0).is_none() {
            damages.log(None, "the page that names the root of the tree is missing or empty");
        }
        return None;
    };
    let mut seen = HashSet::new();
    let mut level = Level { pids: Vec::new(), children: Vec::new() };
    let mut first = root;
    loop {
        let above = level.children;
        level = match Level::walk(first, pages, &mut seen) {
            Ok(level) => level,
            Err(Gap { pid, what }) => {
                // A page that cannot be read is known already.
                if !pages.broken.contains(&pid) {
                    damages.log(None, format!("the tree is broken at page {pid}: {what}"));
                }
                return None;
            }
        };
        if let Some(lost) = above.iter().find(|pid| !seen.contains(*pid) && !pages.outlines[*pid].merging) {
            damages.log(None, format!("the tree is broken at page {lost}: its left sibling does not lead to it"));
            return None;
        }
        let outline = &pages.outlines[&first];
        match outline.children.as_ref().map(|children| children.first()) {
            None => return Some(level.pids),
            Some(Some((_, child))) => first = *child,
            Some(None) => {
                damages.log(None, format!("the tree is broken at page {first}: it has no children"));
                return None;
            }
        }
    }
}

struct Level {
    pids: Vec<u64>,
    children: Vec<u64>,
}

struct Gap {
    pid: u64,
    what: &'static str,
}

impl Level {
    /// Walks along one level from its first page.
    fn walk(first: u64, pages: &Pages, seen: &mut HashSet<u64>) -> Result<Self, Gap> {
        let mut level = Self { pids: Vec::new(), children: Vec::new() };
        let is_leaf = |outline: &Outline| outline.children.is_none();
        let kind = pages.outlines.get(&first).map(is_leaf);
        let mut lo: &[u8] = &[];
        let mut pid = first;
        loop {
            let gap = |what| Gap { pid, what };
            let outline = pages.outlines.get(&pid).ok_or(gap("it does not exist"))?;
            if pages.broken.contains(&pid) {
                return Err(gap("it cannot be read"));
            }
            if !seen.insert(pid) {
                return Err(gap("the tree leads to it twice"));
            }
            if *outline.lo != *lo || Some(is_leaf(outline)) != kind {
                return Err(gap("it does not begin where its left sibling ends"));
            }
            for (key, child) in outline.children.iter().flatten() {
                let below = pages.outlines.get(child).ok_or(Gap { pid: *child, what: "it does not exist" })?;
                if below.lo != *key {
                    return Err(Gap { pid: *child, what: "it does not begin where the index says" });
                }
                level.children.push(*child);
            }
            level.pids.push(pid);
            match (outline.hi.is_empty(), outline.next) {
                (true, 0) => return Ok(level),
                (false, 1..) => {
                    lo = &outline.hi;
                    pid = outline.next;
                }
                _ => return Err(gap("its right sibling is missing")),
            }
        }
    }
}
