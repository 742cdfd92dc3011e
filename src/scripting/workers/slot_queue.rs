//! The runs that wait for a slot, by the kind of worker they need. The kinds take turns.

use super::places::{PoolBounds, WorkerPlace};
use crate::model::owner::Owner;
use std::collections::{HashMap, VecDeque};
use tokio::sync::oneshot;

/// The waiting runs, each as the sender of what it waits for.
pub(super) struct SlotQueue<T> {
    queues: HashMap<WorkerPlace, VecDeque<oneshot::Sender<T>>>,
    /// The kinds that somebody waits for, in the order of their next turn. Each is here once.
    round: VecDeque<WorkerPlace>,
    waiting: usize,
}

impl<T> SlotQueue<T> {
    pub fn push(&mut self, place: WorkerPlace, sender: oneshot::Sender<T>) {
        let queue = self.queues.entry(place).or_default();
        if queue.is_empty() {
            self.round.push_back(place);
        }
        queue.push_back(sender);
        self.waiting += 1;
    }

    /// Returns true if a run waits for this kind.
    pub fn has(&self, place: WorkerPlace) -> bool {
        self.queues.contains_key(&place)
    }

    /// Returns true if another run of this owner may wait. Runs of others never keep an owner from it who has few.
    pub fn has_room(&mut self, owner: Owner, bounds: PoolBounds) -> bool {
        let own = self.waiting_of(owner);
        if own < bounds.assured_per_owner || own < bounds.queue_per_owner && self.waiting < bounds.queue {
            return true;
        }
        self.drop_closed(owner);
        let own = self.waiting_of(owner);
        own < bounds.assured_per_owner || own < bounds.queue_per_owner && self.waiting < bounds.queue
    }

    /// The number of runs of this owner that wait.
    pub fn waiting_of(&self, owner: Owner) -> usize {
        let queues = self.queues.iter().filter(|(place, _)| place.key.acts_for == owner);
        queues.map(|(_, queue)| queue.len()).sum()
    }

    /// Removes the runs of an owner whose callers are gone.
    fn drop_closed(&mut self, owner: Owner) {
        let mut dropped = 0;
        for (_, queue) in self.queues.iter_mut().filter(|(place, _)| place.key.acts_for == owner) {
            let before = queue.len();
            queue.retain(|sender| !sender.is_closed());
            dropped += before - queue.len();
        }
        self.waiting -= dropped;
        self.queues.retain(|_, queue| !queue.is_empty());
        self.round.retain(|place| self.queues.contains_key(place));
    }

    /// The number of kinds that somebody waits for.
    pub fn places(&self) -> usize {
        self.round.len()
    }

    /// The kind whose turn it is. Its next turn is after those of all others.
    pub fn next_place(&mut self) -> Option<WorkerPlace> {
        let place = self.round.pop_front()?;
        self.round.push_back(place);
        Some(place)
    }

    /// Takes the run that has waited longest for this kind. Runs whose caller is gone are passed over.
    pub fn pop(&mut self, place: WorkerPlace) -> Option<oneshot::Sender<T>> {
        let queue = self.queues.get_mut(&place)?;
        let found = loop {
            match queue.pop_front() {
                Some(sender) => {
                    self.waiting -= 1;
                    if !sender.is_closed() {
                        break Some(sender);
                    }
                }
                None => break None,
            }
        };
        if queue.is_empty() {
            self.queues.remove(&place);
            self.round.retain(|other| *other != place);
        }
        found
    }

    pub fn take_all(&mut self) -> Vec<oneshot::Sender<T>> {
        self.round.clear();
        self.waiting = 0;
        std::mem::take(&mut self.queues).into_values().flatten().collect()
    }
}

impl<T> Default for SlotQueue<T> {
    fn default() -> Self {
        Self { queues: HashMap::new(), round: VecDeque::new(), waiting: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::id::UserId,
        scripting::workers::places::{WorkerClass, WorkerKey},
    };

    #[test]
    fn runs_that_wait_for_others_keep_nobody_out_and_those_without_a_caller_do_not_count() {
        let bounds = PoolBounds { queue: 8, queue_per_owner: 4, assured_per_owner: 2, ..PoolBounds::new(4, 0) };
        let mut queue = SlotQueue::<()>::default();
        let mut receivers = Vec::new();
        let mut fill = |queue: &mut SlotQueue<()>, owner: Owner| {
            let place = WorkerPlace { key: WorkerKey::of_owner(owner), class: WorkerClass::Script };
            let mut count = 0;
            while queue.has_room(owner, bounds) {
                let (sender, receiver) = oneshot::channel();
                queue.push(place, sender);
                receivers.push(receiver);
                count += 1;
            }
            count
        };
        let [first, second, third] = [(); 3].map(|()| Owner::User(UserId::new()));
        assert_eq!((fill(&mut queue, first), fill(&mut queue, second)), (4, 4));
        assert_eq!(fill(&mut queue, third), 2, "the queue is full, and a newcomer waits nevertheless");
        assert!(!queue.has_room(first, bounds));
        receivers.clear();
        assert!(queue.has_room(first, bounds) && queue.waiting == 6);
        assert_eq!(queue.places(), 2);
    }
}
