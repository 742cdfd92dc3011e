//! The events of history by user, in memory: their size, and their accepted times in order.
//!
//! The user with the largest history loses its oldest events first, so that a flood of events pushes out those of the
//! flood. Accepted times are unique, so that one stands for an event. Only the writer thread changes the index.

use crate::model::{id::UserId, id_map::IdMap, timestamp::Timestamp};
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};

#[derive(Default)]
pub(super) struct OwnerIndex(Mutex<IdMap<UserId, OwnerEvents>>);

#[derive(Default)]
struct OwnerEvents {
    /// The size of the rows of events and deliveries.
    bytes: u64,
    /// Events that may be settled. They ascend, and are later than all in `queued`.
    unchecked: VecDeque<i64>,
    /// Events that a queue held when they were looked at.
    queued: BTreeSet<i64>,
    /// Events that only dead letters held when they were looked at.
    dead: BTreeSet<i64>,
}

/// The reason that an event cannot be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeldBy {
    Queue,
    DeadLetter,
}

/// Events that a search for the next one to delete includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deletable {
    Settled,
    /// Settled ones, and then those that only dead letters hold.
    Dead,
    /// Those alone that only dead letters held when they were looked at.
    KnownDead,
}

impl OwnerIndex {
    pub fn add(&self, user: UserId, accepted_at: Timestamp, bytes: usize) {
        let mut users = self.0.lock();
        let events = users.entry(user).or_default();
        events.bytes += bytes as u64;
        events.unchecked.push_back(accepted_at.micros());
    }

    /// Counts a row of an event that was replaced by a larger or smaller one.
    pub fn resize(&self, user: UserId, removed: usize, added: usize) {
        let mut users = self.0.lock();
        let events = users.entry(user).or_default();
        events.bytes = (events.bytes + added as u64).saturating_sub(removed as u64);
    }

    /// Removes an event of `bytes` with its deliveries. The user of a damaged event is not known.
    pub fn remove(&self, user: Option<UserId>, accepted_at: Timestamp, bytes: usize) {
        let (mut users, at) = (self.0.lock(), accepted_at.micros());
        let user = user.or_else(|| users.iter().find(|(_, events)| events.has(at)).map(|(user, _)| *user));
        let Some(user) = user else { return };
        let Some(events) = users.get_mut(&user) else { return };
        events.bytes = events.bytes.saturating_sub(bytes as u64);
        events.forget(at);
        if events.unchecked.is_empty() && events.queued.is_empty() && events.dead.is_empty() {
            users.remove(&user);
        }
    }

    /// Returns the user with the largest history among those who have events to look at.
    pub fn largest(&self, deletable: Deletable) -> Option<UserId> {
        let users = self.0.lock();
        let candidates = users.iter().filter(|(_, events)| match deletable {
            Deletable::Settled => !events.unchecked.is_empty(),
            Deletable::Dead => !events.unchecked.is_empty() || !events.dead.is_empty(),
            Deletable::KnownDead => !events.dead.is_empty(),
        });
        candidates.max_by_key(|(_, events)| events.bytes).map(|(user, _)| *user)
    }

    /// Takes the user's next event to look at, oldest first, and tells if it was known to be held by dead letters:
    /// these come when no others are left.
    pub fn take(&self, user: UserId, deletable: Deletable) -> Option<(Timestamp, Deletable)> {
        let mut users = self.0.lock();
        let events = users.get_mut(&user)?;
        let settled = if deletable == Deletable::KnownDead { None } else { events.unchecked.pop_front() };
        let (at, found) = match settled {
            Some(at) => (at, Deletable::Settled),
            None if deletable == Deletable::Settled => return None,
            None => (events.dead.pop_first()?, Deletable::KnownDead),
        };
        Some((Timestamp::from_micros(at), found))
    }

    /// Puts an event back that was taken.
    pub fn put_back(&self, user: UserId, accepted_at: Timestamp, held_by: Option<HeldBy>) {
        let (mut users, at) = (self.0.lock(), accepted_at.micros());
        let events = users.entry(user).or_default();
        match held_by {
            None => events.unchecked.push_front(at),
            Some(HeldBy::Queue) => drop(events.queued.insert(at)),
            Some(HeldBy::DeadLetter) => drop(events.dead.insert(at)),
        }
    }

    /// Lets events that queues held be looked at again.
    pub fn recheck(&self) {
        for events in self.0.lock().values_mut() {
            for at in std::mem::take(&mut events.queued).into_iter().rev() {
                events.unchecked.push_front(at);
            }
        }
    }
}

impl OwnerEvents {
    fn has(&self, at: i64) -> bool {
        self.unchecked.binary_search(&at).is_ok() || self.queued.contains(&at) || self.dead.contains(&at)
    }

    fn forget(&mut self, at: i64) {
        if self.unchecked.front() == Some(&at) {
            self.unchecked.pop_front();
        } else if let Ok(index) = self.unchecked.binary_search(&at) {
            self.unchecked.remove(index);
        } else if !self.queued.remove(&at) {
            self.dead.remove(&at);
        }
        if self.unchecked.capacity() > 1024 && self.unchecked.len() < self.unchecked.capacity() / 4 {
            self.unchecked.shrink_to_fit();
        }
    }
}
