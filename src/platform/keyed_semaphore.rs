//! A semaphore per key: work of one key waits for work of the same key only.

use parking_lot::Mutex;
use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Weak},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Keys that are remembered at least before those without a permit or a waiter are dropped.
const LEAST_SWEPT: usize = 64;

/// A semaphore for each key. A key without permits and waiters takes no memory for long.
pub struct KeyedSemaphore<K> {
    permits: usize,
    waiting: usize,
    keys: Mutex<Keys<K>>,
}

struct Keys<K> {
    /// Each permit and each waiter holds a reference.
    semaphores: HashMap<K, Weak<Semaphore>>,
    /// The number of keys at which those that nobody uses are dropped.
    swept_at: usize,
}

impl<K: Hash + Eq> KeyedSemaphore<K> {
    /// Each key has `permits`, and at most `waiting` callers that wait for one.
    pub fn new(permits: usize, waiting: usize) -> Self {
        let keys = Keys { semaphores: HashMap::new(), swept_at: LEAST_SWEPT };
        Self { permits, waiting, keys: Mutex::new(keys) }
    }

    /// Waits for a permit of the key; `None` if as many wait already as may.
    pub async fn acquire(&self, key: K) -> Option<OwnedSemaphorePermit> {
        self.acquire_many(key, 1).await
    }

    /// Waits for this many permits of the key at once; `None` if as many callers wait already as may.
    pub async fn acquire_many(&self, key: K, permits: u32) -> Option<OwnedSemaphorePermit> {
        let semaphore = {
            let mut keys = self.keys.lock();
            let semaphore = keys.semaphore(key, self.permits);
            // The reference of this caller is one of them.
            if Arc::strong_count(&semaphore) > self.permits.saturating_add(self.waiting) {
                return None;
            }
            semaphore
        };
        Some(semaphore.acquire_many_owned(permits).await.expect("the semaphore is never closed"))
    }
}

impl<K: Hash + Eq> Keys<K> {
    fn semaphore(&mut self, key: K, permits: usize) -> Arc<Semaphore> {
        if self.semaphores.len() >= self.swept_at {
            self.semaphores.retain(|_, semaphore| semaphore.strong_count() > 0);
            self.swept_at = LEAST_SWEPT.max(2 * self.semaphores.len());
        }
        let entry = self.semaphores.entry(key).or_default();
        entry.upgrade().unwrap_or_else(|| {
            let semaphore = Arc::new(Semaphore::new(permits));
            *entry = Arc::downgrade(&semaphore);
            semaphore
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn a_key_waits_for_its_own_permits_only_and_its_waiters_are_bounded() {
        let semaphore = KeyedSemaphore::new(2, 1);
        let (first, _second) = (semaphore.acquire('a').await.unwrap(), semaphore.acquire('a').await.unwrap());
        let mut third = Box::pin(semaphore.acquire('a'));
        assert!((&mut third).now_or_never().is_none(), "it waits");
        assert!(semaphore.acquire('a').now_or_never().unwrap().is_none(), "one waits already");
        assert!(semaphore.acquire('b').now_or_never().unwrap().is_some(), "others are not held up");
        drop(first);
        assert!(third.await.is_some());
    }

    #[tokio::test]
    async fn keys_in_use_are_kept_however_many_there_are() {
        let semaphore = KeyedSemaphore::new(1, usize::MAX);
        let mut held = Vec::new();
        for key in 0..10 * LEAST_SWEPT {
            held.push(semaphore.acquire(key).await.unwrap());
        }
        assert!((0..10 * LEAST_SWEPT).all(|key| semaphore.acquire(key).now_or_never().is_none()), "each is held");
    }

    #[tokio::test]
    async fn keys_without_permits_are_forgotten() {
        let semaphore = KeyedSemaphore::new(1, 1);
        for key in 0..1000 {
            drop(semaphore.acquire(key).await);
        }
        assert!(semaphore.keys.lock().semaphores.len() <= LEAST_SWEPT);
    }
}
