//! The size of the events that wait for sinks of their user, by user. An event in several queues counts once.

use crate::{
    model::{
        id::{SinkId, UserId},
        id_map::IdMap,
    },
    routing::queue::HistoryPosition,
};
use parking_lot::Mutex;
use std::collections::HashSet;

#[derive(Default)]
pub(super) struct Undelivered(Mutex<UndeliveredState>);

#[derive(Default)]
struct UndeliveredState {
    /// By the accepted time, which is unique.
    events: IdMap<i64, WaitingEvent>,
    bytes: IdMap<UserId, u64>,
}

struct WaitingEvent {
    user: UserId,
    bytes: u64,
    /// The sinks that it waits for.
    sinks: HashSet<SinkId>,
}

impl Undelivered {
    /// Counts an event that the queues of these sinks hold from now on.
    pub fn add(&self, at: HistoryPosition, user: UserId, bytes: usize, sinks: &[SinkId]) {
        if sinks.is_empty() {
            return;
        }
        let UndeliveredState { events, bytes: users } = &mut *self.0.lock();
        let event = events.entry(at.accepted_at.micros()).or_insert_with(|| {
            *users.entry(user).or_default() += bytes as u64;
            WaitingEvent { user, bytes: bytes as u64, sinks: HashSet::new() }
        });
        event.sinks.extend(sinks);
    }

    /// Counts that the queue of this sink does not hold the event any more. Does nothing if it was not counted for the
    /// sink.
    pub fn remove(&self, at: HistoryPosition, sink: SinkId) {
        let UndeliveredState { events, bytes: users } = &mut *self.0.lock();
        let key = at.accepted_at.micros();
        let Some(event) = events.get_mut(&key) else { return };
        event.sinks.remove(&sink);
        if !event.sinks.is_empty() {
            return;
        }
        let Some(WaitingEvent { user, bytes, .. }) = events.remove(&key) else { return };
        if let Some(left) = users.get_mut(&user) {
            *left -= bytes;
            if *left == 0 {
                users.remove(&user);
            }
        }
    }

    pub fn bytes(&self, user: UserId) -> u64 {
        self.0.lock().bytes.get(&user).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{id::EventId, timestamp::Timestamp};

    #[test]
    fn an_event_counts_once_until_the_last_queue_has_let_it_go() {
        let (undelivered, user) = (Undelivered::default(), UserId::new());
        let at = |n| HistoryPosition { accepted_at: Timestamp::from_micros(n), id: EventId::new() };
        let [a, b] = [SinkId::new(), SinkId::new()];
        undelivered.add(at(1), user, 100, &[a, b]);
        undelivered.add(at(2), user, 10, &[a]);
        undelivered.add(at(3), user, 1000, &[]);
        undelivered.add(at(2), user, 10, &[b]);
        assert_eq!(undelivered.bytes(user), 110);
        for (n, sink, left) in [(1, a, 110), (1, a, 110), (1, b, 10), (2, b, 10), (2, a, 0), (2, a, 0)] {
            undelivered.remove(at(n), sink);
            assert_eq!(undelivered.bytes(user), left);
        }
        assert!(undelivered.0.lock().events.is_empty() && undelivered.0.lock().bytes.is_empty());
    }
}
