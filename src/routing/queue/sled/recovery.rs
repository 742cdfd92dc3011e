//! Reads the queues back from the store at start. A damaged row stops nothing:
//!
//! - A damaged queue entry stays in its place and becomes a dead letter there.
//! - The attempts of a delivery whose row is damaged are counted anew.
//! - A damaged sequence number is replaced by one that is beyond every number given, because none must be given twice.

use super::{
    delivery_row::DeliveryRow,
    event_cache::EventCache,
    gaps::{GapChange, read_gaps},
    history::History,
    queues::{EngineHooks, QueueLimits, QueueState, QueuedEvent, SinkQueue},
    replay_jobs::ReplayJobs,
    rows::{position, sequence_key, sink_and_sequence, stored_number, undamaged},
    undelivered::Undelivered,
};
use crate::{
    model::{
        id::SinkId,
        id_map::IdMap,
        sequence::{MissReason, MissedRange},
    },
    platform::{
        metrics::Metrics,
        store::{Store, StoreError, keys, readable},
    },
};
use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

impl QueueState {
    /// Reads all queues and wakes the sinks that have something to deliver.
    pub fn recover(
        store: Store,
        metrics: Arc<Metrics>,
        limits: QueueLimits,
        hooks: EngineHooks,
    ) -> Result<Arc<Self>, StoreError> {
        let history = History::open(store.clone())?;
        let mut queues = IdMap::<SinkId, Box<SinkQueue>>::default();
        let undelivered = Undelivered::default();
        read_queued(&store, &history, &mut queues, &undelivered)?;
        read_missed(&store, &mut queues)?;
        read_dead_letters(&store, &mut queues)?;
        read_sequences(&store, &mut queues)?;
        for (sink, queue) in &queues {
            if !queue.ready.is_empty() {
                metrics.matched.add(queue.ready.len());
                // The receiver lives as long as the deliverer; without one nothing is delivered anyway.
                let _ = hooks.ready.send(*sink);
            }
        }
        let replays = ReplayJobs::read(&store)?;
        Ok(Arc::new(Self {
            store,
            metrics,
            limits,
            history,
            hooks,
            queues: Mutex::new(queues),
            undelivered,
            cache: EventCache::default(),
            replays,
        }))
    }
}

fn read_queued(
    store: &Store,
    history: &History,
    queues: &mut IdMap<SinkId, Box<SinkQueue>>,
    undelivered: &Undelivered,
) -> Result<(), StoreError> {
    for key in store.keys(kind(keys::QUEUE)) {
        let key = key?;
        let Some((sink, sequence)) = known(&key) else { continue };
        // Absent only if it was deleted since its key was read, and nothing runs yet that could.
        let Some(value) = readable(store.get(&key))?.map_or(Some(None), |value| value.map(Some)) else { continue };
        let event = value.and_then(|value| position(&value));
        let row = match event {
            Some(at) => undamaged(history.delivery(at, sink))?.flatten(),
            None => None,
        };
        if let Some(at) = event
            && let Some(event) = readable(history.event_alone(at))?.flatten()
        {
            undelivered.add(at, event.user_id, event.data.get().len(), &[sink]);
        }
        let queue = queues.entry(sink).or_default();
        queue.last_sequence = queue.last_sequence.max(sequence);
        queue.ready.push_back(QueuedEvent {
            sequence,
            event,
            failures: row.as_ref().map_or(0, |row| row.failures),
            // A damaged row is one too.
            recorded: true,
            replay: row.as_ref().and_then(|row| row.replay),
            due: row.map(|row| Instant::now() + remaining_wait(&row)),
        });
        queue.reserved += 1;
        queue.replayed += usize::from(queue.ready.back().is_some_and(|queued| queued.replay.is_some()));
    }
    Ok(())
}

fn read_missed(store: &Store, queues: &mut IdMap<SinkId, Box<SinkQueue>>) -> Result<(), StoreError> {
    read_gaps(store, |sink, mut range| {
        let queue = queues.entry(sink).or_default();
        if range.reason == MissReason::Damaged
            && let Some(next) = queue.ready.iter().find(|queued| queued.sequence > range.from)
        {
            range.to = range.to.max(next.sequence - 1);
        }
        queue.last_sequence = queue.last_sequence.max(range.to);
        queue.losses_mut().gaps.push(range);
    })
}

fn read_dead_letters(store: &Store, queues: &mut IdMap<SinkId, Box<SinkQueue>>) -> Result<(), StoreError> {
    for key in store.keys(kind(keys::DEAD)) {
        let Some((sink, sequence)) = known(&key?) else { continue };
        let queue = queues.entry(sink).or_default();
        queue.last_sequence = queue.last_sequence.max(sequence);
        queue.losses_mut().dead_letters.push_back(sequence);
    }
    Ok(())
}

fn read_sequences(store: &Store, queues: &mut IdMap<SinkId, Box<SinkQueue>>) -> Result<(), StoreError> {
    for key in store.keys(kind(keys::SEQUENCE)) {
        let key = key?;
        let Some(sink) = SinkId::from_slice(&key[1..]) else {
            log::warn!("{}", StoreError::damaged(&key, "its key is no id"));
            continue;
        };
        let queue = queues.entry(sink).or_default();
        let stored = store.get(&key).and_then(|value| value.map(|value| stored_number(&key, &value)).transpose());
        match readable(stored)? {
            Some(stored) => queue.last_sequence = queue.last_sequence.max(stored.unwrap_or(0)),
            None => {
                let known = queue.last_sequence;
                let last = known.max(keys::beyond_every_sequence());
                queue.last_sequence = last;
                // Which of these numbers were given is not known any more.
                let gap = match known < last {
                    true => {
                        let range = MissedRange { from: known + 1, to: last, reason: MissReason::Damaged };
                        queue.losses_mut().gaps.push(range)
                    }
                    false => GapChange::default(),
                };
                log::warn!(
                    "the sequence number of sink {sink} is damaged: its events are numbered from {} on",
                    last + 1
                );
                store.write_soon(move |batch| {
                    batch.put(sequence_key(sink), last.to_be_bytes());
                    gap.write(batch, sink);
                });
            }
        }
    }
    Ok(())
}

/// Returns the rest of the wait for the next attempt. It is never longer than the wait that was intended, however the
/// clock was set since.
fn remaining_wait(row: &DeliveryRow) -> Duration {
    let Some(last) = row.attempts.last() else { return Duration::ZERO };
    row.due.from_now().min(row.due.since(last.ended_at()))
}

fn kind(kind: u8) -> std::ops::Range<Vec<u8>> {
    vec![kind]..vec![kind + 1]
}

/// Returns the sink and sequence number in a key; a key without them is logged.
fn known(key: &[u8]) -> Option<(SinkId, u64)> {
    let known = sink_and_sequence(key);
    if known.is_none() {
        log::warn!("{}", StoreError::damaged(key, "its key is no id and number"));
    }
    known
}
