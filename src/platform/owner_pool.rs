//! A pool of places for concurrent work, shared fairly by owners.
//!
//! An owner may hold no more places than are free. One owner alone thus gets half of the pool, and two that ask by turns get
//! a third each. Owners that fill the pool one after the other leave less and less to the next; a pool with a reserve
//! keeps that many places for owners that hold none, so that those find one at once. Owners that wait take turns, and an
//! owner's own waiters are served in order.

use crate::model::owner::Owner;
use parking_lot::Mutex;
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};
use tokio::sync::oneshot;

pub struct Pool {
    size: usize,
    /// Places that [`Pool::transfer`] may fill; at least `size`.
    transfer_size: usize,
    /// Places that only owners without a place take.
    reserve: usize,
    state: Mutex<PoolState>,
}

/// A place in a pool, freed when dropped.
pub struct PoolPermit {
    /// `None` once the place is given back.
    pool: Option<Arc<Pool>>,
    owner: Owner,
}

#[derive(Default)]
struct PoolState {
    used: usize,
    /// Owners that hold a place or wait for one.
    owners: HashMap<Owner, OwnerPlaces>,
    /// Owners that wait, in the order of their turns. Each is there once.
    turns: VecDeque<Owner>,
}

#[derive(Default)]
struct OwnerPlaces {
    held: usize,
    waiting: VecDeque<oneshot::Sender<PoolPermit>>,
}

impl Pool {
    pub fn new(size: usize) -> Arc<Self> {
        Self::with_transfers(size, size)
    }

    /// A pool that grows up to `transfer_size` places for work that comes from other pools.
    pub fn with_transfers(size: usize, transfer_size: usize) -> Arc<Self> {
        Arc::new(Self { size, transfer_size, reserve: 0, state: Mutex::default() })
    }

    /// A pool that keeps `reserve` of its places for owners that hold none.
    pub fn with_reserve(size: usize, reserve: usize) -> Arc<Self> {
        Arc::new(Self { size, transfer_size: size, reserve, state: Mutex::default() })
    }

    /// Waits for a place.
    pub async fn acquire(self: &Arc<Self>, owner: Owner) -> PoolPermit {
        let place = {
            let mut state = self.state.lock();
            if state.take(owner, self.size, self.reserve) {
                return PoolPermit { pool: Some(self.clone()), owner };
            }
            state.wait(owner)
        };
        place.await.expect("the pool keeps a waiter until it has a place")
    }

    /// Takes a place for work that is under way in another pool, ahead of those that wait; `None` if there is none.
    pub fn transfer(self: &Arc<Self>, owner: Owner) -> Option<PoolPermit> {
        let taken = self.state.lock().take_ahead(owner, self.transfer_size, self.reserve);
        taken.then(|| PoolPermit { pool: Some(self.clone()), owner })
    }

    fn release(self: &Arc<Self>, owner: Owner) {
        let granted = {
            let mut state = self.state.lock();
            state.give_back(owner);
            state.grant(self.size, self.reserve)
        };
        let mut granted = VecDeque::from(granted);
        while let Some((owner, waiter)) = granted.pop_front() {
            if let Err(mut permit) = waiter.send(PoolPermit { pool: Some(self.clone()), owner }) {
                // The waiter has gone. Its place is given back here and not by dropping the permit, which would call this
                // function once more for each waiter that has gone.
                permit.pool = None;
                let mut state = self.state.lock();
                state.give_back(owner);
                granted.extend(state.grant(self.size, self.reserve));
            }
        }
    }
}

impl Drop for PoolPermit {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.release(self.owner);
        }
    }
}

impl PoolState {
    /// Takes a place for an owner that may hold one more and has no earlier waiter.
    fn take(&mut self, owner: Owner, size: usize, reserve: usize) -> bool {
        let waits = self.owners.get(&owner).is_some_and(|places| !places.waiting.is_empty());
        !waits && self.take_ahead(owner, size, reserve)
    }

    fn take_ahead(&mut self, owner: Owner, size: usize, reserve: usize) -> bool {
        let held = self.owners.get(&owner).map_or(0, |places| places.held);
        let free = size.saturating_sub(self.used);
        let open = if held == 0 { free } else { free.saturating_sub(reserve) };
        if held >= open {
            return false;
        }
        self.owners.entry(owner).or_default().held += 1;
        self.used += 1;
        true
    }

    fn wait(&mut self, owner: Owner) -> oneshot::Receiver<PoolPermit> {
        let (waiter, place) = oneshot::channel();
        let places = self.owners.entry(owner).or_default();
        if places.waiting.is_empty() {
            self.turns.push_back(owner);
        }
        places.waiting.push_back(waiter);
        place
    }

    fn give_back(&mut self, owner: Owner) {
        self.used -= 1;
        if let Some(places) = self.owners.get_mut(&owner) {
            places.held -= 1;
            if places.held == 0 && places.waiting.is_empty() {
                self.owners.remove(&owner);
            }
        }
    }

    /// Gives free places to waiting owners, in turns, until none of them may hold one more.
    fn grant(&mut self, size: usize, reserve: usize) -> Vec<(Owner, oneshot::Sender<PoolPermit>)> {
        let mut granted = Vec::new();
        let mut refused = 0;
        while self.used < size
            && refused < self.turns.len()
            && let Some(owner) = self.turns.pop_front()
        {
            if self.take_ahead(owner, size, reserve) {
                refused = 0;
                let places = self.owners.get_mut(&owner).expect("an owner with a place is known");
                let waiter = places.waiting.pop_front().expect("an owner has its turn only while it waits");
                granted.push((owner, waiter));
                if !places.waiting.is_empty() {
                    self.turns.push_back(owner);
                }
            } else {
                refused += 1;
                self.turns.push_back(owner);
            }
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::UserId;
    use futures_util::FutureExt;

    fn user() -> Owner {
        Owner::User(UserId::new())
    }

    /// Takes as many places as the owner gets at once.
    fn fill(pool: &Arc<Pool>, owner: Owner) -> Vec<PoolPermit> {
        std::iter::from_fn(|| pool.acquire(owner).now_or_never()).take(1000).collect()
    }

    #[tokio::test]
    async fn an_owner_may_hold_as_many_places_as_are_free() {
        let pool = Pool::new(12);
        let mut held = vec![fill(&pool, Owner::Global)];
        assert_eq!(held[0].len(), 6, "alone it gets half");
        held.push(fill(&pool, user()));
        assert_eq!(held[1].len(), 3, "another one gets half of the rest");
        held.clear();
        assert_eq!(fill(&pool, user()).len(), 6, "freed places are there for all");
        assert!(pool.state.lock().owners.is_empty(), "an owner without a place takes no memory");
    }

    #[tokio::test]
    async fn a_newcomer_finds_a_place_beside_many_owners_that_want_all() {
        let pool = Pool::new(512);
        let owners: Vec<_> = (0..100).map(|_| user()).collect();
        let asked = (0..20).flat_map(|_| &owners);
        let held: Vec<_> = asked.filter_map(|owner| pool.acquire(*owner).now_or_never()).collect();
        assert_eq!(held.len(), 507, "each has five or six, and as many are free");
        assert!(pool.acquire(user()).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_reserve_is_there_for_newcomers_after_owners_that_took_all_they_got_one_after_the_other() {
        let pool = Pool::with_reserve(512, 128);
        let greedy: Vec<_> = (0..100).map(|_| fill(&pool, user())).collect();
        assert_eq!(greedy.iter().map(Vec::len).take(9).collect::<Vec<_>>(), [192, 96, 48, 24, 12, 6, 3, 2, 1]);
        let newcomer = fill(&pool, user());
        assert_eq!(newcomer.len(), 1);
        drop(greedy);
        assert_eq!(fill(&pool, user()).len(), 192);
    }

    #[tokio::test]
    async fn a_place_that_thousands_of_gone_waiters_do_not_take_is_free_again() {
        let pool = Pool::new(1);
        let held = pool.acquire(user()).await;
        for _ in 0..100_000 {
            assert!(tokio::task::unconstrained(pool.acquire(user())).now_or_never().is_none());
        }
        drop(held);
        assert!(pool.acquire(user()).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_pool_of_one_place_serves_its_waiters_in_turns() {
        let pool = Pool::new(1);
        let (busy, other) = (user(), user());
        let first = pool.acquire(busy).await;
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(pool.acquire(busy))).collect();
        let mut late = Box::pin(pool.acquire(other));
        for waiter in &mut waiting {
            assert!(waiter.now_or_never().is_none());
        }
        assert!((&mut late).now_or_never().is_none());
        drop(first);
        let second = (&mut waiting[0]).now_or_never().expect("the first waiter is first");
        assert!((&mut late).now_or_never().is_none());
        drop(second);
        let third = (&mut late).now_or_never().expect("then the other owner has its turn");
        drop(third);
        assert!((&mut waiting[1]).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_waiter_that_goes_away_takes_no_place_with_it() {
        let pool = Pool::new(1);
        let held = pool.acquire(Owner::Global).await;
        let mut gone = Box::pin(pool.acquire(Owner::Global));
        let mut next = Box::pin(pool.acquire(Owner::Global));
        assert!((&mut gone).now_or_never().is_none() && (&mut next).now_or_never().is_none());
        drop(gone);
        drop(held);
        assert!((&mut next).now_or_never().is_some());
    }

    #[tokio::test]
    async fn transfers_fill_more_places_than_waiters_may_and_those_wait_for_as_long() {
        let pool = Pool::with_transfers(2, 6);
        let moved: Vec<_> = std::iter::from_fn(|| pool.transfer(Owner::Global)).collect();
        assert_eq!(moved.len(), 3, "half of the larger size");
        assert!(pool.acquire(user()).now_or_never().is_none());
        assert!(pool.transfer(user()).is_some());
        drop(moved);
        assert!(pool.acquire(user()).now_or_never().is_some());
    }
}
