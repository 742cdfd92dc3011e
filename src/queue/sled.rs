//! The embedded engine: queues in the one store, group-committed by its writer.
//!
//! Memory holds a [`Lane`] per sink: what waits, in order, and the counters. Lanes change in two steps.
//! On the writer thread, while a batch is made, a place and a sequence number are *reserved*; once the
//! batch is on disk the event becomes *ready* and its worker is woken. So a worker can never see an
//! event that a crash could take back, and the bound holds over what is still being written.
//!
//! Invariants: `ready` is ascending in sequence; `ready.len() <= reserved <= capacity`, but for what
//! a lowered capacity finds at start; a sequence number is never given twice.

use super::{
    AcceptError, Attempt, AttemptOutcome, Claim, DeadLetter, DeliveryState, Depth, Engine, Freshness, Page, Query,
    Receipt, Record, Redelivered, Retention, Routed, Settlement, Target, Which,
    history::History,
    record::{DeliveryRow, EventRow},
};
use crate::{
    audit::{Audit, Entry},
    event::Event,
    id::{EventId, SinkId},
    metrics::Metrics,
    store::{Batch, Store, StoreError, keys},
    timestamp::Timestamp,
};
use async_trait::async_trait;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
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

/// Queues in the embedded store.
#[derive(Clone)]
pub struct SledEngine(Arc<Shared>);

struct Shared {
    store: Store,
    metrics: Arc<Metrics>,
    bounds: Bounds,
    lanes: Mutex<HashMap<SinkId, Lane>>,
    history: History,
    /// Told each sink whose queue was empty and is no longer.
    wake: mpsc::UnboundedSender<SinkId>,
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
    pub fn open(
        store: Store,
        metrics: Arc<Metrics>,
        bounds: Bounds,
        wake: mpsc::UnboundedSender<SinkId>,
    ) -> Result<Self, StoreError> {
        let mut lanes = HashMap::<SinkId, Lane>::new();
        for entry in store.scan(&[keys::SEQUENCE]) {
            let (key, value) = entry?;
            let sink = SinkId::from_slice(&key[1..]).ok_or_else(|| damaged("sequence"))?;
            let last_sequence = keys::number(&value, 0).ok_or_else(|| damaged("sequence"))?;
            lanes.insert(sink, Lane { last_sequence, ..Lane::default() });
        }
        for entry in store.scan(&[keys::QUEUE]) {
            let (key, value) = entry?;
            let (sink, sequence) = sink_and_sequence(&key).ok_or_else(|| damaged("queue"))?;
            let event = EventId::from_slice(&value).ok_or_else(|| damaged("queue"))?;
            let row = delivery_row(store.get(&delivery_key(event, sink))?.as_deref())?;
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
            let (sink, sequence) = sink_and_sequence(&entry?.0).ok_or_else(|| damaged("dead letter"))?;
            lanes.entry(sink).or_default().letters.push_back(sequence);
        }
        for (sink, lane) in &lanes {
            if !lane.ready.is_empty() {
                metrics.matched.add(lane.ready.len());
                // The receiver outlives every engine; at worst nobody delivers any more.
                let _ = wake.send(*sink);
            }
        }
        let history = History::open(store.clone())?;
        Ok(Self(Arc::new(Shared { store, metrics, bounds, lanes: Mutex::new(lanes), history, wake })))
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
            let event = event.id;
            move |accepted| after.make_ready(event, accepted)
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
        if let Some(reason) = self.0.store.failure() {
            return Err(StoreError::Failed(reason.to_owned()));
        }
        let (sequence, id, failures, due) = {
            let lanes = self.0.lanes();
            let Some(head) = lanes.get(&sink).and_then(|lane| lane.ready.front()) else { return Ok(None) };
            (head.sequence, head.event, head.failures, head.due)
        };
        let row = self.0.history.event(id)?.ok_or_else(|| damaged("queue: its event"))?;
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
        let prefix = keys::key(keys::DEAD, &[sink.as_bytes()]);
        let first = keys::key(keys::DEAD, &[sink.as_bytes(), &after.saturating_add(1).to_be_bytes()]);
        let last = keys::key(keys::DEAD, &[sink.as_bytes(), &u64::MAX.to_be_bytes()]);
        debug_assert!(first.starts_with(&prefix));
        self.0.store.range(first..last).take(limit).map(|entry| read(&entry?.1, "dead letter")).collect()
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

/// The steps that run on the writer thread.
impl Shared {
    fn lanes(&self) -> MutexGuard<'_, HashMap<SinkId, Lane>> {
        self.lanes.lock().expect("no code panics while holding the lanes")
    }

    /// Reserves a place in every queue that has one, and puts the event and its places into the batch.
    fn admit(&self, batch: &mut Batch<'_>, event: &Event, encoded: &[u8], targets: Vec<Target>) -> Accepted {
        match self.history.stored(batch, event.id) {
            Ok(None) => {}
            Ok(Some(row)) if is_repeat(&row.event, event) => return Accepted::Repeated(row),
            Ok(Some(_)) => return Accepted::IdTaken,
            Err(error) => return Accepted::Unreadable(error),
        }
        let mut routed = Vec::with_capacity(targets.len());
        let (mut queued, mut dropped, mut matched) = (Vec::new(), Vec::new(), Vec::new());
        let mut lanes = self.lanes();
        for target in targets {
            // A sink deleted since the event was routed has no lane, and no claim to the event.
            let Some(lane) = lanes.get_mut(&target.sink) else { continue };
            lane.last_sequence += 1;
            let sequence = lane.last_sequence;
            batch.put(keys::key(keys::SEQUENCE, &[target.sink.as_bytes()]), sequence.to_be_bytes());
            let full = lane.reserved >= self.bounds.queue;
            if full {
                dropped.push(target.clone());
            } else {
                lane.reserved += 1;
                batch.put(queue_key(target.sink, sequence), *event.id.as_bytes());
                queued.push((target.sink, sequence));
            }
            routed.push(Routed { sink: target.sink, name: target.name.clone(), sequence, dropped: full });
            matched.push(target);
        }
        drop(lanes);
        for target in &dropped {
            self.audit_drop(batch, event, target);
        }
        self.history.put_event(batch, event, EventRow::encode(encoded, &routed));
        Accepted::New { queued, dropped, matched }
    }

    fn audit_drop(&self, batch: &mut Batch<'_>, event: &Event, target: &Target) {
        let entry = Entry::new(None, "event.drop", format!("sink:{}", target.sink)).with(serde_json::json!({
            "sink": target.name, "event_id": event.id, "event_type": event.kind,
            "reason": format!("the queue holds {} events", self.bounds.queue),
        }));
        Audit::record(batch, &entry);
    }

    /// The event is on disk: lets the workers see it.
    fn make_ready(&self, event: EventId, accepted: &Accepted) {
        match accepted {
            Accepted::New { queued, dropped, matched } => {
                self.metrics.events_accepted.increment();
                self.metrics.matched.add(matched.len());
                self.metrics.dropped.add(dropped.len());
                for target in dropped {
                    log::warn!("sink `{}` ({}) is full: event {event} is dropped for it", target.name, target.sink);
                }
                self.push_ready(queued.iter().map(|(sink, sequence)| (*sink, *sequence, event)));
            }
            Accepted::Repeated(_) => self.metrics.events_repeated.increment(),
            Accepted::IdTaken | Accepted::Unreadable(_) => {}
        }
    }

    fn push_ready(&self, queued: impl Iterator<Item = (SinkId, u64, EventId)>) {
        let mut lanes = self.lanes();
        for (sink, sequence, event) in queued {
            let Some(lane) = lanes.get_mut(&sink) else { continue };
            let was_empty = lane.ready.is_empty();
            lane.ready.push_back(Waiting { sequence, event, failures: 0, due: Timestamp::from_micros(0) });
            if was_empty {
                let _ = self.wake.send(sink);
            }
        }
    }

    fn count(&self, attempt: &Attempt, settlement: &Settlement) {
        match settlement {
            Settlement::Done if attempt.outcome == AttemptOutcome::Skipped => self.metrics.skipped.increment(),
            Settlement::Done => self.metrics.delivered.increment(),
            Settlement::Dead(_) => self.metrics.dead.increment(),
            Settlement::Retry(_) => {}
        }
        if matches!(attempt.outcome, AttemptOutcome::Failed | AttemptOutcome::Dead) {
            self.metrics.attempts_failed.increment();
        }
    }

    fn write_settlement(
        &self,
        batch: &mut Batch<'_>,
        claim: &Claim,
        attempt: Attempt,
        settlement: Settlement,
    ) -> Result<(), StoreError> {
        let Claim { sink, sequence, event, .. } = claim;
        let (sink, sequence) = (*sink, *sequence);
        if !self.lanes().contains_key(&sink) {
            return Ok(());
        }
        let key = delivery_key(event.id, sink);
        let old = batch.get(&key)?;
        let mut row = delivery_row(old.as_deref())?.unwrap_or(DeliveryRow {
            state: DeliveryState::Queued,
            sequence,
            failures: 0,
            due: attempt.at,
            attempts: Vec::new(),
        });
        row.state = match (&settlement, attempt.outcome) {
            (Settlement::Retry(_), _) => DeliveryState::Queued,
            (Settlement::Dead(_), _) => DeliveryState::Dead,
            (Settlement::Done, AttemptOutcome::Skipped) => DeliveryState::Skipped,
            (Settlement::Done, _) => DeliveryState::Delivered,
        };
        let (number, at) = (attempt.number, attempt.at);
        row.attempts.push(attempt);
        match settlement {
            Settlement::Retry(due) => {
                row.failures += 1;
                row.due = due;
            }
            Settlement::Done => batch.delete(queue_key(sink, sequence)),
            Settlement::Dead(why) => {
                batch.delete(queue_key(sink, sequence));
                let letter = DeadLetter {
                    event_id: event.id,
                    event_type: event.kind.as_str().to_owned(),
                    event_ts: event.ts,
                    sequence,
                    died_at: at,
                    why,
                    attempts: number,
                };
                self.bury(batch, sink, &letter);
            }
        }
        self.history.put_delivery(batch, key, old.map_or(0, |old| old.len()), &row);
        Ok(())
    }

    /// Puts a dead letter, and takes the oldest away if that is one too many.
    fn bury(&self, batch: &mut Batch<'_>, sink: SinkId, letter: &DeadLetter) {
        let DeadLetter { event_id, event_type, attempts, why, .. } = letter;
        log::warn!("sink {sink}: event {event_id} is given up after {attempts} attempts: {why}");
        let entry = Entry::new(None, "event.give_up", format!("sink:{sink}")).with(serde_json::json!({
            "event_id": event_id, "event_type": event_type, "attempts": attempts, "reason": why,
        }));
        Audit::record(batch, &entry);
        batch.put(dead_key(sink, letter.sequence), encode(letter));
        let mut lanes = self.lanes();
        let Some(lane) = lanes.get_mut(&sink) else { return };
        lane.letters.push_back(letter.sequence);
        while lane.letters.len() > self.bounds.dead_letters
            && let Some(oldest) = lane.letters.pop_front()
        {
            log::warn!("sink {sink}: its oldest dead letter, number {oldest}, makes room for a new one");
            batch.delete(dead_key(sink, oldest));
        }
    }

    /// Moves dead letters to the tail of their queue, as far as there is room.
    fn requeue(&self, batch: &mut Batch<'_>, sink: SinkId, which: &Which) -> Result<Vec<(u64, EventId)>, StoreError> {
        let letters = self.lanes().get(&sink).map(|lane| lane.letters.clone()).unwrap_or_default();
        let mut queued = Vec::new();
        for number in letters {
            let key = dead_key(sink, number);
            let letter: DeadLetter = match batch.get(&key)? {
                Some(value) => read(&value, "dead letter")?,
                None => return Err(damaged("dead letter")),
            };
            if matches!(which, Which::Events(events) if !events.contains(&letter.event_id)) {
                continue;
            }
            let sequence = {
                let mut lanes = self.lanes();
                let Some(lane) = lanes.get_mut(&sink) else { break };
                if lane.reserved >= self.bounds.queue {
                    break;
                }
                lane.reserved += 1;
                lane.letters.retain(|other| *other != number);
                lane.last_sequence += 1;
                lane.last_sequence
            };
            batch.put(keys::key(keys::SEQUENCE, &[sink.as_bytes()]), sequence.to_be_bytes());
            batch.put(queue_key(sink, sequence), *letter.event_id.as_bytes());
            batch.delete(key);
            let row_key = delivery_key(letter.event_id, sink);
            let old = batch.get(&row_key)?;
            if let Some(mut row) = delivery_row(old.as_deref())? {
                row.state = DeliveryState::Queued;
                row.sequence = sequence;
                row.failures = 0;
                row.due = Timestamp::from_micros(0);
                self.history.put_delivery(batch, row_key, old.map_or(0, |old| old.len()), &row);
            }
            queued.push((sequence, letter.event_id));
        }
        Ok(queued)
    }
}

/// Whether an emit with an id already stored is the same emit once more, and not another that took its id.
fn is_repeat(stored: &Event, event: &Event) -> bool {
    stored.user_id == event.user_id && stored.kind == event.kind && stored.data.get() == event.data.get()
}

impl From<&Routed> for Target {
    fn from(routed: &Routed) -> Self {
        Self { sink: routed.sink, name: routed.name.clone() }
    }
}

pub(super) fn delivery_key(event: EventId, sink: SinkId) -> Vec<u8> {
    keys::key(keys::DELIVERY, &[event.as_bytes(), sink.as_bytes()])
}

pub(super) fn queue_key(sink: SinkId, sequence: u64) -> Vec<u8> {
    keys::key(keys::QUEUE, &[sink.as_bytes(), &sequence.to_be_bytes()])
}

pub(super) fn dead_key(sink: SinkId, sequence: u64) -> Vec<u8> {
    keys::key(keys::DEAD, &[sink.as_bytes(), &sequence.to_be_bytes()])
}

pub(super) fn delivery_row(value: Option<&[u8]>) -> Result<Option<DeliveryRow>, StoreError> {
    value.map(|value| read(value, "delivery")).transpose()
}

pub(super) fn read<T: serde::de::DeserializeOwned>(value: &[u8], what: &str) -> Result<T, StoreError> {
    serde_json::from_slice(value).map_err(|error| StoreError::Failed(format!("{what} record: {error}")))
}

pub(super) fn encode(record: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("records are plain data with string keys")
}

fn sink_and_sequence(key: &[u8]) -> Option<(SinkId, u64)> {
    Some((SinkId::from_slice(key.get(1..17)?)?, keys::number(key, 17)?))
}

fn damaged(what: &str) -> StoreError {
    StoreError::Failed(format!("{what} record is damaged"))
}
