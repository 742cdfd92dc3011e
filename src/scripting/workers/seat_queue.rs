//! The runs that wait for a seat, by the kind of worker they need. The kinds take turns.

use super::places::{PoolBounds, WorkerPlace};
use crate::model::owner::Owner;
use std::collections::{HashMap, VecDeque};
use tokio::sync::oneshot;

/// The waiting runs, each as the sender of what it waits for.
pub(super) struct SeatQueue<T> {
    queues: HashMap<WorkerPlace, VecDeque<oneshot::Sender<T>>>,
    /// The kinds that somebody waits for, in the order of their next turn. Each is here once.
    round: VecDeque<WorkerPlace>,
    waiting: usize,
}

impl<T> SeatQueue<T> {
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

    /// Returns true if another run of this owner may wait.
    pub fn has_room(&self, owner: Owner, bounds: PoolBounds) -> bool {
        let own = || {
            let queues = self.queues.iter().filter(|(place, _)| place.key.acts_for == owner);
            queues.map(|(_, queue)| queue.len()).sum::<usize>()
        };
        self.waiting < bounds.queue && own() < bounds.queue_per_owner
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

impl<T> Default for SeatQueue<T> {
    fn default() -> Self {
        Self { queues: HashMap::new(), round: VecDeque::new(), waiting: 0 }
    }
}
