//! Bounds the calls of methods that run at once for each owner. The limits are independent, because the duration of a call
//! is up to the owner of its method.

use crate::model::owner::Owner;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(super) struct MethodPermits {
    per_owner: usize,
    /// Weak, so that an owner with no delivery under way leaves only a key behind, which is swept from time to time.
    owners: Mutex<HashMap<Owner, Weak<Semaphore>>>,
}

impl MethodPermits {
    pub fn new(per_owner: usize) -> Self {
        Self { per_owner, owners: Mutex::default() }
    }

    /// Waits for a permit, which is released when dropped.
    pub async fn acquire(&self, owner: Owner) -> OwnedSemaphorePermit {
        self.of_owner(owner).acquire_owned().await.expect("the semaphores are never closed")
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
    async fn limits_per_owner_are_independent_of_each_other() {
        let permits = MethodPermits::new(1);
        let owners: Vec<Owner> = (0..20).map(|_| Owner::User(UserId::new())).collect();
        let mut held = Vec::new();
        for owner in &owners {
            held.push(permits.acquire(*owner).now_or_never().expect("each has one"));
            assert!(permits.acquire(*owner).now_or_never().is_none());
        }
    }
}
