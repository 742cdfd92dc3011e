//! The event's way in: ingress → stamp → route → queue. The way goes on in [`crate::delivery::deliver`].
//!
//! Everything that raises events (the HTTP API, agents, sources, scripts, the service's own system events) goes through
//! [`Emitter`]: one event at a time by [`Emitter::emit`], a stream of them by [`Emitter::hand_over_ordered`].

use crate::{
    model::{
        event::{Actor, Event, EventSpace, EventType},
        id::{EventId, SinkId, SpaceId, UserId},
        json_text,
        timestamp::Timestamp,
    },
    platform::{keyed_semaphore::KeyedSemaphore, store::StoreError},
    routing::{
        matcher::Routes,
        queue::{AcceptError, AcceptOptions, Engine, OrderedEmits, Receipt, RouteTarget},
        route::{EventRoute, RouteFilters},
    },
};
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use std::{future::ready, pin::pin, sync::Arc, task::Poll};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The total payload of events that wait for their filters and the disk, in KiB. Further emits wait for a permit, so
/// that a slow disk costs time and not memory.
const WAITING_KIB: u32 = 64 << 10;

/// The greatest nesting depth of a payload. Deeper payloads break receivers, and no template could read them.
const MAX_DEPTH: usize = 64;

/// The earliest moment of raising that is believed, the start of 2020: a machine without a battery starts its clock
/// long before.
const EARLIEST: Timestamp = Timestamp::from_micros(1_577_836_800_000_000);

/// Accepts events of one zone.
pub struct Emitter {
    zone: Arc<str>,
    routes: Arc<Routes<EventRoute>>,
    filters: Arc<dyn RouteFilters>,
    engine: Arc<dyn Engine>,
    max_payload: usize,
    memory: EmitMemory,
}

/// The memory of events on their way to the disk.
struct EmitMemory {
    kib: u32,
    all: Arc<Semaphore>,
    /// The half that the events of one user may hold while filters run, so that slow filters of one user do not keep
    /// the events of others waiting.
    filtering: KeyedSemaphore<UserId>,
}

/// An event to be emitted, before it is stamped.
#[derive(Debug)]
pub struct NewEvent {
    /// Makes a repeated emit idempotent; assigned if absent.
    pub id: Option<EventId>,
    /// The moment of raising, if it lies before the emit; the emit itself if absent.
    pub raised_at: Option<Timestamp>,
    pub kind: EventType,
    pub space_id: SpaceId,
    pub space: Option<EventSpace>,
    pub user_id: UserId,
    pub actor: Actor,
    pub payload: Box<RawValue>,
}

/// An event that was handed over; resolves to its receipt once it is on disk.
pub type PendingReceipt<'a> = BoxFuture<'a, Result<Receipt, EmitError>>;

/// The reason that an event was not accepted. Nothing is stored then.
#[derive(Debug, thiserror::Error)]
pub enum EmitError {
    #[error("`id`: must not be the nil UUID")]
    NilId,
    #[error("`payload` must be a JSON object")]
    PayloadNotObject,
    #[error("`payload`: {0}")]
    PayloadUnreadable(serde_json::Error),
    #[error("`payload` has {bytes} bytes; the limit is {limit}")]
    PayloadTooLarge { bytes: usize, limit: usize },
    #[error("`payload` is nested more than {MAX_DEPTH} deep")]
    PayloadTooDeep,
    #[error(transparent)]
    Accept(#[from] AcceptError),
}

/// The time from which an event that was not accepted may be emitted again, with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmitRetry {
    /// Once the disk, or what the sinks of its user may hold, has room.
    WhenRoom,
    /// Once the store can be read again.
    WhenReadable,
    /// After the next start: the store takes no more writes.
    AfterRestart,
    /// Never: the event breaks a rule, or one of its id is stored already: that of another sender, or one that is damaged.
    Never,
}

impl EmitError {
    /// The decision between another attempt and none, for every sender that keeps its events until they are stored.
    pub fn retry(&self) -> EmitRetry {
        match self {
            Self::Accept(AcceptError::UndeliveredFull { .. } | AcceptError::Store(StoreError::DiskFull)) => {
                EmitRetry::WhenRoom
            }
            Self::Accept(AcceptError::Store(StoreError::Unreadable(_))) => EmitRetry::WhenReadable,
            Self::Accept(AcceptError::Store(StoreError::Stopped(_) | StoreError::Closing)) => EmitRetry::AfterRestart,
            Self::Accept(AcceptError::Store(StoreError::Damaged { .. }) | AcceptError::IdTaken(_))
            | Self::NilId
            | Self::PayloadNotObject
            | Self::PayloadUnreadable(_)
            | Self::PayloadTooLarge { .. }
            | Self::PayloadTooDeep => EmitRetry::Never,
        }
    }
}

impl Emitter {
    pub fn new(
        zone: &str,
        routes: Arc<Routes<EventRoute>>,
        filters: Arc<dyn RouteFilters>,
        engine: Arc<dyn Engine>,
        max_payload: usize,
    ) -> Self {
        let memory = EmitMemory::new(WAITING_KIB);
        Self { zone: zone.into(), routes, filters, engine, max_payload, memory }
    }

    /// Accepts an event and returns its receipt once every matching queue holds it on disk.
    ///
    /// A sink whose queue is full loses the event, and only that sink; the drop is audited and named in the
    /// receipt. Delivery happens later, in [`crate::delivery::deliver`].
    ///
    /// # Errors
    ///
    /// Nothing is queued then.
    pub async fn emit(&self, new: NewEvent) -> Result<Receipt, EmitError> {
        self.hand_over(new, None, None).await?.await
    }

    /// Accepts a report about a sink, as [`Emitter::emit`] does. It is not for that sink.
    ///
    /// # Errors
    ///
    /// Nothing is queued then.
    pub async fn emit_about(&self, sink: SinkId, new: NewEvent) -> Result<Receipt, EmitError> {
        self.hand_over(new, Some(sink), None).await?.await
    }

    /// Hands an event to the queue engine and returns before it is on disk; the returned future resolves to its
    /// receipt. Events that are handed over one after the other are accepted in that order; none of them overtakes one
    /// for which there was no room.
    ///
    /// # Errors
    ///
    /// Fails if the event breaks a rule, or cannot be stored now; nothing is queued then. Later errors are those of the
    /// returned future.
    pub async fn hand_over_ordered(
        &self,
        order: &OrderedEmits,
        new: NewEvent,
    ) -> Result<PendingReceipt<'_>, EmitError> {
        self.hand_over(new, None, Some(order.clone())).await
    }

    async fn hand_over(
        &self,
        new: NewEvent,
        except: Option<SinkId>,
        order: Option<OrderedEmits>,
    ) -> Result<PendingReceipt<'_>, EmitError> {
        if new.id == Some(EventId::NIL) {
            return Err(EmitError::NilId);
        }
        check_payload(&new.payload, self.max_payload)?;
        let kib = self.memory.of_payload(&new.payload);
        let mut routes = self.matching(&new, except);
        let is_filtered = routes.iter().any(|route| route.filtered);
        let mut acquiring = pin!(self.memory.acquire(kib, Some(new.user_id).filter(|_| is_filtered)));
        let (memory, filtering) = match futures_util::poll!(&mut acquiring) {
            Poll::Ready(permits) => permits,
            Poll::Pending => {
                let permits = acquiring.await;
                // Sinks may have changed meanwhile.
                routes = self.matching(&new, except);
                permits
            }
        };

        let event = Arc::new(self.stamp(new));
        let targets = self.targets(&event, routes).await;
        drop(filtering);
        let options = AcceptOptions { order, memory: Some(memory) };
        let mut accepting: PendingReceipt<'_> =
            Box::pin(async move { Ok(self.engine.accept(event, targets, options).await?) });
        // The first poll gives the event its place in the order of the engine.
        match futures_util::poll!(&mut accepting) {
            Poll::Ready(accepted) => accepted.map(|receipt| Box::pin(ready(Ok(receipt))) as PendingReceipt<'_>),
            Poll::Pending => Ok(accepting),
        }
    }

    /// The routes whose patterns match an event.
    fn matching(&self, new: &NewEvent, except: Option<SinkId>) -> Vec<EventRoute> {
        let (segments, user) = (new.kind.segments(), new.user_id);
        let mut routes = match new.kind.is_report() {
            true => self.routes.matches_report(segments, user, |route| route.all_reports),
            false => self.routes.matches(segments, user),
        };
        if except.is_some() {
            routes.retain(|route| Some(route.target.sink) != except);
        }
        routes
    }

    /// The targets of an event: the routes that match, without those whose filter refuses it.
    async fn targets(&self, event: &Arc<Event>, mut routes: Vec<EventRoute>) -> Vec<RouteTarget> {
        let filtered: Vec<_> = routes.iter().filter(|route| route.filtered).map(|route| route.target.sink).collect();
        if !filtered.is_empty() {
            let refused = self.filters.refused(event, filtered).await;
            routes.retain(|route| !refused.contains(&route.target.sink));
        }
        routes.into_iter().map(|route| route.target).collect()
    }

    /// Checks that a payload would be accepted.
    ///
    /// # Errors
    ///
    /// Fails with the rule that it breaks.
    pub fn check_payload(&self, payload: &RawValue) -> Result<(), EmitError> {
        check_payload(payload, self.max_payload)
    }

    fn stamp(&self, new: NewEvent) -> Event {
        let NewEvent { id, raised_at, kind, space_id, space, user_id, actor, payload } = new;
        Event {
            id: id.unwrap_or_else(EventId::new),
            kind,
            ts: event_time(raised_at, Timestamp::now()),
            zone: self.zone.clone(),
            space_id,
            user_id,
            actor,
            space,
            data: payload,
        }
    }
}

impl EmitMemory {
    fn new(kib: u32) -> Self {
        let (all, half) = (Arc::new(Semaphore::new(kib as usize)), kib as usize / 2);
        Self { kib, all, filtering: KeyedSemaphore::new(half, usize::MAX) }
    }

    /// Waits for the permit of an event, and before it for that of its user if filters run.
    async fn acquire(
        &self,
        kib: u32,
        filtered: Option<UserId>,
    ) -> (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>) {
        let filtering = match filtered {
            Some(user) => self.filtering.acquire_many(user, kib).await,
            None => None,
        };
        let all = self.all.clone().acquire_many_owned(kib).await.expect("the semaphore is never closed");
        (all, filtering)
    }

    /// The memory of an event with this payload, in KiB.
    fn of_payload(&self, payload: &RawValue) -> u32 {
        u32::try_from(payload.get().len() / 1024 + 1).unwrap_or(u32::MAX).min(self.kib / 2)
    }
}

/// The time of an event that was raised at `raised_at`, by the clock of another machine, and is accepted `now`.
///
/// A time in the future, or before [`EARLIEST`], comes from a clock that is wrong: the acceptance is nearer to the
/// truth. Any other age is believed, because a spool holds events for as long as its agent has no server.
fn event_time(raised_at: Option<Timestamp>, now: Timestamp) -> Timestamp {
    raised_at.filter(|raised_at| (EARLIEST..=now).contains(raised_at)).unwrap_or(now)
}

/// Checks that a payload is a readable object of at most `limit` bytes that is not nested too deep.
pub fn check_payload(payload: &RawValue, limit: usize) -> Result<(), EmitError> {
    check_object(payload)?;
    let bytes = payload.get().len();
    if bytes > limit {
        return Err(EmitError::PayloadTooLarge { bytes, limit });
    }
    if json_text::is_deeper_than(payload.get(), MAX_DEPTH) {
        return Err(EmitError::PayloadTooDeep);
    }
    Ok(())
}

/// Checks that a payload is an object that can be decoded later.
///
/// The payload is stored undecoded. It is decoded here only if it may contain half a surrogate pair (`"\ud800"`), which
/// is valid JSON syntax and yet stands for no character.
pub fn check_object(payload: &RawValue) -> Result<(), EmitError> {
    let json = payload.get();
    if !json.starts_with('{') {
        return Err(EmitError::PayloadNotObject);
    }
    if json.contains('\\') && (json.contains("\\ud") || json.contains("\\uD")) {
        serde_json::from_str::<serde_json::Value>(json).map_err(EmitError::PayloadUnreadable)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{event::ActorKind, owner::Owner},
        platform::store::Store,
        routing::{
            queue::sled::{EngineHooks, QueueLimits, SledEngine},
            route::NoFilters,
        },
    };
    use async_trait::async_trait;
    use futures_util::FutureExt;
    use std::time::Duration;
    use tempfile::TempDir;

    /// Filters that do not end.
    struct EndlessFilters;

    #[async_trait]
    impl RouteFilters for EndlessFilters {
        async fn refused(&self, _: &Arc<Event>, _: Vec<SinkId>) -> Vec<SinkId> {
            std::future::pending().await
        }
    }

    /// An emitter with memory for four small events, without sinks.
    fn emitter(directory: &TempDir, filters: Arc<dyn RouteFilters>) -> (Emitter, Store) {
        let store = Store::open(directory.path(), 0, Arc::default()).unwrap();
        let ready = tokio::sync::mpsc::unbounded_channel().0;
        let hooks = EngineHooks { accepted: Box::new(|_| ()), dropped: Box::new(|_, _| ()), ready };
        let limits = QueueLimits { queue: 100, dead_letters: 100, undelivered: u64::MAX };
        let engine = SledEngine::open(store.clone(), Arc::default(), limits, hooks).unwrap();
        let mut emitter = Emitter::new("zone", Arc::new(Routes::new()), filters, Arc::new(engine), 64 << 10);
        emitter.memory = EmitMemory::new(4);
        (emitter, store)
    }

    fn new_event(user: UserId) -> NewEvent {
        NewEvent {
            id: None,
            raised_at: None,
            kind: EventType::custom("t").unwrap(),
            space_id: SpaceId::NIL,
            space: None,
            user_id: user,
            actor: Actor { id: uuid::Uuid::nil(), username: "u".into(), kind: ActorKind::User },
            payload: RawValue::from_string("{}".to_owned()).unwrap(),
        }
    }

    #[tokio::test]
    async fn events_on_disk_take_no_memory_also_if_nobody_asks_for_their_receipts() {
        let directory = TempDir::new().unwrap();
        let (emitter, store) = emitter(&directory, Arc::new(NoFilters));
        let (order, user) = (OrderedEmits::default(), UserId::new());
        let handing_over = async {
            let mut receipts = Vec::new();
            for _ in 0..12 {
                receipts.push(emitter.hand_over_ordered(&order, new_event(user)).await.unwrap());
            }
            receipts
        };
        let receipts = tokio::time::timeout(Duration::from_secs(60), handing_over).await;
        for receipt in receipts.expect("memory is free once an event is on disk") {
            receipt.await.unwrap();
        }
        drop(emitter);
        store.close().await;
    }

    #[tokio::test]
    async fn filters_of_one_user_that_do_not_end_leave_memory_to_the_events_of_others() {
        let directory = TempDir::new().unwrap();
        let (emitter, store) = emitter(&directory, Arc::new(EndlessFilters));
        let (slow, other) = (UserId::new(), UserId::new());
        let target = RouteTarget { sink: SinkId::new(), name: "s".into() };
        let route = EventRoute { target, filtered: true, all_reports: false };
        let patterns = "*".parse().unwrap();
        emitter.routes.replace(None, Some((&patterns, Owner::User(slow), &route)));
        let mut waiting: Vec<_> = (0..5).map(|_| Box::pin(emitter.emit(new_event(slow)))).collect();
        assert!(waiting.iter_mut().all(|emit| emit.now_or_never().is_none()));
        let emitted = tokio::time::timeout(Duration::from_secs(60), emitter.emit(new_event(other))).await;
        emitted.expect("the events of others do not wait").unwrap();
        drop(waiting);
        drop(emitter);
        store.close().await;
    }

    #[test]
    fn the_moment_of_raising_is_the_time_of_the_event_unless_its_clock_is_wrong() {
        let now = Timestamp::from_micros(1_800_000_000_000_000);
        let week = Duration::from_secs(7 * 86_400);
        assert_eq!(event_time(None, now), now);
        assert_eq!(event_time(Some(now.before(week)), now), now.before(week));
        assert_eq!(event_time(Some(now.before(100 * week)), now), now.before(100 * week));
        assert_eq!(event_time(Some(now.after(week)), now), now);
        assert_eq!(event_time(Some(Timestamp::from_micros(60_000_000)), now), now);
    }
}
