//! A damaged record costs what it held and nothing else: queues, history and sweeps continue past it.

use super::{super::*, AttemptEnding, EngineFixture, event};
use crate::{
    model::id::{EventId, SinkId},
    platform::{
        audit::{Audit, AuditEntry, AuditFilter},
        store::{StoreError, keys},
    },
};
use std::time::Duration;

const GARBAGE: &[u8] = b"{\"event\":\xff";

fn sequenced_key(kind: u8, sink: SinkId, sequence: u64) -> Vec<u8> {
    keys::key(kind, &[sink.as_bytes(), &sequence.to_be_bytes()])
}

impl EngineFixture {
    fn event_key(&self, id: EventId) -> Vec<u8> {
        let HistoryPosition { accepted_at, id } = self.position(id);
        keys::key(keys::EVENT, &[&accepted_at.micros().to_be_bytes(), id.as_bytes()])
    }

    fn delivery_key(&self, id: EventId, sink: SinkId) -> Vec<u8> {
        let HistoryPosition { accepted_at, id } = self.position(id);
        keys::key(keys::DELIVERY, &[&accepted_at.micros().to_be_bytes(), id.as_bytes(), sink.as_bytes()])
    }

    async fn damage(&self, key: Vec<u8>) {
        self.store.write(move |batch| batch.put(key, GARBAGE)).await.unwrap();
    }

    /// Damages events, and starts again so that none of them is in memory.
    async fn damage_events(&mut self, ids: &[EventId]) {
        for id in ids {
            self.damage(self.event_key(*id)).await;
        }
        self.crash().await;
    }

    /// Waits until every settlement so far is on disk.
    async fn written(&self) {
        self.store.write(|_| ()).await.unwrap();
    }

    async fn push_to_first(&self, count: usize) -> Vec<EventId> {
        let mut ids = Vec::new();
        for _ in 0..count {
            ids.push(self.push(None, 1).await.event.id);
        }
        ids
    }

    /// Returns the event at the head of the first sink's queue, with its failures.
    async fn head_of_first(&self) -> Option<(EventId, u32)> {
        let pending = self.engine.next_delivery(self.sinks[0]).await.unwrap();
        pending.map(|pending| (pending.event.id, pending.failures))
    }

    fn letters_of_first(&self) -> Vec<DeadLetter> {
        self.engine.dead_letters(self.sinks[0], 0, 9).unwrap()
    }

    async fn redeliver_to_first(&self) -> Redelivered {
        let entry = AuditEntry::new(None, "sink.redeliver", "x");
        self.engine.redeliver(self.sinks[0], DeadLetterFilter::All, entry).await.unwrap()
    }
}

#[tokio::test]
async fn a_damaged_event_at_the_head_becomes_a_dead_letter_and_the_queue_continues() {
    let mut fixture = EngineFixture::new().await;
    let ids = fixture.push_to_first(3).await;
    fixture.damage_events(&ids[..1]).await;
    assert_eq!(fixture.head_of_first().await, Some((ids[1], 0)));
    fixture.written().await;
    let letters = fixture.letters_of_first();
    assert_eq!(letters.iter().map(|letter| (letter.event_id, letter.sequence)).collect::<Vec<_>>(), [(ids[0], 1)]);
    assert!(letters[0].why.contains("damaged") && letters[0].why.contains(&ids[0].to_string()), "{:?}", letters[0]);
    assert_eq!(letters[0].attempts, 0);
    let depth = fixture.engine.depth(fixture.sinks[0]);
    assert_eq!((depth.queued, depth.dead, depth.last_sequence), (2, 1, 3));
    let filter = AuditFilter { action: Some("event.give_up".to_owned()), ..AuditFilter::default() };
    let given_up = Audit::new(fixture.store.clone()).list(filter, None, 9).await.unwrap().entries;
    assert_eq!(given_up.len(), 1);
    assert_eq!(given_up[0].object, format!("sink:{}", fixture.sinks[0]));
    assert_eq!(given_up[0].detail["sink"], "s0");

    fixture.crash().await;
    assert_eq!(fixture.head_of_first().await, Some((ids[1], 0)));
    assert_eq!(fixture.letters_of_first().len(), 1);
    fixture.end().await;
}

#[tokio::test]
async fn a_queued_event_whose_record_is_missing_becomes_a_dead_letter() {
    let mut fixture = EngineFixture::new().await;
    let ids = fixture.push_to_first(2).await;
    let key = fixture.event_key(ids[0]);
    fixture.store.write(move |batch| batch.delete(key)).await.unwrap();
    fixture.crash().await;
    assert_eq!(fixture.head_of_first().await, Some((ids[1], 0)));
    fixture.written().await;
    let letters = fixture.letters_of_first();
    assert!(letters[0].why.contains("missing"), "{:?}", letters[0]);
    fixture.end().await;
}

#[tokio::test]
async fn a_queue_of_damaged_events_only_ends_empty() {
    let mut fixture = EngineFixture::new().await;
    let ids = fixture.push_to_first(2).await;
    fixture.damage_events(&ids).await;
    assert_eq!(fixture.head_of_first().await, None);
    fixture.written().await;
    assert_eq!(fixture.letters_of_first().len(), 2);
    assert_eq!(fixture.engine.queue_head(fixture.sinks[0]), None);
    fixture.end().await;
}

#[tokio::test]
async fn an_event_whose_delivery_record_is_damaged_is_delivered_and_leaves_the_queue_for_good() {
    let mut fixture = EngineFixture::new().await;
    let id = fixture.push_to_first(1).await[0];
    fixture.settle(0, AttemptEnding::Retry).await;
    fixture.written().await;
    fixture.damage(fixture.delivery_key(id, fixture.sinks[0])).await;
    fixture.settle(0, AttemptEnding::Done).await;
    fixture.written().await;
    fixture.crash().await;
    assert_eq!(fixture.head_of_first().await, None);
    let delivery = fixture.engine.record(id).unwrap().unwrap().deliveries.remove(0);
    assert_eq!((delivery.state, delivery.attempts.len()), (DeliveryState::Delivered, 1));
    fixture.end().await;
}

#[tokio::test]
async fn a_start_that_finds_a_damaged_delivery_record_counts_its_attempts_anew() {
    let mut fixture = EngineFixture::new().await;
    let ids = fixture.push_to_first(2).await;
    fixture.settle(0, AttemptEnding::Retry).await;
    fixture.written().await;
    fixture.damage(fixture.delivery_key(ids[0], fixture.sinks[0])).await;
    fixture.crash().await;
    assert_eq!(fixture.head_of_first().await, Some((ids[0], 0)));
    fixture.settle(0, AttemptEnding::Done).await;
    assert_eq!(fixture.head_of_first().await, Some((ids[1], 0)));
    fixture.end().await;
}

#[tokio::test]
async fn a_start_that_finds_a_damaged_queue_entry_makes_it_a_dead_letter() {
    let mut fixture = EngineFixture::new().await;
    let ids = fixture.push_to_first(2).await;
    fixture.damage(sequenced_key(keys::QUEUE, fixture.sinks[0], 1)).await;
    fixture.crash().await;
    assert_eq!(fixture.head_of_first().await, Some((ids[1], 0)));
    fixture.written().await;
    let letters = fixture.letters_of_first();
    assert_eq!((letters.len(), letters[0].sequence), (1, 1));
    assert!(letters[0].why.contains("damaged"), "{:?}", letters[0]);
    assert_eq!(fixture.engine.depth(fixture.sinks[0]).queued, 1);
    fixture.end().await;
}

#[tokio::test]
async fn a_dead_letter_of_a_damaged_event_is_not_redelivered_and_the_result_says_so() {
    let fixture = EngineFixture::new().await;
    let ids = fixture.push_to_first(3).await;
    for _ in 0..3 {
        fixture.settle(0, AttemptEnding::Dead).await;
    }
    fixture.written().await;
    fixture.damage(fixture.event_key(ids[0])).await;
    fixture.damage(sequenced_key(keys::DEAD, fixture.sinks[0], 2)).await;
    assert_eq!(fixture.letters_of_first().iter().map(|letter| letter.sequence).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(fixture.redeliver_to_first().await, Redelivered { queued: 1, remaining: 2, damaged: 2 });
    assert_eq!(fixture.head_of_first().await, Some((ids[2], 0)));
    fixture.end().await;
}

#[tokio::test]
async fn a_dead_letter_whose_delivery_record_is_damaged_is_redelivered() {
    let fixture = EngineFixture::new().await;
    let id = fixture.push_to_first(1).await[0];
    fixture.settle(0, AttemptEnding::Dead).await;
    fixture.written().await;
    fixture.damage(fixture.delivery_key(id, fixture.sinks[0])).await;
    assert_eq!(fixture.redeliver_to_first().await, Redelivered { queued: 1, remaining: 0, damaged: 0 });
    assert_eq!(fixture.head_of_first().await, Some((id, 0)));
    assert_eq!(fixture.engine.record(id).unwrap().unwrap().deliveries[0].state, DeliveryState::Queued);
    fixture.end().await;
}

#[tokio::test]
async fn a_redelivered_event_is_kept_while_its_delivery_record_is_missing_or_damaged() {
    let fixture = EngineFixture::new().await;
    let id = fixture.push_to_first(1).await[0];
    fixture.settle(0, AttemptEnding::Dead).await;
    fixture.written().await;
    let key = fixture.delivery_key(id, fixture.sinks[0]);
    let missing = key.clone();
    fixture.store.write(move |batch| batch.delete(missing)).await.unwrap();
    assert_eq!(fixture.redeliver_to_first().await, Redelivered { queued: 1, remaining: 0, damaged: 0 });
    let none = Retention { keep: Duration::ZERO, bytes: 0, dead_letter_bytes: u64::MAX };
    assert_eq!(fixture.engine.prune(none).await.unwrap(), 0);
    fixture.damage(key.clone()).await;
    assert_eq!(fixture.engine.prune(none).await.unwrap(), 0, "it is still queued");
    assert_eq!(fixture.head_of_first().await, Some((id, 0)));
    fixture.settle(0, AttemptEnding::Dead).await;
    fixture.written().await;
    fixture.damage(key).await;
    assert_eq!(fixture.engine.prune(none).await.unwrap(), 0, "it is a dead letter");
    fixture.end().await;
}

#[tokio::test]
async fn a_dead_letter_whose_id_another_event_has_taken_is_not_redelivered() {
    let mut fixture = EngineFixture::new().await;
    let id = fixture.push_to_first(1).await[0];
    fixture.settle(0, AttemptEnding::Dead).await;
    fixture.written().await;
    fixture.damage_events(&[id]).await;
    let none = Retention { keep: Duration::ZERO, bytes: 0, dead_letter_bytes: u64::MAX };
    assert_eq!(fixture.engine.prune(none).await.unwrap(), 1);
    fixture.push(Some(id), 1).await;
    let redelivered = fixture.redeliver_to_first().await;
    assert_eq!((redelivered.queued, redelivered.damaged, redelivered.remaining), (0, 1, 1));
    assert_eq!(fixture.head_of_first().await, Some((id, 0)));
    fixture.settle(0, AttemptEnding::Done).await;
    fixture.written().await;
    fixture.crash().await;
    assert_eq!(fixture.head_of_first().await, None);
    fixture.end().await;
}

#[tokio::test]
async fn a_repeated_emit_of_a_damaged_event_is_refused_as_damaged() {
    let fixture = EngineFixture::new().await;
    let id = fixture.push_to_first(1).await[0];
    fixture.damage(fixture.event_key(id)).await;
    let refused = fixture.engine.accept(event(Some(id)), Vec::new(), AcceptOptions::default()).await;
    assert!(matches!(refused, Err(AcceptError::Store(StoreError::Damaged { .. }))), "{refused:?}");
    fixture.end().await;
}

#[tokio::test]
async fn history_and_sweeps_continue_past_damaged_records() {
    let fixture = EngineFixture::new().await;
    let ids = fixture.push_to_first(4).await;
    for _ in 0..4 {
        fixture.settle(0, AttemptEnding::Done).await;
    }
    fixture.written().await;
    fixture.damage(fixture.event_key(ids[1])).await;
    fixture.damage(fixture.delivery_key(ids[2], fixture.sinks[0])).await;
    let page = fixture.engine.history(&HistoryFilter { limit: 9, ..HistoryFilter::default() }).unwrap();
    let seen: Vec<_> = page.records.iter().map(|record| (record.event.id, record.deliveries.len())).collect();
    assert_eq!(seen, [(ids[3], 1), (ids[2], 0), (ids[0], 1)]);
    assert!(fixture.engine.record(ids[1]).is_err(), "asked for by its id, a damaged event is an error");

    let none = Retention { keep: Duration::ZERO, bytes: 0, dead_letter_bytes: u64::MAX };
    assert_eq!(fixture.engine.prune(none).await.unwrap(), 4);
    for kind in [keys::EVENT, keys::DELIVERY] {
        assert_eq!(fixture.store.scan(&[kind]).count(), 0, "{}", kind as char);
    }
    fixture.end().await;
}

#[tokio::test]
async fn a_start_that_finds_a_damaged_sequence_number_gives_none_twice() {
    let mut fixture = EngineFixture::new().await;
    let ids = fixture.push_to_first(2).await;
    fixture.push(None, 0b10).await;
    fixture.store.damage(&keys::key(keys::SEQUENCE, &[fixture.sinks[0].as_bytes()]));
    fixture.crash().await;
    assert_eq!(fixture.head_of_first().await, Some((ids[0], 0)));
    assert_eq!(fixture.engine.depth(fixture.sinks[1]).last_sequence, 1);
    let skipped = fixture.engine.depth(fixture.sinks[0]).last_sequence;
    assert!(skipped > 1_000_000_000_000, "{skipped} may have been given before");
    let next = fixture.push(None, 1).await.event.id;
    let last = *fixture.engine.waiting(fixture.sinks[0]).last().unwrap();
    assert_eq!((last.sequence, last.event, last.failures), (skipped + 1, next, 0));
    fixture.crash().await;
    assert_eq!(fixture.engine.depth(fixture.sinks[0]).last_sequence, skipped + 1, "the number is stored again");
    fixture.end().await;
}

#[tokio::test]
async fn a_missing_sequence_number_continues_after_the_greatest_that_is_known() {
    let mut fixture = EngineFixture::new().await;
    fixture.push_to_first(3).await;
    fixture.settle(0, AttemptEnding::Done).await;
    fixture.settle(0, AttemptEnding::Done).await;
    fixture.settle(0, AttemptEnding::Dead).await;
    fixture.written().await;
    let key = keys::key(keys::SEQUENCE, &[fixture.sinks[0].as_bytes()]);
    fixture.store.write(move |batch| batch.delete(key)).await.unwrap();
    fixture.crash().await;
    assert_eq!(fixture.engine.depth(fixture.sinks[0]).last_sequence, 3, "that of the dead letter");
    fixture.end().await;
}

#[tokio::test]
async fn a_start_that_finds_keys_of_an_unknown_form_leaves_them_alone() {
    let mut fixture = EngineFixture::new().await;
    let ids = fixture.push_to_first(1).await;
    for kind in [keys::QUEUE, keys::DEAD, keys::SEQUENCE, keys::EVENT] {
        fixture.store.write(move |batch| batch.put(vec![kind, 1, 2], b"{}")).await.unwrap();
    }
    fixture.crash().await;
    assert_eq!(fixture.head_of_first().await, Some((ids[0], 0)));
    assert_eq!(
        fixture.engine.history(&HistoryFilter { limit: 9, ..HistoryFilter::default() }).unwrap().records.len(),
        1
    );
    fixture.end().await;
}

#[tokio::test]
async fn a_damaged_size_of_history_is_counted_anew() {
    let mut fixture = EngineFixture::new().await;
    fixture.push_to_first(3).await;
    fixture.settle(0, AttemptEnding::Done).await;
    fixture.written().await;
    let bytes = fixture.engine.history_bytes();
    fixture.store.damage(&[keys::HISTORY]);
    fixture.crash().await;
    assert_eq!(fixture.engine.history_bytes(), bytes);
    fixture.end().await;
}

#[tokio::test]
async fn rows_whose_stored_bytes_are_damaged_stop_nothing() {
    let mut fixture = EngineFixture::new().await;
    let ids = fixture.push_to_first(4).await;
    fixture.settle(0, AttemptEnding::Dead).await;
    fixture.settle(0, AttemptEnding::Retry).await;
    fixture.written().await;
    let sink = fixture.sinks[0];
    let damaged = [
        fixture.delivery_key(ids[1], sink),
        fixture.event_key(ids[2]),
        sequenced_key(keys::DEAD, sink, 1),
        sequenced_key(keys::QUEUE, sink, 4),
    ];
    damaged.iter().for_each(|key| fixture.store.damage(key));
    assert_eq!(fixture.letters_of_first().len(), 0, "a damaged letter is left out");
    fixture.crash().await;
    assert_eq!(fixture.head_of_first().await, Some((ids[1], 0)));
    fixture.settle(0, AttemptEnding::Done).await;
    assert_eq!(fixture.head_of_first().await, None);
    fixture.written().await;
    let letters = fixture.letters_of_first();
    let letters: Vec<_> = letters.iter().map(|letter| (letter.sequence, letter.event_id, &*letter.why)).collect();
    assert_eq!(letters.len(), 2);
    assert_eq!((letters[0].0, letters[0].1, letters[0].2.contains("damaged")), (3, ids[2], true), "{letters:?}");
    assert_eq!((letters[1].0, letters[1].1, letters[1].2.contains("damaged")), (4, EventId::NIL, true), "{letters:?}");
    let page = fixture.engine.history(&HistoryFilter { limit: 9, ..HistoryFilter::default() }).unwrap();
    assert_eq!(page.records.iter().map(|record| record.event.id).collect::<Vec<_>>(), [ids[3], ids[1], ids[0]]);
    // The first event is kept for its dead letter, damaged as that is; the last one is in no readable queue any more.
    let none = Retention { keep: Duration::ZERO, bytes: 0, dead_letter_bytes: u64::MAX };
    assert_eq!(fixture.engine.prune(none).await.unwrap(), 2);
    fixture.end().await;
}
