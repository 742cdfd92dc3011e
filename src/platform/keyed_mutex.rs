//! A mutex per key: changes to the same record run one after the other, changes to different records in parallel.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash},
};
use tokio::sync::{Mutex, MutexGuard};

/// Number of mutexes, and so of changes that can run at once.
const SLOTS: usize = 64;

/// A fixed number of mutexes that keys are hashed to. Two keys may share one, and then only wait for each other.
pub struct KeyedMutex([Mutex<()>; SLOTS]);

impl KeyedMutex {
    pub const fn new() -> Self {
        Self([const { Mutex::const_new(()) }; SLOTS])
    }

    /// Locks one key, to be held over a whole change, so that changes reach disk and memory in the same order and none
    /// brings back a record that another deleted.
    pub async fn lock(&self, key: &impl Hash) -> MutexGuard<'_, ()> {
        self.0[slot(key)].lock().await
    }

    /// Locks several keys. They are locked in one order by everybody, so that two callers cannot wait for each other.
    pub async fn lock_all<'k, K: Hash + 'k>(&self, keys: impl Iterator<Item = &'k K>) -> Vec<MutexGuard<'_, ()>> {
        let slots: BTreeSet<usize> = keys.map(slot).collect();
        let mut guards = Vec::with_capacity(slots.len());
        for slot in slots {
            guards.push(self.0[slot].lock().await);
        }
        guards
    }
}

impl Default for KeyedMutex {
    fn default() -> Self {
        Self::new()
    }
}

fn slot(key: &impl Hash) -> usize {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
    usize::try_from(hash % SLOTS as u64).expect("a number below SLOTS")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::Arc, time::Duration};

    #[tokio::test]
    async fn a_key_is_locked_for_one_at_a_time_and_several_at_once_wait_for_no_circle() {
        let mutex = Arc::new(KeyedMutex::new());
        let held = mutex.lock(&1).await;
        let waiting = tokio::time::timeout(Duration::from_millis(20), mutex.lock(&1)).await;
        assert!(waiting.is_err());
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
}
