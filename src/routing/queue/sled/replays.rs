//! Replay jobs: finding the events of a job in the history, and queueing them again.
//!
//! The history is read beside the writer thread, a bounded number of events at a time. The write that queues events
//! looks at each of them again, because its delivery may have changed since, and stores the progress of the job in the
//! same group: a crash neither loses nor doubles an event. A job first counts what it selects, so that it can tell at
//! the end what was gone.
//!
//! Replayed events come behind everything that waits, and take half of the places that new events leave free. They take
//! none from new events: a queue is full for those when it holds as many of their own as it may.

use super::{
    delivery_row::{DeliveryRow, EarlierNumber},
    history::History,
    queue_again::QueuedAgain,
    queues::{QueueState, SinkQueue},
    replay_jobs::EventCount,
    rows::{EventRow, RoutedSink, dead_key, decode, event_key, event_position, first_event_key, undamaged},
};
use crate::{
    model::{
        delivery::{DeadLetter, DeliveryState},
        event::EventType,
        id::{ReplayId, SinkId},
        replay::{ReplayChange, ReplayJob, ReplaySelection, ReplayState, ReplayedState},
        timestamp::Timestamp,
    },
    platform::{
        audit::{Audit, AuditEntry},
        store::{Batch, StoreError, keys, readable},
    },
    routing::queue::{HistoryPosition, NewReplay, ReplayError},
};

/// Events of the history that are looked at in one step of a job.
const EVENTS_PER_STEP: usize = 2000;

/// The most unfinished jobs to the sinks of one owner.
const MAX_UNFINISHED: usize = 16;

/// A part of the history that was looked at.
pub(super) struct ScannedHistory {
    /// The events that the job selects, in order.
    events: Vec<HistoryPosition>,
    reached: Timestamp,
    /// There is nothing left for the job.
    pub ended: bool,
}

/// Events that were queued in one step.
#[derive(Default)]
pub(super) struct ReplayedEvents {
    pub queued: Vec<(u64, HistoryPosition)>,
    pub is_finished: bool,
    /// Some of the events have to wait for room.
    pub has_no_room: bool,
}

/// The result for one event of a job.
enum ReplayedEvent {
    Queued(u64),
    /// It is not there any more, or in another state.
    Gone,
    NoRoom,
}

impl SinkQueue {
    /// Returns the places taken by events that are not replayed.
    pub fn live(&self) -> usize {
        self.reserved.saturating_sub(self.replayed)
    }

    /// Returns the number of events that a job may queue now.
    fn free_replay_places(&self, limit: usize) -> usize {
        let places = match self.live() {
            0 => (limit / 2).max(1),
            live => limit.saturating_sub(live) / 2,
        };
        places.saturating_sub(self.replayed)
    }

    /// Counts that a replayed event has left the queue. Returns true if it is time to queue more.
    pub fn release_replayed(&mut self, limit: usize) -> bool {
        self.replayed = self.replayed.saturating_sub(1);
        self.replayed <= limit / 8
    }
}

impl QueueState {
    /// Returns the number of events that the sink's job may queue now.
    pub fn free_replay_places(&self, sink: SinkId) -> usize {
        self.queues().get(&sink).map_or(0, |queue| queue.free_replay_places(self.limits.queue))
    }

    pub fn start_replay(
        &self,
        batch: &mut Batch<'_>,
        sink: SinkId,
        new: NewReplay,
        entry: AuditEntry,
    ) -> Result<ReplayJob, ReplayError> {
        if !self.has_queue(sink) {
            return Err(ReplayError::NoQueue);
        }
        if self.replays.unfinished(sink).is_some() {
            return Err(ReplayError::UnderWay);
        }
        if self.replays_of_owner(sink) >= MAX_UNFINISHED {
            return Err(ReplayError::TooMany(MAX_UNFINISHED));
        }
        let oldest = self.store.keys(vec![keys::EVENT]..vec![keys::EVENT + 1]).next().transpose()?;
        let last = self.history.last_accepted();
        let NewReplay { since, until, kind, states, sequences, rate } = new;
        let until = until.map_or(last, |until| until.min(last));
        let job = ReplayJob {
            id: ReplayId::new(),
            state: ReplayState::Running,
            selection: ReplaySelection { since, until, kind, states, sequences },
            rate,
            created_at: Timestamp::now(),
            finished_at: None,
            history_since: oldest.and_then(|key| event_position(&key)).map(|at| at.accepted_at),
            matched: None,
            queued: 0,
            gone: None,
            reached: None,
        };
        self.audit_replay(batch, sink, &job, entry);
        self.replays.put(batch, sink, job.clone());
        Ok(job)
    }

    /// Returns the number of unfinished jobs to sinks of the same owner.
    fn replays_of_owner(&self, sink: SinkId) -> usize {
        let unfinished = self.replays.unfinished_sinks();
        let queues = self.queues();
        let owner = queues.get(&sink).and_then(|queue| queue.owner);
        unfinished.iter().filter(|other| queues.get(other).is_some_and(|queue| queue.owner == owner)).count()
    }

    pub fn change_replay(
        &self,
        batch: &mut Batch<'_>,
        sink: SinkId,
        change: ReplayChange,
        entry: AuditEntry,
    ) -> Result<ReplayJob, ReplayError> {
        let mut job = self.replays.unfinished(sink).ok_or(ReplayError::NoneUnderWay)?;
        match change {
            ReplayChange::Pause => job.state = ReplayState::Paused,
            ReplayChange::Resume => job.state = ReplayState::Running,
            ReplayChange::Cancel => job.finish(ReplayState::Cancelled, Timestamp::now()),
        }
        self.audit_replay(batch, sink, &job, entry);
        self.replays.put(batch, sink, job.clone());
        Ok(job)
    }

    fn audit_replay(&self, batch: &mut Batch<'_>, sink: SinkId, job: &ReplayJob, entry: AuditEntry) {
        let name = self.queues().get(&sink).map(|queue| queue.name.clone()).unwrap_or_default();
        let detail = serde_json::json!({
            "sink": name, "replay": job.id, "states": job.selection.states, "queued": job.queued,
        });
        Audit::record(batch, &entry.with(detail));
    }

    /// Counts further events that a job selects. Returns the number of all once they are counted.
    pub fn count_replay(&self, sink: SinkId, job: &ReplayJob) -> Result<Option<u64>, StoreError> {
        let EventCount { reached, events } = self.replays.count(job);
        let scanned = self.scan_history(sink, &job.selection, reached, usize::MAX)?;
        let events = events + scanned.events.len() as u64;
        if scanned.ended {
            return Ok(Some(events));
        }
        self.replays.set_count(sink, job.id, EventCount { reached: Some(scanned.reached), events });
        Ok(None)
    }

    /// Stores the number of events that a job selects.
    pub fn put_count(&self, batch: &mut Batch<'_>, sink: SinkId, id: ReplayId, matched: u64) {
        if let Some(mut job) = self.replays.unfinished(sink).filter(|job| job.id == id) {
            job.matched = Some(matched);
            self.replays.put(batch, sink, job);
        }
    }

    /// Looks for events that a job selects, after the accepted time that it has reached, until there are `most`.
    pub fn scan_history(
        &self,
        sink: SinkId,
        selection: &ReplaySelection,
        reached: Option<Timestamp>,
        most: usize,
    ) -> Result<ScannedHistory, StoreError> {
        let next = |time: Timestamp| Timestamp::from_micros(time.micros().saturating_add(1));
        let first = reached.map(next).or(selection.since).unwrap_or(Timestamp::from_micros(0));
        let end = next(selection.until);
        let mut scanned = ScannedHistory { events: Vec::new(), reached: reached.unwrap_or(first), ended: first >= end };
        if scanned.ended {
            return Ok(scanned);
        }
        for (read, key) in self.store.keys(first_event_key(first)..first_event_key(end)).enumerate() {
            if read == EVENTS_PER_STEP || scanned.events.len() == most {
                return Ok(scanned);
            }
            let Some(at) = event_position(&key?) else { continue };
            scanned.reached = at.accepted_at;
            if self.history.is_selected(sink, selection, at)? {
                scanned.events.push(at);
            }
        }
        (scanned.reached, scanned.ended) = (selection.until, true);
        Ok(scanned)
    }

    /// Queues scanned events again as there is room, and stores the progress of the job. Does nothing if the job was
    /// paused or has ended meanwhile.
    pub fn advance_replay(
        &self,
        batch: &mut Batch<'_>,
        sink: SinkId,
        id: ReplayId,
        scanned: &ScannedHistory,
    ) -> Result<ReplayedEvents, StoreError> {
        let mut fed = ReplayedEvents::default();
        let running = self.replays.running_of(sink).filter(|job| job.id == id);
        let Some(before) = running.filter(|_| self.has_queue(sink)) else { return Ok(fed) };
        let mut job = before.clone();
        let mut passed = 0;
        for at in &scanned.events {
            match self.replay_event(batch, sink, &job, *at) {
                Ok(ReplayedEvent::Queued(sequence)) => fed.queued.push((sequence, *at)),
                Ok(ReplayedEvent::Gone) => {}
                Ok(ReplayedEvent::NoRoom) => {
                    fed.has_no_room = true;
                    break;
                }
                Err(error) if fed.queued.is_empty() => return Err(error),
                // The events queued so far are in the batch and must reach the queue in memory too.
                Err(error) => {
                    log::error!("a replay to sink {sink} is continued later: {error}");
                    break;
                }
            }
            job.reached = Some(at.accepted_at);
            passed += 1;
        }
        job.queued += fed.queued.len() as u64;
        if passed == scanned.events.len() {
            job.reached = Some(scanned.reached);
            if scanned.ended {
                job.finish(ReplayState::Done, Timestamp::now());
                fed.is_finished = true;
            }
        }
        if job != before {
            self.replays.put(batch, sink, job);
        }
        Ok(fed)
    }

    /// Queues one event again at the tail. Everything is read before anything is changed.
    fn replay_event(
        &self,
        batch: &mut Batch<'_>,
        sink: SinkId,
        job: &ReplayJob,
        at: HistoryPosition,
    ) -> Result<ReplayedEvent, StoreError> {
        let Some(row) = undamaged(History::event_in(batch, at))?.flatten() else { return Ok(ReplayedEvent::Gone) };
        let Some(routed) = row.routed.iter().find(|routed| routed.sink == sink) else {
            return Ok(ReplayedEvent::Gone);
        };
        let delivery = History::delivery_in(batch, at, sink)?;
        if delivery.as_ref().is_some_and(|delivery| delivery.row.is_none()) {
            return Ok(ReplayedEvent::Gone);
        }
        let selected = job.selection.number(routed, delivery.as_ref().and_then(|delivery| delivery.row.as_ref()));
        let Some(earlier) = selected.filter(|_| job.selection.has_type(&row.event.kind)) else {
            return Ok(ReplayedEvent::Gone);
        };
        let letter = match earlier.state {
            DeliveryState::Dead => letter_of(batch, sink, earlier.sequence, at)?,
            _ => None,
        };
        let (user, bytes) = (row.event.user_id, row.event.data.get().len());
        let undelivered = self.undelivered.bytes(user).saturating_add(bytes as u64);
        let has_room = |queue: &SinkQueue| {
            // New events of the user must not be refused because of those that are replayed.
            let is_too_much = queue.counts() && queue.replayed > 0 && undelivered > self.limits.undelivered / 2;
            !is_too_much && queue.free_replay_places(self.limits.queue) > 0
        };
        let again = QueuedAgain { at, event: &row.event, delivery, earlier, letter, replay: Some(job.id) };
        match self.queue_again(batch, sink, again, has_room) {
            Some(sequence) => Ok(ReplayedEvent::Queued(sequence)),
            None => Ok(ReplayedEvent::NoRoom),
        }
    }
}

/// Returns the key of the dead letter of an event, if it is still there.
fn letter_of(
    batch: &Batch<'_>,
    sink: SinkId,
    sequence: u64,
    at: HistoryPosition,
) -> Result<Option<Vec<u8>>, StoreError> {
    let key = dead_key(sink, sequence);
    let Some(value) = readable(batch.get(&key))?.flatten() else { return Ok(None) };
    let letter: Option<DeadLetter> = readable(decode(&key, &value))?;
    Ok(letter.filter(|letter| letter.event_id == at.id).map(|_| key))
}

impl History {
    /// Tells if a job selects an event, as of the last group that was written. A damaged record is not selected.
    fn is_selected(&self, sink: SinkId, selection: &ReplaySelection, at: HistoryPosition) -> Result<bool, StoreError> {
        let key = event_key(at);
        let Some(value) = readable(self.store.get(&key))?.flatten() else { return Ok(false) };
        let routes = EventRow::routes(&value).unwrap_or_default();
        let Some(routed) = routes.iter().find(|routed| routed.sink == sink) else { return Ok(false) };
        let Some(row) = readable(self.delivery(at, sink))? else { return Ok(false) };
        if selection.number(routed, row.as_ref()).is_none() {
            return Ok(false);
        }
        let kind = selection.kind.is_some().then(|| readable(EventRow::decode_event(&key, &value))).transpose()?;
        Ok(kind.is_none_or(|event| event.is_some_and(|event| selection.has_type(&event.kind))))
    }
}

impl ReplaySelection {
    /// Returns the number of a delivery with its state, if the delivery is selected.
    fn number(&self, routed: &RoutedSink, row: Option<&DeliveryRow>) -> Option<EarlierNumber> {
        let number = match row {
            Some(row) => EarlierNumber { sequence: row.sequence, state: row.state },
            None if routed.dropped => EarlierNumber { sequence: routed.sequence, state: DeliveryState::Dropped },
            None => return None,
        };
        let is_selected = |sequence: u64| self.sequences.iter().any(|range| range.contains(sequence));
        let mut later = row.into_iter().flat_map(|row| row.later_numbers(routed.sequence));
        let has_number = self.sequences.is_empty() || is_selected(routed.sequence) || later.any(is_selected);
        (has_number && self.states.contains(&ReplayedState::of(number.state)?)).then_some(number)
    }

    fn has_type(&self, kind: &EventType) -> bool {
        self.kind.as_ref().is_none_or(|patterns| patterns.matches(kind.as_str()))
    }
}
