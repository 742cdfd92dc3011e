//! Per-key concurrency limit: each key can hold a number of permits at once; a permit is released when dropped.

use parking_lot::Mutex;
use std::{collections::HashMap, hash::Hash, sync::Arc};

/// The permits of every key. A key without permits takes no memory.
pub struct KeyedLimit<K> {
    most: usize,
    held: Arc<Mutex<HashMap<K, usize>>>,
}

/// One permit, held until dropped.
pub struct KeyedPermit<K: Hash + Eq> {
    key: K,
    held: Arc<Mutex<HashMap<K, usize>>>,
}

impl<K: Hash + Eq + Copy> KeyedLimit<K> {
    /// A limit of `most` permits for each key.
    pub fn new(most: usize) -> Self {
        Self { most, held: Arc::default() }
    }

    /// Takes a permit for `key`; `None` if it holds as many as it may.
    pub fn take(&self, key: K) -> Option<KeyedPermit<K>> {
        let mut held = self.held.lock();
        let count = held.entry(key).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(KeyedPermit { key, held: self.held.clone() })
    }

    /// The number of permits held by all keys together.
    pub fn held(&self) -> usize {
        self.held.lock().values().sum()
    }
}

impl<K: Hash + Eq> Drop for KeyedPermit<K> {
    fn drop(&mut self) {
        let mut held = self.held.lock();
        if let Some(count) = held.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_own_permits_and_gets_dropped_ones_back() {
        let limit = KeyedLimit::new(2);
        let (first, second) = (limit.take('a').unwrap(), limit.take('a').unwrap());
        assert!(limit.take('a').is_none());
        assert!(limit.take('b').is_some(), "others are not held up");
        drop(first);
        let third = limit.take('a');
        assert!(third.is_some() && limit.take('a').is_none());
        assert_eq!(limit.held(), 2);
        drop((second, third));
        assert!(limit.held.lock().is_empty(), "a key without permits takes no memory");
    }
}
