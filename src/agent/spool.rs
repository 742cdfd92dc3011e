//! The events raised in this space that no server has yet: on disk, in order, bounded.
//!
//! An event is taken once it is on disk ([`Spool::push`]). One link at a time carries ([`Spool::carry`]): it sends the
//! events in order, several ahead of their confirmations, and starts again at the oldest unconfirmed one whenever a
//! link takes over. The server drops an id it has, so that sending twice is harmless and losing impossible. A confirmed
//! event is forgotten ([`Spool::settle`]); a crash before that is on disk only means sending it again.
//!
//! Keys are numbers of our own: ids are made from the clock, and clocks can be set back.

use super::server_link::{Down, Outbox};
use crate::{
    model::{
        agent_protocol::{EventReceipt, ToServer},
        id::EventId,
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

/// Events sent ahead of their confirmations, in number and in bytes.
const WINDOW: usize = 256;
const WINDOW_BYTES: usize = 4 << 20;

/// A server that confirms nothing for so long is sent everything again.
const RESEND: Duration = Duration::from_secs(30);

/// The spool. Cloning it is cheap.
#[derive(Clone)]
pub struct Spool(Arc<Shared>);

struct Shared {
    store: Store,
    limit: usize,
    state: Mutex<State>,
    /// How many events there are, told at every change.
    depth: watch::Sender<usize>,
    /// Whoever holds it carries.
    carrier: Semaphore,
}

struct State {
    /// What is on disk, oldest first. The first `sent` of them are on their way.
    waiting: VecDeque<Waiting>,
    sent: usize,
    sent_bytes: usize,
    /// Those in `waiting`, and those that are being written.
    depth: usize,
    /// The number of the next event.
    next: u64,
    /// When a confirmation last came, or the first event of a window went out.
    progress: Instant,
}

struct Waiting {
    number: u64,
    id: EventId,
    bytes: usize,
}

/// An event as it is stored.
#[derive(Serialize, Deserialize)]
struct Stored {
    id: EventId,
    /// As the user named it, without `custom.`.
    #[serde(rename = "type")]
    kind: String,
    payload: Box<RawValue>,
}

/// Why an event was not taken.
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
    /// Finds what an earlier run has left.
    ///
    /// # Errors
    ///
    /// Fails if the database cannot be read.
    pub fn open(store: Store, limit: usize) -> Result<Self, StoreError> {
        let mut waiting = VecDeque::new();
        let mut next = 0;
        for entry in store.scan(&[keys::SPOOL]) {
            let (key, value) = entry?;
            let number = keys::number(&key, 1).ok_or_else(|| StoreError::damaged(&key, "its key is no number"))?;
            next = number + 1;
            match serde_json::from_slice::<Stored>(&value) {
                Ok(stored) => waiting.push_back(Waiting { number, id: stored.id, bytes: value.len() }),
                Err(error) => log::error!("spooled event {number} cannot be read and is left where it is: {error}"),
            }
        }
        let depth = waiting.len();
        let state = State { waiting, sent: 0, sent_bytes: 0, depth, next, progress: Instant::now() };
        Ok(Self(Arc::new(Shared {
            store,
            limit,
            state: Mutex::new(state),
            depth: watch::Sender::new(depth),
            carrier: Semaphore::new(1),
        })))
    }

    /// Takes an event, and gives it an id, once it is on disk.
    ///
    /// # Errors
    ///
    /// Fails if there are too many already, or the disk takes no more. Nothing is kept then.
    pub async fn push(&self, kind: &str, payload: Box<RawValue>) -> Result<EventId, SpoolError> {
        self.0.store.check_room()?;
        let (writing, written) = (self.clone(), self.clone());
        let kind = kind.to_owned();
        let taken = self.0.store.write_then(
            move |batch| {
                // Here, on the thread that writes, so that numbers and ids have one order.
                let (number, id) = writing.reserve()?;
                let value = serde_json::to_vec(&Stored { id, kind, payload }).expect("strings and JSON are JSON");
                let bytes = value.len();
                batch.put(key(number), value);
                Ok(Waiting { number, id, bytes })
            },
            move |taken| {
                if let Ok(waiting) = taken {
                    written.enqueue(waiting);
                }
            },
        );
        taken.await?.map(|waiting| waiting.id)
    }

    /// Forgets an event that a server has, or will never take.
    pub fn settle(&self, id: EventId, receipt: &EventReceipt) {
        if let EventReceipt::Refused(reason) = receipt {
            log::error!("the server refused event {id}, which is lost: {reason}");
        }
        let mut state = self.state();
        // The oldest is confirmed first, so this is short.
        let Some(index) = state.waiting.iter().position(|waiting| waiting.id == id) else { return };
        let settled = state.waiting.remove(index).expect("it was found there");
        if index < state.sent {
            state.sent -= 1;
            state.sent_bytes -= settled.bytes;
        }
        state.depth -= 1;
        state.progress = Instant::now();
        self.0.depth.send_replace(state.depth);
        drop(state);
        self.0.store.write_soon(move |batch| batch.delete(key(settled.number)));
    }

    /// Sends the events over one link for as long as it holds, after whichever link carried before.
    ///
    /// # Errors
    ///
    /// Ends when the link does. What was not confirmed is sent again by the next.
    pub async fn carry(&self, outbox: &Outbox) -> Result<Infallible, Down> {
        let _carrier = self.0.carrier.acquire().await.map_err(|_| Down)?;
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

    /// How many events no server has yet.
    pub fn depth(&self) -> usize {
        self.state().depth
    }

    /// How many there can be.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// Resolves once a server has everything.
    pub async fn emptied(&self) {
        // The sender lives as long as we do.
        let _ = self.0.depth.subscribe().wait_for(|depth| *depth == 0).await;
    }

    fn reserve(&self) -> Result<(u64, EventId), SpoolError> {
        let mut state = self.state();
        if state.depth >= self.0.limit {
            return Err(SpoolError::Full(state.depth));
        }
        let number = state.next;
        state.next += 1;
        state.depth += 1;
        Ok((number, EventId::new()))
    }

    fn enqueue(&self, waiting: &Waiting) {
        let mut state = self.state();
        state.waiting.push_back(Waiting { ..*waiting });
        self.0.depth.send_replace(state.depth);
    }

    /// Everything is unsent again.
    fn rewind(&self) {
        let mut state = self.state();
        (state.sent, state.sent_bytes) = (0, 0);
    }

    /// The next event to send, if the window has room for it. It counts as sent from here on.
    fn advance(&self) -> Option<u64> {
        let mut state = self.state();
        let next = state.waiting.get(state.sent)?;
        let (number, bytes) = (next.number, next.bytes);
        if state.sent > 0 && (state.sent >= WINDOW || state.sent_bytes + bytes > WINDOW_BYTES) {
            return None;
        }
        if state.sent == 0 {
            state.progress = Instant::now();
        }
        state.sent += 1;
        state.sent_bytes += bytes;
        Some(number)
    }

    fn is_overdue(&self) -> bool {
        let state = self.state();
        state.sent > 0 && state.progress.elapsed() >= RESEND
    }

    fn resend(&self) {
        let sent = self.state().sent;
        if sent > 0 {
            log::warn!("the server has confirmed none of {sent} events for {} s: sending them again", RESEND.as_secs());
            self.rewind();
        }
    }

    fn read(&self, number: u64) -> Option<ToServer> {
        let value = match self.0.store.get(&key(number)) {
            Ok(value) => value?,
            Err(error) => {
                log::error!("spooled event {number} stays for now: {error}");
                return None;
            }
        };
        // It was read when it was written or found.
        let stored: Stored = serde_json::from_slice(&value).ok()?;
        Some(ToServer::Event { id: stored.id, kind: stored.kind, payload: stored.payload })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }
}

fn key(number: u64) -> Vec<u8> {
    keys::key(keys::SPOOL, &[&number.to_be_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::server_link::{Link, Parcel};
    use crate::model::agent_protocol;
    use std::path::{Path, PathBuf};
    use tokio::sync::mpsc;

    /// A data directory of a test's own, gone with it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Self {
            Self(std::env::temp_dir().join(format!("svc-spool-{}", uuid::Uuid::now_v7())))
        }

        fn open(&self, limit: usize) -> (Store, Spool) {
            let store = open(&self.0);
            (store.clone(), Spool::open(store, limit).unwrap())
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn open(directory: &Path) -> Store {
        Store::open(directory, 0, Arc::default()).unwrap()
    }

    fn payload(n: usize) -> Box<RawValue> {
        RawValue::from_string(format!("{{\"n\": {n}}}")).unwrap()
    }

    async fn push(spool: &Spool, range: std::ops::Range<usize>) -> Vec<EventId> {
        let mut ids = Vec::new();
        for n in range {
            ids.push(spool.push("deploy.done", payload(n)).await.unwrap());
        }
        ids
    }

    /// A link that carries, and what goes over it.
    fn carrying(spool: &Spool) -> (tokio::task::JoinHandle<()>, mpsc::Receiver<Parcel>) {
        let (link, parcels) = Link::new("http://127.0.0.1:1".parse().unwrap(), Duration::from_secs(15));
        let spool = spool.clone();
        let carrier = tokio::spawn(async move {
            let Err(Down) = spool.carry(&link.outbox).await;
        });
        (carrier, parcels)
    }

    async fn sent(parcels: &mut mpsc::Receiver<Parcel>) -> (EventId, String) {
        let Some(Parcel::Message(bytes, _room)) = parcels.recv().await else { panic!("a message") };
        match agent_protocol::decode(&bytes).unwrap() {
            ToServer::Event { id, kind, payload } => {
                assert_eq!(kind, "deploy.done");
                (id, payload.get().to_owned())
            }
            other => panic!("{other:?}"),
        }
    }

    async fn sent_ids(parcels: &mut mpsc::Receiver<Parcel>, count: usize) -> Vec<EventId> {
        let mut ids = Vec::new();
        for _ in 0..count {
            ids.push(sent(parcels).await.0);
        }
        ids
    }

    #[tokio::test]
    async fn events_go_out_in_order_and_are_forgotten_once_confirmed() {
        let scratch = Scratch::new();
        let (store, spool) = scratch.open(100);
        let early = push(&spool, 0..3).await;
        let (carrier, mut parcels) = carrying(&spool);
        assert_eq!(sent(&mut parcels).await, (early[0], "{\"n\": 0}".to_owned()));
        assert_eq!(sent_ids(&mut parcels, 2).await, early[1..]);
        let late = push(&spool, 3..4).await;
        assert_eq!(sent_ids(&mut parcels, 1).await, late);
        assert_eq!(spool.depth(), 4);
        for id in early.iter().chain(&late) {
            spool.settle(*id, &EventReceipt::Stored);
            spool.settle(*id, &EventReceipt::Stored);
        }
        tokio::time::timeout(Duration::from_secs(10), spool.emptied()).await.unwrap();
        carrier.abort();
        store.close().await;
        assert_eq!(store.scan(&[keys::SPOOL]).count(), 0);
    }

    #[tokio::test]
    async fn after_a_broken_link_everything_unconfirmed_is_sent_again_from_the_oldest() {
        let scratch = Scratch::new();
        let (store, spool) = scratch.open(100);
        let ids = push(&spool, 0..5).await;
        let (carrier, mut parcels) = carrying(&spool);
        let (waiting, mut next) = carrying(&spool);
        assert_eq!(sent_ids(&mut parcels, 5).await, ids);
        // Out of order, which a server would not do.
        spool.settle(ids[2], &EventReceipt::Stored);
        spool.settle(ids[0], &EventReceipt::Refused("no".to_owned()));
        assert!(next.try_recv().is_err(), "one link carries at a time");
        carrier.abort();
        assert_eq!(sent_ids(&mut next, 3).await, [ids[1], ids[3], ids[4]]);
        waiting.abort();
        store.close().await;
    }

    #[tokio::test]
    async fn what_was_answered_survives_the_agent() {
        let scratch = Scratch::new();
        let (store, spool) = scratch.open(100);
        let ids = push(&spool, 0..20).await;
        // As after a kill: nothing is closed, and the next run sees what is on the disk.
        drop(spool);
        let copy = Scratch::new();
        copy_directory(&scratch.0, &copy.0);
        store.close().await;
        let (store, spool) = copy.open(100);
        assert_eq!(spool.depth(), 20);
        let more = push(&spool, 20..21).await;
        let (carrier, mut parcels) = carrying(&spool);
        assert_eq!(sent_ids(&mut parcels, 21).await, [ids, more].concat());
        carrier.abort();
        store.close().await;
    }

    #[tokio::test]
    async fn a_full_spool_takes_nothing_and_says_so() {
        let scratch = Scratch::new();
        let (store, spool) = scratch.open(3);
        let ids = push(&spool, 0..3).await;
        let error = spool.push("deploy.done", payload(4)).await.unwrap_err();
        assert!(matches!(error, SpoolError::Full(3)) && error.to_string().contains("agent.spool"), "{error}");
        spool.settle(ids[0], &EventReceipt::Stored);
        push(&spool, 4..5).await;
        store.close().await;
    }

    #[tokio::test]
    async fn many_at_once_are_no_more_than_the_limit_and_keep_one_order() {
        let scratch = Scratch::new();
        let (store, spool) = scratch.open(50);
        let pushes: Vec<_> = (0..80)
            .map(|n| {
                let spool = spool.clone();
                tokio::spawn(async move { spool.push("deploy.done", payload(n)).await })
            })
            .collect();
        let mut taken = Vec::new();
        for push in pushes {
            taken.extend(push.await.unwrap().ok());
        }
        assert_eq!(taken.len(), 50);
        taken.sort();
        let (carrier, mut parcels) = carrying(&spool);
        assert_eq!(sent_ids(&mut parcels, 50).await, taken, "ids are in the order of the spool");
        carrier.abort();
        store.close().await;
    }

    #[tokio::test]
    async fn no_more_than_a_window_is_on_its_way() {
        let scratch = Scratch::new();
        let (store, spool) = scratch.open(2 * WINDOW);
        let pushes = (0..WINDOW + 1).map(|n| spool.push("deploy.done", payload(n)));
        futures_util::future::try_join_all(pushes).await.unwrap();
        let (carrier, mut parcels) = carrying(&spool);
        let ids = sent_ids(&mut parcels, WINDOW).await;
        assert!(spool.advance().is_none());
        spool.settle(ids[0], &EventReceipt::Stored);
        sent(&mut parcels).await;
        carrier.abort();
        store.close().await;
    }

    #[tokio::test]
    async fn a_server_that_confirms_nothing_is_sent_everything_again() {
        let scratch = Scratch::new();
        let (store, spool) = scratch.open(10);
        let ids = push(&spool, 0..2).await;
        let (carrier, mut parcels) = carrying(&spool);
        assert_eq!(sent_ids(&mut parcels, 2).await, ids);
        tokio::time::pause();
        assert_eq!(sent_ids(&mut parcels, 2).await, ids);
        tokio::time::resume();
        carrier.abort();
        store.close().await;
    }

    fn copy_directory(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let target = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                copy_directory(&entry.path(), &target);
            } else {
                std::fs::copy(entry.path(), target).unwrap();
            }
        }
    }
}
