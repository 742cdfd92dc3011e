//! Puts a salvaged archive right where one record follows from others: the counters may be lost, or count records that are.

use crate::platform::store::keys;
use std::collections::BTreeMap;

/// The counters of a store with the keys they have.
pub type RepairedCounters = Vec<(Vec<u8>, u64)>;

/// Counts the records of an archive as the store does.
#[derive(Default)]
pub struct Repair {
    history: u64,
    audit: u64,
    /// The highest sequence number that was given to an event of each sink.
    sequences: BTreeMap<[u8; 16], u64>,
}

impl Repair {
    /// Counts a record, and returns `false` for one that is made anew.
    pub fn keeps(&mut self, key: &[u8], value: &[u8]) -> bool {
        match key.first() {
            Some(&(keys::EVENT | keys::DELIVERY)) => self.history += value.len() as u64,
            Some(&keys::AUDIT) => self.audit += value.len() as u64,
            Some(&(keys::QUEUE | keys::DEAD)) => self.saw(key, keys::number(key, 17)),
            Some(&keys::SEQUENCE) => {
                self.saw(key, keys::number(value, 0));
                return false;
            }
            Some(&(keys::HISTORY | keys::AUDIT_BYTES)) => return false,
            _ => {}
        }
        true
    }

    /// The counters.
    pub fn finish(self) -> RepairedCounters {
        let sequences = self.sequences.into_iter().map(|(sink, last)| (keys::key(keys::SEQUENCE, &[&sink]), last));
        let sizes = [(vec![keys::HISTORY], self.history), (vec![keys::AUDIT_BYTES], self.audit)];
        sequences.chain(sizes).collect()
    }

    fn saw(&mut self, key: &[u8], sequence: Option<u64>) {
        let sink = key.get(1..17).and_then(|sink| sink.try_into().ok());
        if let (Some(sink), Some(sequence)) = (sink, sequence) {
            let last = self.sequences.entry(sink).or_default();
            *last = sequence.max(*last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_made_from_the_records_that_are_left() {
        let mut repair = Repair::default();
        let queued = |kind: u8, sequence: u64| keys::key(kind, &[&[7; 16], &sequence.to_be_bytes()]);
        assert!(repair.keeps(&queued(keys::QUEUE, 9), b""));
        assert!(repair.keeps(&queued(keys::DEAD, 3), b"{}"));
        assert!(!repair.keeps(&keys::key(keys::SEQUENCE, &[&[7; 16]]), &4_u64.to_be_bytes()));
        assert!(!repair.keeps(&keys::key(keys::SEQUENCE, &[&[8; 16]]), &4_u64.to_be_bytes()));
        assert!(repair.keeps(&[keys::EVENT, 1], b"12345") && repair.keeps(&[keys::DELIVERY, 1], b"123"));
        assert!(repair.keeps(&[keys::AUDIT, 1], b"12") && !repair.keeps(&[keys::HISTORY], &99_u64.to_be_bytes()));
        let expected = [
            (keys::key(keys::SEQUENCE, &[&[7; 16]]), 9),
            (keys::key(keys::SEQUENCE, &[&[8; 16]]), 4),
            (vec![keys::HISTORY], 8),
            (vec![keys::AUDIT_BYTES], 2),
        ];
        assert_eq!(repair.finish(), expected);
    }
}
