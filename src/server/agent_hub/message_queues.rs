//! The queues of a session for what its agent sends: registrations, events, method server health and check results.
//! [`event_storage`](super::event_storage) stores the events, [`registration`](super::registration) publishes methods.
//!
//! There are two, one for events and one for the rest, so that a reply, which the reader of the link handles itself,
//! never waits for the disk. Each is bounded in number and in bytes, and stops the reader while it is full.

use super::{
    event_storage::{AgentEvent, ConfirmationStyle, IncomingEvent},
    hub::AgentHub,
};
use crate::{
    calls::agent_link::AgentLink,
    identity::Caller,
    model::{
        agent_protocol::{Goodbye, ToAgent, ToServer},
        health_check::CheckResult,
        method::{GroupIds, MethodServerHealth},
    },
    platform::task,
};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Events of one agent that wait to be stored.
const MAX_EVENTS: usize = 512;

/// Other messages of one agent that wait to be handled.
const MAX_NOTICES: usize = 16;

/// Bytes of the events of one agent that wait to be stored, and of its other messages, in KiB. A larger message
/// waits until there is no other.
const EVENTS_KIB: u32 = 8 << 10;
const NOTICES_KIB: u32 = 1 << 10;

/// The sending ends of the two queues.
pub(super) struct MessageQueues {
    events: mpsc::Sender<IncomingEvent>,
    event_memory: Arc<Semaphore>,
    notices: mpsc::Sender<IncomingNotice>,
    notice_memory: Arc<Semaphore>,
}

/// A message of the agent that is no event, with the permit for its memory.
struct IncomingNotice {
    message: ToServer,
    memory: OwnedSemaphorePermit,
}

/// The receiving ends of the two queues.
pub(super) struct MessageReceivers {
    events: mpsc::Receiver<IncomingEvent>,
    notices: mpsc::Receiver<IncomingNotice>,
}

/// The session does not take in messages any more.
pub(super) struct QueuesClosed;

impl MessageQueues {
    pub fn new() -> (Self, MessageReceivers) {
        let (events, incoming_events) = mpsc::channel(MAX_EVENTS);
        let (notices, incoming_notices) = mpsc::channel(MAX_NOTICES);
        let memory = |kib: u32| Arc::new(Semaphore::new(kib as usize));
        let queues = Self { events, event_memory: memory(EVENTS_KIB), notices, notice_memory: memory(NOTICES_KIB) };
        (queues, MessageReceivers { events: incoming_events, notices: incoming_notices })
    }

    /// Queues a message of this many bytes, once there is room for it.
    pub async fn push(&self, message: ToServer, bytes: usize) -> Result<(), QueuesClosed> {
        match message {
            ToServer::Event { id, kind, payload, raised_at } => {
                let memory = reserve(&self.event_memory, bytes, EVENTS_KIB).await;
                let event = AgentEvent { id, kind, payload, raised_at };
                self.events.send(IncomingEvent { event, memory }).await.map_err(|_| QueuesClosed)
            }
            message => {
                let memory = reserve(&self.notice_memory, bytes, NOTICES_KIB).await;
                self.notices.send(IncomingNotice { message, memory }).await.map_err(|_| QueuesClosed)
            }
        }
    }
}

/// Waits for the memory of a message, at most for all there is.
async fn reserve(memory: &Arc<Semaphore>, bytes: usize, most: u32) -> OwnedSemaphorePermit {
    let kib = u32::try_from(bytes / 1024 + 1).unwrap_or(u32::MAX).min(most);
    memory.clone().acquire_many_owned(kib).await.expect("the semaphore is never closed")
}

impl AgentHub {
    /// Handles what the agent sends, until the session ends or has to end. Returns the goodbye for the agent, if the
    /// server ends it.
    pub(super) async fn handle_messages(
        &self,
        caller: &Caller,
        link: &Arc<AgentLink>,
        style: ConfirmationStyle,
        receivers: MessageReceivers,
    ) -> Option<Goodbye> {
        tokio::select! {
            goodbye = self.handle_notices(link, receivers.notices) => goodbye,
            goodbye = self.store_events(caller, link, style, receivers.events) => goodbye,
        }
    }

    /// Handles messages in order, each in a task of its own: a registration must be whole or nothing even if its link
    /// ends meanwhile.
    async fn handle_notices(
        &self,
        link: &Arc<AgentLink>,
        mut notices: mpsc::Receiver<IncomingNotice>,
    ) -> Option<Goodbye> {
        while let Some(IncomingNotice { message, memory }) = notices.recv().await {
            // A registration may take long, and the messages behind it must not stop the reader meanwhile.
            drop(memory);
            let (hub, link) = (self.clone(), link.clone());
            if task::spawn(async move { hub.handle_notice(&link, message).await }).await.is_err() {
                return Some(Goodbye::Unavailable);
            }
        }
        None
    }

    async fn handle_notice(&self, link: &Arc<AgentLink>, notice: ToServer) {
        let (deps, space) = (&self.0.deps, link.space());
        let answer = match notice {
            ToServer::Register { generation, registration, groups } => {
                match self.register(link, generation, registration, groups).await {
                    Ok((groups, warnings)) => ToAgent::Registered { generation, groups, warnings },
                    Err(reason) => {
                        self.note_refusal(link, &reason);
                        ToAgent::Refused { generation, reason }
                    }
                }
            }
            ToServer::Unregister { generation } => {
                let _lock = self.0.lock_registration(link).await;
                if !link.is_up() {
                    return;
                }
                deps.registry.unregister(space);
                match deps.subscriptions.remove(space).await {
                    Ok(()) => ToAgent::Registered { generation, groups: GroupIds::new(), warnings: Vec::new() },
                    Err(error) => ToAgent::Refused { generation, reason: error.to_string() },
                }
            }
            ToServer::Health { generation, health } => {
                let runs = health == MethodServerHealth::Running;
                deps.registry.set_health(space, generation, health);
                if runs {
                    // Deliveries that waited for the method server go on.
                    deps.deliverer.resume_space(space);
                }
                return;
            }
            ToServer::Checked { ok, detail, at } => {
                let result = CheckResult { ok, detail, checked_at: at };
                if let Err(error) = deps.spaces.checked(space, result).await {
                    log::warn!("the health of space {space} is not noted: {error}");
                }
                return;
            }
            ToServer::Hello(_) | ToServer::Reply { .. } | ToServer::Event { .. } | ToServer::Goodbye => return,
        };
        let _ = link.send(answer).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::EventId;
    use futures_util::FutureExt;
    use serde_json::value::RawValue;

    fn event() -> ToServer {
        let payload = RawValue::from_string("{}".to_owned()).unwrap();
        ToServer::Event { id: EventId::new(), kind: "a".to_owned(), payload, raised_at: None }
    }

    #[test]
    fn messages_that_wait_are_bounded_in_bytes() {
        let (queues, mut receivers) = MessageQueues::new();
        let push = |message, bytes| queues.push(message, bytes).now_or_never().is_some();
        assert!(push(event(), 16 << 20), "one message is taken, whatever its size");
        assert!(!push(event(), 1));
        assert!(push(ToServer::Unregister { generation: 1 }, 100), "events hold up no other messages");
        let first = receivers.events.try_recv().unwrap();
        assert!(!push(event(), 1), "it is not stored yet");
        drop(first);
        assert!(push(event(), 4 << 20) && push(event(), 3 << 20) && !push(event(), 2 << 20));
    }
}
