//! Bounds the deliveries that run at once, in total and per owner, so that one user's hanging receivers leave room
//! for everybody else's.

use crate::model::owner::Owner;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(super) struct DeliveryPermits {
    /// The total limit; the semaphore's maximum if only owners are limited.
    total: Arc<Semaphore>,
    per_owner: usize,
    /// Weak, so that an owner with no delivery under way leaves only a key behind, which is swept from time to time.
    owners: Mutex<HashMap<Owner, Weak<Semaphore>>>,
}

/// Permission to run one delivery, released when dropped.
pub(super) struct DeliveryPermit {
    _owner: OwnedSemaphorePermit,
    _total: OwnedSemaphorePermit,
}

impl DeliveryPermits {
    /// Allows `concurrency` deliveries in total, and half of them to one owner.
    pub fn shared(concurrency: usize) -> Self {
        Self::new(concurrency, concurrency.div_ceil(2))
    }

    /// Allows `concurrency` deliveries to each owner, independent of other owners.
    pub fn per_owner(concurrency: usize) -> Self {
        Self::new(Semaphore::MAX_PERMITS, concurrency)
    }

    fn new(total: usize, per_owner: usize) -> Self {
        Self { total: Arc::new(Semaphore::new(total)), per_owner, owners: Mutex::default() }
    }

    /// Waits for a permit of the owner first, so that a waiting owner takes nothing from the total.
    pub async fn acquire(&self, owner: Owner) -> DeliveryPermit {
        let of_owner = self.of_owner(owner).acquire_owned().await.expect("the semaphores are never closed");
        let of_total = self.total.clone().acquire_owned().await.expect("the semaphores are never closed");
        DeliveryPermit { _owner: of_owner, _total: of_total }
    }

    fn of_owner(&self, owner: Owner) -> Arc<Semaphore> {
        let mut owners = self.owners.lock();
        if let Some(semaphore) = owners.get(&owner).and_then(Weak::upgrade) {
            return semaphore;
        }
        if owners.len() >= 1024 {
            owners.retain(|_, semaphore| semaphore.strong_count() > 0);
        }
        let semaphore = Arc::new(Semaphore::new(self.per_owner));
        owners.insert(owner, Arc::downgrade(&semaphore));
        semaphore
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::UserId;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn one_owner_gets_half_of_the_permits_and_leaves_the_rest_to_others() {
        let permits = DeliveryPermits::shared(4);
        let (greedy, other) = (Owner::User(UserId::new()), Owner::User(UserId::new()));
        let held = [permits.acquire(greedy).await, permits.acquire(greedy).await];
        assert!(permits.acquire(greedy).now_or_never().is_none(), "a third permit of four is refused");
        assert!(permits.acquire(other).now_or_never().is_some());
        drop(held);
        assert!(permits.acquire(greedy).now_or_never().is_some(), "a dropped permit is free again");
    }

    #[tokio::test]
    async fn limits_per_owner_are_independent_of_each_other() {
        let permits = DeliveryPermits::per_owner(1);
        let owners: Vec<Owner> = (0..20).map(|_| Owner::User(UserId::new())).collect();
        let mut held = Vec::new();
        for owner in &owners {
            held.push(permits.acquire(*owner).now_or_never().expect("each has one"));
            assert!(permits.acquire(*owner).now_or_never().is_none());
        }
    }
}
