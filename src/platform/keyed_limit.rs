//! Shares of what there is only so much of: each key has so many at once, and gives them back by dropping them.

use parking_lot::{Mutex, MutexGuard};
use std::{collections::HashMap, hash::Hash, sync::Arc};

/// Who holds how many. What nobody holds takes no room.
pub struct Shares<K> {
    most: usize,
    held: Arc<Mutex<HashMap<K, usize>>>,
}

/// One share, held until dropped.
pub struct Share<K: Hash + Eq> {
    key: K,
    held: Arc<Mutex<HashMap<K, usize>>>,
}

impl<K: Hash + Eq + Copy> Shares<K> {
    /// At most `most` for each.
    pub fn new(most: usize) -> Self {
        Self { most, held: Arc::default() }
    }

    /// One more for `key`; `None` if it has all it gets.
    pub fn take(&self, key: K) -> Option<Share<K>> {
        let mut held = lock(&self.held);
        let count = held.entry(key).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Share { key, held: self.held.clone() })
    }

    /// How many are held, by all together.
    pub fn held(&self) -> usize {
        lock(&self.held).values().sum()
    }
}

impl<K: Hash + Eq> Drop for Share<K> {
    fn drop(&mut self) {
        let mut held = lock(&self.held);
        if let Some(count) = held.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.key);
            }
        }
    }
}

fn lock<K>(held: &Mutex<HashMap<K, usize>>) -> MutexGuard<'_, HashMap<K, usize>> {
    held.lock()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_own_and_gets_back_what_it_drops() {
        let shares = Shares::new(2);
        let (first, second) = (shares.take('a').unwrap(), shares.take('a').unwrap());
        assert!(shares.take('a').is_none());
        assert!(shares.take('b').is_some(), "others are not held up");
        drop(first);
        let third = shares.take('a');
        assert!(third.is_some() && shares.take('a').is_none());
        assert_eq!(shares.held(), 2);
        drop((second, third));
        assert!(shares.held.lock().is_empty(), "nothing is left of who holds nothing");
    }
}
