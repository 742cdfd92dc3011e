//! A mutex per key: changes to the same record run one after the other, changes to different records in parallel.

use parking_lot::Mutex;
use std::{
    collections::{BTreeSet, HashMap},
    hash::{BuildHasher, Hash, RandomState},
    sync::{Arc, Weak},
};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Keys that are remembered before those that nobody holds or waits for are dropped.
const SWEEP: usize = 256;

/// A mutex for each key. A change that takes long holds up changes of its own record only. A key that is not locked
/// takes no memory for long.
#[derive(Default)]
pub struct KeyedMutex {
    hasher: RandomState,
    by_hash: Mutex<HashMap<u64, Weak<AsyncMutex<()>>>>,
}

impl KeyedMutex {
    pub fn new() -> Self {
        Self::default()
    }

    /// Locks one key, to be held over a whole change, so that changes reach disk and memory in the same order and none
    /// brings back a record that another deleted.
    pub async fn lock(&self, key: &impl Hash) -> OwnedMutexGuard<()> {
        self.mutex(self.hasher.hash_one(key)).lock_owned().await
    }

    /// Locks several keys. They are locked in one order by everybody, so that two callers cannot wait for each other.
    pub async fn lock_all<'k, K: Hash + 'k>(&self, keys: impl Iterator<Item = &'k K>) -> Vec<OwnedMutexGuard<()>> {
        let hashes: BTreeSet<u64> = keys.map(|key| self.hasher.hash_one(key)).collect();
        let mut guards = Vec::with_capacity(hashes.len());
        for hash in hashes {
            guards.push(self.mutex(hash).lock_owned().await);
        }
        guards
    }

    fn mutex(&self, hash: u64) -> Arc<AsyncMutex<()>> {
        let mut by_hash = self.by_hash.lock();
        if let Some(mutex) = by_hash.get(&hash).and_then(Weak::upgrade) {
            return mutex;
        }
        if by_hash.len() >= SWEEP {
            by_hash.retain(|_, mutex| mutex.strong_count() > 0);
        }
        let mutex = Arc::default();
        by_hash.insert(hash, Arc::downgrade(&mutex));
        mutex
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use std::{sync::Arc, time::Duration};

    // On a paused clock, the time is up as soon as every task waits.
    #[tokio::test(start_paused = true)]
    async fn a_key_is_locked_for_one_at_a_time_and_several_at_once_wait_for_no_circle() {
        let mutex = Arc::new(KeyedMutex::new());
        let held = mutex.lock(&1).await;
        assert!(mutex.lock(&1).now_or_never().is_none());
        assert!(mutex.lock_all([1, 2].iter()).now_or_never().is_none());
        drop(held);
        let tasks = (0..64_u32).map(|n| {
            let mutex = mutex.clone();
            tokio::spawn(async move {
                let keys: Vec<u32> = (0..8).map(|k| if n % 2 == 0 { k + n } else { 8 - k + n }).collect();
                let guards = mutex.lock_all(keys.iter()).await;
                tokio::task::yield_now().await;
                drop(guards);
            })
        });
        let all = tokio::time::timeout(Duration::from_secs(10), futures_util::future::join_all(tasks));
        assert!(all.await.is_ok());
    }

    #[tokio::test]
    async fn a_key_waits_for_no_other_key_and_is_forgotten_when_it_is_free() {
        let mutex = KeyedMutex::new();
        let mut held = Vec::new();
        for key in 0..10_000_u32 {
            held.push(mutex.lock(&key).await);
        }
        drop(held);
        for key in 10_000..20_000_u32 {
            drop(mutex.lock(&key).await);
        }
        assert!(mutex.by_hash.lock().len() <= SWEEP);
    }
}
