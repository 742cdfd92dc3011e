//! The server's handle on one linked agent: sends it messages and awaits its replies.
//!
//! The session that owns the WebSocket ([`crate::server::agent_hub`]) takes the queued messages from the receiver that
//! [`AgentLink::new`] returns, and hands every reply to [`AgentLink::resolve`]. No sender waits for the network: the outbox
//! is bounded in number and in bytes ([`crate::platform::outbox`]), and a call waits for room within its own timeout.

use crate::{
    model::{
        agent_protocol::{CallReply, Goodbye, ToAgent},
        id::SpaceId,
    },
    platform::outbox::{self, Outbox, OutboxReceiver},
};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Time on top of a call's timeout for the network. The agent's own timeout comes first, because it knows what happened.
const TRANSIT: Duration = Duration::from_secs(1);

/// One live link. It ends once, and pending calls fail then.
pub struct AgentLink {
    space: SpaceId,
    outbox: Outbox<ToAgent>,
    /// Calls that wait for a reply, by id.
    pending: Mutex<HashMap<u64, oneshot::Sender<CallReply>>>,
    next_id: AtomicU64,
    ended: CancellationToken,
    /// The goodbye for the agent, if the server ended the link.
    goodbye: OnceLock<Goodbye>,
}

/// Receives the queued messages, for the session to send.
pub type AgentOutboxReceiver = OutboxReceiver<ToAgent>;

/// A call as it is sent to the agent.
#[derive(Clone, Copy, Debug)]
pub struct AgentCall<'a> {
    /// The generation of the registration that it is for.
    pub generation: u64,
    pub local_name: &'a str,
    pub params: Option<&'a RawValue>,
}

/// The reason that the link brought no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    #[error("the link to the agent is down")]
    Down,
    #[error("the agent did not answer in time")]
    Timeout,
}

/// A sent call; dropping it cancels the call at the agent.
struct PendingCall<'a> {
    link: &'a AgentLink,
    id: u64,
}

/// The reply that the sender of a call expects.
#[derive(Clone, Copy)]
enum Expected {
    Reply,
    Nothing,
}

impl AgentLink {
    /// A new link, and the messages that its session is to send.
    pub fn new(space: SpaceId) -> (Arc<Self>, AgentOutboxReceiver) {
        let (outbox, messages) = outbox::outbox();
        let link = Self {
            space,
            outbox,
            pending: Mutex::default(),
            next_id: AtomicU64::new(1),
            ended: CancellationToken::new(),
            goodbye: OnceLock::new(),
        };
        (Arc::new(link), messages)
    }

    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// Calls that wait for their replies.
    pub fn calls_under_way(&self) -> usize {
        self.pending.lock().len()
    }

    /// Calls a method, and waits for the reply a little longer than `limit`. Dropping the future cancels the call.
    ///
    /// # Errors
    ///
    /// Fails once the link is down, and when the time is over.
    pub async fn call(&self, call: AgentCall<'_>, limit: Duration) -> Result<CallReply, LinkError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.pending.lock().insert(id, sender);
        let pending = PendingCall { link: self, id };
        if self.ended.is_cancelled() {
            return Err(LinkError::Down);
        }
        let exchange = async {
            self.send(call.message(id, Expected::Reply)).await?;
            answer.await.map_err(|_| LinkError::Down)
        };
        let limit = limit.saturating_add(TRANSIT);
        let answered = tokio::time::timeout(limit, exchange).await.unwrap_or(Err(LinkError::Timeout));
        drop(pending);
        answered
    }

    /// Sends a notification, to which there is no reply.
    ///
    /// # Errors
    ///
    /// Fails once the link is down.
    pub async fn notify(&self, call: AgentCall<'_>) -> Result<(), LinkError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.send(call.message(id, Expected::Nothing)).await
    }

    /// Queues a message, once there is room for it.
    ///
    /// # Errors
    ///
    /// Fails once the link is down.
    pub async fn send(&self, message: ToAgent) -> Result<(), LinkError> {
        if !self.is_up() {
            return Err(LinkError::Down);
        }
        let kib = weight(&message);
        tokio::select! {
            biased;
            () = self.ended.cancelled() => Err(LinkError::Down),
            sent = self.outbox.send(message, kib) => sent.map_err(|_| LinkError::Down),
        }
    }

    /// Queues a message if there is room for it now. Otherwise it ends the link: an agent that far behind is better off
    /// with a new one.
    pub fn send_now(&self, message: ToAgent) {
        let kib = weight(&message);
        if !self.outbox.try_send(message, kib) {
            self.end(Goodbye::Unavailable);
        }
    }

    /// Hands a reply to the call that waits for it; one that comes too late, or twice, is ignored.
    pub fn resolve(&self, id: u64, reply: CallReply) {
        let pending = self.pending.lock().remove(&id);
        if let Some(pending) = pending {
            let _ = pending.send(reply);
        }
    }

    /// Ends the link; the session says goodbye with this reason, if it still can. The first reason counts.
    pub fn end(&self, goodbye: Goodbye) {
        let _ = self.goodbye.set(goodbye);
        self.down();
    }

    /// Marks the link as down. Every pending call fails.
    pub fn down(&self) {
        self.ended.cancel();
        self.pending.lock().clear();
    }

    /// Resolves once the link has ended, with the goodbye if the server ended it.
    pub async fn ended(&self) -> Option<Goodbye> {
        self.ended.cancelled().await;
        self.goodbye.get().cloned()
    }

    pub fn is_up(&self) -> bool {
        !self.ended.is_cancelled()
    }
}

/// The weight of a message in the outbox, in KiB. Only calls, libraries and health checks can be large.
fn weight(message: &ToAgent) -> u32 {
    outbox::kib(match message {
        ToAgent::Call { params: Some(params), .. } => params.get().len(),
        ToAgent::Libraries(libraries) => libraries.iter().map(|library| library.source.len()).sum(),
        ToAgent::Check(Some(check)) => check.get().len(),
        _ => 0,
    })
}

impl AgentCall<'_> {
    fn message(self, id: u64, expected: Expected) -> ToAgent {
        ToAgent::Call {
            id,
            generation: self.generation,
            method: self.local_name.to_owned(),
            params: self.params.map(RawValue::to_owned),
            notification: matches!(expected, Expected::Nothing),
        }
    }
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        let unanswered = self.link.pending.lock().remove(&self.id).is_some();
        if unanswered && self.link.is_up() {
            // With a full outbox the agent's own timeout ends the call.
            self.link.outbox.try_send(ToAgent::Cancel { id: self.id }, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: AgentCall<'_> = AgentCall { generation: 1, local_name: "m", params: None };
    const LIMIT: Duration = Duration::from_secs(5);

    fn result(json: &str) -> CallReply {
        CallReply::Result(RawValue::from_string(json.to_owned()).unwrap())
    }

    async fn next_id(messages: &mut AgentOutboxReceiver) -> u64 {
        match messages.recv().await.map(|queued| queued.message) {
            Some(ToAgent::Call { id, .. }) => id,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn answers_find_their_calls_in_any_order() {
        let (link, mut messages) = AgentLink::new(SpaceId::new());
        let (one, two) = (link.clone(), link.clone());
        let one = tokio::spawn(async move { one.call(CALL, LIMIT).await });
        let first = next_id(&mut messages).await;
        let two = tokio::spawn(async move { two.call(CALL, LIMIT).await });
        let second = next_id(&mut messages).await;
        link.resolve(second, result("2"));
        link.resolve(first, result("1"));
        link.resolve(first, result("3"));
        for (call, expected) in [(one, "1"), (two, "2")] {
            let Ok(CallReply::Result(value)) = call.await.unwrap() else { panic!("a result") };
            assert_eq!(value.get(), expected);
        }
        assert!(link.pending.lock().is_empty());
    }

    #[tokio::test]
    async fn a_link_that_goes_down_fails_its_pending_and_its_later_calls() {
        let (link, mut messages) = AgentLink::new(SpaceId::new());
        let caller = link.clone();
        let call = tokio::spawn(async move { caller.call(CALL, LIMIT).await });
        next_id(&mut messages).await;
        link.end(Goodbye::Replaced);
        link.end(Goodbye::Stopped);
        assert!(matches!(call.await.unwrap(), Err(LinkError::Down)));
        assert!(matches!(link.call(CALL, LIMIT).await, Err(LinkError::Down)));
        assert_eq!(link.notify(CALL).await, Err(LinkError::Down));
        assert_eq!(link.ended().await, Some(Goodbye::Replaced));
        assert!(link.pending.lock().is_empty());
    }

    #[tokio::test]
    async fn a_dropped_call_is_cancelled_at_the_agent() {
        let (link, mut messages) = AgentLink::new(SpaceId::new());
        let caller = link.clone();
        let call = tokio::spawn(async move { caller.call(CALL, LIMIT).await });
        let called = next_id(&mut messages).await;
        call.abort();
        let Some(ToAgent::Cancel { id }) = messages.recv().await.map(|queued| queued.message) else {
            panic!("a cancellation")
        };
        assert_eq!(id, called);
        assert!(link.pending.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_to_an_agent_that_stays_silent_times_out() {
        let (link, _messages) = AgentLink::new(SpaceId::new());
        assert!(matches!(link.call(CALL, LIMIT).await, Err(LinkError::Timeout)));
        // A call to an agent whose outbox is full times out too.
        for _ in 0..outbox::MAX_MESSAGES {
            link.outbox.try_send(ToAgent::Cancel { id: 0 }, 0);
        }
        assert!(matches!(link.call(CALL, LIMIT).await, Err(LinkError::Timeout)));
        assert!(link.pending.lock().is_empty());
    }

    #[tokio::test]
    async fn the_outbox_is_bounded_in_bytes_and_small_calls_pass() {
        let (link, mut messages) = AgentLink::new(SpaceId::new());
        let half = RawValue::from_string(format!("[\"{}\"]", "x".repeat(outbox::MAX_KIB as usize * 512))).unwrap();
        let large = AgentCall { params: Some(&half), ..CALL };
        link.notify(large).await.unwrap();
        link.notify(large).await.unwrap();
        let mut third = std::pin::pin!(link.notify(large));
        assert!(futures_util::poll!(third.as_mut()).is_pending(), "there is no room for a third");
        link.notify(CALL).await.unwrap();
        assert!(matches!(messages.recv().await.unwrap().message, ToAgent::Call { .. }));
        third.await.unwrap();
        let mut left = 0;
        while messages.try_recv().is_some() {
            left += 1;
        }
        assert_eq!(left, 3);
    }
}
