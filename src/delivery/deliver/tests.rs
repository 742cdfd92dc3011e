//! Delivery to methods, from the emit to the settlement, with a gateway whose presence and responses a test sets.

use super::{Deliverer, DelivererDeps, RunningAttempts, sync_routes};
use crate::{
    delivery::{
        SinkFailures,
        filters::EventFilters,
        sinks::{Sinks, test_support::SinkFixture},
        subscriptions::{
            Presence, Subscriptions,
            test_support::{FakeGateway, StoreDirectory, error, method},
        },
    },
    model::{
        event::{Actor, ActorKind, EventType},
        id::{EventId, SinkId, SpaceId, UserId},
        jsonrpc::RpcResponse,
        owner::Owner,
    },
    platform::{
        audit::{Audit, AuditEntry, AuditFilter},
        config::{self, Span},
        store::{Store, keys},
    },
    routing::{
        emit::{Emitter, NewEvent},
        feed::{Feed, FeedItem},
        matcher::Routes,
        queue::{
            DeadLetterFilter, Delivery, DeliveryState, Engine, Receipt,
            sled::{EngineHooks, QueueLimits, SledEngine},
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

/// The event's way, from the emitter to the gateway.
struct DeliveryFixture {
    directory: StoreDirectory,
    store: Store,
    engine: Arc<dyn Engine>,
    subscriptions: Subscriptions,
    emitter: Emitter,
    deliverer: Deliverer,
    gateway: Arc<FakeGateway>,
    feed: Feed,
    shutdown: CancellationToken,
    _sink_fixture: SinkFixture,
    ada: UserId,
    /// Ada's, named `notes`.
    space: SpaceId,
}

impl DeliveryFixture {
    fn new(gateway: Arc<FakeGateway>) -> Self {
        Self::on(StoreDirectory::new(), gateway, UserId::new(), SpaceId::new())
    }

    fn on(directory: StoreDirectory, gateway: Arc<FakeGateway>, ada: UserId, space: SpaceId) -> Self {
        Self::with_backoff(Duration::from_millis(1), directory, gateway, ada, space)
    }

    fn with_backoff(
        backoff: Duration,
        directory: StoreDirectory,
        gateway: Arc<FakeGateway>,
        ada: UserId,
        space: SpaceId,
    ) -> Self {
        let (store, sink_fixture, feed, shutdown) =
            (directory.store(), SinkFixture::new(), Feed::new(), CancellationToken::new());
        let backoff = vec![Span(backoff); 2];
        let settings = config::DeliveryConfig { backoff, ..config::DeliveryConfig::default() };
        let (ready, wakes) = mpsc::unbounded_channel();
        let hooks = EngineHooks { accepted: Box::new(|_| ()), dropped: Box::new(|_, _| ()), ready };
        let limits = QueueLimits { queue: settings.queue, dead_letters: settings.dead_letters, undelivered: u64::MAX };
        let engine = SledEngine::open(store.clone(), Arc::default(), limits, hooks).unwrap();
        let engine: Arc<dyn Engine> = Arc::new(engine);
        let subscriptions = Subscriptions::open(store.clone()).unwrap();
        let filters = EventFilters::new(sink_fixture.context.workers.clone(), Arc::default());
        let deps = DelivererDeps {
            engine: engine.clone(),
            running_attempts: RunningAttempts::open(store.directory(), |_, _| true).unwrap(),
            sinks: Sinks::open(store.clone(), usize::MAX, crate::platform::secret_keys::SecretKeys::for_tests())
                .unwrap(),
            subscriptions: subscriptions.clone(),
            filters: filters.clone(),
            methods: gateway.clone(),
            sink_context: sink_fixture.context.clone(),
            failures: SinkFailures::open(store.clone()).unwrap().0,
            feed: feed.clone(),
            metrics: Arc::default(),
        };
        let deliverer = Deliverer::new(&settings, deps, shutdown.clone());
        let routes = Arc::new(Routes::new());
        sync_routes(&routes, &deliverer);
        let emitter = Emitter::new("z", routes, Arc::new(filters), engine.clone(), 1 << 20);
        let running = deliverer.clone();
        tokio::spawn(async move { running.run(wakes).await });
        Self {
            directory,
            store,
            engine,
            subscriptions,
            emitter,
            deliverer,
            gateway,
            feed,
            shutdown,
            _sink_fixture: sink_fixture,
            ada,
            space,
        }
    }

    /// Ends the server and starts it again.
    async fn restart(self, gateway: Arc<FakeGateway>) -> Self {
        self.shutdown.cancel();
        self.deliverer.finished().await;
        self.store.close().await;
        // A copy: sinks and subscriptions keep their listeners, and so the store, until the process ends.
        Self::on(self.directory.copy(), gateway, self.ada, self.space)
    }

    /// Makes the space publish methods of these names that are called for every event.
    async fn register(&self, names: &[&str]) {
        let methods: Vec<_> = names.iter().map(|name| method(name, Some("*"), &[])).collect();
        self.subscriptions.replace(self.space, "notes", self.ada, &methods).await.unwrap();
        self.deliverer.resume_space(self.space);
    }

    fn queue_of(&self, name: &str) -> SinkId {
        let all = self.subscriptions.of_space(self.space);
        all.iter().find(|subscription| &*subscription.method == name).expect("it subscribes").id
    }

    async fn emit(&self, user: UserId, n: usize) -> Receipt {
        let new = NewEvent {
            id: None,
            raised_at: None,
            kind: EventType::custom("x").unwrap(),
            space_id: SpaceId::NIL,
            space: None,
            user_id: user,
            actor: Actor { id: uuid::Uuid::nil(), username: "ada".to_owned(), kind: ActorKind::User },
            payload: RawValue::from_string(format!("{{\"n\":{n}}}")).unwrap(),
        };
        self.emitter.emit(new).await.unwrap()
    }

    /// Emits Ada's events with these numbers.
    async fn emit_all(&self, numbers: impl IntoIterator<Item = usize>) -> Vec<EventId> {
        let mut ids = Vec::new();
        for n in numbers {
            ids.push(self.emit(self.ada, n).await.event.id);
        }
        ids
    }

    /// Reconnects the space's agent.
    fn connect(&self) {
        self.gateway.set(Presence::Ready);
        self.deliverer.resume_space(self.space);
    }

    /// Returns the numbers of the events that this method was called with, in order.
    fn received(&self, name: &str) -> Vec<u64> {
        let number = |params: &str| serde_json::from_str::<Value>(params).unwrap()["data"]["n"].as_u64().unwrap();
        let calls = self.gateway.calls();
        calls.iter().filter(|call| call.method == name).map(|call| number(&call.params)).collect()
    }

    fn deliveries(&self, event: EventId) -> Vec<Delivery> {
        self.engine.record(event).unwrap().unwrap().deliveries
    }

    /// Waits until every worker has looked at its queue after this moment and found nothing to do.
    async fn idle(&self) {
        for subscription in self.subscriptions.all() {
            self.deliverer.wake(subscription.id);
        }
        eventually("the workers to leave", || self.deliverer.0.sink_workers.lock().is_empty()).await;
    }

    /// Waits until every settlement so far is on disk.
    async fn written(&self) {
        self.store.write(|_| ()).await.unwrap();
    }

    /// Returns the audit log's entries with this action.
    async fn audited(&self, action: &str) -> Vec<AuditEntry> {
        self.written().await;
        let filter = AuditFilter { action: Some(action.to_owned()), ..AuditFilter::default() };
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
    let fixture = DeliveryFixture::new(FakeGateway::ready());
    fixture.register(&["m"]).await;
    let foreign = fixture.emit(UserId::new(), 1).await;
    assert_eq!(foreign.matched, []);
    let own = fixture.emit(fixture.ada, 2).await;
    let names: Vec<_> = own.matched.iter().map(|target| &*target.name).collect();
    assert_eq!((names, own.matched[0].sink), (vec!["notes/m"], fixture.queue_of("m")));
    eventually("the call", || fixture.received("m") == [2]).await;
    fixture.idle().await;
    assert_eq!(fixture.received("m"), [2]);
}

#[tokio::test]
async fn an_attempt_that_panics_counts_as_failed_and_holds_up_no_other_queue() {
    let fixture = DeliveryFixture::new(FakeGateway::ready());
    fixture.register(&["m", "other"]).await;
    fixture.gateway.respond(|call| {
        assert_ne!(call.method, "m", "a defect");
        error(1, "no")
    });
    fixture.emit_all([1]).await;
    for name in ["m", "other"] {
        let queue = fixture.queue_of(name);
        eventually("the event to be given up", || fixture.engine.depth(queue).queued == 0).await;
    }
    fixture.idle().await;
    fixture.written().await;
    let letters = fixture.engine.dead_letters(fixture.queue_of("m"), 0, 9).unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].attempts, &*letters[0].why), (3, "the server failed during this attempt: its log says why"));
}

#[tokio::test]
async fn events_wait_for_a_space_that_is_away_and_arrive_in_order_at_the_first_attempt() {
    let fixture = DeliveryFixture::new(FakeGateway::away());
    fixture.register(&["m"]).await;
    let ids = fixture.emit_all(0..5).await;
    fixture.idle().await;
    assert!(fixture.gateway.calls().is_empty());
    assert_eq!(fixture.engine.depth(fixture.queue_of("m")).queued, 5);
    assert!(fixture.deliveries(ids[0])[0].attempts.is_empty(), "waiting is no attempt");
    fixture.connect();
    eventually("all five", || fixture.received("m") == [0, 1, 2, 3, 4]).await;
    fixture.idle().await;
    fixture.written().await;
    for id in ids {
        let delivery = fixture.deliveries(id).remove(0);
        assert_eq!((delivery.state, delivery.attempts.len()), (DeliveryState::Delivered, 1));
    }
}

#[tokio::test]
async fn queued_events_survive_a_restart_even_if_the_space_comes_back_much_later() {
    let fixture = DeliveryFixture::new(FakeGateway::away());
    fixture.register(&["m"]).await;
    fixture.emit_all(0..3).await;
    let queue = fixture.queue_of("m");
    let fixture = fixture.restart(FakeGateway::away()).await;
    fixture.idle().await;
    assert_eq!((fixture.queue_of("m"), fixture.engine.depth(queue).queued), (queue, 3));
    assert_eq!(
        fixture.emit(fixture.ada, 3).await.matched.len(),
        1,
        "events are queued for it before its agent is back"
    );
    fixture.gateway.set(Presence::Ready);
    fixture.register(&["m"]).await;
    eventually("all of them", || fixture.received("m") == [0, 1, 2, 3]).await;
}

#[tokio::test]
async fn a_queue_holds_a_hundred_events_and_a_dropped_one_is_audited_by_name() {
    let fixture = DeliveryFixture::new(FakeGateway::away());
    fixture.register(&["m"]).await;
    fixture.emit_all(0..100).await;
    let receipt = fixture.emit(fixture.ada, 100).await;
    assert_eq!((receipt.matched.len(), receipt.dropped.len()), (1, 1));
    let entries = fixture.audited("event.drop").await;
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].object, format!("sink:{}", fixture.queue_of("m")));
    assert_eq!(entries[0].detail["sink"], "notes/m");
    fixture.connect();
    eventually("the hundred", || fixture.received("m").len() == 100).await;
    fixture.emit_all([101]).await;
    eventually("the next", || fixture.received("m").last() == Some(&101)).await;
    assert_eq!(fixture.received("m").len(), 101, "number 100 was dropped");
}

#[tokio::test]
async fn an_event_that_fails_three_times_is_a_dead_letter_and_can_be_sent_again() {
    let fixture = DeliveryFixture::new(FakeGateway::ready());
    fixture.gateway.respond(|_| error(-32050, "no"));
    fixture.register(&["m"]).await;
    let ids = fixture.emit_all([7]).await;
    let queue = fixture.queue_of("m");
    eventually("the dead letter", || fixture.engine.depth(queue).dead == 1).await;
    assert_eq!(fixture.received("m"), [7, 7, 7]);
    fixture.written().await;
    let letter = fixture.engine.dead_letters(queue, 0, 9).unwrap().remove(0);
    assert_eq!((letter.event_id, letter.attempts, letter.why.as_str()), (ids[0], 3, "no (-32050)"));
    assert_eq!(fixture.audited("event.give_up").await.len(), 1);

    let fixture = fixture.restart(FakeGateway::ready()).await;
    let entry = AuditEntry::new(None, "sink.redeliver", "x");
    assert_eq!(fixture.engine.redeliver(queue, DeadLetterFilter::All, entry).await.unwrap().queued, 1);
    eventually("the redelivery", || fixture.received("m") == [7]).await;
    fixture.idle().await;
    fixture.written().await;
    let delivery = fixture.deliveries(ids[0]).remove(0);
    assert_eq!((delivery.state, delivery.attempts.len()), (DeliveryState::Delivered, 4));
}

#[tokio::test]
async fn a_failed_event_keeps_its_backoff_when_its_space_registers_or_restarts() {
    let hour = Duration::from_secs(3600);
    let gateway = FakeGateway::ready();
    let ok = RpcResponse::Result(RawValue::from_string("true".to_owned()).unwrap());
    gateway.respond(move |call| if call.method == "fails" { error(-32050, "no") } else { Ok(ok.clone()) });
    let fixture = DeliveryFixture::with_backoff(hour, StoreDirectory::new(), gateway, UserId::new(), SpaceId::new());
    fixture.register(&["fails", "works"]).await;
    fixture.emit_all([7]).await;
    let queue = fixture.queue_of("fails");
    eventually("the first failure", || fixture.engine.queue_head(queue).is_some_and(|head| head.failures == 1)).await;
    for n in 8..11 {
        fixture.register(&["fails", "works"]).await;
        fixture.connect();
        // An event that comes later is delivered, so that the failed one has had its chance.
        fixture.emit_all([n]).await;
        eventually("the later event", || fixture.received("works").last() == Some(&(n as u64))).await;
    }
    assert_eq!(fixture.received("fails"), [7]);
    let head = fixture.engine.queue_head(queue).unwrap();
    assert!(head.failures == 1 && head.wait > hour / 2, "{head:?}");
}

#[tokio::test]
async fn a_call_cut_off_by_a_broken_connection_uses_up_no_attempt() {
    let fixture = DeliveryFixture::new(FakeGateway::ready());
    let (gateway, calls) = (Arc::downgrade(&fixture.gateway), Arc::new(AtomicUsize::new(0)));
    let counted = calls.clone();
    fixture.gateway.respond(move |_| match counted.fetch_add(1, Ordering::SeqCst) {
        0..5 => {
            gateway.upgrade().unwrap().set(Presence::Away);
            Err("its space went away during the call".to_owned())
        }
        _ => error(1, "no"),
    });
    fixture.register(&["m"]).await;
    let ids = fixture.emit_all([1]).await;
    for n in 1..=5 {
        eventually("the call", || calls.load(Ordering::SeqCst) == n).await;
        fixture.connect();
    }
    eventually("the dead letter", || fixture.engine.depth(fixture.queue_of("m")).dead == 1).await;
    fixture.written().await;
    let numbers: Vec<_> = fixture.deliveries(ids[0])[0].attempts.iter().map(|attempt| attempt.number).collect();
    assert_eq!((numbers, calls.load(Ordering::SeqCst)), (vec![1, 2, 3], 8));
}

#[tokio::test]
async fn a_new_registration_keeps_the_queue_of_a_method_that_stays_and_drops_that_of_one_that_goes() {
    let fixture = DeliveryFixture::new(FakeGateway::away());
    fixture.register(&["stays", "goes"]).await;
    let ids = fixture.emit_all(0..3).await;
    let (stays, goes) = (fixture.queue_of("stays"), fixture.queue_of("goes"));
    fixture.register(&["stays"]).await;
    eventually("the other queue to go", || !fixture.engine.sinks().contains(&goes)).await;
    assert_eq!(fixture.engine.depth(stays).queued, 3);
    fixture.emit_all([3]).await;

    // A method that comes back gets a new queue, and history still shows that the old events are lost to it.
    fixture.register(&["stays", "goes"]).await;
    fixture.emit_all([4]).await;
    let states: Vec<_> = fixture.deliveries(ids[0]).iter().map(|delivery| (delivery.sink_id, delivery.state)).collect();
    assert_eq!(states, [(stays, DeliveryState::Queued), (goes, DeliveryState::Discarded)]);
    fixture.connect();
    eventually("what waited", || fixture.received("stays") == [0, 1, 2, 3, 4] && fixture.received("goes") == [4]).await;
}

#[tokio::test]
async fn removing_a_space_deletes_its_queues() {
    let fixture = DeliveryFixture::new(FakeGateway::away());
    fixture.register(&["m"]).await;
    let ids = fixture.emit_all(0..3).await;
    fixture.subscriptions.remove(fixture.space).await.unwrap();
    assert_eq!(fixture.emit(fixture.ada, 3).await.matched, []);
    eventually("the queue to go", || fixture.engine.sinks().is_empty()).await;
    assert_eq!(fixture.deliveries(ids[0])[0].state, DeliveryState::Discarded);
    let fixture = fixture.restart(FakeGateway::ready()).await;
    assert_eq!((fixture.subscriptions.all(), fixture.engine.sinks()), (vec![], vec![]));
}

#[tokio::test]
async fn the_feed_shows_outcomes_under_the_name_of_space_and_method() {
    let fixture = DeliveryFixture::new(FakeGateway::ready());
    fixture.register(&["m"]).await;
    let mut feed = fixture.feed.subscribe();
    let ids = fixture.emit_all([1]).await;
    let Ok(FeedItem::Delivery(update)) = feed.recv().await else { panic!("a delivery") };
    assert_eq!((update.event_id, update.sink_id, &*update.name), (ids[0], fixture.queue_of("m"), "notes/m"));
    assert_eq!((update.owner, update.state), (Owner::User(fixture.ada), DeliveryState::Delivered));
}

#[tokio::test]
async fn a_damaged_event_becomes_a_dead_letter_and_the_events_behind_it_are_delivered() {
    let fixture = DeliveryFixture::new(FakeGateway::away());
    fixture.register(&["m"]).await;
    let ids = fixture.emit_all(0..3).await;
    let accepted_at = fixture.engine.record(ids[0]).unwrap().unwrap().accepted_at;
    let key = keys::key(keys::EVENT, &[&accepted_at.micros().to_be_bytes(), ids[0].as_bytes()]);
    fixture.store.write(move |batch| batch.put(key, b"garbage")).await.unwrap();
    // So that the event is read.
    let fixture = fixture.restart(FakeGateway::away()).await;
    fixture.connect();
    eventually("the events behind the damaged one", || fixture.received("m") == [1, 2]).await;
    fixture.written().await;
    let letter = fixture.engine.dead_letters(fixture.queue_of("m"), 0, 9).unwrap().remove(0);
    assert_eq!(letter.event_id, ids[0]);
    assert!(letter.why.contains("damaged"), "{}", letter.why);
}
