//! Reads the queues back from the store at start.

use super::{
    history::History,
    queues::{EngineHooks, QueueLimits, QueueState, QueuedEvent, SinkQueue},
    rows::{DeliveryRow, decode, delivery_key, sink_and_sequence},
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
    ) -> Result<Self, StoreError> {
        let mut queues = HashMap::<SinkId, SinkQueue>::new();
        for entry in store.scan(&[keys::SEQUENCE]) {
            let (key, value) = entry?;
            let sink = SinkId::from_slice(&key[1..]).ok_or_else(|| StoreError::damaged(&key, "its key is no id"))?;
            let last_sequence = keys::number(&value, 0).ok_or_else(|| StoreError::damaged(&key, "it is no number"))?;
            queues.insert(sink, SinkQueue { last_sequence, ..SinkQueue::default() });
        }
        for entry in store.scan(&[keys::QUEUE]) {
            let (key, value) = entry?;
            let (sink, sequence) = sink_and_sequence(&key).ok_or_else(|| StoreError::damaged(&key, MALFORMED_KEY))?;
            let event =
                EventId::from_slice(&value).ok_or_else(|| StoreError::damaged(&key, "it is no id of an event"))?;
            let row_key = delivery_key(event, sink);
            let row: Option<DeliveryRow> = store.get(&row_key)?.map(|value| decode(&row_key, &value)).transpose()?;
            let queue = queues.entry(sink).or_default();
            queue.ready.push_back(QueuedEvent {
                sequence,
                event,
                failures: row.as_ref().map_or(0, |row| row.failures),
                due: row.map_or(Timestamp::from_micros(0), |row| row.due),
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
        let history = History::open(store.clone())?;
        Ok(Self { store, metrics, limits, history, hooks, queues: Mutex::new(queues) })
    }
}
