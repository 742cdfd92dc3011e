//! The numbers that a sink misses and was not told of: in memory, and one small row for each range.
//!
//! A drop and a dead letter add numbers; the next delivery that succeeds tells all numbers before its own and removes
//! them in the write that settles it. An ordinary delivery writes nothing here. Ranges ascend. Every number between the
//! oldest of them and the head of the queue is missed, because a delivery in between would have told of those before
//! it; so the oldest ranges can be joined to one when there are too many. Between queued events there is at most one
//! range, of dropped ones.

use super::rows::{gap_key, sink_and_sequence};
use crate::{
    model::{
        id::SinkId,
        sequence::{MAX_TOLD, MissReason, MissedRange, join_oldest},
    },
    platform::store::{Batch, Store, StoreError, keys, readable},
};
use std::collections::VecDeque;

/// The ranges of one sink, ascending.
#[derive(Debug, Default)]
pub(super) struct Gaps(VecDeque<MissedRange>);

/// The rows to write for a change of [`Gaps`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct GapChange {
    put: Vec<MissedRange>,
    /// The first numbers of ranges that are gone.
    deleted: Vec<u64>,
}

impl Gaps {
    pub const NONE: Self = Self(VecDeque::new());

    /// Adds the number after the last one given, which was dropped.
    pub fn add_dropped(&mut self, sequence: u64) -> GapChange {
        match self.0.back_mut() {
            Some(last) if last.to + 1 == sequence && last.reason == MissReason::QueueFull => last.to = sequence,
            _ => self.0.push_back(MissedRange { from: sequence, to: sequence, reason: MissReason::QueueFull }),
        }
        GapChange { put: self.0.back().copied().into_iter().collect(), deleted: Vec::new() }
    }

    /// Adds the number of an event that has left the head of the queue undelivered.
    pub fn add_lost(&mut self, sequence: u64, reason: MissReason) -> GapChange {
        let mut change = GapChange::default();
        let next = self.0.partition_point(|range| range.to < sequence);
        let place = match next.checked_sub(1).map(|before| &mut self.0[before]) {
            Some(before) if before.to + 1 == sequence && before.reason == reason => {
                before.to = sequence;
                next - 1
            }
            _ => {
                self.0.insert(next, MissedRange { from: sequence, to: sequence, reason });
                next
            }
        };
        change.put.push(self.0[place]);
        if place >= MAX_TOLD {
            let Some(second) = self.0.remove(1) else { return change };
            let first = &mut self.0[0];
            (first.to, first.reason) = (second.to, MissReason::Several);
            change.put.push(*first);
            change.deleted.push(second.from);
        }
        change
    }

    /// Returns the ranges before this number, [`MAX_TOLD`] at most.
    pub fn before(&self, sequence: u64) -> Vec<MissedRange> {
        let mut missed: Vec<_> = self.0.iter().take_while(|range| range.to < sequence).copied().collect();
        join_oldest(&mut missed);
        missed
    }

    /// Removes the ranges before this number, of which its delivery has told.
    pub fn remove_told(&mut self, sequence: u64) -> GapChange {
        let mut change = GapChange::default();
        while self.0.front().is_some_and(|range| range.to < sequence)
            && let Some(told) = self.0.pop_front()
        {
            change.deleted.push(told.from);
        }
        change
    }

    /// Returns the reason for which a number is missed.
    pub fn reason(&self, sequence: u64) -> Option<MissReason> {
        let range = self.0.get(self.0.partition_point(|range| range.to < sequence))?;
        (range.from <= sequence).then_some(range.reason)
    }

    /// Adds a range that is after all others.
    pub fn push(&mut self, range: MissedRange) -> GapChange {
        self.0.push_back(range);
        GapChange { put: vec![range], deleted: Vec::new() }
    }
}

impl GapChange {
    pub fn write(&self, batch: &mut Batch<'_>, sink: SinkId) {
        for from in &self.deleted {
            batch.delete(gap_key(sink, *from));
        }
        for range in &self.put {
            let code = MissReason::ALL.iter().position(|reason| *reason == range.reason).unwrap_or_default();
            let mut row = range.to.to_be_bytes().to_vec();
            row.push(code as u8);
            batch.put(gap_key(sink, range.from), row);
        }
    }
}

/// Reads the ranges of all sinks in order. The last number of a damaged one is not known, and is given as its first.
pub(super) fn read_gaps(store: &Store, mut add: impl FnMut(SinkId, MissedRange)) -> Result<(), StoreError> {
    for key in store.keys(vec![keys::GAP]..vec![keys::GAP + 1]) {
        let key = key?;
        let Some((sink, from)) = sink_and_sequence(&key) else {
            log::warn!("{}", StoreError::damaged(&key, "its key is no id and number"));
            continue;
        };
        let value = readable(store.get(&key))?.flatten();
        let range = value.and_then(|row| decode(from, &row)).unwrap_or_else(|| {
            log::warn!("{}", StoreError::damaged(&key, "its end is unknown"));
            MissedRange { from, to: from, reason: MissReason::Damaged }
        });
        add(sink, range);
    }
    Ok(())
}

fn decode(from: u64, row: &[u8]) -> Option<MissedRange> {
    let (to, reason) = row.split_first_chunk()?;
    let [reason] = reason else { return None };
    let to = u64::from_be_bytes(*to);
    (from <= to).then_some(MissedRange { from, to, reason: *MissReason::ALL.get(usize::from(*reason))? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from: u64, to: u64, reason: MissReason) -> MissedRange {
        MissedRange { from, to, reason }
    }

    #[test]
    fn neighbours_of_one_reason_are_one_range_and_are_told_by_the_next_number() {
        let mut gaps = Gaps::default();
        for sequence in [5, 6, 7, 9] {
            gaps.add_dropped(sequence);
        }
        assert_eq!(gaps.before(5), []);
        assert_eq!(gaps.before(8), [range(5, 7, MissReason::QueueFull)]);
        let lost = gaps.add_lost(4, MissReason::DeadLetter);
        assert_eq!(lost, GapChange { put: vec![range(4, 4, MissReason::DeadLetter)], deleted: vec![] });
        let lost = gaps.add_lost(8, MissReason::DeadLetter);
        assert_eq!(lost.put, [range(8, 8, MissReason::DeadLetter)]);
        assert_eq!(gaps.before(10).len(), 4);
        assert_eq!(gaps.reason(6), Some(MissReason::QueueFull));
        assert_eq!((gaps.reason(3), gaps.reason(10)), (None, None));
        assert_eq!(gaps.remove_told(10).deleted, [4, 5, 8, 9]);
        assert_eq!(gaps.remove_told(11), GapChange::default());
    }

    #[test]
    fn dead_letters_in_a_row_are_one_range() {
        let mut gaps = Gaps::default();
        (1..=1000).for_each(|sequence| drop(gaps.add_lost(sequence, MissReason::DeadLetter)));
        assert_eq!(gaps.before(1001), [range(1, 1000, MissReason::DeadLetter)]);
    }

    #[test]
    fn ranges_beyond_the_bound_are_joined_and_cover_every_number() {
        let mut gaps = Gaps::default();
        for sequence in 1..=1000 {
            let reason = if sequence % 2 == 0 { MissReason::DeadLetter } else { MissReason::Damaged };
            let change = gaps.add_lost(sequence, reason);
            assert!(change.put.len() <= 2 && change.deleted.len() <= 1);
        }
        assert_eq!(gaps.0.len(), MAX_TOLD);
        // Dropped numbers before the head come on top.
        gaps.add_dropped(1001);
        let told = gaps.before(1002);
        assert_eq!(told.len(), MAX_TOLD);
        assert_eq!(told[0], range(1, 982, MissReason::Several));
        assert_eq!(told.last(), Some(&range(1001, 1001, MissReason::QueueFull)));
        assert!(told.windows(2).all(|pair| pair[0].to + 1 == pair[1].from));
    }
}
