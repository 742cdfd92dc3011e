//! The row of one delivery. A delivery that succeeded at once, as nearly all do, is stored in a short form; the others
//! are JSON.

use super::rows::{decode, encode};
use crate::{
    model::{
        delivery::{Attempt, AttemptOutcome, DeliveryState},
        id::ReplayId,
        timestamp::Timestamp,
    },
    platform::store::StoreError,
};
use serde::{Deserialize, Serialize};

/// A delivery's row, written from its first attempt on. Until then the event's row says everything about the delivery.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeliveryRow {
    pub state: DeliveryState,
    pub sequence: u64,
    /// Failed attempts since the event was last queued.
    pub failures: u32,
    /// The time of the next attempt: the end of the last one and the wait after it.
    pub due: Timestamp,
    pub attempts: Vec<Attempt>,
    /// The numbers that the event had in the sink's queue before it was queued again, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<EarlierNumber>,
    /// The job that queued the event again last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayId>,
}

/// A number that an event had in a sink's queue, and what became of it under that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierNumber {
    pub sequence: u64,
    pub state: DeliveryState,
}

/// A delivery's row with its size on disk.
pub struct StoredDelivery {
    /// Absent if it is damaged; the attempts it held are lost then, and the delivery continues without them.
    pub row: Option<DeliveryRow>,
    pub size: usize,
}

impl DeliveryRow {
    /// Earlier numbers that are kept.
    const KEPT_NUMBERS: usize = 50;
    /// The first byte of a row in the short form: a delivery that succeeded at the first attempt. Other rows are JSON.
    const SHORT: u8 = 1;
    /// The length of the short form without the receiver's response.
    const SHORT_LENGTH: usize = 1 + 1 + 8 + 8 + 8 + 2 + 1;
    /// The numbers of attempts that are kept, from the beginning and from the end.
    const FIRST_KEPT: usize = 3;
    const LAST_KEPT: usize = 17;

    /// Adds an attempt. Of many, the first and the last are kept, so that a row of an event that is held for weeks
    /// stays small; each has its true number.
    pub fn add_attempt(&mut self, attempt: Attempt) {
        self.attempts.push(attempt);
        if self.attempts.len() > Self::FIRST_KEPT + Self::LAST_KEPT {
            self.attempts.remove(Self::FIRST_KEPT);
        }
    }

    /// The row of a delivery that is queued again under a new number, and a number of it that is not remembered any
    /// more.
    pub fn queued_again(old: Option<Self>, number: EarlierNumber, sequence: u64) -> (Self, Option<u64>) {
        let (attempts, mut earlier) = old.map_or_else(Default::default, |old| (old.attempts, old.earlier));
        earlier.push(number);
        // The first one is that of the event's row.
        let forgotten = (earlier.len() > Self::KEPT_NUMBERS).then(|| earlier.remove(1).sequence);
        let due = Timestamp::from_micros(0);
        let state = DeliveryState::Queued;
        (Self { state, sequence, failures: 0, due, attempts, earlier, replay: None }, forgotten)
    }

    /// The numbers that it has or had, except the one that the event was accepted with, which need not be its own.
    pub fn later_numbers(&self, accepted: u64) -> impl Iterator<Item = u64> {
        let all = self.earlier.iter().map(|earlier| earlier.sequence).chain([self.sequence]);
        all.filter(move |sequence| *sequence != accepted)
    }

    pub fn encode(&self) -> Vec<u8> {
        self.encode_short().unwrap_or_else(|| encode(self))
    }

    /// Decodes the row under `key`.
    pub fn decode(key: &[u8], row: &[u8]) -> Result<Self, StoreError> {
        match row.first() {
            Some(&Self::SHORT) => Self::decode_short(row).ok_or_else(|| StoreError::damaged(key, "it is no delivery")),
            _ => decode(key, row),
        }
    }

    /// Returns the short form: state, sequence number, time, duration, status, and the response if there is one.
    fn encode_short(&self) -> Option<Vec<u8>> {
        let [attempt] = &self.attempts[..] else { return None };
        let state = match (self.state, attempt.outcome) {
            (DeliveryState::Delivered, AttemptOutcome::Delivered) => 0,
            (DeliveryState::Skipped, AttemptOutcome::Skipped) => 1,
            _ => return None,
        };
        let is_plain = attempt.error.is_none() && attempt.log.is_empty() && attempt.number == 1;
        if !is_plain
            || self.failures != 0
            || self.due != attempt.at
            || !self.earlier.is_empty()
            || self.replay.is_some()
        {
            return None;
        }
        let response = attempt.response.as_deref();
        let mut row = Vec::with_capacity(Self::SHORT_LENGTH + response.map_or(0, str::len));
        row.extend_from_slice(&[Self::SHORT, state]);
        row.extend_from_slice(&self.sequence.to_be_bytes());
        row.extend_from_slice(&attempt.at.micros().to_be_bytes());
        row.extend_from_slice(&attempt.duration_ms.to_be_bytes());
        row.extend_from_slice(&attempt.status.unwrap_or(0).to_be_bytes());
        row.push(u8::from(response.is_some()));
        row.extend_from_slice(response.unwrap_or_default().as_bytes());
        Some(row)
    }

    fn decode_short(row: &[u8]) -> Option<Self> {
        let (state, outcome) = match row.get(1)? {
            0 => (DeliveryState::Delivered, AttemptOutcome::Delivered),
            1 => (DeliveryState::Skipped, AttemptOutcome::Skipped),
            _ => return None,
        };
        let (sequence, rest) = row.get(2..)?.split_first_chunk()?;
        let (at, rest) = rest.split_first_chunk()?;
        let (duration, rest) = rest.split_first_chunk()?;
        let (status, rest) = rest.split_first_chunk()?;
        let (has_response, response) = rest.split_first()?;
        let (at, status) = (Timestamp::from_micros(i64::from_be_bytes(*at)), u16::from_be_bytes(*status));
        let attempt = Attempt {
            number: 1,
            at,
            duration_ms: f64::from_be_bytes(*duration),
            outcome,
            status: (status != 0).then_some(status),
            error: None,
            response: (*has_response == 1).then(|| String::from_utf8_lossy(response).into_owned()),
            log: Vec::new(),
        };
        Some(Self {
            state,
            sequence: u64::from_be_bytes(*sequence),
            failures: 0,
            due: at,
            attempts: vec![attempt],
            earlier: Vec::new(),
            replay: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivered() -> DeliveryRow {
        let at = Timestamp::from_micros(1_700_000_000_123_456);
        let attempt = Attempt {
            number: 1,
            at,
            duration_ms: 1.5,
            outcome: AttemptOutcome::Delivered,
            status: Some(204),
            error: None,
            response: None,
            log: Vec::new(),
        };
        DeliveryRow {
            state: DeliveryState::Delivered,
            sequence: 7,
            failures: 0,
            due: at,
            attempts: vec![attempt],
            earlier: Vec::new(),
            replay: None,
        }
    }

    #[test]
    fn a_row_keeps_the_first_and_the_last_of_many_attempts_with_their_numbers() {
        let mut row = delivered();
        let attempt = row.attempts.remove(0);
        for number in 1..=5000 {
            row.add_attempt(Attempt { number, ..attempt.clone() });
        }
        let numbers: Vec<_> = row.attempts.iter().map(|attempt| attempt.number).collect();
        assert_eq!(numbers, (1..=3).chain(4984..=5000).collect::<Vec<_>>());
    }

    #[test]
    fn a_delivery_that_succeeded_at_once_is_stored_in_few_bytes_and_every_other_one_as_json() {
        let mut rows = vec![delivered()];
        let mut vary = |change: fn(&mut DeliveryRow)| {
            let mut row = delivered();
            change(&mut row);
            rows.push(row);
        };
        vary(|row| row.attempts[0].response = Some("fine".to_owned()));
        vary(|row| row.attempts[0].response = Some(String::new()));
        vary(|row| row.attempts[0].status = None);
        vary(|row| {
            (row.state, row.attempts[0].outcome) = (DeliveryState::Skipped, AttemptOutcome::Skipped);
        });
        let short = rows.len();
        let mut vary = |change: fn(&mut DeliveryRow)| {
            let mut row = delivered();
            change(&mut row);
            rows.push(row);
        };
        vary(|row| row.attempts[0].log.push("line".to_owned()));
        vary(|row| row.attempts[0].error = Some("no".to_owned()));
        vary(|row| row.attempts[0].number = 2);
        vary(|row| row.attempts.push(row.attempts[0].clone()));
        vary(|row| row.failures = 1);
        vary(|row| row.due = Timestamp::from_micros(1));
        vary(|row| row.state = DeliveryState::Dead);
        vary(|row| row.earlier.push(EarlierNumber { sequence: 3, state: DeliveryState::Dropped }));
        for (n, row) in rows.iter().enumerate() {
            let stored = row.encode();
            assert_eq!(stored[0], if n < short { DeliveryRow::SHORT } else { b'{' }, "{row:?}");
            let read = DeliveryRow::decode(b"k", &stored).unwrap();
            assert_eq!(encode(&read), encode(row));
        }
        assert_eq!(delivered().encode().len(), DeliveryRow::SHORT_LENGTH);
        for length in 1..DeliveryRow::SHORT_LENGTH {
            assert!(DeliveryRow::decode(b"k", &delivered().encode()[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn an_event_that_is_queued_again_and_again_keeps_its_first_number_and_the_last_ones() {
        let mut row = delivered();
        let mut forgotten = Vec::new();
        for sequence in 8..=107 {
            let number = EarlierNumber { sequence: row.sequence, state: DeliveryState::Delivered };
            row.add_attempt(row.attempts[0].clone());
            let (again, number) = DeliveryRow::queued_again(Some(row), number, sequence);
            row = again;
            forgotten.extend(number);
        }
        assert_eq!((row.sequence, row.attempts.len()), (107, DeliveryRow::FIRST_KEPT + DeliveryRow::LAST_KEPT));
        let kept: Vec<_> = row.earlier.iter().map(|earlier| earlier.sequence).collect();
        assert_eq!(kept, [7].into_iter().chain(58..=106).collect::<Vec<_>>());
        assert_eq!(forgotten, (8..58).collect::<Vec<_>>());
    }
}
