//! Reads the queues back from the store at start.
//!
//! A damaged queue entry becomes a dead letter. A damaged sequence number is an error: a number must not be given twice.

use super::{
    history::History,
    queues::{EngineHooks, QueueLimits, QueueState, QueuedEvent, SinkQueue},
    rows::{sink_and_sequence, undamaged},
};
use crate::{
    model::{
        id::{EventId, SinkId},
        timestamp::Timestamp,
    },
    platform::{
        metrics::Metrics,
        store::{Store, StoreError, keys},
    },
};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};

const MALFORMED_KEY: &str = "its key is no id and number";

impl QueueState {
    /// Reads all queues and wakes the sinks that have something to deliver.
    pub fn recover(
        store: Store,
        metrics: Arc<Metrics>,
        limits: QueueLimits,
        hooks: EngineHooks,
    ) -> Result<Arc<Self>, StoreError> {
        let history = History::open(store.clone())?;
        let mut queues = HashMap::<SinkId, SinkQueue>::new();
        for entry in store.scan(&[keys::SEQUENCE]) {
            let (key, value) = entry?;
            let sink = SinkId::from_slice(&key[1..]).ok_or_else(|| StoreError::damaged(&key, "its key is no id"))?;
            let last_sequence = keys::number(&value, 0).ok_or_else(|| StoreError::damaged(&key, "it is no number"))?;
            queues.insert(sink, SinkQueue { last_sequence, ..SinkQueue::default() });
        }
        let mut damaged = Vec::new();
        for entry in store.scan(&[keys::QUEUE]) {
            let (key, value) = entry?;
            let (sink, sequence) = sink_and_sequence(&key).ok_or_else(|| StoreError::damaged(&key, MALFORMED_KEY))?;
            let queue = queues.entry(sink).or_default();
            let due = Timestamp::from_micros(0);
            let Some(event) = EventId::from_slice(&value) else {
                let unknown = QueuedEvent { sequence, event: EventId::NIL, failures: 0, due };
                damaged.push((sink, unknown, StoreError::damaged(&key, "it is no id of an event")));
                continue;
            };
            // The attempts of a delivery whose row is damaged are counted anew.
            let row = undamaged(history.delivery(event, sink))?.flatten();
            queue.ready.push_back(QueuedEvent {
                sequence,
                event,
                failures: row.as_ref().map_or(0, |row| row.failures),
                due: row.map_or(due, |row| row.due),
            });
            queue.reserved += 1;
        }
        for entry in store.scan(&[keys::DEAD]) {
            let (key, _) = entry?;
            let (sink, sequence) = sink_and_sequence(&key).ok_or_else(|| StoreError::damaged(&key, MALFORMED_KEY))?;
            queues.entry(sink).or_default().dead_letters.push_back(sequence);
        }
        for (sink, queue) in &queues {
            if !queue.ready.is_empty() {
                metrics.matched.add(queue.ready.len());
                // The receiver lives as long as the deliverer; without one nothing is delivered anyway.
                let _ = hooks.ready.send(*sink);
            }
        }
        let state = Arc::new(Self { store, metrics, limits, history, hooks, queues: Mutex::new(queues) });
        for (sink, queued, damage) in damaged {
            state.metrics.matched.increment();
            state.give_up_damaged(sink, queued, &damage);
        }
        Ok(state)
    }
}
