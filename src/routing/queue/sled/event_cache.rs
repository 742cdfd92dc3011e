//! The events that were accepted or read last, so that the deliveries of one event share it and rarely read it from
//! disk.

use crate::{
    model::{event::Event, id_map::IdMap},
    routing::queue::HistoryPosition,
};
use parking_lot::Mutex;
use std::{collections::VecDeque, sync::Arc};

/// The most bytes of payloads in the cache.
const MAX_BYTES: usize = 8 << 20;

/// The bytes that an event takes besides its payload, roughly.
const OVERHEAD: usize = 512;

#[derive(Default)]
pub(super) struct EventCache(Mutex<CachedEvents>);

#[derive(Default)]
struct CachedEvents {
    /// By the accepted time, which is unique.
    events: IdMap<i64, Arc<Event>>,
    /// The accepted times in the order in which the events came, the next one to go first.
    order: VecDeque<i64>,
    bytes: usize,
}

impl EventCache {
    pub fn get(&self, at: HistoryPosition) -> Option<Arc<Event>> {
        self.0.lock().events.get(&at.accepted_at.micros()).filter(|event| event.id == at.id).cloned()
    }

    pub fn insert(&self, at: HistoryPosition, event: Arc<Event>) {
        let mut removed = Vec::new();
        let mut cached = self.0.lock();
        let (time, bytes) = (at.accepted_at.micros(), size(&event));
        if cached.events.insert(time, event).is_some() {
            return;
        }
        cached.order.push_back(time);
        cached.bytes += bytes;
        while cached.bytes > MAX_BYTES
            && let Some(oldest) = cached.order.pop_front()
            && let Some(event) = cached.events.remove(&oldest)
        {
            cached.bytes -= size(&event);
            removed.push(event);
        }
        // Freed after the lock.
        drop(cached);
    }
}

fn size(event: &Event) -> usize {
    event.data.get().len() + OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::timestamp::Timestamp, routing::queue::tests};
    use serde_json::value::RawValue;

    fn event(payload: &str) -> Arc<Event> {
        let data = RawValue::from_string(format!("\"{payload}\"")).unwrap();
        Arc::new(Event { data, ..Arc::into_inner(tests::event(None)).unwrap() })
    }

    #[test]
    fn the_events_that_came_last_are_found_within_a_bound_of_memory() {
        let cache = EventCache::default();
        let position = |n: usize, event: &Event| HistoryPosition {
            accepted_at: Timestamp::from_micros(i64::try_from(n).unwrap()),
            id: event.id,
        };
        let events: Vec<_> = (0..200).map(|_| event(&"x".repeat(100 << 10))).collect();
        for (n, event) in events.iter().enumerate() {
            cache.insert(position(n, event), event.clone());
            cache.insert(position(n, event), event.clone());
        }
        let found: Vec<_> = (0..200).filter(|n| cache.get(position(*n, &events[*n])).is_some()).collect();
        assert_eq!(found, (119..200).collect::<Vec<_>>());
        assert!(cache.get(position(150, &events[151])).is_none(), "another event");
        let cached = cache.0.lock();
        assert_eq!((cached.order.len(), cached.bytes), (81, 81 * ((100 << 10) + 2 + OVERHEAD)));
    }
}
