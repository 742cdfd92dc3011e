//! The contract of a queue engine, with the types that its callers exchange with it.

use super::{
    DeadLetter, HistoryFilter, HistoryPage, NewReplay, PendingDelivery, Record, ReplayError, ReplayStep, RunningReplay,
    SettledAttempt,
};
use crate::{
    model::{
        event::Event,
        id::{EventId, SinkId},
        owner::Owner,
        replay::{ReplayChange, ReplayJob},
        sequence::{SequenceNumber, SequenceRange},
        timestamp::Timestamp,
        units::Size,
    },
    platform::{
        audit::AuditEntry,
        store::{StoreError, StoreRoom},
    },
};
use async_trait::async_trait;
use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::OwnedSemaphorePermit;

/// A sink that an event is routed to. The name is stored with the event, for when the sink is deleted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteTarget {
    pub sink: SinkId,
    pub name: Arc<str>,
}

/// Proof that an event is on disk, with the sinks it was routed to.
#[derive(Clone, Debug)]
pub struct Receipt {
    pub event: Arc<Event>,
    pub matched: Vec<RouteTarget>,
    /// The matched sinks whose queue was full.
    pub dropped: Vec<RouteTarget>,
    pub acceptance: Acceptance,
}

/// Tells a new event from a repeated emit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acceptance {
    New,
    /// The id was stored before; the receipt is the one of the first emit.
    Repeated,
}

/// The reason that an event was not accepted. Nothing is queued then.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the id {0} belongs to another event: use a new one")]
    IdTaken(EventId),
    #[error(
        "the undelivered events of this user are over {limit} (`limits.undelivered`): wait until the user's own sinks have delivered them, or delete \
         the sinks that fail"
    )]
    UndeliveredFull { limit: Size },
}

/// The fill of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueDepth {
    pub queued: usize,
    /// Those of them that are not replayed. The queue is full when they fill it.
    pub live: usize,
    /// The sequence number of the last event routed to the sink, dropped events included.
    pub last_sequence: u64,
    pub dead: usize,
    /// The time at which the oldest undelivered event was accepted.
    pub oldest: Option<Timestamp>,
}

/// The state of the event at the head of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueHead {
    /// The time left until the next attempt, by a clock that is never set.
    pub wait: Duration,
    pub sequence: u64,
    /// Attempts that have failed since the event was queued.
    pub failures: u32,
    /// The event before this one is a dead letter.
    pub follows_dead_letter: bool,
}

/// Emits of one sender, which hands them over in order without waiting for each. Once one of them is refused for want
/// of room, those behind it are refused too, so that none overtakes it.
#[derive(Clone, Debug, Default)]
pub struct OrderedEmits(Arc<AtomicBool>);

impl OrderedEmits {
    pub fn is_refusing(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub fn refuse_rest(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns true if both are the emits of one order.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// What goes to the engine with an event.
#[derive(Debug, Default)]
pub struct AcceptOptions {
    /// The emits of its sender, if it hands over several in order.
    pub order: Option<OrderedEmits>,
    /// The permit for the memory that the event takes on its way. The engine drops it when the event is on disk or
    /// refused, whether or not anybody waits for the receipt.
    pub memory: Option<OwnedSemaphorePermit>,
}

/// Selects dead letters to deliver again.
#[derive(Clone, Debug)]
pub enum DeadLetterFilter {
    All,
    Events(HashSet<EventId>),
}

/// The result of a redelivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redelivered {
    pub queued: usize,
    /// Dead letters that the sink still has: not selected, without room in the queue, or damaged.
    pub remaining: usize,
    /// Selected dead letters that cannot be delivered again, because the letter or its event is damaged.
    pub damaged: usize,
}

/// The minutes of losses to sum up in the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BurstEnd {
    /// Those that are over.
    Over,
    All,
}

/// The bounds of history.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    pub keep: Duration,
    pub bytes: u64,
    /// The size of history beyond which dead letters are deleted too.
    pub dead_letter_bytes: u64,
}

impl Retention {
    /// History below this size is kept also on a full disk. It is not what fills the disk.
    const SMALL: u64 = 1 << 20;

    /// The retention of a history of `bytes` while the disk is short of room: a quarter of it is deleted at a time.
    /// `None` if there would not be enough room without all of it.
    #[must_use]
    pub fn short_of_room(self, bytes: u64, room: StoreRoom) -> Option<Self> {
        room.is_enough_without(bytes.saturating_sub(Self::SMALL))
            .then(|| Self { bytes: self.bytes.min((bytes / 4 * 3).max(Self::SMALL)), ..self })
    }
}

/// Bounded durable queues, and the history of the events that went through them.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// Makes sure that the sink has a queue, under its present name and owner. Nothing is written before its first
    /// event.
    ///
    /// Events that wait for a global sink count towards nobody's limit: whoever emits them cannot make it faster.
    fn open_queue(&self, target: &RouteTarget, owner: Owner);

    /// Writes the audit entries that sum up the events which sinks lost within a minute after the first.
    async fn end_bursts(&self, end: BurstEnd) -> Result<(), StoreError>;

    /// Deletes the sink's queue and dead letters, and returns the number of events that were queued.
    async fn discard_queue(&self, sink: SinkId) -> Result<usize, StoreError>;

    /// Stores the event and queues it for each target, all or nothing.
    ///
    /// Its place among other events is decided when the future is first polled. In ordered emits, the event is refused
    /// as [`AcceptError::UndeliveredFull`] if one before it was.
    async fn accept(
        &self,
        event: Arc<Event>,
        targets: Vec<RouteTarget>,
        options: AcceptOptions,
    ) -> Result<Receipt, AcceptError>;

    /// Returns the state of the head of the sink's queue, without its event; `None` if the queue is empty.
    fn queue_head(&self, sink: SinkId) -> Option<QueueHead>;

    /// Waits until the sink's queue holds this many events that can be read, or is discarded. Only the worker of the
    /// sink waits.
    async fn filled(&self, sink: SinkId, events: usize);

    /// Reads the head of the sink's queue; `None` if the queue is empty.
    async fn next_delivery(&self, sink: SinkId) -> Result<Option<PendingDelivery>, StoreError>;

    /// Reads up to `max` events from the head of the sink's queue on, of up to `bytes` bytes of data together but at
    /// least one; none if the queue is empty.
    ///
    /// All have had as many attempts as the first: events that failed together are read together again, without later
    /// ones.
    async fn next_deliveries(&self, sink: SinkId, max: usize, bytes: usize)
    -> Result<Vec<PendingDelivery>, StoreError>;

    /// Records an attempt and its consequence for the queue.
    ///
    /// The queue moves on at once and the disk follows; a crash in between repeats the attempt.
    async fn settle(&self, pending: PendingDelivery, settled: SettledAttempt) {
        self.settle_all(vec![(pending, settled)]).await;
    }

    /// Records attempts at the first events of one queue, in order, as [`Engine::settle`] does. A crash repeats all or
    /// none.
    async fn settle_all(&self, batch: Vec<(PendingDelivery, SettledAttempt)>);

    /// Waits until the settlements so far are on disk, or the store has stopped.
    async fn flushed(&self);

    /// Queues dead letters again, at the tail and under new sequence numbers, as far as there is room.
    ///
    /// `entry` goes into the audit log in the same write, with the number of letters added to it.
    async fn redeliver(
        &self,
        sink: SinkId,
        letters: DeadLetterFilter,
        entry: AuditEntry,
    ) -> Result<Redelivered, StoreError>;

    /// Starts a job that queues events of the history for the sink again, in the order of the history and under new
    /// numbers. It makes progress by [`Engine::advance_replay`]. A sink has one unfinished job at most.
    async fn start_replay(&self, sink: SinkId, new: NewReplay, entry: AuditEntry) -> Result<ReplayJob, ReplayError>;

    /// Changes the sink's unfinished job.
    async fn change_replay(
        &self,
        sink: SinkId,
        change: ReplayChange,
        entry: AuditEntry,
    ) -> Result<ReplayJob, ReplayError>;

    /// Returns the sink's jobs, newest first.
    fn replays(&self, sink: SinkId) -> Vec<ReplayJob>;

    /// Returns the jobs that are neither paused nor finished.
    fn running_replays(&self) -> Vec<(SinkId, RunningReplay)>;

    /// Makes a step of the sink's job: queues events again as there is room, `most` at most. Events and progress are in
    /// one write.
    ///
    /// Half of the free places are left to new events, and replayed events take none from them.
    async fn advance_replay(&self, sink: SinkId, most: usize) -> Result<ReplayStep, StoreError>;

    /// Waits until a queue has room for further events of its job, or a job was started or changed.
    async fn wait_for_replay_room(&self);

    /// Returns the sink's dead letters after the given sequence number, oldest first.
    fn dead_letters(&self, sink: SinkId, after: u64, limit: usize) -> Result<Vec<DeadLetter>, StoreError>;

    fn depth(&self, sink: SinkId) -> QueueDepth;

    /// Tells what became of each of these numbers, as far as they were given.
    fn numbers(&self, sink: SinkId, range: SequenceRange) -> Result<Vec<SequenceNumber>, StoreError>;

    /// Returns every sink that has a queue.
    fn sinks(&self) -> Vec<SinkId>;

    /// Returns one event with its deliveries.
    fn record(&self, id: EventId) -> Result<Option<Record>, StoreError>;

    /// Returns a page of events, newest first.
    fn history(&self, filter: &HistoryFilter) -> Result<HistoryPage, StoreError>;

    /// Returns the size of history.
    fn history_bytes(&self) -> u64;

    /// Deletes settled events beyond the retention, and returns their number. The oldest of the user with the largest
    /// history go first; if there are no settled ones left, the oldest dead letters go with their events. Until the
    /// next call, each accepted event does the same for the size.
    async fn prune(&self, retention: Retention) -> Result<usize, StoreError>;
}
