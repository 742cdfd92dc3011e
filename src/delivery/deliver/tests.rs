//! Delivery to methods, from the emit to the settlement, behind a door that opens and answers as a test wants.

use super::{Deliverer, Parts, follow};
use crate::{
    delivery::{
        sinks::{Book, test_support::Workbench},
        subscriptions::{
            Subscriptions,
            test_support::{FakeDoor, Scratch, error, method},
        },
    },
    model::{
        event::{Actor, ActorKind, EventType},
        id::{EventId, SinkId, SpaceId, UserId},
        owner::Owner,
    },
    platform::{
        audit::{Audit, Entry, Filter},
        config::{self, Span},
        store::Store,
    },
    routing::{
        emit::{Emitter, Raise},
        feed::{Feed, Live},
        matcher::Routes,
        queue::{
            Delivery, DeliveryState, Engine, Receipt, Which,
            sled::{Bounds, Signals, SledEngine},
        },
    },
};
use serde_json::{Value, value::RawValue};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// A server's middle, from the emitter to the door.
struct Bench {
    scratch: Scratch,
    store: Store,
    engine: Arc<dyn Engine>,
    subscriptions: Subscriptions,
    emitter: Emitter,
    deliverer: Deliverer,
    door: Arc<FakeDoor>,
    feed: Feed,
    shutdown: CancellationToken,
    _workbench: Workbench,
    ada: UserId,
    /// Ada's, named `notes`.
    space: SpaceId,
}

impl Bench {
    fn new(door: Arc<FakeDoor>) -> Self {
        Self::on(Scratch::new(), door, UserId::new(), SpaceId::new())
    }

    fn on(scratch: Scratch, door: Arc<FakeDoor>, ada: UserId, space: SpaceId) -> Self {
        let (store, workbench, feed, shutdown) =
            (scratch.store(), Workbench::new(), Feed::new(), CancellationToken::new());
        let millisecond = Span(Duration::from_millis(1));
        let settings = config::Delivery { backoff: vec![millisecond, millisecond], ..config::Delivery::default() };
        let (ready, wakes) = mpsc::unbounded_channel();
        let signals = Signals { accepted: Box::new(|_| ()), ready };
        let bounds = Bounds { queue: settings.queue, dead_letters: settings.dead_letters };
        let engine = SledEngine::open(store.clone(), Arc::default(), bounds, signals).unwrap();
        let engine: Arc<dyn Engine> = Arc::new(engine);
        let subscriptions = Subscriptions::open(store.clone()).unwrap();
        let parts = Parts {
            engine: engine.clone(),
            book: Book::open(store.clone(), usize::MAX).unwrap(),
            subscriptions: subscriptions.clone(),
            door: door.clone(),
            context: workbench.context.clone(),
            feed: feed.clone(),
            metrics: Arc::default(),
        };
        let deliverer = Deliverer::new(&settings, parts, shutdown.clone());
        let routes = Arc::new(Routes::new());
        follow(&routes, &deliverer);
        let emitter = Emitter::new("z", routes, engine.clone(), 1 << 20);
        let running = deliverer.clone();
        tokio::spawn(async move { running.run(wakes).await });
        let _workbench = workbench;
        Self { scratch, store, engine, subscriptions, emitter, deliverer, door, feed, shutdown, _workbench, ada, space }
    }

    /// What a server does that ends and starts again.
    async fn restart(self, door: Arc<FakeDoor>) -> Self {
        self.shutdown.cancel();
        self.deliverer.finished().await;
        self.store.close().await;
        // A copy: the books hold on to what listens to them, and so to the store, until the process ends.
        Self::on(self.scratch.copy(), door, self.ada, self.space)
    }

    /// Makes the space publish methods of these names that are called for every event.
    async fn register(&self, names: &[&str]) {
        let methods: Vec<_> = names.iter().map(|name| method(name, Some("*"), &[])).collect();
        self.subscriptions.replace(self.space, "notes", self.ada, &methods).await.unwrap();
        self.deliverer.served(self.space);
    }

    fn queue_of(&self, name: &str) -> SinkId {
        let all = self.subscriptions.of_space(self.space);
        all.iter().find(|subscription| &*subscription.method == name).expect("it subscribes").id
    }

    async fn emit(&self, user: UserId, n: usize) -> Receipt {
        let raise = Raise {
            id: None,
            kind: EventType::custom("x").unwrap(),
            space_id: SpaceId::NIL,
            space: None,
            user_id: user,
            actor: Actor { id: uuid::Uuid::nil(), username: "ada".to_owned(), kind: ActorKind::User },
            payload: RawValue::from_string(format!("{{\"n\":{n}}}")).unwrap(),
        };
        self.emitter.emit(raise).await.unwrap()
    }

    /// Raises Ada's events with these numbers.
    async fn raise(&self, numbers: impl IntoIterator<Item = usize>) -> Vec<EventId> {
        let mut ids = Vec::new();
        for n in numbers {
            ids.push(self.emit(self.ada, n).await.event.id);
        }
        ids
    }

    fn open(&self) {
        self.door.set(true);
        self.deliverer.served(self.space);
    }

    /// The numbers of the events that this method was called with, in order.
    fn received(&self, name: &str) -> Vec<u64> {
        let number = |params: &str| serde_json::from_str::<Value>(params).unwrap()["data"]["n"].as_u64().unwrap();
        let calls = self.door.calls();
        calls.iter().filter(|call| call.method == name).map(|call| number(&call.params)).collect()
    }

    fn deliveries(&self, event: EventId) -> Vec<Delivery> {
        self.engine.record(event).unwrap().unwrap().deliveries
    }

    /// Waits until every worker has looked at its queue after this moment and found nothing that it could do.
    async fn at_rest(&self) {
        for subscription in self.subscriptions.all() {
            self.deliverer.wake(subscription.id);
        }
        eventually("the workers to leave", || self.deliverer.0.workers().is_empty()).await;
    }

    /// Waits until every settlement so far is on disk: nobody else does.
    async fn written(&self) {
        self.store.write(|_| ()).await.unwrap();
    }

    /// The audit log's entries with this action.
    async fn audited(&self, action: &str) -> Vec<Entry> {
        self.written().await;
        let filter = Filter { action: Some(action.to_owned()), ..Filter::default() };
        Audit::new(self.store.clone()).list(filter, None, 100).await.unwrap().entries
    }
}

async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "waited too long for: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_method_is_called_for_its_owners_events_and_nobody_elses() {
    let bench = Bench::new(FakeDoor::open());
    bench.register(&["m"]).await;
    let foreign = bench.emit(UserId::new(), 1).await;
    assert_eq!(foreign.matched, []);
    let own = bench.emit(bench.ada, 2).await;
    let names: Vec<_> = own.matched.iter().map(|target| &*target.name).collect();
    assert_eq!((names, own.matched[0].sink), (vec!["notes/m"], bench.queue_of("m")));
    eventually("the call", || bench.received("m") == [2]).await;
    bench.at_rest().await;
    assert_eq!(bench.received("m"), [2]);
}

#[tokio::test]
async fn events_wait_for_a_space_that_is_away_and_arrive_in_order_at_the_first_attempt() {
    let bench = Bench::new(FakeDoor::closed());
    bench.register(&["m"]).await;
    let ids = bench.raise(0..5).await;
    bench.at_rest().await;
    assert!(bench.door.calls().is_empty());
    assert_eq!(bench.engine.depth(bench.queue_of("m")).queued, 5);
    assert!(bench.deliveries(ids[0])[0].attempts.is_empty(), "waiting is no attempt");
    bench.open();
    eventually("all five", || bench.received("m") == [0, 1, 2, 3, 4]).await;
    bench.at_rest().await;
    bench.written().await;
    for id in ids {
        let delivery = bench.deliveries(id).remove(0);
        assert_eq!((delivery.state, delivery.attempts.len()), (DeliveryState::Delivered, 1));
    }
}

#[tokio::test]
async fn what_waits_is_there_after_a_restart_even_if_the_space_comes_back_much_later() {
    let bench = Bench::new(FakeDoor::closed());
    bench.register(&["m"]).await;
    bench.raise(0..3).await;
    let queue = bench.queue_of("m");
    let bench = bench.restart(FakeDoor::closed()).await;
    bench.at_rest().await;
    assert_eq!((bench.queue_of("m"), bench.engine.depth(queue).queued), (queue, 3));
    assert_eq!(bench.emit(bench.ada, 3).await.matched.len(), 1, "it hears events before its agent is back");
    bench.door.set(true);
    bench.register(&["m"]).await;
    eventually("all of them", || bench.received("m") == [0, 1, 2, 3]).await;
}

#[tokio::test]
async fn a_queue_holds_a_hundred_and_what_it_drops_is_audited_by_name() {
    let bench = Bench::new(FakeDoor::closed());
    bench.register(&["m"]).await;
    bench.raise(0..100).await;
    let receipt = bench.emit(bench.ada, 100).await;
    assert_eq!((receipt.matched.len(), receipt.dropped.len()), (1, 1));
    let entries = bench.audited("event.drop").await;
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].object, format!("sink:{}", bench.queue_of("m")));
    assert_eq!(entries[0].detail["sink"], "notes/m");
    bench.open();
    eventually("the hundred", || bench.received("m").len() == 100).await;
    bench.raise([101]).await;
    eventually("the next", || bench.received("m").last() == Some(&101)).await;
    assert_eq!(bench.received("m").len(), 101, "number 100 was dropped");
}

#[tokio::test]
async fn an_event_that_fails_three_times_is_a_dead_letter_and_can_be_sent_again() {
    let bench = Bench::new(FakeDoor::open());
    bench.door.answer(|_| error(-32050, "no"));
    bench.register(&["m"]).await;
    let ids = bench.raise([7]).await;
    let queue = bench.queue_of("m");
    eventually("the dead letter", || bench.engine.depth(queue).dead == 1).await;
    assert_eq!(bench.received("m"), [7, 7, 7]);
    bench.written().await;
    let letter = bench.engine.dead_letters(queue, 0, 9).unwrap().remove(0);
    assert_eq!((letter.event_id, letter.attempts, letter.why.as_str()), (ids[0], 3, "no (-32050)"));
    assert_eq!(bench.audited("event.give_up").await.len(), 1);

    let calm = FakeDoor::open();
    let bench = bench.restart(calm).await;
    let entry = Entry::new(None, "sink.redeliver", "x");
    assert_eq!(bench.engine.redeliver(queue, Which::All, entry).await.unwrap().queued, 1);
    eventually("the redelivery", || bench.received("m") == [7]).await;
    bench.at_rest().await;
    bench.written().await;
    let delivery = bench.deliveries(ids[0]).remove(0);
    assert_eq!((delivery.state, delivery.attempts.len()), (DeliveryState::Delivered, 4));
}

#[tokio::test]
async fn an_event_whose_call_was_cut_off_by_a_broken_link_has_all_its_attempts_left() {
    let bench = Bench::new(FakeDoor::open());
    let (door, calls) = (Arc::downgrade(&bench.door), Arc::new(AtomicUsize::new(0)));
    let counted = calls.clone();
    bench.door.answer(move |_| match counted.fetch_add(1, Ordering::SeqCst) {
        0..5 => {
            door.upgrade().unwrap().set(false);
            Err("its space went away during the call".to_owned())
        }
        _ => error(1, "no"),
    });
    bench.register(&["m"]).await;
    let ids = bench.raise([1]).await;
    for n in 1..=5 {
        eventually("the call", || calls.load(Ordering::SeqCst) == n).await;
        bench.open();
    }
    eventually("the dead letter", || bench.engine.depth(bench.queue_of("m")).dead == 1).await;
    bench.written().await;
    let numbers: Vec<_> = bench.deliveries(ids[0])[0].attempts.iter().map(|attempt| attempt.number).collect();
    assert_eq!((numbers, calls.load(Ordering::SeqCst)), (vec![1, 2, 3], 8));
}

#[tokio::test]
async fn a_new_registration_keeps_the_queue_of_a_method_that_stays_and_drops_that_of_one_that_goes() {
    let bench = Bench::new(FakeDoor::closed());
    bench.register(&["stays", "goes"]).await;
    let ids = bench.raise(0..3).await;
    let (stays, goes) = (bench.queue_of("stays"), bench.queue_of("goes"));
    bench.register(&["stays"]).await;
    eventually("the other queue to go", || !bench.engine.sinks().contains(&goes)).await;
    assert_eq!(bench.engine.depth(stays).queued, 3);
    bench.raise([3]).await;

    // One that comes back starts anew, and history goes on saying that the old events are lost to it.
    bench.register(&["stays", "goes"]).await;
    bench.raise([4]).await;
    let states: Vec<_> = bench.deliveries(ids[0]).iter().map(|delivery| (delivery.sink_id, delivery.state)).collect();
    assert_eq!(states, [(stays, DeliveryState::Queued), (goes, DeliveryState::Discarded)]);
    bench.open();
    eventually("what waited", || bench.received("stays") == [0, 1, 2, 3, 4] && bench.received("goes") == [4]).await;
}

#[tokio::test]
async fn a_space_that_is_removed_takes_its_queues_along() {
    let bench = Bench::new(FakeDoor::closed());
    bench.register(&["m"]).await;
    let ids = bench.raise(0..3).await;
    bench.subscriptions.remove(bench.space).await.unwrap();
    assert_eq!(bench.emit(bench.ada, 3).await.matched, []);
    eventually("the queue to go", || bench.engine.sinks().is_empty()).await;
    assert_eq!(bench.deliveries(ids[0])[0].state, DeliveryState::Discarded);
    let bench = bench.restart(FakeDoor::open()).await;
    assert_eq!((bench.subscriptions.all(), bench.engine.sinks()), (vec![], vec![]));
}

#[tokio::test]
async fn outcomes_are_told_live_under_the_name_of_space_and_method() {
    let bench = Bench::new(FakeDoor::open());
    bench.register(&["m"]).await;
    let mut feed = bench.feed.watch();
    let ids = bench.raise([1]).await;
    let Ok(Live::Attempted(told)) = feed.recv().await else { panic!("an outcome") };
    assert_eq!((told.event_id, told.sink_id, &*told.name), (ids[0], bench.queue_of("m"), "notes/m"));
    assert_eq!((told.owner, told.state), (Owner::User(bench.ada), DeliveryState::Delivered));
}
