//! Per-key budget of bytes: each key can hold a part of the budget at once, and all keys together the whole.

use parking_lot::Mutex;
use std::{collections::HashMap, hash::Hash, sync::Arc};

/// The bytes that every key holds. A key without bytes takes no memory.
pub struct KeyedBudget<K> {
    /// Bytes for all keys together.
    whole: usize,
    /// Bytes for one key.
    part: usize,
    held: Arc<Mutex<HeldBytes<K>>>,
}

/// Bytes of a budget, held until dropped.
pub struct ReservedBytes<K: Hash + Eq> {
    key: K,
    bytes: usize,
    whole: usize,
    part: usize,
    held: Arc<Mutex<HeldBytes<K>>>,
}

struct HeldBytes<K> {
    sum: usize,
    by_key: HashMap<K, usize>,
}

impl<K: Hash + Eq + Copy> KeyedBudget<K> {
    pub fn new(whole: usize, part: usize) -> Self {
        Self { whole, part, held: Arc::new(Mutex::new(HeldBytes { sum: 0, by_key: HashMap::new() })) }
    }

    /// Reserves bytes for `key`; `None` if too few are left for it.
    pub fn reserve(&self, key: K, bytes: usize) -> Option<ReservedBytes<K>> {
        let Self { whole, part, .. } = *self;
        let mut reservation = ReservedBytes { key, bytes: 0, whole, part, held: self.held.clone() };
        reservation.grow(bytes).then_some(reservation)
    }
}

impl<K: Hash + Eq + Copy> ReservedBytes<K> {
    /// Reserves further bytes. Returns false, and reserves none, if too few are left.
    #[must_use]
    pub fn grow(&mut self, bytes: usize) -> bool {
        let mut held = self.held.lock();
        let of_key = held.by_key.get(&self.key).copied().unwrap_or_default();
        if held.sum + bytes > self.whole || of_key + bytes > self.part {
            return false;
        }
        held.sum += bytes;
        held.by_key.insert(self.key, of_key + bytes);
        self.bytes += bytes;
        true
    }
}

impl<K: Hash + Eq> Drop for ReservedBytes<K> {
    fn drop(&mut self) {
        let mut held = self.held.lock();
        held.sum -= self.bytes;
        if let Some(of_key) = held.by_key.get_mut(&self.key) {
            *of_key -= self.bytes;
            if *of_key == 0 {
                held.by_key.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_gets_its_part_and_all_keys_together_the_whole() {
        let budget = KeyedBudget::new(10, 6);
        let mut first = budget.reserve('a', 4).unwrap();
        assert!(!first.grow(3), "more than the part of one key");
        assert!(first.grow(2));
        assert!(budget.reserve('a', 1).is_none());
        let second = budget.reserve('b', 4).unwrap();
        assert!(budget.reserve('c', 1).is_none(), "more than the whole");
        drop(first);
        let third = budget.reserve('c', 6).unwrap();
        drop((second, third));
        let held = budget.held.lock();
        assert!(held.sum == 0 && held.by_key.is_empty(), "a key without bytes takes no memory");
    }
}
