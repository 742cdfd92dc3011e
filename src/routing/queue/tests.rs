//! The engine against a plain model: random pushes, settlements, redeliveries and crashes.
//!
//! A crash is a copy of the data directory taken while the engine runs, opened by a second engine: what
//! the copy holds is what a killed process would have left. Settlements may be lost by it, accepted
//! events and sequence numbers may not, so the recovered queues must equal one of the states the model
//! went through since the last write that somebody waited for.

use super::{sled::*, *};
use crate::{
    model::{
        event::{Actor, ActorKind, EventType},
        id::{SpaceId, UserId},
    },
    platform::{audit::Entry, metrics::Metrics, store::Store},
};
use proptest::{collection::vec, prelude::*};
use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
};
use tokio::sync::mpsc;

const SINKS: usize = 3;
const CAPACITY: usize = 4;
const LETTERS: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    /// Accept an event for the sinks whose bit is set.
    Push(u8),
    /// Accept again the id that was accepted last.
    Repeat,
    Settle(usize, Ending),
    Redeliver(usize),
    Discard(usize),
    Crash,
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    Done,
    Retry,
    Dead,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    sinks: [ModelSink; SINKS],
}

#[derive(Clone, Debug, Default, PartialEq)]
struct ModelSink {
    waiting: VecDeque<(u64, EventId, u32)>,
    dead: Vec<(u64, EventId)>,
    last_sequence: u64,
}

struct Bench {
    root: PathBuf,
    generation: usize,
    store: Store,
    engine: SledEngine,
    sinks: [SinkId; SINKS],
    wakes: mpsc::UnboundedReceiver<SinkId>,
}

impl Bench {
    async fn new() -> Self {
        let root = std::env::temp_dir().join(format!("svc-queue-{}", uuid::Uuid::now_v7()));
        let (store, engine, wakes) = open(&root.join("0"));
        let sinks = std::array::from_fn(|_| SinkId::new());
        for sink in sinks {
            engine.open(sink);
        }
        Self { root, generation: 0, store, engine, sinks, wakes }
    }

    async fn push(&self, id: Option<EventId>, mask: u8) -> Receipt {
        let targets = (0..SINKS)
            .filter(|n| mask & 1 << n != 0)
            .map(|n| Target { sink: self.sinks[n], name: format!("s{n}").into() })
            .collect();
        self.engine.accept(event(id), targets).await.unwrap()
    }

    async fn settle(&self, n: usize, ending: Ending) {
        let Some(claim) = self.engine.head(self.sinks[n]).await.unwrap() else { return };
        let (outcome, settlement) = match ending {
            Ending::Done => (AttemptOutcome::Delivered, Settlement::Done),
            Ending::Retry => (AttemptOutcome::Failed, Settlement::Retry(Timestamp::now())),
            Ending::Dead => (AttemptOutcome::Failed, Settlement::Dead("no".to_owned())),
        };
        let attempt = attempt(claim.failures + 1, outcome);
        self.engine.settle(&claim, attempt, settlement).await;
    }

    fn state(&self) -> Model {
        Model {
            sinks: self.sinks.map(|sink| ModelSink {
                waiting: self.engine.waiting(sink).into(),
                dead: self
                    .engine
                    .dead_letters(sink, 0, 100)
                    .unwrap()
                    .iter()
                    .map(|letter| (letter.sequence, letter.event_id))
                    .collect(),
                last_sequence: self.engine.depth(sink).last_sequence,
            }),
        }
    }

    /// Goes on with what a killed process would have left on disk.
    async fn crash(&mut self) {
        self.generation += 1;
        let copy = self.root.join(self.generation.to_string());
        copy_directory(self.store.directory(), &copy);
        self.store.close().await;
        (self.store, self.engine, self.wakes) = open(&copy);
        // As every start does for the sinks it knows.
        self.sinks.iter().for_each(|sink| self.engine.open(*sink));
    }

    async fn end(self) {
        self.store.close().await;
        std::fs::remove_dir_all(&self.root).unwrap();
    }
}

fn open(directory: &Path) -> (Store, SledEngine, mpsc::UnboundedReceiver<SinkId>) {
    let metrics = Arc::<Metrics>::default();
    let store = Store::open(directory, 0, metrics.clone()).unwrap();
    let (ready, wakes) = mpsc::unbounded_channel();
    let signals = Signals { accepted: Box::new(|_| ()), ready };
    let bounds = Bounds { queue: CAPACITY, dead_letters: LETTERS };
    let engine = SledEngine::open(store.clone(), metrics, bounds, signals).unwrap();
    (store, engine, wakes)
}

fn event(id: Option<EventId>) -> Arc<Event> {
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

fn attempt(number: u32, outcome: AttemptOutcome) -> Attempt {
    let at = Timestamp::now();
    Attempt { number, at, duration_ms: 1.0, outcome, status: None, error: None, response: None, log: Vec::new() }
}

fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        // It may be copied after the database it speaks of went on, which a crash cannot do.
        if entry.file_name() == "mark" {
            continue;
        }
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_directory(&entry.path(), &target);
        } else if let Err(error) = std::fs::copy(entry.path(), target) {
            // sled replaces its snapshot files while it runs.
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
        }
    }
}

impl Model {
    fn push(&mut self, id: EventId, mask: u8) -> Vec<usize> {
        let mut dropped = Vec::new();
        for (n, sink) in self.sinks.iter_mut().enumerate().filter(|(n, _)| mask & 1 << n != 0) {
            sink.last_sequence += 1;
            if sink.waiting.len() < CAPACITY {
                sink.waiting.push_back((sink.last_sequence, id, 0));
            } else {
                dropped.push(n);
            }
        }
        dropped
    }

    fn settle(&mut self, n: usize, ending: Ending) {
        let sink = &mut self.sinks[n];
        match ending {
            Ending::Retry => {
                if let Some(head) = sink.waiting.front_mut() {
                    head.2 += 1;
                }
            }
            Ending::Done => drop(sink.waiting.pop_front()),
            Ending::Dead => {
                if let Some((sequence, id, _)) = sink.waiting.pop_front() {
                    sink.dead.push((sequence, id));
                    let surplus = sink.dead.len().saturating_sub(LETTERS);
                    sink.dead.drain(..surplus);
                }
            }
        }
    }

    fn redeliver(&mut self, n: usize) {
        let sink = &mut self.sinks[n];
        while sink.waiting.len() < CAPACITY && !sink.dead.is_empty() {
            let (_, id) = sink.dead.remove(0);
            sink.last_sequence += 1;
            sink.waiting.push_back((sink.last_sequence, id, 0));
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let ending = prop_oneof![3 => Just(Ending::Done), 1 => Just(Ending::Retry), 1 => Just(Ending::Dead)];
    prop_oneof![
        8 => (1_u8..8).prop_map(Step::Push),
        1 => Just(Step::Repeat),
        6 => (0..SINKS, ending).prop_map(|(n, ending)| Step::Settle(n, ending)),
        2 => (0..SINKS).prop_map(Step::Redeliver),
        1 => (0..SINKS).prop_map(Step::Discard),
        1 => Just(Step::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn the_queues_agree_with_a_plain_model_through_crashes(steps in vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(agree(steps))?;
    }
}

async fn agree(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut bench = Bench::new().await;
    let mut model = Model::default();
    // What a crash now may recover: the model after the last awaited write and after each settlement since.
    let mut possible = vec![model.clone()];
    let mut last = None;
    for step in steps {
        match step {
            Step::Push(mask) => {
                let receipt = bench.push(None, mask).await;
                last = Some((receipt.event.id, mask));
                let dropped = model.push(receipt.event.id, mask);
                prop_assert_eq!(receipt.matched.len(), mask.count_ones() as usize);
                let names: Vec<_> = dropped.iter().map(|n| format!("s{n}")).collect();
                let told: Vec<_> = receipt.dropped.iter().map(|target| target.name.to_string()).collect();
                prop_assert_eq!(told, names);
                possible = vec![model.clone()];
            }
            Step::Repeat => {
                let Some((id, mask)) = last else { continue };
                let receipt = bench.push(Some(id), 7).await;
                prop_assert_eq!(receipt.freshness, Freshness::Repeated);
                prop_assert_eq!(receipt.matched.len(), mask.count_ones() as usize);
                possible = vec![model.clone()];
            }
            Step::Settle(n, ending) => {
                bench.settle(n, ending).await;
                model.settle(n, ending);
                possible.push(model.clone());
            }
            Step::Redeliver(n) => {
                let entry = Entry::new(None, "sink.redeliver", n);
                bench.engine.redeliver(bench.sinks[n], Which::All, entry).await.unwrap();
                model.redeliver(n);
                possible = vec![model.clone()];
            }
            Step::Discard(n) => {
                let waiting = bench.engine.discard(bench.sinks[n]).await.unwrap();
                prop_assert_eq!(waiting, model.sinks[n].waiting.len());
                bench.engine.open(bench.sinks[n]);
                model.sinks[n] = ModelSink::default();
                possible = vec![model.clone()];
            }
            Step::Crash => {
                bench.crash().await;
                let recovered = bench.state();
                prop_assert!(possible.contains(&recovered), "{recovered:?} is none of {possible:?}");
                model = recovered;
                possible = vec![model.clone()];
            }
        }
    }
    bench.store.write(|_| ()).await.unwrap();
    prop_assert_eq!(bench.state(), model);
    bench.end().await;
    Ok(())
}

#[tokio::test]
async fn an_id_that_another_users_event_has_is_refused() {
    let bench = Bench::new().await;
    let first = bench.push(None, 1).await.event.id;
    let mut other = Event::clone(&*event(Some(first)));
    other.user_id = UserId::new();
    let refused = bench.engine.accept(Arc::new(other), Vec::new()).await;
    assert!(matches!(refused, Err(AcceptError::IdTaken(id)) if id == first));
    bench.end().await;
}

#[tokio::test]
async fn a_sink_is_woken_when_its_queue_stops_being_empty_and_after_a_restart() {
    let mut bench = Bench::new().await;
    bench.push(None, 1).await;
    bench.push(None, 1).await;
    assert_eq!(bench.wakes.try_recv().ok(), Some(bench.sinks[0]));
    assert!(bench.wakes.try_recv().is_err(), "a sink with a worker needs no second call");
    bench.crash().await;
    assert_eq!(bench.wakes.try_recv().ok(), Some(bench.sinks[0]));
    bench.end().await;
}

#[tokio::test]
async fn history_tells_each_delivery_and_forgets_only_what_is_settled() {
    let bench = Bench::new().await;
    let settled = bench.push(None, 0b001).await.event.id;
    bench.settle(0, Ending::Retry).await;
    bench.settle(0, Ending::Done).await;
    let waiting = bench.push(None, 0b010).await.event.id;
    let dead = bench.push(None, 0b100).await.event.id;
    bench.settle(2, Ending::Dead).await;
    bench.store.write(|_| ()).await.unwrap();

    let delivery = |id| bench.engine.record(id).unwrap().unwrap().deliveries.remove(0);
    assert_eq!(delivery(settled).state, DeliveryState::Delivered);
    assert_eq!(delivery(settled).attempts.iter().map(|a| a.number).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(delivery(waiting).state, DeliveryState::Queued);
    assert_eq!(delivery(dead).state, DeliveryState::Dead);

    let nothing = Retention { keep: Duration::ZERO, bytes: 0 };
    assert_eq!(bench.engine.prune(nothing).await.unwrap(), 1);
    assert!(bench.engine.record(settled).unwrap().is_none());
    assert!(bench.engine.record(waiting).unwrap().is_some());
    assert!(bench.engine.record(dead).unwrap().is_some());
    bench.end().await;
}

#[tokio::test]
async fn history_pages_backwards_in_time_and_filters() {
    let bench = Bench::new().await;
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(bench.push(None, if n == 2 { 0b01 } else { 0b10 }).await.event.id);
    }
    ids.reverse();
    let page = |query: Query| {
        let page = bench.engine.history(&query).unwrap();
        (page.records.iter().map(|record| record.event.id).collect::<Vec<_>>(), page.next)
    };
    let (first, next) = page(Query { limit: 3, ..Query::default() });
    assert_eq!(first, ids[..3]);
    let next = next.unwrap().to_string().parse().unwrap();
    assert_eq!(page(Query { limit: 3, after: Some(next), ..Query::default() }), (ids[3..].to_vec(), None));
    let query = Query { limit: 9, sink: Some(bench.sinks[0]), ..Query::default() };
    assert_eq!(page(query), (vec![ids[2]], None));
    let query = Query { limit: 9, user: Some(UserId::new()), ..Query::default() };
    assert_eq!(page(query), (vec![], None));
    bench.end().await;
}

#[tokio::test]
async fn the_oldest_dead_letters_go_first_when_there_are_too_many() {
    let bench = Bench::new().await;
    for _ in 0..LETTERS + 2 {
        bench.push(None, 1).await;
    }
    // All in one group, so that none is on disk when the next makes it too many.
    for _ in 0..CAPACITY {
        bench.settle(0, Ending::Dead).await;
    }
    bench.store.write(|_| ()).await.unwrap();
    let letters = bench.engine.dead_letters(bench.sinks[0], 0, 9).unwrap();
    assert_eq!(letters.iter().map(|letter| letter.sequence).collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(bench.engine.depth(bench.sinks[0]).dead, LETTERS);
    bench.end().await;
}

#[tokio::test]
async fn an_id_used_again_with_another_payload_is_refused() {
    let bench = Bench::new().await;
    let first = bench.push(None, 1).await.event.id;
    let mut other = Event::clone(&*event(Some(first)));
    other.data = serde_json::value::RawValue::from_string("{\"n\":1}".into()).unwrap();
    let refused = bench.engine.accept(Arc::new(other), Vec::new()).await;
    assert!(matches!(refused, Err(AcceptError::IdTaken(id)) if id == first));
    bench.end().await;
}
