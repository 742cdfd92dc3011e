//! A live link, for whoever has something to say on it: replies, events, registrations and their answers.
//!
//! The conversation itself is in [`super::connection`], which takes what is to be sent from the other end of the [`Outbox`].
//! Nothing here waits for the network: messages stand in a line that is bounded in number and in bytes.

use super::dial::ServerUrl;
use crate::{
    model::{
        agent_protocol::{self, ToServer},
        method::Registration,
    },
    platform::config::Span,
};
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

/// Messages that may stand in line.
const LINE: usize = 1024;

/// What they may weigh together, in KiB. One message fits always.
const LINE_KIB: u32 = 64 << 10;

/// One link from its welcome to its end.
#[derive(Debug)]
pub struct Link {
    pub server: ServerUrl,
    pub outbox: Outbox,
    /// Who waits for the answer to which generation.
    waiting: Mutex<HashMap<u64, oneshot::Sender<Result<(), String>>>>,
    /// The generation that the server has accepted last on this link; `None` if it has no methods from us.
    published: watch::Sender<Option<u64>>,
    /// Why the server does not have what is to be published.
    refusal: Mutex<Option<String>>,
    /// How long the server may think about a registration.
    patience: Duration,
    down: CancellationToken,
}

/// The way into the line of messages. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Outbox {
    line: mpsc::Sender<Parcel>,
    room: Arc<Semaphore>,
}

/// One thing in the line.
#[derive(Debug)]
pub enum Parcel {
    /// An encoded message, and the room it takes.
    Message(Bytes, OwnedSemaphorePermit),
    /// The last one: say goodbye and close.
    Farewell,
}

/// The link ended before it could be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the link is down")]
pub struct Down;

/// Why a server did not take a registration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishFault {
    /// A rule of the server's.
    #[error("{0}")]
    Refused(String),
    #[error("the link broke before the server had answered")]
    Down,
    /// The link is given up then, so that nobody has to guess whether the server has taken it.
    #[error("the server did not answer within {}", Span(*.0))]
    Silent(Duration),
}

impl Link {
    /// A new link and what its conversation is to send.
    pub fn new(server: ServerUrl, patience: Duration) -> (Arc<Self>, mpsc::Receiver<Parcel>) {
        let (line, parcels) = mpsc::channel(LINE);
        let link = Self {
            server,
            outbox: Outbox { line, room: Arc::new(Semaphore::new(LINE_KIB as usize)) },
            waiting: Mutex::default(),
            published: watch::Sender::new(None),
            refusal: Mutex::default(),
            patience,
            down: CancellationToken::new(),
        };
        (Arc::new(link), parcels)
    }

    /// Publishes a registration under a generation, and waits until the server has it.
    ///
    /// # Errors
    ///
    /// Fails if the server refuses it, or does not get to answer.
    pub async fn register(&self, generation: u64, registration: &Registration) -> Result<(), PublishFault> {
        let message = ToServer::Register { generation, registration: registration.clone() };
        self.ask(generation, &message).await?;
        self.published.send_replace(Some(generation));
        self.note_refusal(None);
        Ok(())
    }

    /// Takes all methods back.
    ///
    /// # Errors
    ///
    /// As [`Link::register`].
    pub async fn unregister(&self, generation: u64) -> Result<(), PublishFault> {
        self.ask(generation, &ToServer::Unregister { generation }).await?;
        self.published.send_replace(None);
        self.note_refusal(None);
        Ok(())
    }

    /// Gives a server's answer to whoever waits for it.
    pub fn answer(&self, generation: u64, answer: Result<(), String>) {
        let waiting = self.waiting().remove(&generation);
        match waiting {
            Some(waiting) => {
                let _ = waiting.send(answer);
            }
            None => log::debug!("{}: an answer to generation {generation}, which nobody waits for", self.server),
        }
    }

    /// What the server has of our methods, as it changes.
    pub fn published(&self) -> watch::Receiver<Option<u64>> {
        self.published.subscribe()
    }

    /// Notes why the server does not have what is to be published.
    pub fn note_refusal(&self, why: Option<String>) {
        *self.refusal.lock() = why;
    }

    /// Why the server does not have what is to be published.
    pub fn refusal(&self) -> Option<String> {
        self.refusal.lock().clone()
    }

    /// Notes that the link is gone; who waits for answers gets none.
    pub fn end(&self) {
        self.down.cancel();
        self.waiting().clear();
    }

    /// Resolves once the link is gone.
    pub async fn ended(&self) {
        self.down.cancelled().await;
    }

    async fn ask(&self, generation: u64, message: &ToServer) -> Result<(), PublishFault> {
        let (sender, answer) = oneshot::channel();
        self.waiting().insert(generation, sender);
        if self.down.is_cancelled() {
            self.waiting().remove(&generation);
            return Err(PublishFault::Down);
        }
        let asking = async {
            self.outbox.send(message).await.map_err(|Down| PublishFault::Down)?;
            answer.await.map_err(|_| PublishFault::Down)?.map_err(PublishFault::Refused)
        };
        let answered = tokio::time::timeout(self.patience, asking).await;
        answered.unwrap_or_else(|_| {
            // What the server has of ours is unknown from here on. The next link begins with a publication.
            self.end();
            Err(PublishFault::Silent(self.patience))
        })
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Result<(), String>>>> {
        self.waiting.lock()
    }
}

impl Outbox {
    /// Puts a message in line, once there is a place.
    ///
    /// # Errors
    ///
    /// Fails once the link is down.
    pub async fn send(&self, message: &ToServer) -> Result<(), Down> {
        let bytes = Bytes::from(agent_protocol::encode(message));
        let kib = u32::try_from(bytes.len() / 1024 + 1).unwrap_or(LINE_KIB).min(LINE_KIB);
        let room = self.room.clone().acquire_many_owned(kib).await.map_err(|_| Down)?;
        self.line.send(Parcel::Message(bytes, room)).await.map_err(|_| Down)
    }

    /// Ends the line with a goodbye; what is in it goes first.
    ///
    /// # Errors
    ///
    /// Fails once the link is down.
    pub async fn farewell(&self) -> Result<(), Down> {
        self.line.send(Parcel::Farewell).await.map_err(|_| Down)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::agent_protocol::ToServer;

    fn link() -> (Arc<Link>, mpsc::Receiver<Parcel>) {
        Link::new("http://127.0.0.1:7300".parse().unwrap(), Duration::from_secs(15))
    }

    #[tokio::test]
    async fn an_answer_goes_to_who_asked_and_tells_what_is_published() {
        let (link, mut parcels) = link();
        let asker = link.clone();
        let asked = tokio::spawn(async move { asker.unregister(7).await });
        let Some(Parcel::Message(bytes, _room)) = parcels.recv().await else { panic!("a message") };
        assert!(matches!(agent_protocol::decode(&bytes).unwrap(), ToServer::Unregister { generation: 7 }));
        link.answer(6, Ok(()));
        link.answer(7, Err("no".to_owned()));
        assert_eq!(asked.await.unwrap(), Err(PublishFault::Refused("no".to_owned())));
        assert!(link.waiting().is_empty());
    }

    #[tokio::test]
    async fn who_waits_on_a_link_that_ends_is_told() {
        let (link, mut parcels) = link();
        let asker = link.clone();
        let asked = tokio::spawn(async move { asker.unregister(1).await });
        parcels.recv().await.unwrap();
        link.end();
        assert_eq!(asked.await.unwrap(), Err(PublishFault::Down));
        assert_eq!(link.unregister(2).await, Err(PublishFault::Down));
        assert!(link.waiting().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_answer_is_not_waited_for_for_ever_and_loses_the_link() {
        let (link, _parcels) = link();
        assert_eq!(link.unregister(1).await, Err(PublishFault::Silent(Duration::from_secs(15))));
        assert!(link.waiting().is_empty());
        link.ended().await;
    }

    #[tokio::test]
    async fn the_line_is_bounded_in_bytes() {
        let (link, mut parcels) = link();
        let reply = |id| ToServer::Reply {
            id,
            answer: agent_protocol::CallReply::Garbled("x".repeat(LINE_KIB as usize * 512)),
        };
        link.outbox.send(&reply(1)).await.unwrap();
        let outbox = link.outbox.clone();
        let second = tokio::spawn(async move { outbox.send(&reply(2)).await });
        let Some(Parcel::Message(_, room)) = parcels.recv().await else { panic!("a message") };
        tokio::task::yield_now().await;
        assert!(parcels.try_recv().is_err(), "there is no room for a second yet");
        drop(room);
        assert!(matches!(parcels.recv().await, Some(Parcel::Message(..))));
        second.await.unwrap().unwrap();
    }
}
