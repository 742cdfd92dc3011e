//! The counters of an archive that is restored. An archive that has lost records is put right where one record follows
//! from others: its counters may be lost, or count records that are.
//!
//! The number of a sink's last event cannot be told from the records that are left, because those of delivered events
//! are gone. Its events get numbers beyond every one that was given, so that none is given twice.

use crate::platform::store::keys;
use serde::Deserialize;
use std::collections::BTreeMap;
use uuid::Uuid;

/// The counters of a store with the keys they have.
pub type RepairedCounters = Vec<(Vec<u8>, u64)>;

/// Holds the counters of an archive back until its end tells if it is whole, and counts its records as the store does.
pub struct Repair {
    /// The counters as they are in the archive.
    archived: Vec<(Vec<u8>, Vec<u8>)>,
    history: u64,
    audit: u64,
    /// A sequence number that no sink has reached.
    beyond: u64,
    /// The last sequence number of each sink and subscription.
    sequences: BTreeMap<[u8; 16], u64>,
}

/// The field of a subscription that names its queue.
#[derive(Deserialize)]
struct QueueOwner {
    id: Uuid,
}

impl Repair {
    pub fn new() -> Self {
        Self {
            archived: Vec::new(),
            history: 0,
            audit: 0,
            beyond: keys::beyond_every_sequence(),
            sequences: BTreeMap::new(),
        }
    }

    /// Counts a record, and returns `false` for one that is held back.
    pub fn keeps(&mut self, key: &[u8], value: &[u8]) -> bool {
        match key.first() {
            Some(&keys::EVENT) => self.history += value.len() as u64,
            Some(&keys::DELIVERY) => {
                self.history += value.len() as u64;
                self.saw(key.get(25..41), None);
            }
            Some(&keys::AUDIT) => self.audit += value.len() as u64,
            Some(&(keys::QUEUE | keys::DEAD)) => self.saw(key.get(1..17), keys::number(key, 17)),
            Some(&keys::SEQUENCE) => {
                self.saw(key.get(1..17), keys::number(value, 0));
                return self.hold_back(key, value);
            }
            Some(&keys::SINKS) => self.saw(key.get(1..17), None),
            Some(&keys::SUBSCRIPTIONS) => {
                let owner = serde_json::from_slice::<QueueOwner>(value).ok();
                self.saw(owner.as_ref().map(|owner| &owner.id.as_bytes()[..]), None);
            }
            Some(&(keys::HISTORY | keys::AUDIT_BYTES)) => return self.hold_back(key, value),
            _ => {}
        }
        true
    }

    /// The counters of a whole archive.
    pub fn archived(self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.archived
    }

    /// The counters of an archive that has lost records.
    pub fn repaired(self) -> RepairedCounters {
        let sequences = self.sequences.into_iter().map(|(sink, last)| (keys::key(keys::SEQUENCE, &[&sink]), last));
        let sizes = [(vec![keys::HISTORY], self.history), (vec![keys::AUDIT_BYTES], self.audit)];
        sequences.chain(sizes).collect()
    }

    fn hold_back(&mut self, key: &[u8], value: &[u8]) -> bool {
        self.archived.push((key.to_vec(), value.to_vec()));
        false
    }

    fn saw(&mut self, sink: Option<&[u8]>, sequence: Option<u64>) {
        if let Some(sink) = sink.and_then(|sink| sink.try_into().ok()) {
            let last = self.sequences.entry(sink).or_insert(self.beyond);
            *last = sequence.unwrap_or_default().max(*last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_made_from_the_records_that_are_left_and_no_sequence_number_is_given_twice() {
        let mut repair = Repair::new();
        let beyond = repair.beyond;
        let queued = |kind: u8, sequence: u64| keys::key(kind, &[&[7; 16], &sequence.to_be_bytes()]);
        assert!(repair.keeps(&queued(keys::QUEUE, 9), b""));
        assert!(repair.keeps(&queued(keys::DEAD, 3), b"{}"));
        assert!(!repair.keeps(&keys::key(keys::SEQUENCE, &[&[7; 16]]), &4_u64.to_be_bytes()));
        assert!(!repair.keeps(&keys::key(keys::SEQUENCE, &[&[8; 16]]), &4_u64.to_be_bytes()));
        // Their sequence numbers and queues are lost.
        let delivery = keys::key(keys::DELIVERY, &[&[0; 24], &[5; 16]]);
        assert!(repair.keeps(&[keys::EVENT, 1], b"12345") && repair.keeps(&delivery, b"123"));
        assert!(repair.keeps(&keys::key(keys::SINKS, &[&[6; 16]]), b"{}"));
        let subscription = serde_json::json!({"id": Uuid::from_bytes([9; 16])}).to_string();
        assert!(repair.keeps(&keys::key(keys::SUBSCRIPTIONS, &[&[1; 16], b"echo"]), subscription.as_bytes()));
        assert!(repair.keeps(&queued(keys::DEAD, u64::MAX), b"{}"));
        assert!(repair.keeps(&[keys::AUDIT, 1], b"12") && !repair.keeps(&[keys::HISTORY], &99_u64.to_be_bytes()));
        assert!(beyond > 1_600_000_000_000, "{beyond}");
        let last = |sink: u8, number: u64| (keys::key(keys::SEQUENCE, &[&[sink; 16]]), number);
        let expected = [
            last(5, beyond),
            last(6, beyond),
            last(7, u64::MAX),
            last(8, beyond),
            last(9, beyond),
            (vec![keys::HISTORY], 8),
            (vec![keys::AUDIT_BYTES], 2),
        ];
        assert_eq!(repair.repaired(), expected);
    }
}
