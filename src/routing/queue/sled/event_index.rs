//! The index from an event's id to its accepted time, in memory.
//!
//! Emitters choose ids as they like, and an index on disk in the order of random ids would change a page at a random
//! place for each event, which multiplies the size of the database. The keys of the events hold ids and times, so the
//! index is read from them at start. An entry takes about 35 bytes.
//!
//! The index has a keyed hash of each id instead of the id. Two events with one hash are as good as impossible; the row
//! of the event, whose key has the whole id, decides in any case.

use crate::{
    model::{id::EventId, timestamp::Timestamp},
    routing::queue::HistoryPosition,
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
};

/// Entries up to which the index keeps its memory when events are deleted.
const SMALL: usize = 1 << 16;

#[derive(Default)]
pub(super) struct EventIndex {
    hasher: RandomState,
    /// Accepted times by the hash of the id. Only the writer thread changes them.
    times: Mutex<HashMap<u64, Timestamp>>,
}

impl EventIndex {
    /// Returns the position of the event with this id, if there is one.
    pub fn locate(&self, id: EventId) -> Option<HistoryPosition> {
        let accepted_at = self.times.lock().get(&self.hash(id)).copied()?;
        Some(HistoryPosition { accepted_at, id })
    }

    pub fn insert(&self, at: HistoryPosition) {
        self.times.lock().insert(self.hash(at.id), at.accepted_at);
    }

    pub fn remove(&self, at: HistoryPosition) {
        let mut times = self.times.lock();
        if times.get(&self.hash(at.id)) == Some(&at.accepted_at) {
            times.remove(&self.hash(at.id));
        }
        if times.capacity() > SMALL && times.len() < times.capacity() / 4 {
            times.shrink_to_fit();
        }
    }

    fn hash(&self, id: EventId) -> u64 {
        self.hasher.hash_one(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_found_until_it_is_removed_and_memory_is_given_back() {
        let index = EventIndex::default();
        let at = |n: i64| HistoryPosition { accepted_at: Timestamp::from_micros(n), id: EventId::new() };
        let positions: Vec<_> = (0..200_000).map(at).collect();
        positions.iter().for_each(|at| index.insert(*at));
        assert!(positions.iter().all(|at| index.locate(at.id) == Some(*at)));
        let other = HistoryPosition { accepted_at: Timestamp::from_micros(-1), ..positions[0] };
        index.remove(other);
        assert_eq!(index.locate(other.id), Some(positions[0]), "another event of the same id");
        positions[1..].iter().for_each(|at| index.remove(*at));
        assert_eq!(index.locate(positions[0].id), Some(positions[0]));
        assert_eq!(index.locate(positions[1].id), None);
        assert!(index.times.lock().capacity() <= SMALL);
    }
}
