//! The live feed: accepted events and settled attempts, broadcast to every subscriber as they happen.
//!
//! Publishing never waits. A subscriber that falls behind loses the oldest items and learns how many. Everything
//! published is counted in [`RecentActivity`].

use crate::{
    model::{
        event::{Event, EventType},
        id::{EventId, SinkId, UserId},
        owner::Owner,
    },
    routing::{
        activity::RecentActivity,
        queue::{Attempt, AttemptOutcome, DeliveryState},
    },
};
use std::sync::Arc;
use tokio::sync::broadcast;

/// Items that a slow subscriber can be behind before it loses some.
const CAPACITY: usize = 256;

/// A handle to the feed. Cloning it is cheap.
#[derive(Clone)]
pub struct Feed {
    items: broadcast::Sender<FeedItem>,
    activity: RecentActivity,
}

#[derive(Clone, Debug)]
pub enum FeedItem {
    /// An event that is on disk.
    Accepted(Arc<Event>),
    /// The result of an attempt to deliver an event.
    Delivery(Arc<DeliveryUpdate>),
}

/// A settled attempt and the state of the delivery after it.
#[derive(Debug)]
pub struct DeliveryUpdate {
    pub event_id: EventId,
    pub event_type: EventType,
    /// The event's user; decides who may see this item.
    pub user: UserId,
    /// The sink's owner; decides who may see the error.
    pub owner: Owner,
    pub sink_id: SinkId,
    pub name: Arc<str>,
    /// `queued` while another attempt follows.
    pub state: DeliveryState,
    pub outcome: AttemptOutcome,
    pub sequence: u64,
    pub attempt: u32,
    pub status: Option<u16>,
    pub error: Option<String>,
}

impl Feed {
    pub fn new() -> Self {
        Self { items: broadcast::Sender::new(CAPACITY), activity: RecentActivity::default() }
    }

    /// Publishes an event that is on disk.
    pub fn accepted(&self, event: &Arc<Event>) {
        self.activity.count_event(event.user_id);
        // Fails only if the feed has no subscriber.
        let _ = self.items.send(FeedItem::Accepted(event.clone()));
    }

    /// Publishes an attempt, which is described only if somebody listens.
    pub fn attempted(&self, sink: SinkId, attempt: &Attempt, describe: impl FnOnce() -> DeliveryUpdate) {
        self.activity.count_attempt(sink, attempt.outcome, attempt.error.as_deref());
        if self.items.receiver_count() > 0 {
            // Fails only if the last subscriber left meanwhile.
            let _ = self.items.send(FeedItem::Delivery(Arc::new(describe())));
        }
    }

    /// Receives every item that is published from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<FeedItem> {
        self.items.subscribe()
    }

    pub fn activity(&self) -> &RecentActivity {
        &self.activity
    }
}

impl Default for Feed {
    fn default() -> Self {
        Self::new()
    }
}
