//! The embedded engine: queues in the one store, group-committed by its writer.
//!
//! Memory holds a [`Lane`] per sink: what waits, in order, and the counters. Lanes change in two steps.
//! On the writer thread, while a batch is made, a place and a sequence number are *reserved*; once the
//! batch is on disk the event becomes *ready* and its worker is woken. So a worker can never see an
//! event that a crash could take back, and the bound holds over what is still being written.
//!
//! Invariants: `ready` is ascending in sequence; `ready.len() <= reserved <= capacity`, but for what
//! a lowered capacity finds at start; a sequence number is never given twice.

mod history;
mod rows;
mod write_ops;

use super::{
    AcceptError, Attempt, Claim, DeadLetter, Depth, Engine, Freshness, Page, Query, Receipt, Record, Redelivered,
    Retention, Routed, Settlement, Target, Which, record::EventRow,
};
use crate::{
    model::{
        event::Event,
        id::{EventId, SinkId},
        timestamp::Timestamp,
    },
    platform::{
        audit::{Audit, Entry},
        metrics::Metrics,
        store::{Store, StoreError, keys},
    },
};
use async_trait::async_trait;
use history::History;
use parking_lot::{Mutex, MutexGuard};
use rows::{delivery_key, delivery_row, read, sink_and_sequence};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};
use tokio::sync::mpsc;

/// Bounds of the queues.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Events a queue holds, the one in delivery included.
    pub queue: usize,
    /// Dead letters kept per sink.
    pub dead_letters: usize,
}

/// Called with each event that is on disk.
pub type Announce = Box<dyn Fn(&Arc<Event>) + Send + Sync>;

/// Whom the engine tells what, from the writer thread: neither may block.
pub struct Signals {
    /// Told before any of the event's sinks is.
    pub accepted: Announce,
    /// A sink's queue was empty and is no longer.
    pub ready: mpsc::UnboundedSender<SinkId>,
}

/// Queues in the embedded store.
#[derive(Clone)]
pub struct SledEngine(Arc<Shared>);

struct Shared {
    store: Store,
    metrics: Arc<Metrics>,
    bounds: Bounds,
    lanes: Mutex<HashMap<SinkId, Lane>>,
    history: History,
    signals: Signals,
}

/// One sink's queue in memory.
#[derive(Default)]
struct Lane {
    ready: VecDeque<Waiting>,
    /// Places taken: what is ready and what is still being written.
    reserved: usize,
    last_sequence: u64,
    /// The numbers of the dead letters, oldest first. Only the writer thread changes them.
    letters: VecDeque<u64>,
}

struct Waiting {
    sequence: u64,
    event: EventId,
    failures: u32,
    due: Timestamp,
}

/// What accepting an event did on the writer thread.
enum Accepted {
    New { queued: Vec<(SinkId, u64)>, dropped: Vec<Target>, matched: Vec<Target> },
    Repeated(EventRow),
    IdTaken,
    Unreadable(StoreError),
}

impl SledEngine {
    /// Reads the queues back from `store`. Sinks with something waiting are woken.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    pub fn open(store: Store, metrics: Arc<Metrics>, bounds: Bounds, signals: Signals) -> Result<Self, StoreError> {
        let mut lanes = HashMap::<SinkId, Lane>::new();
        for entry in store.scan(&[keys::SEQUENCE]) {
            let (key, value) = entry?;
            let sink = SinkId::from_slice(&key[1..]).ok_or_else(|| StoreError::damaged(&key, "its key is no id"))?;
            let last_sequence = keys::number(&value, 0).ok_or_else(|| StoreError::damaged(&key, "it is no number"))?;
            lanes.insert(sink, Lane { last_sequence, ..Lane::default() });
        }
        for entry in store.scan(&[keys::QUEUE]) {
            let (key, value) = entry?;
            let (sink, sequence) =
                sink_and_sequence(&key).ok_or_else(|| StoreError::damaged(&key, "its key is no id and number"))?;
            let event =
                EventId::from_slice(&value).ok_or_else(|| StoreError::damaged(&key, "it is no id of an event"))?;
            let row_key = delivery_key(event, sink);
            let row = delivery_row(&row_key, store.get(&row_key)?.as_deref())?;
            let lane = lanes.entry(sink).or_default();
            lane.ready.push_back(Waiting {
                sequence,
                event,
                failures: row.as_ref().map_or(0, |row| row.failures),
                due: row.map_or(Timestamp::from_micros(0), |row| row.due),
            });
            lane.reserved += 1;
        }
        for entry in store.scan(&[keys::DEAD]) {
            let (key, _) = entry?;
            let (sink, sequence) =
                sink_and_sequence(&key).ok_or_else(|| StoreError::damaged(&key, "its key is no id and number"))?;
            lanes.entry(sink).or_default().letters.push_back(sequence);
        }
        for (sink, lane) in &lanes {
            if !lane.ready.is_empty() {
                metrics.matched.add(lane.ready.len());
                // The receiver outlives every engine; at worst nobody delivers any more.
                let _ = signals.ready.send(*sink);
            }
        }
        let history = History::open(store.clone())?;
        Ok(Self(Arc::new(Shared { store, metrics, bounds, lanes: Mutex::new(lanes), history, signals })))
    }
}

#[cfg(test)]
impl SledEngine {
    /// What waits for a sink: sequence, event, failures.
    pub(super) fn waiting(&self, sink: SinkId) -> Vec<(u64, EventId, u32)> {
        let lanes = self.0.lanes();
        let ready = lanes.get(&sink).map(|lane| &lane.ready).into_iter().flatten();
        ready.map(|waiting| (waiting.sequence, waiting.event, waiting.failures)).collect()
    }
}

#[async_trait]
impl Engine for SledEngine {
    fn open(&self, sink: SinkId) {
        self.0.lanes().entry(sink).or_default();
    }

    async fn discard(&self, sink: SinkId) -> Result<usize, StoreError> {
        let shared = self.0.clone();
        let waiting = self.0.store.write(move |batch| {
            let lane = shared.lanes().remove(&sink);
            batch.delete(keys::key(keys::SEQUENCE, &[sink.as_bytes()]));
            batch.delete_prefix(&keys::key(keys::QUEUE, &[sink.as_bytes()]))?;
            batch.delete_prefix(&keys::key(keys::DEAD, &[sink.as_bytes()]))?;
            Ok(lane.map_or(0, |lane| lane.reserved))
        });
        let waiting = waiting.await??;
        self.0.metrics.discarded.add(waiting);
        Ok(waiting)
    }

    async fn accept(&self, event: Arc<Event>, targets: Vec<Target>) -> Result<Receipt, AcceptError> {
        self.0.store.check_room()?;
        let encoded = serde_json::to_vec(&*event).expect("an event is plain data with string keys");
        let (shared, after) = (self.0.clone(), self.0.clone());
        let stamped = event.clone();
        let accepted = self.0.store.write_then(move |batch| shared.admit(batch, &stamped, &encoded, targets), {
            let event = event.clone();
            move |accepted| after.make_ready(&event, accepted)
        });
        match accepted.await? {
            Accepted::New { dropped, matched, .. } => {
                Ok(Receipt { event, matched, dropped, freshness: Freshness::New })
            }
            Accepted::Repeated(row) => {
                let dropped = row.routed.iter().filter(|routed| routed.dropped).map(Target::from).collect();
                let matched = row.routed.iter().map(Target::from).collect();
                Ok(Receipt { event: Arc::new(row.event), matched, dropped, freshness: Freshness::Repeated })
            }
            Accepted::IdTaken => Err(AcceptError::IdTaken(event.id)),
            Accepted::Unreadable(error) => Err(error.into()),
        }
    }

    fn due(&self, sink: SinkId) -> Option<Timestamp> {
        self.0.lanes().get(&sink)?.ready.front().map(|head| head.due)
    }

    async fn head(&self, sink: SinkId) -> Result<Option<Claim>, StoreError> {
        // What cannot be settled would be delivered again and again.
        if let Some(stopped) = self.0.store.failure() {
            return Err(stopped);
        }
        let (sequence, id, failures, due) = {
            let lanes = self.0.lanes();
            let Some(head) = lanes.get(&sink).and_then(|lane| lane.ready.front()) else { return Ok(None) };
            (head.sequence, head.event, head.failures, head.due)
        };
        let row = self.0.history.event(id)?.ok_or_else(|| {
            StoreError::damaged(&rows::queue_key(sink, sequence), format_args!("its event {id} is missing"))
        })?;
        Ok(Some(Claim { sink, sequence, event: Arc::new(row.event), failures, due }))
    }

    async fn settle(&self, claim: &Claim, attempt: Attempt, settlement: Settlement) {
        let (sink, sequence) = (claim.sink, claim.sequence);
        {
            let mut lanes = self.0.lanes();
            // Without a lane the sink was deleted during the attempt, and there is nothing left to settle.
            let Some(lane) = lanes.get_mut(&sink) else { return };
            let is_it = |head: &&mut Waiting| head.sequence == sequence && head.event == claim.event.id;
            let Some(head) = lane.ready.front_mut().filter(is_it) else { return };
            match settlement {
                Settlement::Retry(due) => {
                    head.failures += 1;
                    head.due = due;
                }
                Settlement::Done | Settlement::Dead(_) => {
                    lane.ready.pop_front();
                    lane.reserved -= 1;
                }
            }
        }
        self.0.count(&attempt, &settlement);
        let (shared, claim) = (self.0.clone(), claim.clone());
        self.0.store.write_soon(move |batch| {
            if let Err(error) = shared.write_settlement(batch, &claim, attempt, settlement) {
                log::error!("settling {} for sink {sink}: {error}", claim.event.id);
            }
        });
    }

    async fn redeliver(&self, sink: SinkId, which: Which, entry: Entry) -> Result<Redelivered, StoreError> {
        let (shared, after) = (self.0.clone(), self.0.clone());
        let queued = self.0.store.write_then(
            move |batch| {
                let queued = shared.requeue(batch, sink, &which)?;
                let detail = serde_json::json!({"redelivered": queued.len()});
                Audit::record(batch, &entry.with(detail));
                Ok::<_, StoreError>(queued)
            },
            move |queued| {
                if let Ok(queued) = queued {
                    after.metrics.matched.add(queued.len());
                    after.push_ready(queued.iter().map(|(sequence, event)| (sink, *sequence, *event)));
                }
            },
        );
        let queued = queued.await??.len();
        Ok(Redelivered { queued, remaining: self.depth(sink).dead })
    }

    fn dead_letters(&self, sink: SinkId, after: u64, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        let first = keys::key(keys::DEAD, &[sink.as_bytes(), &after.saturating_add(1).to_be_bytes()]);
        let last = keys::key(keys::DEAD, &[sink.as_bytes(), &u64::MAX.to_be_bytes()]);
        self.0
            .store
            .range(first..last)
            .take(limit)
            .map(|entry| {
                let (key, value) = entry?;
                read(&key, &value)
            })
            .collect()
    }

    fn depth(&self, sink: SinkId) -> Depth {
        let lanes = self.0.lanes();
        lanes.get(&sink).map_or_else(Depth::default, |lane| Depth {
            queued: lane.reserved,
            last_sequence: lane.last_sequence,
            dead: lane.letters.len(),
        })
    }

    fn sinks(&self) -> Vec<SinkId> {
        self.0.lanes().keys().copied().collect()
    }

    fn record(&self, id: EventId) -> Result<Option<Record>, StoreError> {
        self.0.history.record(id, |sink| self.0.lanes().contains_key(&sink))
    }

    fn history(&self, query: &Query) -> Result<Page, StoreError> {
        self.0.history.page(query, |sink| self.0.lanes().contains_key(&sink))
    }

    async fn prune(&self, retention: Retention) -> Result<usize, StoreError> {
        self.0.history.prune(retention).await
    }
}

impl Shared {
    fn lanes(&self) -> MutexGuard<'_, HashMap<SinkId, Lane>> {
        self.lanes.lock()
    }
}

impl From<&Routed> for Target {
    fn from(routed: &Routed) -> Self {
        Self { sink: routed.sink, name: routed.name.clone() }
    }
}
