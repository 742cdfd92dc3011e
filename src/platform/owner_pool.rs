//! A pool of places for concurrent work, shared fairly by owners.
//!
//! An owner may hold no more places than are free. One owner alone thus gets half of the pool, and two that ask by
//! turns get a third each. Owners that fill the pool one after the other leave less and less to the next; a pool with a
//! reserve keeps that many places for owners that hold none, so that those find one at once. Owners that wait take
//! turns, and an owner's own waiters are served in order: most places go to those with new work, and some to those that
//! continue.

use crate::model::owner::Owner;
use parking_lot::Mutex;
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};
use tokio::sync::oneshot;

/// The most places in a row that an owner's new work gets while other work of the owner waits to continue.
const NEW_IN_A_ROW: usize = 8;

pub struct Pool {
    limits: PoolLimits,
    /// Places that [`Pool::transfer`] may fill; at least the size of the pool.
    transfer_size: usize,
    state: Mutex<PoolState>,
}

/// The priority of work among that of its owner.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Work that has just come up. It is ahead, eight of nine times.
    New,
    /// Work that goes on after a place was given back.
    Continued,
}

#[derive(Clone, Copy)]
struct PoolLimits {
    size: usize,
    /// Places that only owners without a place take.
    reserve: usize,
    /// Places that an owner holds at most.
    of_an_owner: usize,
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
    new: VecDeque<oneshot::Sender<PoolPermit>>,
    continued: VecDeque<oneshot::Sender<PoolPermit>>,
    /// Places that went to `new` since the last one that went to `continued`.
    new_in_a_row: usize,
}

impl OwnerPlaces {
    fn is_waiting(&self) -> bool {
        !(self.new.is_empty() && self.continued.is_empty())
    }

    /// Takes the next waiter: a new one, unless it is the turn of one that continues.
    fn next(&mut self) -> Option<oneshot::Sender<PoolPermit>> {
        if self.new.is_empty() || (self.new_in_a_row >= NEW_IN_A_ROW && !self.continued.is_empty()) {
            self.new_in_a_row = 0;
            self.continued.pop_front()
        } else {
            self.new_in_a_row += 1;
            self.new.pop_front()
        }
    }
}

impl Pool {
    pub fn new(size: usize) -> Arc<Self> {
        Self::with_transfers(size, size)
    }

    /// A pool that grows up to `transfer_size` places for work that comes from other pools.
    pub fn with_transfers(size: usize, transfer_size: usize) -> Arc<Self> {
        let limits = PoolLimits { size, reserve: 0, of_an_owner: usize::MAX };
        Arc::new(Self { limits, transfer_size, state: Mutex::default() })
    }

    /// A pool that keeps `reserve` of its places for owners that hold none.
    pub fn with_reserve(size: usize, reserve: usize) -> Arc<Self> {
        let limits = PoolLimits { size, reserve, of_an_owner: usize::MAX };
        Arc::new(Self { limits, transfer_size: size, state: Mutex::default() })
    }

    /// A pool with `places` for each owner, whatever others hold.
    pub fn for_each_owner(places: usize) -> Arc<Self> {
        let limits = PoolLimits { size: usize::MAX, reserve: 0, of_an_owner: places };
        Arc::new(Self { limits, transfer_size: usize::MAX, state: Mutex::default() })
    }

    /// Waits for a place.
    pub async fn acquire(self: &Arc<Self>, owner: Owner) -> PoolPermit {
        self.acquire_for(Priority::New, owner).await
    }

    /// Waits for a place for work of this priority.
    pub async fn acquire_for(self: &Arc<Self>, priority: Priority, owner: Owner) -> PoolPermit {
        let place = {
            let mut state = self.state.lock();
            if state.take(owner, self.limits) {
                return PoolPermit { pool: Some(self.clone()), owner };
            }
            state.wait(priority, owner)
        };
        place.await.expect("the pool keeps a waiter until it has a place")
    }

    /// Takes a place for work that is under way in another pool, ahead of those that wait; `None` if there is none.
    pub fn transfer(self: &Arc<Self>, owner: Owner) -> Option<PoolPermit> {
        let limits = PoolLimits { size: self.transfer_size, ..self.limits };
        let taken = self.state.lock().take_ahead(owner, limits);
        taken.then(|| PoolPermit { pool: Some(self.clone()), owner })
    }

    fn release(self: &Arc<Self>, owner: Owner) {
        let granted = {
            let mut state = self.state.lock();
            state.give_back(owner);
            state.grant(self.limits)
        };
        let mut granted = VecDeque::from(granted);
        while let Some((owner, waiter)) = granted.pop_front() {
            if let Err(mut permit) = waiter.send(PoolPermit { pool: Some(self.clone()), owner }) {
                // The waiter has gone. Its place is given back here and not by dropping the permit, which would call
                // this function once more for each waiter that has gone.
                permit.pool = None;
                let mut state = self.state.lock();
                state.give_back(owner);
                granted.extend(state.grant(self.limits));
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
    fn take(&mut self, owner: Owner, limits: PoolLimits) -> bool {
        let waits = self.owners.get(&owner).is_some_and(OwnerPlaces::is_waiting);
        !waits && self.take_ahead(owner, limits)
    }

    fn take_ahead(&mut self, owner: Owner, limits: PoolLimits) -> bool {
        let held = self.owners.get(&owner).map_or(0, |places| places.held);
        let free = limits.size.saturating_sub(self.used);
        let open = if held == 0 { free } else { free.saturating_sub(limits.reserve) };
        if held >= open.min(limits.of_an_owner) {
            return false;
        }
        self.owners.entry(owner).or_default().held += 1;
        self.used += 1;
        true
    }

    fn wait(&mut self, priority: Priority, owner: Owner) -> oneshot::Receiver<PoolPermit> {
        let (waiter, place) = oneshot::channel();
        let places = self.owners.entry(owner).or_default();
        if !places.is_waiting() {
            self.turns.push_back(owner);
        }
        match priority {
            Priority::New => places.new.push_back(waiter),
            Priority::Continued => places.continued.push_back(waiter),
        }
        place
    }

    fn give_back(&mut self, owner: Owner) {
        self.used -= 1;
        if let Some(places) = self.owners.get_mut(&owner) {
            places.held -= 1;
            if places.held == 0 && !places.is_waiting() {
                self.owners.remove(&owner);
            }
        }
    }

    /// Gives free places to waiting owners, in turns, until none of them may hold one more.
    fn grant(&mut self, limits: PoolLimits) -> Vec<(Owner, oneshot::Sender<PoolPermit>)> {
        let mut granted = Vec::new();
        let mut refused = 0;
        while self.used < limits.size
            && refused < self.turns.len()
            && let Some(owner) = self.turns.pop_front()
        {
            if self.take_ahead(owner, limits) {
                refused = 0;
                let places = self.owners.get_mut(&owner).expect("an owner with a place is known");
                let waiter = places.next().expect("an owner has its turn only while it waits");
                granted.push((owner, waiter));
                if places.is_waiting() {
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
    async fn new_work_of_an_owner_is_ahead_of_work_that_continues_and_does_not_shut_it_out() {
        let pool = Pool::new(1);
        let mut held = pool.acquire(Owner::Global).await;
        let work = [[Priority::Continued; 3].as_slice(), &[Priority::New; NEW_IN_A_ROW + 1]].concat();
        let wait = |priority: &Priority| Some(Box::pin(pool.acquire_for(*priority, Owner::Global)));
        let mut waiting: Vec<_> = work.iter().map(wait).collect();
        assert!(waiting.iter_mut().flatten().all(|waiter| waiter.now_or_never().is_none()));
        let mut served = Vec::new();
        while served.len() < work.len() {
            drop(held);
            let mut left = waiting.iter_mut().enumerate().filter_map(|(n, waiter)| Some((n, waiter.as_mut()?)));
            let ready = left.find_map(|(n, waiter)| Some((n, waiter.now_or_never()?)));
            let (n, permit) = ready.expect("one of them has the place");
            waiting[n] = None;
            served.push(n);
            held = permit;
        }
        assert_eq!(served, [3, 4, 5, 6, 7, 8, 9, 10, 0, 11, 1, 2]);
    }

    #[tokio::test]
    async fn places_for_each_owner_are_there_whatever_others_hold() {
        let pool = Pool::for_each_owner(3);
        let held: Vec<_> = (0..100).map(|_| fill(&pool, user())).collect();
        assert!(held.iter().all(|places| places.len() == 3));
        assert!(pool.transfer(Owner::Global).is_some());
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
