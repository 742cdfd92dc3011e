//! Finds what became of sequence numbers of a sink.
//!
//! Queue entries and dead letters are found by their number, and events that were queued again by a row of their own.
//! The others are in the history, whose events name the number they were accepted with; those ascend with the accepted
//! time, so that the first one is found by halving the time, and the rest follow it. The events that this reads are
//! bounded.

use super::{
    delivery_row::DeliveryRow,
    history::History,
    queues::QueueState,
    rows::{
        EventRow, RoutedSink, dead_key, decode, event_key, event_position, first_event_key, number_key, position,
        queue_key, sink_and_sequence, undamaged,
    },
};
use crate::{
    model::{
        delivery::{DeadLetter, DeliveryState},
        id::{EventId, SinkId},
        sequence::{MissReason, NumberState, SequenceNumber, SequenceRange},
        timestamp::Timestamp,
    },
    platform::store::{StoreError, keys, readable},
    routing::queue::HistoryPosition,
};
use std::{collections::BTreeMap, ops::Range};

/// Events of history that are read for one request. One with many routes counts for several.
const MAX_EVENTS: usize = 20_000;

/// Routes of an event that count as one event.
const ROUTES_PER_EVENT: usize = 50;

/// The state of a number, and its event.
type KnownNumber = (NumberState, Option<EventId>);

/// A search for numbers of a sink in the history.
struct NumberSearch<'a> {
    history: &'a History,
    sink: SinkId,
    /// Events that may still be read.
    budget: usize,
}

impl QueueState {
    /// Tells what became of each of these numbers, up to the last one given.
    pub fn numbers(&self, sink: SinkId, range: SequenceRange) -> Result<Vec<SequenceNumber>, StoreError> {
        let last = self.queues().get(&sink).map_or(0, |queue| queue.last_sequence);
        let range = SequenceRange { to: range.to.min(last), ..range };
        if range.from > range.to {
            return Ok(Vec::new());
        }
        let mut known = BTreeMap::new();
        self.find_in_history(sink, range, &mut known)?;
        self.find_numbered(sink, range, &mut known)?;
        let queues = self.queues();
        let gaps = queues.get(&sink).map(|queue| &queue.losses().gaps);
        Ok((range.from..=range.to)
            .map(|sequence| {
                let missed = gaps.and_then(|gaps| gaps.reason(sequence));
                let (state, event_id) = known.get(&sequence).copied().unwrap_or(match missed {
                    Some(MissReason::QueueFull) => (NumberState::Dropped, None),
                    Some(MissReason::DeadLetter) => (NumberState::Dead, None),
                    Some(MissReason::Damaged | MissReason::Several) | None => (NumberState::Unknown, None),
                });
                let reason = match state {
                    NumberState::Dropped => Some(MissReason::QueueFull),
                    NumberState::Dead => Some(missed.unwrap_or(MissReason::DeadLetter)),
                    NumberState::Unknown => missed,
                    NumberState::Queued | NumberState::Delivered | NumberState::Skipped => None,
                };
                SequenceNumber { sequence, state, reason, event_id }
            })
            .collect())
    }

    /// Adds the numbers that have rows of their own, over those found before.
    fn find_numbered(
        &self,
        sink: SinkId,
        range: SequenceRange,
        known: &mut BTreeMap<u64, KnownNumber>,
    ) -> Result<(), StoreError> {
        let rows = |key: fn(SinkId, u64) -> Vec<u8>| {
            let end = [key(sink, range.to), vec![0]].concat();
            self.store.keys(key(sink, range.from)..end).filter_map(|key| {
                let row = key.and_then(|key| Ok((key.clone(), readable(self.store.get(&key))?.flatten())));
                row.map(|(key, value)| Some((sink_and_sequence(&key)?.1, key, value?))).transpose()
            })
        };
        for row in rows(number_key) {
            let (sequence, _, value) = row?;
            let Some(at) = position(&value) else { continue };
            if let Some(state) = self.history.number_state(sink, sequence, at)? {
                known.insert(sequence, (state, Some(at.id)));
            }
        }
        for row in rows(dead_key) {
            let (sequence, key, value) = row?;
            let letter: Option<DeadLetter> = undamaged(decode(&key, &value))?;
            let event = letter.map(|letter| letter.event_id).filter(|id| *id != EventId::NIL);
            known.insert(sequence, (NumberState::Dead, event));
        }
        for row in rows(queue_key) {
            let (sequence, _, value) = row?;
            known.insert(sequence, (NumberState::Queued, position(&value).map(|at| at.id)));
        }
        Ok(())
    }

    /// Adds the numbers that events were accepted with.
    fn find_in_history(
        &self,
        sink: SinkId,
        range: SequenceRange,
        known: &mut BTreeMap<u64, KnownNumber>,
    ) -> Result<(), StoreError> {
        let mut search = NumberSearch { history: &self.history, sink, budget: MAX_EVENTS };
        let Some(Range { mut start, end }) = search.narrow(range.from)? else { return Ok(()) };
        while let Some((at, routed)) = search.next(start, end)?
            && routed.sequence <= range.to
        {
            start = at.accepted_at.micros() + 1;
            // One below the range stays from a budget that was used up.
            if range.contains(routed.sequence) {
                let row = undamaged(self.history.delivery(at, sink))?.flatten();
                known.insert(routed.sequence, (state_of(&routed, row.as_ref(), routed.sequence), Some(at.id)));
            }
        }
        Ok(())
    }
}

impl History {
    /// The state of a number of an event that was queued again; `None` if the event is gone.
    fn number_state(
        &self,
        sink: SinkId,
        sequence: u64,
        at: HistoryPosition,
    ) -> Result<Option<NumberState>, StoreError> {
        let Some(value) = readable(self.store.get(&event_key(at)))?.flatten() else { return Ok(None) };
        let routes = EventRow::routes(&value).unwrap_or_default();
        let Some(routed) = routes.into_iter().find(|routed| routed.sink == sink) else { return Ok(None) };
        let row = undamaged(self.delivery(at, sink))?.flatten();
        Ok(Some(state_of(&routed, row.as_ref(), sequence)))
    }
}

impl NumberSearch<'_> {
    /// Returns the accepted times between which the number is, if it is in the history: those before have lower
    /// numbers.
    fn narrow(&mut self, number: u64) -> Result<Option<Range<i64>>, StoreError> {
        let mut keys = self.history.store.keys(vec![keys::EVENT]..vec![keys::EVENT + 1]);
        let (oldest, newest) = (keys.next().transpose()?, keys.next_back().transpose()?);
        let time = |key: &[u8]| event_position(key).map(|at| at.accepted_at.micros());
        let Some(oldest) = oldest.and_then(|key| time(&key)) else { return Ok(None) };
        let newest = newest.and_then(|key| time(&key)).unwrap_or(oldest);
        let (mut low, mut high) = (oldest, newest + 1);
        while high - low > 1 && self.budget > 0 {
            let middle = low + (high - low) / 2;
            match self.next(middle, high)? {
                Some((at, routed)) if routed.sequence < number => low = at.accepted_at.micros() + 1,
                _ if self.budget == 0 => break,
                _ => high = middle,
            }
        }
        Ok(Some(low..newest + 1))
    }

    /// Finds the first event for the sink within these times.
    fn next(&mut self, from: i64, end: i64) -> Result<Option<(HistoryPosition, RoutedSink)>, StoreError> {
        if from >= end {
            return Ok(None);
        }
        let key = |micros| first_event_key(Timestamp::from_micros(micros));
        for key in self.history.store.keys(key(from)..key(end)) {
            if self.budget == 0 {
                return Ok(None);
            }
            self.budget -= 1;
            let key = key?;
            let Some(at) = event_position(&key) else { continue };
            let Some(value) = readable(self.history.store.get(&key))?.flatten() else { continue };
            let routes = EventRow::routes(&value).unwrap_or_default();
            self.budget = self.budget.saturating_sub(routes.len() / ROUTES_PER_EVENT);
            if let Some(routed) = routes.into_iter().find(|routed| routed.sink == self.sink) {
                return Ok(Some((at, routed)));
            }
        }
        Ok(None)
    }
}

/// The state of one of the numbers of a delivery.
fn state_of(routed: &RoutedSink, row: Option<&DeliveryRow>, sequence: u64) -> NumberState {
    let earlier = row.and_then(|row| row.earlier.iter().find(|earlier| earlier.sequence == sequence));
    let state = match (earlier, row) {
        (Some(earlier), _) => earlier.state,
        (None, Some(row)) if row.sequence == sequence => row.state,
        (None, _) if routed.sequence == sequence && routed.dropped => DeliveryState::Dropped,
        // Dead letters were queued again before earlier numbers were recorded.
        (None, Some(_)) => DeliveryState::Dead,
        (None, None) => DeliveryState::Queued,
    };
    match state {
        DeliveryState::Queued => NumberState::Queued,
        DeliveryState::Delivered => NumberState::Delivered,
        DeliveryState::Skipped => NumberState::Skipped,
        DeliveryState::Dropped => NumberState::Dropped,
        DeliveryState::Dead => NumberState::Dead,
        DeliveryState::Discarded => NumberState::Unknown,
    }
}
