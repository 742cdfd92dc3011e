//! The order of acceptance: the rows of events on disk, and their accepted times when the clock is set back.

use super::{super::*, AttemptEnding, EngineFixture, event};
use crate::{
    model::{event::Event, id::EventId, timestamp::Timestamp},
    platform::store::keys,
};
use std::{sync::Arc, time::Duration};

impl EngineFixture {
    /// Returns the position of each event of history, newest first.
    fn history_positions(&self) -> Vec<HistoryPosition> {
        let page = self.engine.history(&HistoryFilter { limit: 99, ..HistoryFilter::default() }).unwrap();
        let position = |record: &Record| HistoryPosition { accepted_at: record.accepted_at, id: record.event.id };
        page.records.iter().map(position).collect()
    }

    /// Returns the keys of one kind, without the kind.
    fn stored_keys(&self, kind: u8) -> Vec<Vec<u8>> {
        self.store.keys(vec![kind]..vec![kind + 1]).map(|key| key.unwrap()[1..].to_vec()).collect()
    }
}

#[tokio::test]
async fn the_rows_of_an_event_are_keyed_by_its_accepted_time() {
    let fixture = EngineFixture::new().await;
    let id = fixture.push(None, 0b01).await.event.id;
    let sink = *fixture.sinks[0].as_bytes();
    let HistoryPosition { accepted_at, .. } = fixture.position(id);
    let time = accepted_at.micros().to_be_bytes().to_vec();
    let position = [&time[..], id.as_bytes()].concat();
    let queue_key = keys::key(keys::QUEUE, &[&sink, &1_u64.to_be_bytes()]);
    assert_eq!(*fixture.store.get(&queue_key).unwrap().unwrap(), position[..]);
    fixture.settle(0, AttemptEnding::Done).await;
    fixture.store.write(|_| ()).await.unwrap();
    assert_eq!(fixture.stored_keys(keys::EVENT), std::slice::from_ref(&position));
    assert_eq!(fixture.stored_keys(keys::DELIVERY), [[&position[..], &sink].concat()]);
    assert_eq!(fixture.stored_keys(keys::QUEUE), Vec::<Vec<u8>>::new());
    fixture.end().await;
}

#[tokio::test]
async fn history_is_in_the_order_of_acceptance_whatever_the_ids_and_the_times_of_the_events() {
    let fixture = EngineFixture::new().await;
    let mut accepted = Vec::new();
    for number in [3_u8, 1, 2] {
        let mut event = Event::clone(&*event(EventId::from_slice(&[number; 16])));
        event.ts = Timestamp::from_micros(i64::from(number));
        accepted.insert(
            0,
            fixture.engine.accept(Arc::new(event), Vec::new(), AcceptOptions::default()).await.unwrap().event.id,
        );
    }
    let positions = fixture.history_positions();
    assert_eq!(positions.iter().map(|at| at.id).collect::<Vec<_>>(), accepted);
    let page = |filter| fixture.engine.history(&filter).unwrap().records.len();
    let (newest, oldest) = (positions[0].accepted_at, positions[2].accepted_at);
    assert_eq!(page(HistoryFilter { limit: 9, since: Some(newest), ..HistoryFilter::default() }), 1);
    assert_eq!(page(HistoryFilter { limit: 9, until: Some(oldest), ..HistoryFilter::default() }), 1);
    assert_eq!(
        page(HistoryFilter { limit: 9, since: Some(oldest), until: Some(newest), ..HistoryFilter::default() }),
        3
    );
    fixture.end().await;
}

#[tokio::test]
async fn an_event_accepted_after_the_clock_was_set_back_comes_after_those_before_it() {
    let mut fixture = EngineFixture::new().await;
    let first = fixture.push(None, 0).await.event.id;
    // The event that an earlier run accepted while the clock was an hour ahead.
    let ahead = HistoryPosition {
        accepted_at: fixture.position(first).accepted_at.after(Duration::from_secs(3600)),
        id: EventId::new(),
    };
    let row = fixture.store.scan(&[keys::EVENT]).next().unwrap().unwrap().1;
    let key = keys::key(keys::EVENT, &[&ahead.accepted_at.micros().to_be_bytes(), ahead.id.as_bytes()]);
    fixture.store.write(move |batch| batch.put(key, &*row)).await.unwrap();
    fixture.crash().await;
    let (second, third) = (fixture.push(None, 0).await.event.id, fixture.push(None, 0).await.event.id);
    assert_eq!(fixture.position(second).accepted_at.micros(), ahead.accepted_at.micros() + 1);
    assert_eq!(fixture.position(third).accepted_at.micros(), ahead.accepted_at.micros() + 2);
    fixture.end().await;
}
