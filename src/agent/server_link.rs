//! The agent's handle on a live link to one server: sends replies, events and registrations, and awaits the server's
//! answers to registrations.
//!
//! The [`connection`](super::connection) owns the socket and takes the queued messages from the other end of the
//! outbox, so no sender waits for the network ([`crate::platform::outbox`]).

use super::server_url::ServerUrl;
use crate::{
    model::{
        agent_protocol::{self, ToServer},
        method::{GroupIds, Registration},
    },
    platform::{
        config::{Size, Span},
        outbox::{self, Outbox, OutboxClosed, OutboxReceiver},
    },
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

/// One link, from the server's welcome to its end.
#[derive(Debug)]
pub struct ServerLink {
    pub server: ServerUrl,
    pub outbox: ServerOutbox,
    /// Registrations that wait for the server's answer, by generation.
    pending: Mutex<HashMap<u64, oneshot::Sender<Result<GroupIds, String>>>>,
    /// The generation that the server accepted last on this link; `None` if it has no methods of this space.
    published: watch::Sender<Option<u64>>,
    /// The server's reason for refusing the current registration.
    refusal: Mutex<Option<String>>,
    /// The server's warnings about the registration that it accepted last.
    warnings: Mutex<Vec<String>>,
    /// Time in which the server must answer a registration.
    answer_timeout: Duration,
    down: CancellationToken,
}

/// Messages to one server. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct ServerOutbox(Outbox<QueuedMessage>);

/// Receives the queued messages, for the connection to send.
pub type ServerOutboxReceiver = OutboxReceiver<QueuedMessage>;

/// A queued message.
#[derive(Debug)]
pub enum QueuedMessage {
    /// An encoded message.
    Encoded(Bytes),
    /// The last one: a goodbye, after which the socket is closed.
    Goodbye,
}

/// The link ended before the message could be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the link is down")]
pub struct LinkDown;

/// A registration that a server did not accept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishFault {
    /// The registration breaks a rule of the server.
    #[error("{0}")]
    Refused(String),
    #[error("the link broke before the server had answered")]
    Down,
    /// The link is closed then, because the server's state is unknown.
    #[error("the server did not answer within {}", Span(*.0))]
    Timeout(Duration),
}

impl ServerLink {
    /// A new link, and the messages that its connection is to send.
    pub fn new(server: ServerUrl, answer_timeout: Duration) -> (Arc<Self>, ServerOutboxReceiver) {
        let (outbox, messages) = outbox::outbox();
        let link = Self {
            server,
            outbox: ServerOutbox(outbox),
            pending: Mutex::default(),
            published: watch::Sender::new(None),
            refusal: Mutex::default(),
            warnings: Mutex::default(),
            answer_timeout,
            down: CancellationToken::new(),
        };
        (Arc::new(link), messages)
    }

    /// Publishes a registration under a generation, and waits until the server has accepted it. `groups` are those that
    /// this server found for it before; returns those that it found now.
    ///
    /// # Errors
    ///
    /// Fails if the server refuses it or does not answer.
    pub async fn register(
        &self,
        generation: u64,
        registration: &Registration,
        groups: GroupIds,
    ) -> Result<GroupIds, PublishFault> {
        let message = ToServer::Register { generation, registration: registration.clone(), groups };
        let (size, most) = (agent_protocol::encode(&message).len(), agent_protocol::MAX_MESSAGE);
        if size > most {
            return Err(PublishFault::Refused(format!(
                "the methods take {} as a message to the server, and at most {} are allowed: shorten schemas and \
                 descriptions, or divide the methods among spaces",
                Size(size as u64),
                Size(most as u64)
            )));
        }
        let groups = self.request(generation, &message).await?;
        self.published.send_replace(Some(generation));
        self.set_refusal(None);
        Ok(groups)
    }

    /// Withdraws all methods.
    ///
    /// # Errors
    ///
    /// Fails as [`ServerLink::register`] does.
    pub async fn unregister(&self, generation: u64) -> Result<(), PublishFault> {
        self.request(generation, &ToServer::Unregister { generation }).await?;
        self.published.send_replace(None);
        self.set_refusal(None);
        Ok(())
    }

    /// Hands the server's answer to the registration that waits for it.
    pub fn resolve(&self, generation: u64, answer: Result<GroupIds, String>) {
        let pending = self.pending.lock().remove(&generation);
        match pending {
            Some(pending) => {
                let _ = pending.send(answer);
            }
            None => log::debug!("{}: an answer to generation {generation}, which nobody waits for", self.server),
        }
    }

    /// Follows the generation that the server has accepted.
    pub fn published(&self) -> watch::Receiver<Option<u64>> {
        self.published.subscribe()
    }

    pub fn set_refusal(&self, reason: Option<String>) {
        *self.refusal.lock() = reason;
    }

    /// The server's reason for refusing the current registration.
    pub fn refusal(&self) -> Option<String> {
        self.refusal.lock().clone()
    }

    /// Keeps and logs the server's warnings about the registration that it has just accepted.
    pub fn set_warnings(&self, warnings: Vec<String>) {
        for warning in &warnings {
            log::warn!("{} warns about the registration: {warning}", self.server);
        }
        *self.warnings.lock() = warnings;
    }

    /// The server's warnings about the registration that it accepted last.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.lock().clone()
    }

    /// Marks the link as down. Pending registrations fail.
    pub fn close(&self) {
        self.down.cancel();
        self.pending.lock().clear();
    }

    /// Resolves once the link is down.
    pub async fn closed(&self) {
        self.down.cancelled().await;
    }

    async fn request(&self, generation: u64, message: &ToServer) -> Result<GroupIds, PublishFault> {
        let (sender, answer) = oneshot::channel();
        self.pending.lock().insert(generation, sender);
        if self.down.is_cancelled() {
            self.pending.lock().remove(&generation);
            return Err(PublishFault::Down);
        }
        let exchange = async {
            self.outbox.send(message).await.map_err(|LinkDown| PublishFault::Down)?;
            answer.await.map_err(|_| PublishFault::Down)?.map_err(PublishFault::Refused)
        };
        let answered = tokio::time::timeout(self.answer_timeout, exchange).await;
        answered.unwrap_or_else(|_| {
            // The server may or may not have accepted it. The next link begins with a publication.
            self.close();
            Err(PublishFault::Timeout(self.answer_timeout))
        })
    }
}

impl ServerOutbox {
    /// Queues a message, once there is room for it.
    ///
    /// # Errors
    ///
    /// Fails once the link is down.
    pub async fn send(&self, message: &ToServer) -> Result<(), LinkDown> {
        let bytes = Bytes::from(agent_protocol::encode(message));
        let kib = outbox::kib(bytes.len()).saturating_add(1);
        Ok(self.0.send(QueuedMessage::Encoded(bytes), kib).await?)
    }

    /// Queues a goodbye, which is sent after all messages before it.
    ///
    /// # Errors
    ///
    /// Fails once the link is down.
    pub async fn send_goodbye(&self) -> Result<(), LinkDown> {
        Ok(self.0.send(QueuedMessage::Goodbye, 0).await?)
    }
}

impl From<OutboxClosed> for LinkDown {
    fn from(_: OutboxClosed) -> Self {
        Self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::outbox::MAX_KIB;

    fn link() -> (Arc<ServerLink>, ServerOutboxReceiver) {
        ServerLink::new("http://127.0.0.1:7300".parse().unwrap(), Duration::from_secs(15))
    }

    #[tokio::test]
    async fn an_answer_goes_to_the_registration_of_its_generation() {
        let (link, mut messages) = link();
        let asker = link.clone();
        let asked = tokio::spawn(async move { asker.unregister(7).await });
        let QueuedMessage::Encoded(bytes) = messages.recv().await.unwrap().message else { panic!("a message") };
        assert!(matches!(agent_protocol::decode(&bytes).unwrap(), ToServer::Unregister { generation: 7 }));
        link.resolve(6, Ok(GroupIds::new()));
        link.resolve(7, Err("no".to_owned()));
        assert_eq!(asked.await.unwrap(), Err(PublishFault::Refused("no".to_owned())));
        assert!(link.pending.lock().is_empty());
    }

    #[tokio::test]
    async fn a_pending_registration_fails_when_its_link_ends() {
        let (link, mut messages) = link();
        let asker = link.clone();
        let asked = tokio::spawn(async move { asker.unregister(1).await });
        messages.recv().await.unwrap();
        link.close();
        assert_eq!(asked.await.unwrap(), Err(PublishFault::Down));
        assert_eq!(link.unregister(2).await, Err(PublishFault::Down));
        assert!(link.pending.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_answer_a_registration_loses_the_link() {
        let (link, _messages) = link();
        assert_eq!(link.unregister(1).await, Err(PublishFault::Timeout(Duration::from_secs(15))));
        assert!(link.pending.lock().is_empty());
        link.closed().await;
    }

    #[tokio::test]
    async fn the_outbox_is_bounded_in_bytes() {
        let (link, mut messages) = link();
        let reply =
            |id| ToServer::Reply { id, reply: agent_protocol::CallReply::Garbled("x".repeat(MAX_KIB as usize * 512)) };
        link.outbox.send(&reply(1)).await.unwrap();
        let outbox = link.outbox.clone();
        let second = tokio::spawn(async move { outbox.send(&reply(2)).await });
        let first = messages.recv().await.unwrap();
        tokio::task::yield_now().await;
        assert!(messages.try_recv().is_none(), "there is no room for a second yet");
        drop(first);
        assert!(matches!(messages.recv().await.unwrap().message, QueuedMessage::Encoded(_)));
        second.await.unwrap().unwrap();
    }
}
