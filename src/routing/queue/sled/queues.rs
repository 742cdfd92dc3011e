//! The queues in memory: for each sink the events that wait, in order, and the counters.
//!
//! A queue changes in two steps. On the writer thread, while a batch is made, a place and a sequence number are
//! *reserved*; once the batch is on disk the event becomes *ready* and the sink's worker is woken. So a worker never
//! sees an event that a crash could take back, and the limit includes events that are still being written.
//!
//! Invariants: `ready` ascends in sequence; `ready.len() <= reserved`, and `reserved - replayed <= limit` except for a
//! queue that was longer when a lowered limit took effect at start; a sequence number is never given twice.

use super::{
    event_cache::EventCache, gaps::GapChange, history::History, replay_jobs::ReplayJobs, sink_losses::SinkLosses,
    undelivered::Undelivered,
};
use crate::{
    model::{
        event::Event,
        id::{ReplayId, SinkId},
        id_map::IdMap,
        owner::Owner,
        sequence::{MissReason, MissedRange},
    },
    platform::{
        metrics::Metrics,
        store::{Store, StoreError},
    },
    routing::queue::{HistoryPosition, RouteTarget},
};
use parking_lot::{Mutex, MutexGuard};
use std::{collections::VecDeque, sync::Arc};
use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};

/// Limits of every queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueLimits {
    /// Events that a queue holds, the one in delivery included.
    pub queue: usize,
    /// Dead letters kept per sink.
    pub dead_letters: usize,
    /// Bytes of payloads of one user that wait for sinks of the user. Beyond them, new events for those sinks are
    /// refused.
    pub undelivered: u64,
}

/// A function that the engine calls with each event that is on disk.
pub type AcceptedHook = Box<dyn Fn(&Arc<Event>) + Send + Sync>;

/// A function that the engine calls with each event that full queues dropped, and the sinks of those.
pub type DroppedHook = Box<dyn Fn(&Arc<Event>, &[RouteTarget]) + Send + Sync>;

/// Notifications of the engine. They come from the writer thread and must not block.
pub struct EngineHooks {
    /// Called before any sink is woken for the event.
    pub accepted: AcceptedHook,
    pub dropped: DroppedHook,
    /// Receives each sink whose queue was empty and no longer is.
    pub ready: mpsc::UnboundedSender<SinkId>,
}

/// Everything that the engine's handles and the jobs on the writer thread share.
pub(super) struct QueueState {
    pub store: Store,
    pub metrics: Arc<Metrics>,
    pub limits: QueueLimits,
    pub history: History,
    pub hooks: EngineHooks,
    /// Boxed, because a hash table of 200,000 sinks can have as many free places.
    pub queues: Mutex<IdMap<SinkId, Box<SinkQueue>>>,
    /// The sizes of the events in `queues` that count.
    pub undelivered: Undelivered,
    pub cache: EventCache,
    pub replays: ReplayJobs,
}

/// One sink's queue.
#[derive(Default)]
pub(super) struct SinkQueue {
    /// The sink's name, for messages; empty until the queue is opened after a start.
    pub name: Arc<str>,
    /// The sink's owner; `None` until the queue is opened after a start.
    pub owner: Option<Owner>,
    pub ready: VecDeque<QueuedEvent>,
    /// Places taken, by events that are ready and events that are still being written.
    pub reserved: usize,
    /// Places among them that replayed events have taken. They do not count towards the limit of new events.
    pub replayed: usize,
    pub last_sequence: u64,
    /// `None` for a sink that has lost nothing since the start and has no dead letters, as most have not.
    pub losses: Option<Box<SinkLosses>>,
    /// The fill that the sink's worker waits for.
    awaited: Option<AwaitedFill>,
}

/// A number of events in a queue, and the worker that waits for it.
struct AwaitedFill {
    events: usize,
    filled: Arc<Notify>,
}

/// An event that waits in a queue.
#[derive(Clone, Copy)]
pub(super) struct QueuedEvent {
    pub sequence: u64,
    /// The event's place in history; `None` if the queue's row is damaged. It becomes a dead letter at the head then.
    pub event: Option<HistoryPosition>,
    pub failures: u32,
    /// The delivery has a row, because it was attempted or queued before.
    pub recorded: bool,
    /// The time of the next attempt, by a clock that is never set; `None` if it is due at once.
    pub due: Option<Instant>,
    /// The job that queued it again.
    pub replay: Option<ReplayId>,
}

/// The reason that an event comes to a queue.
#[derive(Clone, Copy)]
pub(super) enum QueuedBy {
    Acceptance,
    /// A dead letter is delivered again.
    Redelivery,
    Replay(ReplayId),
}

impl SinkQueue {
    /// Returns true if events that wait here count towards the limits of their users. For a global sink they do not.
    pub fn counts(&self) -> bool {
        self.owner != Some(Owner::Global)
    }

    pub fn losses(&self) -> &SinkLosses {
        self.losses.as_deref().unwrap_or(SinkLosses::NONE)
    }

    /// The losses, to add one.
    pub fn losses_mut(&mut self) -> &mut SinkLosses {
        self.losses.get_or_insert_default()
    }

    /// Returns the notification of the moment when this many events are ready; `None` if they are. It replaces an
    /// earlier one.
    pub fn await_fill(&mut self, events: usize) -> Option<Arc<Notify>> {
        if self.ready.len() >= events {
            return None;
        }
        let filled = Arc::new(Notify::new());
        self.awaited = Some(AwaitedFill { events, filled: filled.clone() });
        Some(filled)
    }

    /// Ends the wait for a fill.
    pub fn end_fill(&mut self) {
        if let Some(AwaitedFill { filled, .. }) = self.awaited.take() {
            // Kept for a worker that has not begun to wait yet.
            filled.notify_one();
        }
    }

    fn push_ready(&mut self, queued: QueuedEvent) {
        self.ready.push_back(queued);
        if self.awaited.as_ref().is_some_and(|awaited| self.ready.len() >= awaited.events) {
            self.end_fill();
        }
    }
}

impl QueueState {
    pub fn queues(&self) -> MutexGuard<'_, IdMap<SinkId, Box<SinkQueue>>> {
        self.queues.lock()
    }

    pub fn has_queue(&self, sink: SinkId) -> bool {
        self.queues().contains_key(&sink)
    }

    /// Returns true if the sink has a queue whose events count towards the limits of their users.
    pub fn has_counted_queue(&self, sink: SinkId) -> bool {
        self.queues().get(&sink).is_some_and(|queue| queue.counts())
    }

    /// Returns the head of the sink's queue.
    pub fn head(&self, sink: SinkId) -> Option<QueuedEvent> {
        self.queues().get(&sink)?.ready.front().copied()
    }

    /// Returns the numbers before this one that the sink misses and was not told of.
    pub fn missed_before(&self, sink: SinkId, sequence: u64) -> Vec<MissedRange> {
        self.queues().get(&sink).map(|queue| queue.losses().gaps.before(sequence)).unwrap_or_default()
    }

    /// Returns the numbers that the sink misses between two that are delivered together.
    pub fn missed_between(&self, sink: SinkId, told: u64, sequence: u64) -> Vec<MissedRange> {
        let mut missed = self.missed_before(sink, sequence);
        missed.retain(|range| range.from > told);
        missed
    }

    /// Returns a queued event, which is rarely read from disk.
    pub fn event(&self, at: HistoryPosition) -> Result<Option<Arc<Event>>, StoreError> {
        if let Some(event) = self.cache.get(at) {
            return Ok(Some(event));
        }
        let event = self.history.event_alone(at)?.map(Arc::new);
        if let Some(event) = &event {
            self.cache.insert(at, event.clone());
        }
        Ok(event)
    }

    /// Removes a damaged event from the head of the sink's queue. Returns `None` if it is not there any more, because
    /// the queue was discarded meanwhile.
    pub fn remove_damaged_head(&self, sink: SinkId, head: QueuedEvent) -> Option<GapChange> {
        let mut queues = self.queues();
        let queue = queues.get_mut(&sink)?;
        if !queue.ready.front().is_some_and(|front| front.sequence == head.sequence && front.event == head.event) {
            return None;
        }
        queue.ready.pop_front();
        queue.reserved -= 1;
        if head.replay.is_some() && queue.release_replayed(self.limits.queue) {
            self.replays.room.notify_one();
        }
        if let Some(at) = head.event {
            self.undelivered.remove(at, sink);
        }
        Some(queue.losses_mut().gaps.add_lost(head.sequence, MissReason::Damaged))
    }

    /// Makes events that are on disk visible to the workers, and wakes the sinks whose queue was empty.
    pub fn push_ready(&self, queued: impl Iterator<Item = (SinkId, u64, HistoryPosition)>, by: QueuedBy) {
        let (recorded, replay) = match by {
            QueuedBy::Acceptance => (false, None),
            QueuedBy::Redelivery => (true, None),
            QueuedBy::Replay(job) => (true, Some(job)),
        };
        let mut queues = self.queues();
        for (sink, sequence, event) in queued {
            let Some(queue) = queues.get_mut(&sink) else {
                // The queue was discarded since the event was accepted.
                self.undelivered.remove(event, sink);
                continue;
            };
            let was_empty = queue.ready.is_empty();
            queue.push_ready(QueuedEvent { sequence, event: Some(event), failures: 0, recorded, due: None, replay });
            if was_empty {
                // Fails only while the server stops and nothing is delivered any more.
                let _ = self.hooks.ready.send(sink);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_in_memory_stays_within_its_size_class_of_the_allocator() {
        // There is one for each of up to 200,000 sinks, and most are empty.
        assert!(size_of::<SinkQueue>() <= 128, "{} bytes", size_of::<SinkQueue>());
    }
}
