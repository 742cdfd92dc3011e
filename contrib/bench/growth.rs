//! Size of the database after many events with a small history, through the store and the queue engine without HTTP.
//!
//! Every event is emitted, delivered and acknowledged, and history is pruned as the server does it. The emitters let
//! the server choose the ids, then choose random ones. The baseline is a store whose rows are keyed by random ids, as a
//! plain layout would have them, under the same load.
//!
//! Run with `cargo bench --bench growth`; `GROWTH_EVENTS=50000` makes it short. Exits 1 if a requirement is missed.

mod support;

use std::{
    collections::VecDeque,
    path::Path,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use support::{requirement, temp_dir};
use svc::{
    model::{
        event::Event,
        id::{EventId, SinkId, UserId},
        owner::Owner,
        timestamp::Timestamp,
    },
    platform::{
        metrics::Metrics,
        store::{Store, keys},
    },
    routing::queue::{
        AcceptOptions, Attempt, AttemptOutcome, Engine, Retention, RouteTarget, SettledAttempt, Settlement,
        sled::{EngineHooks, QueueLimits, SledEngine},
    },
};
use tokio::sync::mpsc;

const EVENTS: usize = 1_000_000;
const HISTORY: u64 = 8 << 20;
const EMITTERS: usize = 64;

/// Undelivered events above which the emitters wait.
const BACKLOG: usize = 100;

/// The interval of the server's sweep.
const SWEEP: Duration = Duration::from_secs(60);

#[derive(Clone, Copy)]
enum IdChoice {
    /// The server gives ids that ascend in time.
    Server,
    /// The emitter gives random ids.
    Emitter,
}

/// The size of a store after its load.
struct StoreSize {
    /// Keys and values of all rows.
    live: u64,
    disk: u64,
}

fn main() -> ExitCode {
    let events =
        std::env::var("GROWTH_EVENTS").map_or(EVENTS, |count| count.parse().expect("GROWTH_EVENTS is a number"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime starts");
    println!("{events} events, {} MiB of history", HISTORY >> 20);
    let own = runtime.block_on(engine(events, IdChoice::Server));
    own.report("ids of the server");
    let random = runtime.block_on(engine(events, IdChoice::Emitter));
    random.report("random ids of the emitters");
    let plain = runtime.block_on(rows_by_random_id(events));
    plain.report("rows keyed by random ids, without an index");
    let met = [
        requirement("disk over live data, ids of the server", own.ratio(), "x", own.ratio() <= 3.0, "at most 3"),
        requirement("disk over live data, random ids", random.ratio(), "x", random.ratio() <= 3.0, "at most 3"),
    ];
    if met.iter().all(|met| *met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Emits, delivers and prunes through the queue engine.
async fn engine(events: usize, ids: IdChoice) -> StoreSize {
    let directory = temp_dir();
    let metrics = Arc::<Metrics>::default();
    let store = Store::open(directory.path(), 0, metrics.clone()).expect("a fresh directory opens");
    let (ready, wakes) = mpsc::unbounded_channel();
    let hooks = EngineHooks { accepted: Box::new(|_| ()), dropped: Box::new(|_, _| ()), ready };
    let limits = QueueLimits { queue: usize::MAX, dead_letters: 1, undelivered: u64::MAX };
    let engine = SledEngine::open(store.clone(), metrics, limits, hooks).expect("a fresh store opens");
    let target = RouteTarget { sink: SinkId::new(), name: "s".into() };
    engine.open_queue(&target, Owner::User(UserId::new()));
    let longest_history = Arc::new(AtomicU64::new(0));
    let sweeping = tokio::spawn(sweep(engine.clone()));
    let delivering = tokio::spawn(deliver(engine.clone(), wakes, events));
    let (emitted, user, started) = (Arc::new(AtomicUsize::new(0)), UserId::new(), Instant::now());
    let emitters: Vec<_> = (0..EMITTERS)
        .map(|_| {
            let (engine, target, emitted) = (engine.clone(), target.clone(), emitted.clone());
            let longest_history = longest_history.clone();
            tokio::spawn(async move {
                while emitted.fetch_add(1, Relaxed) < events {
                    engine
                        .accept(event(user, ids), vec![target.clone()], AcceptOptions::default())
                        .await
                        .expect("the engine accepts the event");
                    longest_history.fetch_max(engine.history_bytes(), Relaxed);
                    while engine.depth(target.sink).queued > BACKLOG {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
            })
        })
        .collect();
    for emitter in emitters {
        emitter.await.expect("no emitter panics");
    }
    delivering.await.expect("the delivery does not panic");
    sweeping.abort();
    engine.prune(retention()).await.expect("history can be pruned");
    let longest_history = longest_history.load(Relaxed) as f64 / f64::from(1 << 20);
    let rate = events as f64 / started.elapsed().as_secs_f64();
    println!("{rate:.0} events/s, at most {longest_history:.1} MiB of history");
    StoreSize::measure(store, directory.path()).await
}

/// Prunes history periodically, as the server does it.
async fn sweep(engine: SledEngine) {
    let mut interval = tokio::time::interval(SWEEP);
    loop {
        interval.tick().await;
        engine.prune(retention()).await.expect("history can be pruned");
    }
}

fn retention() -> Retention {
    Retention { keep: Duration::from_secs(7 * 86_400), bytes: HISTORY, dead_letter_bytes: HISTORY }
}

/// Acknowledges every event in order, until all are delivered.
async fn deliver(engine: SledEngine, mut wakes: mpsc::UnboundedReceiver<SinkId>, events: usize) {
    let mut delivered = 0;
    while delivered < events {
        let sink = wakes.recv().await.expect("the engine lives");
        while let Some(pending) = engine.next_delivery(sink).await.expect("the queue can be read") {
            let attempt = Attempt {
                number: 1,
                at: Timestamp::now(),
                duration_ms: 12.5,
                outcome: AttemptOutcome::Delivered,
                status: Some(200),
                error: None,
                response: Some("ok".to_owned()),
                log: Vec::new(),
            };
            engine.settle(pending, SettledAttempt { attempt, settlement: Settlement::Complete }).await;
            delivered += 1;
        }
    }
}

/// Writes and deletes rows of the same sizes under keys that start with a random id.
async fn rows_by_random_id(events: usize) -> StoreSize {
    let directory = temp_dir();
    let store = Store::open(directory.path(), 0, Arc::default()).expect("a fresh directory opens");
    let sink = SinkId::new();
    let encoded = serde_json::to_vec(&*event(UserId::new(), IdChoice::Emitter)).expect("an event is plain data");
    let (row, delivery) = (vec![b'x'; encoded.len() + 128], vec![b'x'; 180]);
    let kept = HISTORY as usize / (row.len() + delivery.len());
    let mut history = VecDeque::with_capacity(kept);
    for sequence in 0..events as u64 {
        let id = *uuid::Uuid::new_v4().as_bytes();
        history.push_back((sequence, id));
        let oldest = if history.len() > kept { history.pop_front() } else { None };
        let (row, delivery) = (row.clone(), delivery.clone());
        store.write_soon(move |batch| {
            batch.put(keys::key(keys::EVENT, &[&id]), row);
            batch.put(keys::key(b'T', &[&sequence.to_be_bytes(), &id]), b"");
            batch.put(keys::key(keys::QUEUE, &[sink.as_bytes(), &sequence.to_be_bytes()]), id);
        });
        store.write_soon(move |batch| {
            batch.put(keys::key(keys::DELIVERY, &[&id, sink.as_bytes()]), delivery);
            batch.delete(keys::key(keys::QUEUE, &[sink.as_bytes(), &sequence.to_be_bytes()]));
            if let Some((sequence, id)) = oldest {
                batch.delete(keys::key(keys::EVENT, &[&id]));
                batch.delete(keys::key(b'T', &[&sequence.to_be_bytes(), &id]));
                batch.delete(keys::key(keys::DELIVERY, &[&id, sink.as_bytes()]));
            }
        });
        if sequence % EMITTERS as u64 == 0 {
            store.write(|_| ()).await.expect("the store takes the write");
        }
    }
    StoreSize::measure(store, directory.path()).await
}

fn event(user: UserId, ids: IdChoice) -> Arc<Event> {
    let id = match ids {
        IdChoice::Server => EventId::new(),
        IdChoice::Emitter => EventId::from_slice(uuid::Uuid::new_v4().as_bytes()).expect("a UUID has sixteen bytes"),
    };
    support::event(id, user)
}

impl StoreSize {
    /// Closes the store and measures it.
    async fn measure(store: Store, directory: &Path) -> Self {
        let mut live = 0;
        for row in store.range(vec![0]..vec![u8::MAX]) {
            let (key, value) = row.expect("the store can be read");
            live += (key.len() + value.len()) as u64;
        }
        store.close().await;
        drop(store);
        Self { live, disk: size_of_directory(&directory.join("sled")) }
    }

    fn ratio(&self) -> f64 {
        self.disk as f64 / self.live as f64
    }

    fn report(&self, load: &str) {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        println!("{load}: {:.1} MiB live, {:.1} MiB on disk, {:.2}x", mib(self.live), mib(self.disk), self.ratio());
    }
}

fn size_of_directory(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).expect("the directory can be read");
    entries
        .map(|entry| {
            let entry = entry.expect("the directory can be read");
            let metadata = entry.metadata().expect("the file is there");
            if metadata.is_dir() { size_of_directory(&entry.path()) } else { metadata.len() }
        })
        .sum()
}
