//! The spool: events emitted in this space that no server has confirmed, on disk, in order, bounded.
//!
//! An event is accepted once it is on disk ([`Spool::push`]). One link at a time sends ([`Spool::send_over`]): in
//! order, a window ahead of the confirmations, starting at the oldest unconfirmed event whenever another link takes
//! over. The server drops an id that it has, so an event is sent at least once and stored once. A confirmed event is
//! deleted ([`Spool::settle`]); after a crash before that it is sent again.
//!
//! Keys are sequence numbers, because ids come from the clock, and clocks can be set back.

use super::server_link::{LinkDown, ServerOutbox};
use crate::{
    model::{
        agent_protocol::{EventConfirmation, EventOutcome, ToServer},
        id::EventId,
        timestamp::Timestamp,
    },
    platform::store::{Store, StoreError, keys},
};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};
use tokio::{
    sync::{Semaphore, watch},
    time::Instant,
};

/// Window of events sent ahead of their confirmations, in number and in bytes.
const WINDOW: usize = 256;
const WINDOW_BYTES: usize = 4 << 20;

/// Time without a confirmation after which the window is sent again.
const RESEND: Duration = Duration::from_secs(30);

/// The spool. Cloning it is cheap.
#[derive(Clone)]
pub struct Spool(Arc<SpoolShared>);

struct SpoolShared {
    store: Store,
    limit: usize,
    state: Mutex<SpoolState>,
    /// Number of spooled events, updated at every change.
    depth: watch::Sender<usize>,
    /// Held by the link that sends.
    sender: Semaphore,
}

struct SpoolState {
    /// The events on disk, oldest first. The first `sent` of them are sent and not confirmed.
    entries: VecDeque<SpoolEntry>,
    sent: usize,
    sent_bytes: usize,
    /// Number of `entries`, and of events that are being written.
    depth: usize,
    /// The sequence number of the next event.
    next: u64,
    /// Time of the last confirmation, or of the first event of a window.
    last_progress: Instant,
}

struct SpoolEntry {
    number: u64,
    id: EventId,
    bytes: usize,
}

/// An event on disk.
#[derive(Serialize, Deserialize)]
struct SpoolRecord {
    id: EventId,
    /// The type as the user wrote it, without `custom.`.
    #[serde(rename = "type")]
    kind: String,
    payload: Box<RawValue>,
    /// The moment of raising. Absent in records of older versions.
    #[serde(default)]
    raised_at: Option<Timestamp>,
}

/// An event that was not spooled.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    #[error(
        "{0} events wait for the server, which is as many as `agent.spool` allows: see that the agent is connected"
    )]
    Full(usize),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Spool {
    /// Opens the spool with the events that an earlier run left. A damaged one is logged.
    ///
    /// # Errors
    ///
    /// Fails if the database cannot be read.
    pub fn open(store: Store, limit: usize) -> Result<Self, StoreError> {
        let mut entries = VecDeque::new();
        let mut next = 0;
        for key in store.keys(vec![keys::SPOOL]..vec![keys::SPOOL + 1]) {
            let key = key?;
            let Some(number) = keys::number(&key, 1) else {
                log::error!("{}", StoreError::damaged(&key, "its key is no number"));
                continue;
            };
            next = number + 1;
            match record(&store, number) {
                Ok(Some((record, bytes))) => entries.push_back(SpoolEntry { number, id: record.id, bytes }),
                Ok(None) => {}
                Err(error @ StoreError::Damaged { .. }) => log::error!("{error}; it is not sent, and left where it is"),
                Err(error) => return Err(error),
            }
        }
        let depth = entries.len();
        let state = SpoolState { entries, sent: 0, sent_bytes: 0, depth, next, last_progress: Instant::now() };
        Ok(Self(Arc::new(SpoolShared {
            store,
            limit,
            state: Mutex::new(state),
            depth: watch::Sender::new(depth),
            sender: Semaphore::new(1),
        })))
    }

    /// Spools an event that was raised at `raised_at`, and returns its id, a new one if none is given, once it is on
    /// disk.
    ///
    /// # Errors
    ///
    /// Fails if the spool or the disk is full. Nothing is spooled then.
    pub async fn push(
        &self,
        id: Option<EventId>,
        kind: &str,
        payload: Box<RawValue>,
        raised_at: Timestamp,
    ) -> Result<EventId, SpoolError> {
        self.0.store.check_room()?;
        let (writing, written) = (self.clone(), self.clone());
        let kind = kind.to_owned();
        let accepted = self.0.store.write_then(
            move |batch| {
                // Reserved on the thread that writes, so that numbers and new ids have one order.
                let number = writing.reserve()?;
                let id = id.unwrap_or_else(EventId::new);
                let record = SpoolRecord { id, kind, payload, raised_at: Some(raised_at) };
                let value = serde_json::to_vec(&record).expect("strings and JSON are JSON");
                let bytes = value.len();
                batch.put(key(number), value);
                Ok(SpoolEntry { number, id, bytes })
            },
            move |accepted| {
                if let Ok(entry) = accepted {
                    written.enqueue(entry);
                }
            },
        );
        accepted.await?.map(|entry| entry.id)
    }

    /// Deletes events that a server has stored, or has refused for good, in one write.
    pub fn settle(&self, confirmations: &[EventConfirmation]) {
        let mut settled = Vec::with_capacity(confirmations.len());
        let mut state = self.state();
        for EventConfirmation { id, outcome } in confirmations {
            if let EventOutcome::Refused(reason) = outcome {
                log::error!("the server refused event {id}, which is lost: {reason}");
            }
            settled.extend(state.remove(*id));
        }
        if settled.is_empty() {
            return;
        }
        state.last_progress = Instant::now();
        self.0.depth.send_replace(state.depth);
        drop(state);
        self.0.store.write_soon(move |batch| settled.iter().for_each(|number| batch.delete(key(*number))));
    }

    /// Sends the events over one link until it ends, once no other link sends.
    ///
    /// # Errors
    ///
    /// Fails when the link ends. The next link sends the unconfirmed events again.
    pub async fn send_over(&self, outbox: &ServerOutbox) -> Result<Infallible, LinkDown> {
        let _sender = self.0.sender.acquire().await.map_err(|_| LinkDown)?;
        let mut changes = self.0.depth.subscribe();
        self.rewind();
        loop {
            changes.mark_unchanged();
            while let Some(number) = self.advance() {
                if let Some(event) = self.read(number) {
                    outbox.send(&event).await?;
                }
            }
            if tokio::time::timeout(RESEND, changes.changed()).await.is_err() || self.is_overdue() {
                self.resend();
            }
        }
    }

    /// Number of events that no server has confirmed.
    pub fn depth(&self) -> usize {
        self.state().depth
    }

    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// Resolves once every event is confirmed.
    pub async fn emptied(&self) {
        // The sender lives as long as the spool.
        let _ = self.0.depth.subscribe().wait_for(|depth| *depth == 0).await;
    }

    fn reserve(&self) -> Result<u64, SpoolError> {
        let mut state = self.state();
        if state.depth >= self.0.limit {
            return Err(SpoolError::Full(state.depth));
        }
        let number = state.next;
        state.next += 1;
        state.depth += 1;
        Ok(number)
    }

    fn enqueue(&self, entry: &SpoolEntry) {
        let mut state = self.state();
        state.entries.push_back(SpoolEntry { ..*entry });
        self.0.depth.send_replace(state.depth);
    }

    /// Marks all events as unsent.
    fn rewind(&self) {
        let mut state = self.state();
        (state.sent, state.sent_bytes) = (0, 0);
    }

    /// The next event to send, if the window has room for it. It counts as sent from now on.
    fn advance(&self) -> Option<u64> {
        let mut state = self.state();
        let next = state.entries.get(state.sent)?;
        let (number, bytes) = (next.number, next.bytes);
        if state.sent > 0 && (state.sent >= WINDOW || state.sent_bytes + bytes > WINDOW_BYTES) {
            return None;
        }
        if state.sent == 0 {
            state.last_progress = Instant::now();
        }
        state.sent += 1;
        state.sent_bytes += bytes;
        Some(number)
    }

    fn is_overdue(&self) -> bool {
        let state = self.state();
        state.sent > 0 && state.last_progress.elapsed() >= RESEND
    }

    fn resend(&self) {
        let sent = self.state().sent;
        if sent > 0 {
            log::warn!("the server has confirmed none of {sent} events for {} s: sending them again", RESEND.as_secs());
            self.rewind();
        }
    }

    /// The event with this number. One that is damaged is no longer in the spool afterwards.
    fn read(&self, number: u64) -> Option<ToServer> {
        match record(&self.0.store, number) {
            Ok(Some((SpoolRecord { id, kind, payload, raised_at }, _))) => {
                Some(ToServer::Event { id, kind, payload, raised_at })
            }
            // It was settled meanwhile.
            Ok(None) => None,
            Err(error @ StoreError::Damaged { .. }) => {
                self.discard(number, &error);
                None
            }
            Err(error) => {
                log::error!("spooled event {number} stays for now: {error}");
                None
            }
        }
    }

    /// Removes an event that cannot be read any more, so that the others are not held up by it.
    fn discard(&self, number: u64, error: &StoreError) {
        let mut state = self.state();
        let Some(index) = state.entries.iter().position(|entry| entry.number == number) else { return };
        let id = state.remove_at(index).id;
        self.0.depth.send_replace(state.depth);
        drop(state);
        log::error!("event {id} is lost before it reached a server: {error}");
        self.0.store.write_soon(move |batch| batch.delete(key(number)));
    }

    fn state(&self) -> MutexGuard<'_, SpoolState> {
        self.0.state.lock()
    }
}

impl SpoolState {
    /// Removes a confirmed event, and returns its number.
    fn remove(&mut self, id: EventId) -> Option<u64> {
        // Events are confirmed in order, so this finds it at the front.
        let index = self.entries.iter().position(|entry| entry.id == id)?;
        Some(self.remove_at(index).number)
    }

    fn remove_at(&mut self, index: usize) -> SpoolEntry {
        let removed = self.entries.remove(index).expect("it was found there");
        if index < self.sent {
            self.sent -= 1;
            self.sent_bytes -= removed.bytes;
        }
        self.depth -= 1;
        removed
    }
}

/// The record with this number and the bytes it takes.
fn record(store: &Store, number: u64) -> Result<Option<(SpoolRecord, usize)>, StoreError> {
    let key = key(number);
    let Some(value) = store.get(&key)? else { return Ok(None) };
    let record = serde_json::from_slice(&value).map_err(|error| StoreError::damaged(&key, error))?;
    Ok(Some((record, value.len())))
}

fn key(number: u64) -> Vec<u8> {
    keys::key(keys::SPOOL, &[&number.to_be_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::server_link::{QueuedMessage, ServerLink, ServerOutboxReceiver};
    use crate::model::agent_protocol;
    use crate::platform::store::test_support::copy_directory;
    use std::path::Path;

    const RAISED_AT: Timestamp = Timestamp::from_micros(1_700_000_000_000_120);

    fn open(directory: &Path, limit: usize) -> (Store, Spool) {
        let store = Store::open(directory, 0, Arc::default()).unwrap();
        (store.clone(), Spool::open(store, limit).unwrap())
    }

    fn payload(n: usize) -> Box<RawValue> {
        RawValue::from_string(format!("{{\"n\": {n}}}")).unwrap()
    }

    async fn push(spool: &Spool, range: std::ops::Range<usize>) -> Vec<EventId> {
        let mut ids = Vec::new();
        for n in range {
            ids.push(spool.push(None, "deploy.done", payload(n), RAISED_AT).await.unwrap());
        }
        ids
    }

    fn settle(spool: &Spool, id: EventId, outcome: EventOutcome) {
        spool.settle(&[EventConfirmation { id, outcome }]);
    }

    /// A task that sends over a link, and the messages on it.
    fn sending(spool: &Spool) -> (tokio::task::JoinHandle<()>, ServerOutboxReceiver) {
        let (link, messages) = ServerLink::new("http://127.0.0.1:1".parse().unwrap(), Duration::from_secs(15));
        let spool = spool.clone();
        let task = tokio::spawn(async move {
            let Err(LinkDown) = spool.send_over(&link.outbox).await;
        });
        (task, messages)
    }

    async fn sent(messages: &mut ServerOutboxReceiver) -> (EventId, String) {
        let Some(queued) = messages.recv().await else { panic!("a message") };
        let QueuedMessage::Encoded(bytes) = queued.message else { panic!("a message") };
        match agent_protocol::decode(&bytes).unwrap() {
            ToServer::Event { id, kind, payload, raised_at } => {
                assert_eq!((kind.as_str(), raised_at), ("deploy.done", Some(RAISED_AT)));
                (id, payload.get().to_owned())
            }
            other => panic!("{other:?}"),
        }
    }

    async fn sent_ids(messages: &mut ServerOutboxReceiver, count: usize) -> Vec<EventId> {
        let mut ids = Vec::new();
        for _ in 0..count {
            ids.push(sent(messages).await.0);
        }
        ids
    }

    #[tokio::test]
    async fn events_are_sent_in_order_and_deleted_once_confirmed() {
        let scratch = tempfile::tempdir().unwrap();
        let (store, spool) = open(scratch.path(), 100);
        let early = push(&spool, 0..3).await;
        let (task, mut messages) = sending(&spool);
        assert_eq!(sent(&mut messages).await, (early[0], "{\"n\": 0}".to_owned()));
        assert_eq!(sent_ids(&mut messages, 2).await, early[1..]);
        let late = push(&spool, 3..4).await;
        assert_eq!(sent_ids(&mut messages, 1).await, late);
        assert_eq!(spool.depth(), 4);
        for id in early.iter().chain(&late) {
            settle(&spool, *id, EventOutcome::Stored);
            settle(&spool, *id, EventOutcome::Stored);
        }
        tokio::time::timeout(Duration::from_secs(10), spool.emptied()).await.unwrap();
        task.abort();
        store.close().await;
        assert_eq!(store.scan(&[keys::SPOOL]).count(), 0);
    }

    #[tokio::test]
    async fn after_a_broken_link_everything_unconfirmed_is_sent_again_from_the_oldest() {
        let scratch = tempfile::tempdir().unwrap();
        let (store, spool) = open(scratch.path(), 100);
        let ids = push(&spool, 0..5).await;
        let (task, mut messages) = sending(&spool);
        let (waiting, mut next) = sending(&spool);
        assert_eq!(sent_ids(&mut messages, 5).await, ids);
        // Out of order, which a server would not do.
        settle(&spool, ids[2], EventOutcome::Stored);
        settle(&spool, ids[0], EventOutcome::Refused("no".to_owned()));
        assert!(next.try_recv().is_none(), "one link sends at a time");
        task.abort();
        assert_eq!(sent_ids(&mut next, 3).await, [ids[1], ids[3], ids[4]]);
        waiting.abort();
        store.close().await;
    }

    #[tokio::test]
    async fn an_accepted_event_survives_the_agent() {
        let scratch = tempfile::tempdir().unwrap();
        let (store, spool) = open(scratch.path(), 100);
        let ids = push(&spool, 0..20).await;
        // Nothing is closed, as after a kill, and the next run sees the state on disk.
        drop(spool);
        let copy = tempfile::tempdir().unwrap();
        copy_directory(scratch.path(), copy.path());
        store.close().await;
        let (store, spool) = open(copy.path(), 100);
        assert_eq!(spool.depth(), 20);
        let more = push(&spool, 20..21).await;
        let (task, mut messages) = sending(&spool);
        assert_eq!(sent_ids(&mut messages, 21).await, [ids, more].concat());
        task.abort();
        store.close().await;
    }

    #[tokio::test]
    async fn a_record_of_an_older_version_has_no_moment_of_raising_and_is_sent() {
        let scratch = tempfile::tempdir().unwrap();
        let (store, _) = open(scratch.path(), 3);
        let id = EventId::new();
        let old = serde_json::json!({"id": id, "type": "deploy.done", "payload": {}}).to_string();
        store.write(move |batch| batch.put(key(0), old)).await.unwrap();
        let spool = Spool::open(store.clone(), 3).unwrap();
        let sent = spool.read(spool.advance().unwrap()).unwrap();
        assert!(matches!(sent, ToServer::Event { id: sent, raised_at: None, .. } if sent == id), "{sent:?}");
        store.close().await;
    }

    #[tokio::test]
    async fn a_damaged_event_stops_neither_the_start_nor_the_events_behind_it() {
        let scratch = tempfile::tempdir().unwrap();
        let (store, spool) = open(scratch.path(), 100);
        let ids = push(&spool, 0..3).await;
        store.damage(&key(0));
        store.damage(&key(2));
        let spool = Spool::open(store.clone(), 100).unwrap();
        assert_eq!(spool.depth(), 1);
        let late = push(&spool, 3..4).await;
        let (task, mut messages) = sending(&spool);
        assert_eq!(sent_ids(&mut messages, 2).await, [ids[1], late[0]]);
        assert_eq!(
            store.get(&key(3)).unwrap().map(|_| ()),
            Some(()),
            "the number of a damaged event is not used again"
        );
        task.abort();
        store.close().await;
    }

    #[tokio::test]
    async fn an_event_that_is_damaged_later_is_given_up_and_the_spool_empties() {
        let scratch = tempfile::tempdir().unwrap();
        let (store, spool) = open(scratch.path(), 100);
        let ids = push(&spool, 0..3).await;
        store.damage(&key(1));
        let (task, mut messages) = sending(&spool);
        assert_eq!(sent_ids(&mut messages, 2).await, [ids[0], ids[2]]);
        assert_eq!(spool.depth(), 2);
        settle(&spool, ids[0], EventOutcome::Stored);
        settle(&spool, ids[2], EventOutcome::Stored);
        tokio::time::timeout(Duration::from_secs(10), spool.emptied()).await.unwrap();
        task.abort();
        store.close().await;
        assert_eq!(store.keys(vec![keys::SPOOL]..vec![keys::SPOOL + 1]).count(), 0);
    }

    #[tokio::test]
    async fn a_full_spool_refuses_events_and_says_so() {
        let scratch = tempfile::tempdir().unwrap();
        let (store, spool) = open(scratch.path(), 3);
        let ids = push(&spool, 0..3).await;
        let error = spool.push(None, "deploy.done", payload(4), RAISED_AT).await.unwrap_err();
        assert!(matches!(error, SpoolError::Full(3)) && error.to_string().contains("agent.spool"), "{error}");
        settle(&spool, ids[0], EventOutcome::Stored);
        push(&spool, 4..5).await;
        store.close().await;
    }

    #[tokio::test]
    async fn many_at_once_are_no_more_than_the_limit_and_keep_one_order() {
        let scratch = tempfile::tempdir().unwrap();
        let (store, spool) = open(scratch.path(), 50);
        let pushes: Vec<_> = (0..80)
            .map(|n| {
                let spool = spool.clone();
                tokio::spawn(async move { spool.push(None, "deploy.done", payload(n), RAISED_AT).await })
            })
            .collect();
        let mut taken = Vec::new();
        for push in pushes {
            taken.extend(push.await.unwrap().ok());
        }
        assert_eq!(taken.len(), 50);
        taken.sort();
        let (task, mut messages) = sending(&spool);
        assert_eq!(sent_ids(&mut messages, 50).await, taken, "ids are in the order of the spool");
        task.abort();
        store.close().await;
    }

    #[tokio::test]
    async fn no_more_than_a_window_is_sent_ahead() {
        let scratch = tempfile::tempdir().unwrap();
        let (store, spool) = open(scratch.path(), 2 * WINDOW);
        let pushes = (0..WINDOW + 1).map(|n| spool.push(None, "deploy.done", payload(n), RAISED_AT));
        futures_util::future::try_join_all(pushes).await.unwrap();
        let (task, mut messages) = sending(&spool);
        let ids = sent_ids(&mut messages, WINDOW).await;
        assert!(spool.advance().is_none());
        settle(&spool, ids[0], EventOutcome::Stored);
        sent(&mut messages).await;
        task.abort();
        store.close().await;
    }

    #[tokio::test]
    async fn a_server_that_confirms_nothing_is_sent_everything_again() {
        let scratch = tempfile::tempdir().unwrap();
        let (store, spool) = open(scratch.path(), 10);
        let ids = push(&spool, 0..2).await;
        let (task, mut messages) = sending(&spool);
        assert_eq!(sent_ids(&mut messages, 2).await, ids);
        tokio::time::pause();
        assert_eq!(sent_ids(&mut messages, 2).await, ids);
        tokio::time::resume();
        task.abort();
        store.close().await;
    }
}
