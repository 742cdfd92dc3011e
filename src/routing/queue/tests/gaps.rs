//! Numbers that a sink misses: the next delivery tells of them until one succeeds, and each number can be looked up.

use super::{AttemptEnding, CAPACITY, EngineFixture};
use crate::{
    model::{
        id::EventId,
        sequence::{MissReason, MissedRange, NumberState, SequenceRange, missed_header},
    },
    platform::{
        audit::AuditEntry,
        store::{StoreError, keys},
    },
    routing::queue::{DeadLetterFilter, Engine, Retention},
};
use std::time::Duration;

impl EngineFixture {
    /// The numbers that the delivery at the head of the first sink's queue tells of.
    async fn told(&self) -> String {
        missed_header(&self.engine.next_delivery(self.sinks[0]).await.unwrap().unwrap().missed)
    }

    async fn push_first(&self, count: usize) -> Vec<EventId> {
        let mut ids = Vec::new();
        for _ in 0..count {
            ids.push(self.push(None, 1).await.event.id);
        }
        ids
    }

    fn fates(&self, from: u64, to: u64) -> Result<Vec<(u64, NumberState, Option<EventId>)>, StoreError> {
        let numbers = self.engine.numbers(self.sinks[0], SequenceRange { from, to })?;
        Ok(numbers.into_iter().map(|number| (number.sequence, number.state, number.event_id)).collect())
    }

    fn rows(&self, kind: u8) -> usize {
        self.store.keys(vec![kind]..vec![kind + 1]).count()
    }
}

#[tokio::test]
async fn the_first_delivery_after_dropped_events_tells_their_numbers_until_it_succeeds() {
    let mut fixture = EngineFixture::new().await;
    fixture.push_first(CAPACITY + 3).await;
    for _ in 0..CAPACITY {
        assert_eq!(fixture.told().await, "", "the gap is behind the queued events");
        fixture.settle(0, AttemptEnding::Done).await;
    }
    fixture.push_first(2).await;
    fixture.crash().await;
    assert_eq!(fixture.told().await, "5-7;queue-full");
    fixture.settle(0, AttemptEnding::Retry).await;
    fixture.store.write(|_| ()).await.unwrap();
    fixture.crash().await;
    assert_eq!(fixture.told().await, "5-7;queue-full", "a failed attempt has told nothing");
    fixture.settle(0, AttemptEnding::Done).await;
    assert_eq!(fixture.told().await, "");
    fixture.store.write(|_| ()).await.unwrap();
    fixture.crash().await;
    assert_eq!(fixture.told().await, "");
    assert_eq!(fixture.rows(keys::GAP), 0);
    fixture.end().await;
}

#[tokio::test]
async fn dead_letters_and_dropped_events_are_told_together_in_order() {
    let mut fixture = EngineFixture::new().await;
    fixture.push_first(CAPACITY + 1).await;
    for _ in 0..CAPACITY {
        fixture.settle(0, AttemptEnding::Dead).await;
    }
    fixture.push_first(1).await;
    assert_eq!(fixture.told().await, "1-4;dead-letter, 5;queue-full");
    fixture.store.write(|_| ()).await.unwrap();
    fixture.crash().await;
    assert_eq!(fixture.told().await, "1-4;dead-letter, 5;queue-full");
    fixture.settle(0, AttemptEnding::Dead).await;
    fixture.push_first(1).await;
    assert_eq!(fixture.told().await, "1-4;dead-letter, 5;queue-full, 6;dead-letter");
    fixture.end().await;
}

#[tokio::test]
async fn a_delivery_without_a_gap_writes_no_row_about_gaps() {
    let fixture = EngineFixture::new().await;
    fixture.push_first(3).await;
    fixture.settle(0, AttemptEnding::Done).await;
    fixture.store.write(|_| ()).await.unwrap();
    assert_eq!((fixture.rows(keys::GAP), fixture.rows(keys::NUMBER)), (0, 0));
    fixture.end().await;
}

#[tokio::test]
async fn a_damaged_row_of_a_gap_is_told_as_damage_up_to_the_next_event() {
    let mut fixture = EngineFixture::new().await;
    fixture.push_first(CAPACITY + 3).await;
    fixture.settle(0, AttemptEnding::Done).await;
    fixture.push_first(1).await;
    let key = keys::key(keys::GAP, &[fixture.sinks[0].as_bytes(), &5_u64.to_be_bytes()]);
    fixture.store.write(move |batch| batch.put(key, b"x")).await.unwrap();
    fixture.crash().await;
    for _ in 0..CAPACITY - 1 {
        fixture.settle(0, AttemptEnding::Done).await;
    }
    assert_eq!(fixture.told().await, "5-7;damaged");
    fixture.end().await;
}

#[tokio::test]
async fn a_damaged_sequence_number_is_told_as_a_gap() {
    let mut fixture = EngineFixture::new().await;
    fixture.push_first(1).await;
    let key = keys::key(keys::SEQUENCE, &[fixture.sinks[0].as_bytes()]);
    fixture.store.write(move |batch| batch.put(key, b"x")).await.unwrap();
    fixture.crash().await;
    let last = fixture.engine.depth(fixture.sinks[0]).last_sequence;
    fixture.settle(0, AttemptEnding::Done).await;
    fixture.push_first(1).await;
    fixture.crash().await;
    let head = fixture.engine.next_delivery(fixture.sinks[0]).await.unwrap().unwrap();
    assert_eq!(head.missed, [MissedRange { from: 2, to: last, reason: MissReason::Damaged }]);
    fixture.end().await;
}

#[tokio::test]
async fn each_number_tells_what_became_of_its_event_also_after_it_was_queued_again() {
    let mut fixture = EngineFixture::new().await;
    // Events of another sink lie between those of the first.
    fixture.push(None, 0b10).await;
    let ids = fixture.push_first(CAPACITY + 1).await;
    fixture.settle(0, AttemptEnding::Done).await;
    fixture.settle(0, AttemptEnding::Dead).await;
    fixture.settle(0, AttemptEnding::Retry).await;
    fixture.push(None, 0b10).await;
    fixture.store.write(|_| ()).await.unwrap();
    use NumberState::{Dead, Delivered, Dropped, Queued};
    let expected = [(1, Delivered), (2, Dead), (3, Queued), (4, Queued), (5, Dropped)];
    let expected: Vec<_> = expected.iter().zip(&ids).map(|((n, state), id)| (*n, *state, Some(*id))).collect();
    assert_eq!(fixture.fates(1, 1000).unwrap(), expected);
    assert_eq!(fixture.fates(3, 4).unwrap(), expected[2..4]);
    assert_eq!(fixture.fates(6, 9).unwrap(), []);

    let entry = AuditEntry::new(None, "sink.redeliver", "x");
    fixture.engine.redeliver(fixture.sinks[0], DeadLetterFilter::All, entry).await.unwrap();
    for _ in 0..3 {
        fixture.settle(0, AttemptEnding::Done).await;
    }
    fixture.store.write(|_| ()).await.unwrap();
    fixture.crash().await;
    assert_eq!(fixture.fates(2, 2).unwrap(), [(2, Dead, Some(ids[1]))]);
    assert_eq!(fixture.fates(6, 6).unwrap(), [(6, Delivered, Some(ids[1]))]);
    assert_eq!(fixture.rows(keys::NUMBER), 1);

    let none = Retention { keep: Duration::ZERO, bytes: 0, dead_letter_bytes: u64::MAX };
    fixture.engine.prune(none).await.unwrap();
    assert_eq!(fixture.rows(keys::NUMBER), 0, "the row of a number goes with its event");
    let unknown = |n| (n, NumberState::Unknown, None);
    assert_eq!(fixture.fates(1, 4).unwrap(), [unknown(1), unknown(2), unknown(3), unknown(4)]);
    fixture.engine.discard_queue(fixture.sinks[0]).await.unwrap();
    assert_eq!(fixture.rows(keys::GAP), 0);
    fixture.end().await;
}
