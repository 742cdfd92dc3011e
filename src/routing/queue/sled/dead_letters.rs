//! Dead letters: storing one, listing them, and queueing them again. The writing steps run on the writer thread.

use super::{
    audit_bursts::EventLoss,
    delivery_row::EarlierNumber,
    gaps::GapChange,
    history::History,
    queue_again::QueuedAgain,
    queues::{QueueState, QueuedEvent},
    rows::{EventRow, dead_key, decode, encode, number_key, position, queue_key, undamaged},
};
use crate::{
    model::{
        id::{EventId, SinkId},
        timestamp::Timestamp,
    },
    platform::{
        audit::{Audit, AuditEntry},
        store::{Batch, StoreError},
    },
    routing::queue::{DeadLetter, DeliveryState, HistoryPosition},
};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};
use tokio::time::Instant;

/// The event type of a dead letter whose event cannot be read.
const UNKNOWN_TYPE: &str = "unknown";

/// The result of queueing dead letters again.
#[derive(Default)]
pub struct LettersQueuedAgain {
    /// The new sequence numbers, with the events.
    pub queued: Vec<(u64, HistoryPosition)>,
    /// Letters that stay, because the letter or its event is damaged.
    pub damaged: usize,
    /// The queue has no room for more.
    pub is_full: bool,
}

/// Dead letters that were deleted in one write, by sink: their number, and the first and last sequence number.
#[derive(Default)]
pub struct DeletedLetters(BTreeMap<SinkId, (usize, u64, u64)>);

/// The result for one dead letter.
enum LetterResult {
    Queued(u64, HistoryPosition),
    Gone,
    Damaged,
    QueueFull,
}

impl QueueState {
    /// Returns the sink's dead letters after the given sequence number, oldest first. A damaged letter is left out.
    pub fn dead_letters(&self, sink: SinkId, after: u64, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        let range = dead_key(sink, after.saturating_add(1))..dead_key(sink, u64::MAX);
        let letters = self.store.keys(range).map(|key| match undamaged(key)? {
            // A letter that is deleted between the two reads is absent.
            Some(key) => self.dead_letter(&key),
            None => Ok(None),
        });
        letters.filter_map(Result::transpose).take(limit).collect()
    }

    /// The dead letter under this key; `None` if it is absent or damaged.
    fn dead_letter(&self, key: &[u8]) -> Result<Option<DeadLetter>, StoreError> {
        let letter = self.store.get(key).and_then(|value| value.map(|value| decode(key, &value)).transpose());
        Ok(undamaged(letter)?.flatten())
    }

    /// Stores a dead letter, and deletes the oldest if that is one too many.
    pub fn put_dead_letter(&self, batch: &mut Batch<'_>, sink: SinkId, letter: &DeadLetter) {
        let DeadLetter { event_id, event_type, attempts, why, .. } = letter;
        let detail = |name: &str| {
            serde_json::json!({
                "sink": name, "event_id": event_id, "event_type": event_type, "sequence": letter.sequence,
                "attempts": attempts, "reason": why,
            })
        };
        let Some((name, entries)) = self.queues().get_mut(&sink).map(|queue| {
            let (name, now) = (queue.name.clone(), Instant::now());
            let bursts = &mut queue.losses_mut().bursts;
            let entries = bursts.count(EventLoss::GivenUp, (sink, &name), letter.sequence, || detail(&name), now);
            (name, entries)
        }) else {
            return;
        };
        log::warn!("sink `{name}` ({sink}): event {event_id} is given up after {attempts} attempts: {why}");
        entries.iter().for_each(|entry| Audit::record(batch, entry));
        batch.put(dead_key(sink, letter.sequence), encode(letter));
        let surplus: Vec<u64> = {
            let mut queues = self.queues();
            let Some(queue) = queues.get_mut(&sink) else { return };
            let letters = &mut queue.losses_mut().dead_letters;
            letters.push_back(letter.sequence);
            let count = letters.len().saturating_sub(self.limits.dead_letters);
            letters.drain(..count).collect()
        };
        if !surplus.is_empty() {
            self.history.counters.age_sweep.let_go_any();
        }
        for oldest in surplus {
            log::warn!(
                "sink `{name}` ({sink}): its oldest dead letter, number {oldest}, is deleted to make room for a new one"
            );
            batch.delete(dead_key(sink, oldest));
        }
    }

    /// Deletes dead letters, to make room for newer events.
    pub fn delete_dead_letters(&self, batch: &mut Batch<'_>, letters: &[(SinkId, u64)], deleted: &mut DeletedLetters) {
        letters.iter().for_each(|(sink, sequence)| batch.delete(dead_key(*sink, *sequence)));
        self.history.counters.age_sweep.let_go_any();
        let mut queues = self.queues();
        for (sink, sequence) in letters {
            if let Some(losses) = queues.get_mut(sink).and_then(|queue| queue.losses.as_mut()) {
                // The oldest letter is deleted first, unless it was redelivered meanwhile.
                if losses.dead_letters.front() == Some(sequence) {
                    losses.dead_letters.pop_front();
                } else {
                    losses.dead_letters.retain(|other| other != sequence);
                }
            }
            let (count, first, last) = deleted.0.entry(*sink).or_insert((0, *sequence, *sequence));
            *count += 1;
            (*first, *last) = ((*first).min(*sequence), (*last).max(*sequence));
        }
    }

    /// Logs and audits deleted dead letters.
    pub fn report_deleted(&self, batch: &mut Batch<'_>, deleted: DeletedLetters, limit: u64) {
        for (sink, (count, first, last)) in deleted.0 {
            let name = self.queues().get(&sink).map(|queue| queue.name.clone()).unwrap_or_default();
            log::warn!(
                "sink `{name}` ({sink}): {count} dead letters, numbers {first} to {last}, are deleted: the history is over its {limit} bytes"
            );
            let entry =
                AuditEntry::new(None, "event.drop_dead_letters", format!("sink:{sink}")).with(serde_json::json!({
                    "sink": name, "dead_letters": count, "first_sequence": first, "last_sequence": last,
                    "reason": format!("the history is over its {limit} bytes (`history.size`)"),
                }));
            Audit::record(batch, &entry);
        }
    }

    /// Makes a queued event that cannot be read a dead letter. It is off the queue in memory already; the disk follows,
    /// and a crash in between repeats this step.
    pub fn give_up_damaged(self: &Arc<Self>, sink: SinkId, queued: QueuedEvent, damage: &StoreError, gap: GapChange) {
        self.metrics.dead.increment();
        let letter = DeadLetter {
            event_id: queued.event.map_or(EventId::NIL, |at| at.id),
            event_type: UNKNOWN_TYPE.to_owned(),
            event_ts: queued.event.map_or(Timestamp::from_micros(0), |at| at.accepted_at),
            sequence: queued.sequence,
            died_at: Timestamp::now(),
            why: damage.to_string(),
            attempts: queued.failures,
        };
        let state = self.clone();
        self.store.write_soon(move |batch| {
            if state.has_queue(sink) {
                batch.delete(queue_key(sink, letter.sequence));
                gap.write(batch, sink);
                state.put_dead_letter(batch, sink, &letter);
            }
        });
    }

    /// The sequence numbers of a sink's dead letters, oldest first. Those of settlements before this step are among
    /// them.
    pub fn letter_numbers(&self, sink: SinkId) -> Vec<u64> {
        self.queues().get(&sink).map(|queue| queue.losses().dead_letters.iter().copied().collect()).unwrap_or_default()
    }

    /// The letters of these events among those with these numbers. Reads each, beside the writer. The event of a
    /// damaged letter is unknown, so that a selection of events cannot mean it.
    pub fn letters_of(
        &self,
        sink: SinkId,
        numbers: Vec<u64>,
        events: &HashSet<EventId>,
    ) -> Result<Vec<u64>, StoreError> {
        let mut selected = Vec::new();
        for number in numbers {
            let letter = self.dead_letter(&dead_key(sink, number))?;
            if letter.is_some_and(|letter| events.contains(&letter.event_id)) {
                selected.push(number);
            }
        }
        Ok(selected)
    }

    /// Moves dead letters to the tail of their queue, as far as there is room.
    pub fn queue_letters_again(
        &self,
        batch: &mut Batch<'_>,
        sink: SinkId,
        sequences: &[u64],
    ) -> Result<LettersQueuedAgain, StoreError> {
        let mut redelivered = LettersQueuedAgain::default();
        for sequence in sequences {
            match self.queue_letter_again(batch, sink, *sequence) {
                Ok(LetterResult::Queued(sequence, event)) => redelivered.queued.push((sequence, event)),
                Ok(LetterResult::Damaged) => redelivered.damaged += 1,
                Ok(LetterResult::Gone) => {}
                Ok(LetterResult::QueueFull) => {
                    redelivered.is_full = true;
                    break;
                }
                Err(error) if redelivered.queued.is_empty() => return Err(error),
                // The letters moved so far are in the batch and must reach the queue in memory too.
                Err(error) => {
                    log::error!("redelivery to sink {sink} ends early: {error}");
                    break;
                }
            }
        }
        Ok(redelivered)
    }

    /// Moves one dead letter to the tail of its queue. Everything is read before anything is changed.
    fn queue_letter_again(
        &self,
        batch: &mut Batch<'_>,
        sink: SinkId,
        old_sequence: u64,
    ) -> Result<LetterResult, StoreError> {
        let key = dead_key(sink, old_sequence);
        let value = match undamaged(batch.get(&key))? {
            Some(Some(value)) => value,
            // It was redelivered or deleted since it was selected.
            Some(None) => return Ok(LetterResult::Gone),
            None => return Ok(LetterResult::Damaged),
        };
        let Some(letter) = undamaged(decode::<DeadLetter>(&key, &value))? else { return Ok(LetterResult::Damaged) };
        let Some(at) = self.history.index.locate(letter.event_id) else { return Ok(LetterResult::Damaged) };
        let Some(EventRow { event, routed }) = undamaged(History::event_in(batch, at))?.flatten() else {
            return Ok(LetterResult::Damaged);
        };
        let delivery = History::delivery_in(batch, at, sink)?;
        if delivery.is_none() {
            // The event of the letter may have been deleted for its damage, and its id used again by one that is still
            // queued.
            let queued_again = undamaged(batch.get(&number_key(sink, old_sequence)))?.flatten();
            let is_its_number = routed.iter().any(|routed| routed.sink == sink && routed.sequence == old_sequence)
                || queued_again.is_some_and(|number| position(&number) == Some(at));
            if !is_its_number {
                return Ok(LetterResult::Damaged);
            }
        }
        let again = QueuedAgain {
            at,
            event: &event,
            delivery,
            earlier: EarlierNumber { sequence: old_sequence, state: DeliveryState::Dead },
            letter: Some(key),
            replay: None,
        };
        match self.queue_again(batch, sink, again, |queue| queue.live() < self.limits.queue) {
            Some(sequence) => Ok(LetterResult::Queued(sequence, at)),
            None => Ok(LetterResult::QueueFull),
        }
    }
}
