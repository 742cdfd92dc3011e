//! What happens, as it happens: accepted events and the outcomes of attempts, for whoever watches.
//!
//! A watcher that falls behind loses the oldest and is told how many; nobody waits for a watcher.

use crate::{
    model::{
        event::{Event, EventType},
        id::{EventId, SinkId, UserId},
        owner::Owner,
    },
    routing::queue::{AttemptOutcome, DeliveryState},
};
use serde::Serialize;
use std::sync::Arc;
use tokio::sync::broadcast;

/// Happenings a slow watcher can be behind before it loses some.
const BEHIND: usize = 256;

/// The feed. Cloning it is cheap.
#[derive(Clone)]
pub struct Feed(broadcast::Sender<Live>);

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum Live {
    Accepted(Arc<Event>),
    Attempted(Arc<Attempted>),
}

/// How an attempt came out.
#[derive(Debug, Serialize)]
pub struct Attempted {
    pub event_id: EventId,
    pub event_type: EventType,
    /// Whose event it is; decides who may see this.
    #[serde(skip)]
    pub user: UserId,
    /// Whose sink it is; decides who may see the error.
    #[serde(skip)]
    pub owner: Owner,
    pub sink_id: SinkId,
    pub name: Arc<str>,
    /// `queued` while there will be another attempt.
    pub state: DeliveryState,
    pub outcome: AttemptOutcome,
    pub sequence: u64,
    pub attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Feed {
    /// A feed nobody watches yet.
    pub fn new() -> Self {
        Self(broadcast::Sender::new(BEHIND))
    }

    /// Tells whoever watches.
    pub fn publish(&self, live: Live) {
        // An error only says that nobody does.
        let _ = self.0.send(live);
    }

    /// Everything from now on.
    pub fn watch(&self) -> broadcast::Receiver<Live> {
        self.0.subscribe()
    }
}

impl Default for Feed {
    fn default() -> Self {
        Self::new()
    }
}
