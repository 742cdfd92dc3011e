//! Tests of the embedded engine: its plain properties here, a comparison with a model under random steps in [`model`],
//! the order of events in [`acceptance`], waits in [`retries`], deletion in [`retention`], damaged records in
//! [`damaged_records`], missed numbers in [`gaps`], replays in [`replays`].

mod acceptance;
mod damaged_records;
mod gaps;
mod history_attempts;
mod model;
mod replays;
mod retention;
mod retries;

use super::{sled::*, *};
use crate::{
    model::{
        event::{Actor, ActorKind, Event, EventType},
        id::{EventId, SinkId, SpaceId, UserId},
        owner::Owner,
        timestamp::Timestamp,
    },
    platform::{
        metrics::Metrics,
        store::{Store, test_support::copy_directory},
    },
};
use futures_util::FutureExt;
use std::{path::Path, sync::Arc, time::Duration};
use tempfile::TempDir;
use tokio::sync::mpsc;

const SINKS: usize = 3;
const CAPACITY: usize = 4;
const DEAD_LETTERS: usize = 3;
const UNDELIVERED: u64 = 512 << 10;
/// The wait of an event that is held.
const HOLD: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, Debug)]
enum AttemptEnding {
    Done,
    Retry,
    /// A retry after a long wait.
    Hold,
    Dead,
}

/// An engine on a store in a temporary directory, with a few sinks.
struct EngineFixture {
    root: TempDir,
    generation: usize,
    store: Store,
    engine: SledEngine,
    sinks: [SinkId; SINKS],
    wakes: mpsc::UnboundedReceiver<SinkId>,
}

impl EngineFixture {
    async fn new() -> Self {
        let root = TempDir::new().unwrap();
        let (store, engine, wakes) = open(&root.path().join("0"));
        let sinks = std::array::from_fn(|_| SinkId::new());
        let fixture = Self { root, generation: 0, store, engine, sinks, wakes };
        fixture.open_queues();
        fixture
    }

    /// Every start does this for the sinks it knows.
    fn open_queues(&self) {
        (0..SINKS).for_each(|n| self.engine.open_queue(&self.target(n), owner()));
    }

    fn target(&self, n: usize) -> RouteTarget {
        RouteTarget { sink: self.sinks[n], name: format!("s{n}").into() }
    }

    /// Returns the position of an event that is on disk.
    fn position(&self, id: EventId) -> HistoryPosition {
        let record = self.engine.record(id).unwrap().unwrap();
        HistoryPosition { accepted_at: record.accepted_at, id }
    }

    async fn push(&self, id: Option<EventId>, mask: u8) -> Receipt {
        let targets = (0..SINKS).filter(|n| mask & 1 << n != 0).map(|n| self.target(n)).collect();
        self.engine.accept(event(id), targets, AcceptOptions::default()).await.unwrap()
    }

    async fn settle(&self, n: usize, ending: AttemptEnding) {
        self.settle_batch(n, 1, ending).await;
    }

    /// Settles up to `max` events as one.
    async fn settle_batch(&self, n: usize, max: usize, ending: AttemptEnding) {
        let batch = self.engine.next_deliveries(self.sinks[n], max, usize::MAX).await.unwrap();
        let Some(first) = batch.first() else { return };
        let (outcome, settlement) = match ending {
            AttemptEnding::Done => (AttemptOutcome::Delivered, Settlement::Complete),
            AttemptEnding::Retry => (AttemptOutcome::Failed, Settlement::Retry(Duration::ZERO)),
            AttemptEnding::Hold => (AttemptOutcome::Failed, Settlement::Retry(HOLD)),
            AttemptEnding::Dead => (AttemptOutcome::Failed, Settlement::DeadLetter("no".to_owned())),
        };
        let settled = SettledAttempt { attempt: attempt(first.attempt_number(), outcome), settlement };
        self.engine.settle_all(batch.into_iter().map(|pending| (pending, settled.clone())).collect()).await;
    }

    /// Continues with the files that a killed process would have left on disk.
    async fn crash(&mut self) {
        self.generation += 1;
        let copy = self.root.path().join(self.generation.to_string());
        copy_directory(self.store.directory(), &copy);
        self.store.close().await;
        (self.store, self.engine, self.wakes) = open(&copy);
        self.open_queues();
    }

    async fn end(self) {
        self.store.close().await;
    }
}

fn open(directory: &Path) -> (Store, SledEngine, mpsc::UnboundedReceiver<SinkId>) {
    let metrics = Arc::<Metrics>::default();
    let store = Store::open(directory, 0, metrics.clone()).unwrap();
    let (ready, wakes) = mpsc::unbounded_channel();
    let hooks = EngineHooks { accepted: Box::new(|_| ()), dropped: Box::new(|_, _| ()), ready };
    let limits = QueueLimits { queue: CAPACITY, dead_letters: DEAD_LETTERS, undelivered: UNDELIVERED };
    let engine = SledEngine::open(store.clone(), metrics, limits, hooks).unwrap();
    (store, engine, wakes)
}

pub(super) fn event(id: Option<EventId>) -> Arc<Event> {
    let user = user();
    Arc::new(Event {
        id: id.unwrap_or_else(EventId::new),
        kind: EventType::custom("t").unwrap(),
        ts: Timestamp::now(),
        zone: "z".into(),
        space_id: SpaceId::NIL,
        user_id: user,
        actor: Actor { id: uuid::Uuid::nil(), username: "u".into(), kind: ActorKind::User },
        space: None,
        data: serde_json::value::RawValue::from_string("{}".into()).unwrap(),
    })
}

fn user() -> UserId {
    UserId::from_slice(&[7; 16]).unwrap()
}

fn owner() -> Owner {
    Owner::User(user())
}

fn attempt(number: u32, outcome: AttemptOutcome) -> Attempt {
    let at = Timestamp::now();
    Attempt { number, at, duration_ms: 1.0, outcome, status: None, error: None, response: None, log: Vec::new() }
}

#[tokio::test]
async fn an_id_that_another_users_event_has_is_refused() {
    let fixture = EngineFixture::new().await;
    let first = fixture.push(None, 1).await.event.id;
    let mut other = Event::clone(&*event(Some(first)));
    other.user_id = UserId::new();
    let refused = fixture.engine.accept(Arc::new(other), Vec::new(), AcceptOptions::default()).await;
    assert!(matches!(refused, Err(AcceptError::IdTaken(id)) if id == first));
    fixture.end().await;
}

#[tokio::test]
async fn a_sink_is_woken_when_its_queue_stops_being_empty_and_after_a_restart() {
    let mut fixture = EngineFixture::new().await;
    fixture.push(None, 1).await;
    fixture.push(None, 1).await;
    assert_eq!(fixture.wakes.try_recv().ok(), Some(fixture.sinks[0]));
    assert!(fixture.wakes.try_recv().is_err(), "a sink with a worker is not woken again");
    fixture.crash().await;
    assert_eq!(fixture.wakes.try_recv().ok(), Some(fixture.sinks[0]));
    fixture.end().await;
}

#[tokio::test]
async fn a_worker_that_waits_for_a_fill_is_woken_by_the_last_event_and_by_the_end_of_the_queue() {
    let fixture = EngineFixture::new().await;
    fixture.push(None, 0b01).await;
    assert!(fixture.engine.filled(fixture.sinks[0], 1).now_or_never().is_some(), "it is filled already");
    let mut waiting = fixture.engine.filled(fixture.sinks[0], 3);
    assert!((&mut waiting).now_or_never().is_none());
    fixture.push(None, 0b11).await;
    assert!((&mut waiting).now_or_never().is_none(), "one is missing");
    fixture.push(None, 0b01).await;
    waiting.await;
    drop(fixture.engine.filled(fixture.sinks[0], 4));
    let mut waiting = fixture.engine.filled(fixture.sinks[0], 5);
    assert!((&mut waiting).now_or_never().is_none());
    fixture.engine.discard_queue(fixture.sinks[0]).await.unwrap();
    waiting.await;
    fixture.engine.filled(fixture.sinks[0], 1).await;
    fixture.end().await;
}

#[tokio::test]
async fn history_shows_each_delivery_and_prunes_only_settled_events() {
    let fixture = EngineFixture::new().await;
    let settled = fixture.push(None, 0b001).await.event.id;
    fixture.settle(0, AttemptEnding::Retry).await;
    fixture.settle(0, AttemptEnding::Done).await;
    let waiting = fixture.push(None, 0b010).await.event.id;
    let dead = fixture.push(None, 0b100).await.event.id;
    fixture.settle(2, AttemptEnding::Dead).await;
    fixture.store.write(|_| ()).await.unwrap();

    let delivery = |id| fixture.engine.record(id).unwrap().unwrap().deliveries.remove(0);
    assert_eq!(delivery(settled).state, DeliveryState::Delivered);
    assert_eq!(delivery(settled).attempts.iter().map(|a| a.number).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(delivery(waiting).state, DeliveryState::Queued);
    assert_eq!(delivery(dead).state, DeliveryState::Dead);

    let none = Retention { keep: Duration::ZERO, bytes: 0, dead_letter_bytes: u64::MAX };
    assert_eq!(fixture.engine.prune(none).await.unwrap(), 1);
    assert!(fixture.engine.record(settled).unwrap().is_none());
    assert!(fixture.engine.record(waiting).unwrap().is_some());
    assert!(fixture.engine.record(dead).unwrap().is_some());
    fixture.end().await;
}

#[tokio::test]
async fn history_pages_backwards_in_time_and_filters() {
    let fixture = EngineFixture::new().await;
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(fixture.push(None, if n == 2 { 0b01 } else { 0b10 }).await.event.id);
    }
    ids.reverse();
    let page = |query: HistoryFilter| {
        let page = fixture.engine.history(&query).unwrap();
        (page.records.iter().map(|record| record.event.id).collect::<Vec<_>>(), page.next)
    };
    let (first, next) = page(HistoryFilter { limit: 3, ..HistoryFilter::default() });
    assert_eq!(first, ids[..3]);
    let next = next.unwrap().to_string().parse().unwrap();
    assert_eq!(
        page(HistoryFilter { limit: 3, after: Some(next), ..HistoryFilter::default() }),
        (ids[3..].to_vec(), None)
    );
    let query = HistoryFilter { limit: 9, sink: Some(fixture.sinks[0]), ..HistoryFilter::default() };
    assert_eq!(page(query), (vec![ids[2]], None));
    let query = HistoryFilter { limit: 9, user: Some(UserId::new()), ..HistoryFilter::default() };
    assert_eq!(page(query), (vec![], None));
    fixture.end().await;
}

#[tokio::test]
async fn a_search_passes_over_a_bounded_part_of_history_and_continues_from_there() {
    let fixture = EngineFixture::new().await;
    let mut ids = Vec::new();
    for n in 0..80 {
        let mut large = Event::clone(&*event(None));
        let filling = "x".repeat((256 << 10) - 20);
        large.data =
            serde_json::value::RawValue::from_string(format!("{{\"a\":\"{filling}\",\"n\":\"n{n:04}\"}}")).unwrap();
        ids.push(fixture.engine.accept(Arc::new(large), Vec::new(), AcceptOptions::default()).await.unwrap().event.id);
    }
    let page = |after| {
        let filter = HistoryFilter { text: Some("n0003".to_owned()), limit: 9, after, ..HistoryFilter::default() };
        fixture.engine.history(&filter).unwrap()
    };
    let first = page(None);
    let end = HistoryPosition { id: EventId::NIL, ..fixture.position(ids[80 - 64]) };
    assert_eq!((first.records.len(), first.next), (0, Some(end)), "16 MiB were read, and the cursor names no event");
    let second = page(first.next);
    assert_eq!(second.records.iter().map(|record| record.event.id).collect::<Vec<_>>(), [ids[3]]);
    assert_eq!(second.next, None);
    let all = fixture.engine.history(&HistoryFilter { limit: 99, ..HistoryFilter::default() }).unwrap();
    assert_eq!((all.records.len(), all.next), (80, None), "a page without a filter passes over nothing");
    fixture.end().await;
}

#[tokio::test]
async fn the_oldest_dead_letters_are_deleted_when_there_are_too_many() {
    let fixture = EngineFixture::new().await;
    for _ in 0..DEAD_LETTERS + 2 {
        fixture.push(None, 1).await;
    }
    // All in one group, so that no letter is on disk when the next one exceeds the limit.
    for _ in 0..CAPACITY {
        fixture.settle(0, AttemptEnding::Dead).await;
    }
    fixture.store.write(|_| ()).await.unwrap();
    let letters = fixture.engine.dead_letters(fixture.sinks[0], 0, 9).unwrap();
    assert_eq!(letters.iter().map(|letter| letter.sequence).collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(fixture.engine.depth(fixture.sinks[0]).dead, DEAD_LETTERS);
    fixture.end().await;
}

#[tokio::test]
async fn an_id_used_again_with_another_payload_is_refused() {
    let fixture = EngineFixture::new().await;
    let first = fixture.push(None, 1).await.event.id;
    let mut other = Event::clone(&*event(Some(first)));
    other.data = serde_json::value::RawValue::from_string("{\"n\":1}".into()).unwrap();
    let refused = fixture.engine.accept(Arc::new(other), Vec::new(), AcceptOptions::default()).await;
    assert!(matches!(refused, Err(AcceptError::IdTaken(id)) if id == first));
    fixture.end().await;
}
