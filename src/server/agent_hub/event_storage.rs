//! Stores the events of one agent, in the order of its spool, and confirms them in groups.
//!
//! An event is handed to the queue engine without waiting for the disk write of the one before, so that many share one.
//! Their number is bounded by [`MAX_STORING`], and their bytes by the queue of the session. An event
//! that breaks a rule is confirmed as refused. One for which there is no room now is not confirmed, and nor is any
//! event behind it, until the agent sends it again, as it does with unconfirmed events after a while: the link stays,
//! and with it the methods of the space. Every other error of the store ends the session.

use super::hub::AgentHub;
use crate::{
    calls::agent_link::{AgentLink, LinkError},
    identity::Caller,
    model::{
        agent_protocol::{EventConfirmation, EventOutcome, Goodbye, ToAgent},
        event::EventType,
        id::{EventId, SpaceId},
        timestamp::Timestamp,
    },
    routing::{
        emit::{EmitError, EmitRetry, NewEvent, PendingReceipt},
        queue::OrderedEmits,
    },
};
use futures_util::FutureExt;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use std::{
    pin::pin,
    time::{Duration, Instant},
};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// Events of one agent that are being written at once.
const MAX_STORING: usize = 512;

/// Time in which an agent sends an unconfirmed event again; a multiple of the 30 seconds after which it does.
const LONGEST_WAIT: Duration = Duration::from_secs(120);

/// An event that waits to be stored, with the permit for its memory, which is held until the event is stored or
/// refused.
pub(super) struct IncomingEvent {
    pub event: AgentEvent,
    pub memory: OwnedSemaphorePermit,
}

/// An event of the agent.
pub(super) struct AgentEvent {
    pub id: EventId,
    pub kind: String,
    pub payload: Box<RawValue>,
    pub raised_at: Option<Timestamp>,
}

/// The messages in which an agent reads confirmations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConfirmationStyle {
    One,
    Many,
}

/// An event that was handed over, or refused before that.
struct StoringEvent<'a> {
    id: EventId,
    outcome: Result<PendingReceipt<'a>, NotStored>,
    order: OrderedEmits,
    /// A receipt has the event in it.
    memory: OwnedSemaphorePermit,
}

/// An event that was not stored.
enum NotStored {
    /// The event breaks a rule, and is refused for good.
    Refused(String),
    /// The disk, or what the user's sinks may hold, is full.
    NoRoom(String),
    /// The server cannot store events any more.
    Unavailable(String),
}

/// The event for which there was no room, while the agent has not sent it again.
#[derive(Default)]
struct AwaitedEvent(Mutex<Option<(EventId, Instant)>>);

impl AwaitedEvent {
    /// Waits for this event, unless an earlier one is awaited. Returns whether the wait begins.
    fn begin(&self, id: EventId) -> bool {
        let mut awaited = self.0.lock();
        let begins = awaited.is_none();
        awaited.get_or_insert_with(|| (id, Instant::now()));
        begins
    }

    /// Stops waiting for this event. Returns whether it was awaited.
    fn end(&self, id: EventId) -> bool {
        self.0.lock().take_if(|(awaited, _)| *awaited == id).is_some()
    }

    fn is_none(&self) -> bool {
        self.0.lock().is_none()
    }

    /// Returns whether the agent did not send the event again, as if it had lost it.
    fn is_overdue(&self) -> bool {
        self.0.lock().is_some_and(|(_, since)| since.elapsed() > LONGEST_WAIT)
    }
}

impl AgentHub {
    /// Stores events in order, and confirms each. Returns the goodbye for the agent, if the server ends the session.
    pub(super) async fn store_events(
        &self,
        caller: &Caller,
        link: &AgentLink,
        style: ConfirmationStyle,
        mut events: mpsc::Receiver<IncomingEvent>,
    ) -> Option<Goodbye> {
        let (storing, stored) = mpsc::channel(MAX_STORING);
        let awaited = AwaitedEvent::default();
        let awaited = &awaited;
        let handing_over = async move {
            let mut order = OrderedEmits::default();
            while let Some(IncomingEvent { event, memory }) = events.recv().await {
                let id = event.id;
                if awaited.end(id) {
                    // Events of the old one that are still under way stay behind this one.
                    order = OrderedEmits::default();
                }
                let outcome = if awaited.is_none() {
                    self.hand_over(caller, link.space(), event, &order).await
                } else if awaited.is_overdue() {
                    Err(NotStored::Unavailable("the agent did not send an unconfirmed event again".to_owned()))
                } else {
                    continue;
                };
                let is_last = matches!(outcome, Err(NotStored::Unavailable(_)));
                if storing.send(StoringEvent { id, outcome, order: order.clone(), memory }).await.is_err() || is_last {
                    return;
                }
            }
        };
        let mut confirming = pin!(confirm(link, style, stored, awaited));
        // Both at once: events that are on disk release the bytes for which further ones wait.
        tokio::select! {
            goodbye = &mut confirming => goodbye,
            () = handing_over => confirming.await,
        }
    }

    async fn hand_over(
        &self,
        caller: &Caller,
        space_id: SpaceId,
        event: AgentEvent,
        order: &OrderedEmits,
    ) -> Result<PendingReceipt<'_>, NotStored> {
        let AgentEvent { id, kind, payload, raised_at } = event;
        let kind = EventType::custom(&kind).map_err(|error| NotStored::Refused(format!("`type`: {error}")))?;
        let deps = &self.0.deps;
        let (space, user_id) = (deps.spaces.origin(space_id), caller.user.id);
        if !deps.identity.may_emit(user_id) {
            return Err(NotStored::Refused("the owner of the space needs the permission use_spaces".to_owned()));
        }
        // A link lives long, and its owner may have been renamed since.
        let actor = deps.identity.user(user_id).map_or_else(|| caller.actor(), |user| user.agent_actor());
        let event = NewEvent { id: Some(id), raised_at, kind, space_id, space, user_id, actor, payload };
        Ok(deps.emitter.hand_over_ordered(order, event).await?)
    }
}

/// Waits until the agent sends an event again for which there was no room.
fn wait_for(awaited: &AwaitedEvent, id: EventId, link: &AgentLink, reason: &str) {
    if awaited.begin(id) {
        log::warn!("the events of space {} wait at its agent: {reason}", link.space());
    }
}

/// Confirms events in order, those together that are on disk at the same time.
async fn confirm(
    link: &AgentLink,
    style: ConfirmationStyle,
    mut storing: mpsc::Receiver<StoringEvent<'_>>,
    awaited: &AwaitedEvent,
) -> Option<Goodbye> {
    let mut group = Vec::new();
    // The order in which an event was refused. Those behind the first one are refused with it.
    let mut refused: Option<OrderedEmits> = None;
    let mut next = storing.recv().await;
    while let Some(StoringEvent { id, outcome, order, memory }) = next {
        let stored = match outcome {
            Ok(mut receipt) => match (&mut receipt).now_or_never() {
                Some(stored) => stored.map(drop).map_err(NotStored::from),
                None => {
                    send_group(link, style, &mut group).await.ok()?;
                    receipt.await.map(drop).map_err(NotStored::from)
                }
            },
            Err(not_stored) => Err(not_stored),
        };
        let outcome = match stored {
            Ok(()) => Some(EventOutcome::Stored),
            Err(NotStored::Refused(reason)) => Some(EventOutcome::Refused(reason)),
            Err(NotStored::NoRoom(reason)) => {
                if !refused.as_ref().is_some_and(|refused| refused.is_same(&order)) {
                    wait_for(awaited, id, link, &reason);
                    refused = Some(order);
                }
                None
            }
            Err(NotStored::Unavailable(reason)) => {
                log::warn!("an event of space {} must wait: {reason}", link.space());
                let _ = send_group(link, style, &mut group).await;
                // The agent sends unconfirmed events again, in order, with its next link.
                return Some(Goodbye::Unavailable);
            }
        };
        drop(memory);
        if let Some(outcome) = outcome {
            awaited.end(id);
            group.push(EventConfirmation { id, outcome });
        }
        next = match storing.try_recv() {
            Ok(next) if group.len() < MAX_STORING => Some(next),
            next => {
                send_group(link, style, &mut group).await.ok()?;
                match next {
                    Ok(next) => Some(next),
                    Err(_) => storing.recv().await,
                }
            }
        };
    }
    None
}

async fn send_group(
    link: &AgentLink,
    style: ConfirmationStyle,
    group: &mut Vec<EventConfirmation>,
) -> Result<(), LinkError> {
    let group = std::mem::take(group);
    match style {
        ConfirmationStyle::Many if group.len() > 1 => link.send(ToAgent::ConfirmMany(group)).await,
        ConfirmationStyle::One | ConfirmationStyle::Many => {
            for confirmation in group {
                link.send(ToAgent::Confirm(confirmation)).await?;
            }
            Ok(())
        }
    }
}

impl From<EmitError> for NotStored {
    fn from(error: EmitError) -> Self {
        match error.retry() {
            EmitRetry::WhenRoom => Self::NoRoom(error.to_string()),
            EmitRetry::WhenReadable | EmitRetry::AfterRestart => Self::Unavailable(error.to_string()),
            EmitRetry::Never => Self::Refused(error.to_string()),
        }
    }
}
