//! The server's handle on one agent: sends it messages and awaits its replies.
//!
//! The session that owns the WebSocket ([`crate::server::agent_hub`]) takes what is to be sent from the receiver that [`Link::new`]
//! gives, and hands every reply to [`Link::answer`]. Nothing here waits for the network: what is sent stands in a
//! line that is bounded in number and in bytes, and who has to wait for a place in it does so within the call's own
//! limit.

use crate::model::{
    agent_protocol::{CallReply, Goodbye, ToAgent},
    id::SpaceId,
};
use parking_lot::{Mutex, MutexGuard};
use serde_json::value::RawValue;
use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::{
    OwnedSemaphorePermit, Semaphore,
    mpsc::{self, error::TrySendError},
    oneshot,
};
use tokio_util::sync::CancellationToken;

/// Messages that may stand in line for one agent.
const LINE: usize = 1024;

/// What they may weigh together, in KiB. An agent that does not read must not fill our memory with what it is sent;
/// what weighs less than one is not weighed.
const LINE_KIB: u32 = 64 << 10;

/// What the agent's own limit for a call gets on top here: the way there and back. The agent knows better what happened.
const ON_THE_WAY: Duration = Duration::from_secs(1);

/// One live link. It ends once, and what waits on it then fails.
pub struct Link {
    space: SpaceId,
    line: mpsc::Sender<Parcel>,
    room: Arc<Semaphore>,
    waiting: Mutex<HashMap<u64, oneshot::Sender<CallReply>>>,
    next: AtomicU64,
    ended: CancellationToken,
    /// What to tell the agent when we end the link.
    parting: OnceLock<Goodbye>,
}

/// What stands in line for an agent, for its session to send.
pub struct Line(mpsc::Receiver<Parcel>);

/// A message, and the room it takes while it stands in line.
type Parcel = (ToAgent, Option<OwnedSemaphorePermit>);

/// A call as the agent gets it.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The registration it is for.
    pub generation: u64,
    pub local_name: &'a str,
    pub params: Option<&'a RawValue>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    #[error("the link to the agent is down")]
    Down,
    #[error("the agent did not answer in time")]
    Timeout,
}

/// A call that is out; dropping it withdraws the call.
struct Waiting<'a> {
    link: &'a Link,
    id: u64,
}

impl Link {
    /// A new link and what its session is to send.
    pub fn new(space: SpaceId) -> (Arc<Self>, Line) {
        let (line, messages) = mpsc::channel(LINE);
        let link = Self {
            space,
            line,
            room: Arc::new(Semaphore::new(LINE_KIB as usize)),
            waiting: Mutex::default(),
            next: AtomicU64::new(1),
            ended: CancellationToken::new(),
            parting: OnceLock::new(),
        };
        (Arc::new(link), Line(messages))
    }

    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// Calls a method and waits for what becomes of it, for a little longer than `limit`. Dropping the future withdraws
    /// the call.
    ///
    /// # Errors
    ///
    /// Fails once the link is down, and when the time is over.
    pub async fn call(&self, call: Outgoing<'_>, limit: Duration) -> Result<CallReply, LinkError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.waiting().insert(id, sender);
        let waiting = Waiting { link: self, id };
        if self.ended.is_cancelled() {
            return Err(LinkError::Down);
        }
        let asking = async {
            self.send(call.message(id, Expecting::Answer)).await?;
            answer.await.map_err(|_| LinkError::Down)
        };
        let answered = tokio::time::timeout(limit + ON_THE_WAY, asking).await.unwrap_or(Err(LinkError::Timeout));
        drop(waiting);
        answered
    }

    /// Sends a notification; nobody hears what becomes of it.
    ///
    /// # Errors
    ///
    /// Fails once the link is down.
    pub async fn notify(&self, call: Outgoing<'_>) -> Result<(), LinkError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.send(call.message(id, Expecting::Nothing)).await
    }

    /// Puts a message in line.
    ///
    /// # Errors
    ///
    /// Fails once the link is down.
    pub async fn send(&self, message: ToAgent) -> Result<(), LinkError> {
        if !self.is_up() {
            return Err(LinkError::Down);
        }
        let weight = weight(&message);
        // Most messages are small and find a place at once: nothing to wait for, nothing to give up waiting for.
        let message = match weight {
            0 => match self.line.try_send((message, None)) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full((message, _))) => message,
                Err(TrySendError::Closed(_)) => return Err(LinkError::Down),
            },
            _ => message,
        };
        let sending = async {
            let room = match weight {
                0 => None,
                kib => Some(self.room.clone().acquire_many_owned(kib).await.map_err(|_| LinkError::Down)?),
            };
            self.line.send((message, room)).await.map_err(|_| LinkError::Down)
        };
        tokio::select! {
            biased;
            () = self.ended.cancelled() => Err(LinkError::Down),
            sent = sending => sent,
        }
    }

    /// Puts a message in line without waiting for a place in it. An agent that far behind is better off with a new link.
    pub fn post(&self, message: ToAgent) {
        if self.line.try_send((message, None)).is_err() {
            self.end(Goodbye::Restarting);
        }
    }

    /// Gives an answer to whoever waits for it; one that comes too late, or twice, is nobody's.
    pub fn answer(&self, id: u64, answer: CallReply) {
        let waiting = self.waiting().remove(&id);
        if let Some(waiting) = waiting {
            let _ = waiting.send(answer);
        }
    }

    /// Ends the link; the session tells the agent why, if it still can. The first reason counts.
    pub fn end(&self, why: Goodbye) {
        let _ = self.parting.set(why);
        self.down();
    }

    /// Notes that the link is gone. Every call on it fails at once.
    pub fn down(&self) {
        self.ended.cancel();
        self.waiting().clear();
    }

    /// Resolves once the link has ended, with what to tell the agent if it was we who ended it.
    pub async fn ended(&self) -> Option<Goodbye> {
        self.ended.cancelled().await;
        self.parting.get().cloned()
    }

    pub fn is_up(&self) -> bool {
        !self.ended.is_cancelled()
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<CallReply>>> {
        self.waiting.lock()
    }
}

impl Line {
    /// The next message; `None` once nobody can send any.
    pub async fn recv(&mut self) -> Option<ToAgent> {
        self.0.recv().await.map(|(message, _)| message)
    }

    /// The next message, if there is one now.
    pub fn try_recv(&mut self) -> Option<ToAgent> {
        self.0.try_recv().ok().map(|(message, _)| message)
    }
}

/// What a message weighs in line, in KiB. Only callers send something large, and those who write libraries.
fn weight(message: &ToAgent) -> u32 {
    let bytes = match message {
        ToAgent::Call { params: Some(params), .. } => params.get().len(),
        ToAgent::Libraries(libraries) => libraries.iter().map(|library| library.source.len()).sum(),
        _ => 0,
    };
    u32::try_from(bytes / 1024).map_or(LINE_KIB, |kib| kib.min(LINE_KIB))
}

/// What the sender of a call waits for.
#[derive(Clone, Copy)]
enum Expecting {
    Answer,
    Nothing,
}

impl Outgoing<'_> {
    fn message(self, id: u64, expecting: Expecting) -> ToAgent {
        ToAgent::Call {
            id,
            generation: self.generation,
            method: self.local_name.to_owned(),
            params: self.params.map(RawValue::to_owned),
            notification: matches!(expecting, Expecting::Nothing),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let unanswered = self.link.waiting().remove(&self.id).is_some();
        if unanswered && self.link.is_up() {
            // With a full line the agent finds out by its own limit.
            let _ = self.link.line.try_send((ToAgent::Cancel { id: self.id }, None));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Outgoing<'_> = Outgoing { generation: 1, local_name: "m", params: None };
    const LIMIT: Duration = Duration::from_secs(5);

    fn result(json: &str) -> CallReply {
        CallReply::Result(RawValue::from_string(json.to_owned()).unwrap())
    }

    async fn next_id(messages: &mut Line) -> u64 {
        match messages.recv().await {
            Some(ToAgent::Call { id, .. }) => id,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn answers_find_their_calls_in_any_order() {
        let (link, mut messages) = Link::new(SpaceId::new());
        let (one, two) = (link.clone(), link.clone());
        let one = tokio::spawn(async move { one.call(CALL, LIMIT).await });
        let first = next_id(&mut messages).await;
        let two = tokio::spawn(async move { two.call(CALL, LIMIT).await });
        let second = next_id(&mut messages).await;
        link.answer(second, result("2"));
        link.answer(first, result("1"));
        link.answer(first, result("3"));
        for (call, expected) in [(one, "1"), (two, "2")] {
            let Ok(CallReply::Result(value)) = call.await.unwrap() else { panic!("a result") };
            assert_eq!(value.get(), expected);
        }
        assert!(link.waiting().is_empty());
    }

    #[tokio::test]
    async fn a_link_that_goes_down_fails_what_waits_on_it_and_all_that_follows() {
        let (link, mut messages) = Link::new(SpaceId::new());
        let caller = link.clone();
        let call = tokio::spawn(async move { caller.call(CALL, LIMIT).await });
        next_id(&mut messages).await;
        link.end(Goodbye::Replaced);
        link.end(Goodbye::Stopped);
        assert!(matches!(call.await.unwrap(), Err(LinkError::Down)));
        assert!(matches!(link.call(CALL, LIMIT).await, Err(LinkError::Down)));
        assert_eq!(link.notify(CALL).await, Err(LinkError::Down));
        assert_eq!(link.ended().await, Some(Goodbye::Replaced));
        assert!(link.waiting().is_empty());
    }

    #[tokio::test]
    async fn a_caller_that_goes_away_withdraws_its_call() {
        let (link, mut messages) = Link::new(SpaceId::new());
        let caller = link.clone();
        let call = tokio::spawn(async move { caller.call(CALL, LIMIT).await });
        let called = next_id(&mut messages).await;
        call.abort();
        let Some(ToAgent::Cancel { id }) = messages.recv().await else { panic!("a withdrawal") };
        assert_eq!(id, called);
        assert!(link.waiting().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_stays_silent_is_not_waited_for_for_ever() {
        let (link, _messages) = Link::new(SpaceId::new());
        assert!(matches!(link.call(CALL, LIMIT).await, Err(LinkError::Timeout)));
        // Nor one whose line is full.
        for _ in 0..LINE {
            let _ = link.line.try_send((ToAgent::Registered { generation: 0 }, None));
        }
        assert!(matches!(link.call(CALL, LIMIT).await, Err(LinkError::Timeout)));
        assert!(link.waiting().is_empty());
    }

    #[tokio::test]
    async fn what_stands_in_line_is_bounded_in_bytes_and_small_calls_get_by() {
        let (link, mut messages) = Link::new(SpaceId::new());
        let half = RawValue::from_string(format!("[\"{}\"]", "x".repeat(LINE_KIB as usize * 512))).unwrap();
        let large = Outgoing { params: Some(&half), ..CALL };
        link.notify(large).await.unwrap();
        link.notify(large).await.unwrap();
        let mut third = std::pin::pin!(link.notify(large));
        assert!(futures_util::poll!(third.as_mut()).is_pending(), "there is no room for a third");
        link.notify(CALL).await.unwrap();
        assert!(matches!(messages.recv().await, Some(ToAgent::Call { .. })));
        third.await.unwrap();
        let mut left = 0;
        while messages.try_recv().is_some() {
            left += 1;
        }
        assert_eq!(left, 3);
    }
}
