//! What an agent says, taken in: answers to calls, registrations, events, and how the space is.

use super::{End, Frame, Sessions};
use crate::{
    calls::{agent_link::Link, registry::Claim},
    identity::Caller,
    model::{
        agent_protocol::{self, EventReceipt, Goodbye, MethodServerHealth, ToAgent, ToServer},
        event::EventType,
        health_check::CheckResult,
        id::{EventId, SpaceId},
        method::Registration,
    },
    routing::{
        emit::{EmitError, NewEvent},
        queue::AcceptError,
    },
};
use futures_util::{Stream, StreamExt};
use serde_json::value::RawValue;
use std::sync::Arc;
use tokio::sync::mpsc;

/// So many heartbeats without a byte from the agent, and it is gone.
const MISSED: u32 = 3;

/// Where what an agent says goes, so that nobody who waits for an answer waits for the disk.
pub(super) struct Intake {
    pub events: mpsc::Sender<Raised>,
    pub words: mpsc::Sender<ToServer>,
}

/// An event on its way in.
pub(super) struct Raised {
    id: EventId,
    kind: String,
    payload: Box<RawValue>,
}

/// Why an event was not stored.
enum Unstored {
    /// It breaks a rule.
    Never(String),
    /// We cannot, at this moment.
    NotNow(String),
}

impl Sessions {
    /// Takes in what the agent says, until it leaves or falls silent.
    pub(super) async fn listen_to<E>(
        &self,
        link: &Arc<Link>,
        stream: &mut (impl Stream<Item = Result<Frame, E>> + Unpin),
        intake: &Intake,
    ) -> End {
        let patience = self.0.parts.heartbeat * MISSED;
        loop {
            let bytes = match tokio::time::timeout(patience, stream.next()).await {
                Err(_) => return End::Lost("it gave no sign of life"),
                Ok(Some(Ok(Frame::Message(bytes)))) => bytes,
                Ok(Some(Ok(Frame::Sign | Frame::Ping))) => continue,
                Ok(Some(Ok(Frame::Close)) | None) => return End::Lost("it hung up"),
                Ok(Some(Err(_))) => return End::Lost("the connection broke"),
            };
            let said = match agent_protocol::decode(&bytes) {
                Ok(said) => said,
                Err(error) => return End::Parted(Goodbye::Unexpected(error.to_string())),
            };
            match said {
                ToServer::Reply { id, answer } => link.answer(id, answer),
                ToServer::Event { id, kind, payload } => {
                    if intake.events.send(Raised { id, kind, payload }).await.is_err() {
                        return End::Parted(Goodbye::Restarting);
                    }
                }
                ToServer::Goodbye => return End::Goodbye,
                ToServer::Hello(_) => return End::Parted(Goodbye::Unexpected("hello is said once".to_owned())),
                other => {
                    if intake.words.send(other).await.is_err() {
                        return End::Parted(Goodbye::Restarting);
                    }
                }
            }
        }
    }

    /// Heeds what is said now and then, in order and each to its end: a registration that the link does not live to see
    /// must still be whole or nothing.
    pub(super) async fn heed_all(&self, link: &Arc<Link>, mut words: mpsc::Receiver<ToServer>) -> End {
        while let Some(said) = words.recv().await {
            let (sessions, link) = (self.clone(), link.clone());
            if tokio::spawn(async move { sessions.heed(&link, said).await }).await.is_err() {
                return End::Parted(Goodbye::Restarting);
            }
        }
        End::Lost("it is not listened to any more")
    }

    async fn heed(&self, link: &Arc<Link>, said: ToServer) {
        let (parts, space) = (&self.0.parts, link.space());
        let answer = match said {
            ToServer::Register { generation, registration } => {
                match self.register(link, generation, registration).await {
                    Ok(()) => ToAgent::Registered { generation },
                    Err(reason) => ToAgent::Refused { generation, reason },
                }
            }
            ToServer::Unregister { generation } => {
                let _turn = self.0.turn(link).await;
                if !link.is_up() {
                    return;
                }
                parts.registry.unregister(space);
                match parts.subscriptions.remove(space).await {
                    Ok(()) => ToAgent::Registered { generation },
                    Err(error) => ToAgent::Refused { generation, reason: error.to_string() },
                }
            }
            ToServer::Health { generation, health } => {
                let runs = health == MethodServerHealth::Running;
                parts.registry.note_health(space, generation, health);
                if runs {
                    // What waited for the method server goes on.
                    parts.deliverer.space_served(space);
                }
                return;
            }
            ToServer::Checked { ok, detail, at } => {
                let result = CheckResult { ok, detail, checked_at: at };
                if let Err(error) = parts.spaces.checked(space, result).await {
                    log::warn!("the health of space {space} is not noted: {error}");
                }
                return;
            }
            ToServer::Hello(_) | ToServer::Reply { .. } | ToServer::Event { .. } | ToServer::Goodbye => return,
        };
        let _ = link.send(answer).await;
    }

    /// Publishes a registration, all of it or nothing. An error says why, in one line for people.
    async fn register(&self, link: &Arc<Link>, generation: u64, registration: Registration) -> Result<(), String> {
        let (parts, id) = (&self.0.parts, link.space());
        let space = parts.spaces.get(id).ok_or("the space is gone")?;
        let (identity, name, timeout) = (parts.identity.clone(), space.name.to_string(), registration.server.timeout);
        // Schemas are compiled to be checked; that takes as long as they are large.
        let published = tokio::task::spawn_blocking(move || {
            registration.publish(&name, |group| identity.find_group(group).map(|group| group.id))
        });
        let methods = published.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        let claim = Claim {
            space: id,
            space_name: space.name.to_string().into(),
            owner: space.owner,
            link: link.clone(),
            generation,
            timeout,
            methods: methods.clone(),
        };
        // A method that is seen already hears its events, so these come first; nobody else may claim in between.
        let turn = self.0.turn(link).await;
        if !link.is_up() {
            // What a newer link has registered meanwhile is not for this one to replace.
            return Err("the link is over".to_owned());
        }
        parts.registry.check(&claim).map_err(|conflict| conflict.to_string())?;
        let subscribed = parts.subscriptions.replace(id, space.name.as_str(), space.owner, &methods).await;
        subscribed.map_err(|error| format!("cannot be stored: {error}"))?;
        parts.registry.register(claim).map_err(|conflict| conflict.to_string())?;
        drop(turn);
        if !self.0.is_deployed(id) {
            self.drop_served(id);
            return Err("the space was stopped".to_owned());
        }
        log::info!("space `{}` publishes {} methods", space.name, methods.len());
        parts.deliverer.space_served(id);
        Ok(())
    }

    /// Stores the agent's events, one after the other, and confirms each.
    pub(super) async fn take_in(&self, caller: &Caller, link: &Link, mut raised: mpsc::Receiver<Raised>) -> End {
        while let Some(Raised { id, kind, payload }) = raised.recv().await {
            let receipt = match self.emit(caller, link.space(), id, &kind, payload).await {
                Ok(()) => EventReceipt::Stored,
                Err(Unstored::Never(reason)) => EventReceipt::Refused(reason),
                Err(Unstored::NotNow(reason)) => {
                    log::warn!("an event of space {} must wait: {reason}", link.space());
                    // It sends again what was not confirmed, in order, once it is back.
                    return End::Parted(Goodbye::Restarting);
                }
            };
            if link.send(ToAgent::Confirm { id, receipt }).await.is_err() {
                break;
            }
        }
        End::Lost("it is not listened to any more")
    }

    async fn emit(
        &self,
        caller: &Caller,
        space_id: SpaceId,
        id: EventId,
        kind: &str,
        payload: Box<RawValue>,
    ) -> Result<(), Unstored> {
        let kind = EventType::custom(kind).map_err(|error| Unstored::Never(format!("`type`: {error}")))?;
        let parts = &self.0.parts;
        let (space, user_id) = (parts.spaces.origin(space_id), caller.user.id);
        // A link lives long, and its owner may have got another name since.
        let actor = parts.identity.user(user_id).map_or_else(|| caller.actor(), |user| user.agent_actor());
        let raise = NewEvent { id: Some(id), kind, space_id, space, user_id, actor, payload };
        parts.emitter.emit(raise).await.map(drop).map_err(|error| match error {
            EmitError::Accept(AcceptError::Store(error)) => Unstored::NotNow(error.to_string()),
            other => Unstored::Never(other.to_string()),
        })
    }
}
