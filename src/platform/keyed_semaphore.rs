//! A semaphore per key: work of one key waits for work of the same key only.

use parking_lot::Mutex;
use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Weak},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Keys that are remembered before those without a permit or a waiter are dropped.
const SWEEP: usize = 64;

/// A semaphore for each key. A key without permits and waiters takes no memory for long.
pub struct KeyedSemaphore<K> {
    permits: usize,
    waiting: usize,
    by_key: Mutex<HashMap<K, Weak<Semaphore>>>,
}

impl<K: Hash + Eq> KeyedSemaphore<K> {
    /// Each key has `permits`, and at most `waiting` callers that wait for one.
    pub fn new(permits: usize, waiting: usize) -> Self {
        Self { permits, waiting, by_key: Mutex::default() }
    }

    /// Waits for a permit of the key; `None` if as many wait already as may.
    pub async fn acquire(&self, key: K) -> Option<OwnedSemaphorePermit> {
        let semaphore = {
            let mut by_key = self.by_key.lock();
            if by_key.len() >= SWEEP {
                by_key.retain(|_, semaphore| semaphore.strong_count() > 0);
            }
            let known = by_key.get(&key).and_then(Weak::upgrade);
            let semaphore = known.unwrap_or_else(|| Arc::new(Semaphore::new(self.permits)));
            // Each permit and each waiter holds one reference; this is one more.
            if Arc::strong_count(&semaphore) > self.permits + self.waiting {
                return None;
            }
            by_key.insert(key, Arc::downgrade(&semaphore));
            semaphore
        };
        Some(semaphore.acquire_owned().await.expect("the semaphore is never closed"))
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
    async fn keys_without_permits_are_forgotten() {
        let semaphore = KeyedSemaphore::new(1, 1);
        for key in 0..1000 {
            drop(semaphore.acquire(key).await);
        }
        assert!(semaphore.by_key.lock().len() <= SWEEP);
    }
}
