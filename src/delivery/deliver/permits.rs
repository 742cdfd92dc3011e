//! How many deliveries run at once: so many in all, and at most half of them for one owner, so that one
//! user's hanging receivers leave room for everybody else's.

use crate::model::owner::Owner;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(super) struct Permits {
    /// As many as there can be, if only owners are limited.
    all: Arc<Semaphore>,
    per_owner: usize,
    /// Weak, so that an owner with nothing under way leaves nothing behind but the key, swept now and then.
    owners: Mutex<HashMap<Owner, Weak<Semaphore>>>,
}

/// Leave to run one delivery; given back when dropped.
pub(super) struct Permit {
    _owner: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Permits {
    /// So many in all, half of them for one owner.
    pub fn shared(concurrency: usize) -> Self {
        Self::new(concurrency, concurrency.div_ceil(2))
    }

    /// So many for each owner, whatever the others do.
    pub fn per_owner(concurrency: usize) -> Self {
        Self::new(Semaphore::MAX_PERMITS, concurrency)
    }

    fn new(all: usize, per_owner: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), per_owner, owners: Mutex::default() }
    }

    /// Waits for the owner's share first, so that a waiting owner holds nothing of the whole.
    pub async fn acquire(&self, owner: Owner) -> Permit {
        let share = self.share(owner);
        let of_owner = share.acquire_owned().await.expect("the semaphores are never closed");
        let of_all = self.all.clone().acquire_owned().await.expect("the semaphores are never closed");
        Permit { _owner: of_owner, _all: of_all }
    }

    fn share(&self, owner: Owner) -> Arc<Semaphore> {
        let mut owners = self.owners.lock();
        if let Some(share) = owners.get(&owner).and_then(Weak::upgrade) {
            return share;
        }
        if owners.len() >= 1024 {
            owners.retain(|_, share| share.strong_count() > 0);
        }
        let share = Arc::new(Semaphore::new(self.per_owner));
        owners.insert(owner, Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::UserId;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn one_owner_gets_half_and_leaves_the_rest_to_others() {
        let permits = Permits::shared(4);
        let (greedy, other) = (Owner::User(UserId::new()), Owner::User(UserId::new()));
        let held = [permits.acquire(greedy).await, permits.acquire(greedy).await];
        assert!(permits.acquire(greedy).now_or_never().is_none(), "a third of four is too many");
        assert!(permits.acquire(other).now_or_never().is_some());
        drop(held);
        assert!(permits.acquire(greedy).now_or_never().is_some(), "a dropped permit is free again");
    }

    #[tokio::test]
    async fn owners_that_share_nothing_do_not_feel_each_other() {
        let permits = Permits::per_owner(1);
        let owners: Vec<Owner> = (0..20).map(|_| Owner::User(UserId::new())).collect();
        let mut held = Vec::new();
        for owner in &owners {
            held.push(permits.acquire(*owner).now_or_never().expect("each has one"));
            assert!(permits.acquire(*owner).now_or_never().is_none());
        }
    }
}
