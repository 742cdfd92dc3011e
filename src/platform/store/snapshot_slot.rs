//! Old values that the writer keeps for the reader of a snapshot ([`super::snapshot_read`]).
//!
//! Memory is bounded: past [`SAVED_BYTES`] everything is let go and the snapshot is given up.

use super::{
    buffered_tree::BufferedTree,
    chunked::{self, Value},
    keys,
};
use parking_lot::Mutex;
use std::{collections::BTreeMap, ops::Bound::Included};

/// The most bytes of old values that are kept for a reader.
pub const SAVED_BYTES: usize = 64 << 20;

/// Memory of a saved value beside its bytes, roughly.
const SAVED_OVERHEAD: usize = 128;

/// The place of the one snapshot there is at a time.
#[derive(Default)]
pub struct SnapshotSlot(Mutex<Option<SavedValues>>);

/// Old values of the keys that have changed since the snapshot, and the position of its reader.
pub struct SavedValues {
    kinds: Vec<(u8, Value)>,
    rank: usize,
    passed: Vec<u8>,
    values: BTreeMap<SavedKey, Option<Value>>,
    bytes: usize,
    overflowed: bool,
}

/// A key in the order in which the reader passes it: a piece belongs to the key of its value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SavedKey {
    /// The place of the kind among those of the snapshot.
    pub rank: usize,
    pub key: Vec<u8>,
    /// The key of the piece; empty for the row under `key` itself.
    pub piece: Vec<u8>,
}

impl SnapshotSlot {
    /// Begins saving for a reader of these kinds up to these last keys. Returns `false` if there is a reader already.
    pub fn begin(&self, kinds: Vec<(u8, Value)>) -> bool {
        let mut slot = self.0.lock();
        let is_free = slot.is_none();
        if is_free {
            let (values, passed) = (BTreeMap::new(), Vec::new());
            *slot = Some(SavedValues { kinds, rank: 0, passed, values, bytes: 0, overflowed: false });
        }
        is_free
    }

    pub fn end(&self) {
        *self.0.lock() = None;
    }

    pub fn is_active(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Reads the saved values; `None` if they have been let go for lack of room.
    pub fn with<T>(&self, run: impl FnOnce(&mut SavedValues) -> T) -> Option<T> {
        self.0.lock().as_mut().filter(|saved| !saved.overflowed).map(run)
    }

    /// Saves the values under these keys, which the writer is about to change, for the reader of the snapshot.
    pub fn save<'k>(&self, tree: &BufferedTree, keys: impl Iterator<Item = &'k [u8]>) -> Result<(), sled::Error> {
        let wanted: Vec<SavedKey> = match &*self.0.lock() {
            Some(saved) if !saved.overflowed => keys.filter_map(|key| saved.wanted(key)).collect(),
            _ => return Ok(()),
        };
        let mut found = Vec::with_capacity(wanted.len());
        for at in wanted {
            let is_piece = !at.piece.is_empty();
            let old = tree.get(if is_piece { &at.piece } else { &at.key })?;
            // A piece is read by way of its head alone, so one that was not there is never asked for.
            if old.is_some() || !is_piece {
                found.push((at, old));
            }
        }
        if let Some(saved) = &mut *self.0.lock() {
            found.into_iter().for_each(|(at, old)| saved.insert(at, old));
        }
        Ok(())
    }
}

impl SavedValues {
    /// The old value of a key; `None` if it has not changed.
    pub fn get(&self, at: &SavedKey) -> Option<&Option<Value>> {
        self.values.get(at)
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// The old values of the rows from `from` up to `end`, pieces left out.
    pub fn rows(&self, from: &SavedKey, end: &SavedKey) -> impl Iterator<Item = (&[u8], Option<&Value>)> {
        let range = self.values.range((Included(from), Included(end)));
        range.filter(|(at, _)| at.piece.is_empty()).map(|(at, old)| (&*at.key, old.as_ref()))
    }

    /// Notes that the reader has passed everything up to this key, and drops what was saved for it.
    pub fn advance(&mut self, rank: usize, passed: Vec<u8>) {
        (self.rank, self.passed) = (rank, passed);
        while let Some(first) = self.values.first_entry().filter(|first| {
            let at = first.key();
            (at.rank, &at.key) <= (self.rank, &self.passed)
        }) {
            let (at, old) = first.remove_entry();
            self.bytes -= cost(&at, old.as_ref());
        }
    }

    /// The place of a key that is about to change; `None` if its old value is of no use or is saved already.
    fn wanted(&self, key: &[u8]) -> Option<SavedKey> {
        let (row, piece) = match key.first()? {
            &keys::PIECE => (chunked::value_of_piece(key)?, key),
            _ => (key, &[][..]),
        };
        let rank = self.kinds.iter().position(|(kind, _)| *kind == row[0])?;
        let at = SavedKey { rank, key: row.to_vec(), piece: piece.to_vec() };
        let is_needed = !self.has_passed(&at) && *row <= *self.kinds[rank].1 && !self.values.contains_key(&at);
        is_needed.then_some(at)
    }

    fn has_passed(&self, at: &SavedKey) -> bool {
        (at.rank, &at.key) <= (self.rank, &self.passed)
    }

    fn insert(&mut self, at: SavedKey, old: Option<Value>) {
        // The reader may have passed it since.
        if self.overflowed || self.has_passed(&at) {
            return;
        }
        self.bytes += cost(&at, old.as_ref());
        self.values.insert(at, old);
        if self.bytes > SAVED_BYTES {
            self.values.clear();
            self.overflowed = true;
        }
    }
}

fn cost(at: &SavedKey, old: Option<&Value>) -> usize {
    at.key.len() + at.piece.len() + old.map_or(0, |old| old.len()) + SAVED_OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_values_are_let_go_when_they_take_too_much_memory() {
        let slot = SnapshotSlot::default();
        assert!(slot.begin(vec![(keys::KV, vec![keys::KV, 255].into())]));
        let large = Value::from(vec![0; 1 << 20]);
        for n in 0..63 {
            let at = SavedKey { rank: 0, key: vec![keys::KV, n], piece: Vec::new() };
            slot.with(|saved| saved.insert(at, Some(large.clone()))).unwrap();
        }
        slot.with(|saved| saved.advance(0, vec![keys::KV, 9])).unwrap();
        assert_eq!(slot.with(|saved| saved.len()), Some(53), "the reader has passed ten");
        for n in 0..70 {
            let at = SavedKey { rank: 0, key: vec![keys::KV, 100, n], piece: Vec::new() };
            slot.with(|saved| saved.insert(at, Some(large.clone())));
        }
        assert!(slot.with(|_| ()).is_none() && slot.is_active(), "given up, until its reader goes");
        slot.end();
        assert!(slot.begin(Vec::new()));
    }
}
