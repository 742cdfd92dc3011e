//! Sinks whose deliveries fail: those that gave an event up, and those that hold one. A failure lasts until an event is
//! delivered, also over a restart.
//!
//! [`super::deliver`] records failures and successes here; the HTTP API shows them.

use crate::{
    model::{id::SinkId, timestamp::Timestamp},
    platform::store::{Store, StoreError, Table, keys, readable},
};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use std::{collections::HashMap, sync::Arc};

/// The longest reason that is kept, in characters.
const MAX_REASON: usize = 500;

/// The failures of all sinks. Cloning the handle is cheap.
#[derive(Clone)]
pub struct SinkFailures {
    store: Store,
    by_sink: Arc<RwLock<HashMap<SinkId, SinkFailure>>>,
}

/// The failure of one sink. It is stored as this JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkFailure {
    pub sink: SinkId,
    pub state: FailureState,
    /// The error of the last attempt that was recorded here.
    pub reason: String,
    /// The sink has to be changed, its script or the egress policy: attempts alone do not mend it.
    #[serde(default)]
    pub needs_change: bool,
    pub since: Timestamp,
}

/// The state of a sink whose deliveries fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureState {
    /// Its last event became a dead letter.
    Failing,
    /// It holds the event at the head of its queue.
    Held,
}

impl SinkFailures {
    const TABLE: Table<SinkFailure> = Table::new(keys::SINK_FAILURES);

    /// Reads the failures that lasted when the server ended. One whose record is damaged is forgotten.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    pub fn open(store: Store) -> Result<Self, StoreError> {
        let mut stored = HashMap::new();
        for entry in store.scan(&[keys::SINK_FAILURES]) {
            let Some((_, value)) = readable(entry)? else { continue };
            if let Ok(failure) = serde_json::from_slice::<SinkFailure>(&value) {
                stored.insert(failure.sink, failure);
            }
        }
        Ok(Self { store, by_sink: Arc::new(RwLock::new(stored)) })
    }

    pub fn get(&self, sink: SinkId) -> Option<SinkFailure> {
        self.by_sink.read().get(&sink).cloned()
    }

    /// Every sink that has a failure.
    pub fn sinks(&self) -> Vec<SinkId> {
        self.by_sink.read().keys().copied().collect()
    }

    /// Records a failure. One that lasts keeps its beginning.
    pub fn fail(&self, sink: SinkId, state: FailureState, reason: &str, needs_change: bool) {
        let reason: String = reason.chars().take(MAX_REASON).collect();
        let failure = {
            let mut by_sink = self.by_sink.write();
            let known = by_sink.get(&sink);
            let since = known.filter(|known| known.state == state).map_or_else(Timestamp::now, |known| known.since);
            let failure = SinkFailure { sink, state, reason, needs_change, since };
            if known == Some(&failure) {
                return;
            }
            by_sink.insert(sink, failure.clone());
            failure
        };
        self.store.write_soon(move |batch| Self::TABLE.put(batch, sink.as_bytes(), &failure));
    }

    /// Ends the failure of a sink that was delivered to, or is deleted.
    pub fn end(&self, sink: SinkId) {
        // Nearly always there is none, and this runs for every delivery.
        if !self.by_sink.read().contains_key(&sink) || self.by_sink.write().remove(&sink).is_none() {
            return;
        }
        self.store.write_soon(move |batch| Self::TABLE.delete(batch, sink.as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    #[tokio::test]
    async fn a_failure_lasts_over_a_restart_until_it_is_ended_and_keeps_its_beginning() {
        let directory = TempDir::new().unwrap();
        let store = Store::open(directory.path(), 0, Arc::default()).unwrap();
        let failures = SinkFailures::open(store.clone()).unwrap();
        let sink = SinkId::new();
        assert_eq!(failures.get(sink), None);
        failures.fail(sink, FailureState::Held, "no", false);
        let first = failures.get(sink).unwrap();
        failures.fail(sink, FailureState::Held, &"é".repeat(600), true);
        let second = failures.get(sink).unwrap();
        assert_eq!((second.since, second.needs_change), (first.since, true));
        assert_eq!(second.reason, "é".repeat(MAX_REASON));
        store.write(|_| ()).await.unwrap();
        let reopened = SinkFailures::open(store.clone()).unwrap();
        assert_eq!((reopened.get(sink), reopened.sinks()), (Some(second), vec![sink]));
        reopened.end(sink);
        store.write(|_| ()).await.unwrap();
        assert_eq!(SinkFailures::open(store.clone()).unwrap().sinks(), []);
        store.close().await;
    }
}
