//! The intake of a session: registrations, events, method server health and check results of the agent.
//! [`event_intake`](super::event_intake) stores the events.
//!
//! Two queues decouple it from the reader, so that a reply never waits for the disk: one for events, one for the rest. A
//! full queue stops the reader.

use super::{
    event_intake::{ConfirmationStyle, IncomingEvent},
    hub::AgentHub,
};
use crate::{
    calls::{
        agent_link::AgentLink,
        registry::{RegistrationRefusal, ServeRequest},
    },
    delivery::subscriptions::event_sink_warnings,
    identity::Caller,
    model::{
        agent_protocol::{Goodbye, ToAgent, ToServer},
        health_check::CheckResult,
        id::UserId,
        method::{GroupIds, Method, MethodServerHealth, Registration},
        owner::Owner,
        timestamp::Timestamp,
    },
    scripting::{lua::ScriptError, workers::ProgramText},
    spaces::Space,
};
use std::{collections::HashSet, sync::Arc};
use tokio::sync::mpsc;

/// Events of one agent that wait to be stored.
const MAX_EVENTS: usize = 512;

/// Other messages of one agent that wait to be handled.
const MAX_NOTICES: usize = 16;

/// The sending ends of the two queues.
pub(super) struct Intake {
    events: mpsc::Sender<IncomingEvent>,
    notices: mpsc::Sender<ToServer>,
}

/// The receiving ends of the two queues.
pub(super) struct IntakeReceivers {
    events: mpsc::Receiver<IncomingEvent>,
    notices: mpsc::Receiver<ToServer>,
}

/// The session does not take in messages any more.
pub(super) struct IntakeClosed;

impl Intake {
    pub fn new() -> (Self, IntakeReceivers) {
        let (events, incoming_events) = mpsc::channel(MAX_EVENTS);
        let (notices, incoming_notices) = mpsc::channel(MAX_NOTICES);
        (Self { events, notices }, IntakeReceivers { events: incoming_events, notices: incoming_notices })
    }

    /// Queues a message, once there is room for it.
    pub async fn push(&self, message: ToServer) -> Result<(), IntakeClosed> {
        match message {
            ToServer::Event { id, kind, payload, raised_at } => {
                self.events.send(IncomingEvent { id, kind, payload, raised_at }).await.map_err(|_| IntakeClosed)
            }
            other => self.notices.send(other).await.map_err(|_| IntakeClosed),
        }
    }
}

impl AgentHub {
    /// Handles what the agent sends, until the session ends or has to end. Returns the goodbye for the agent, if the
    /// server ends it.
    pub(super) async fn take_in(
        &self,
        caller: &Caller,
        link: &Arc<AgentLink>,
        style: ConfirmationStyle,
        receivers: IntakeReceivers,
    ) -> Option<Goodbye> {
        tokio::select! {
            goodbye = self.handle_notices(link, receivers.notices) => goodbye,
            goodbye = self.store_events(caller, link, style, receivers.events) => goodbye,
        }
    }

    /// Handles messages in order, each in a task of its own: a registration must be whole or nothing even if its link
    /// ends meanwhile.
    async fn handle_notices(&self, link: &Arc<AgentLink>, mut notices: mpsc::Receiver<ToServer>) -> Option<Goodbye> {
        while let Some(notice) = notices.recv().await {
            let (hub, link) = (self.clone(), link.clone());
            if tokio::spawn(async move { hub.handle_notice(&link, notice).await }).await.is_err() {
                return Some(Goodbye::Restarting);
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
                    deps.deliverer.space_served(space);
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

    /// Publishes a registration as a whole or not at all, and returns its groups and warnings about it; `known` are the
    /// groups that the agent was told before. An error is the reason, in one line for people.
    async fn register(
        &self,
        link: &Arc<AgentLink>,
        generation: u64,
        registration: Registration,
        known: GroupIds,
    ) -> Result<(GroupIds, Vec<String>), String> {
        let (deps, id) = (&self.0.deps, link.space());
        let space = deps.spaces.get(id).ok_or("the space is gone")?;
        let (groups, name) = (self.resolve_groups(&space, &registration, &known), space.name.to_string());
        let found = groups.clone();
        let (timeout, mode) = (registration.server.timeout, registration.server.mode);
        // Schemas are compiled to be checked, which takes long if they are large. The owner has one such check at a time, and
        // it ends with the link.
        let turn = self.0.checking.acquire(space.owner).await.ok_or("too many registrations of this owner wait")?;
        let checked_link = link.clone();
        let published = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            registration.publish_while(&name, |group| found.get(group).copied(), || checked_link.is_up())
        });
        let methods = published.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        self.check_filters(space.owner, &methods).await?;
        let request = ServeRequest {
            space: id,
            space_name: space.name.to_string().into(),
            owner: space.owner,
            link: link.clone(),
            generation,
            timeout,
            mode,
            methods: methods.clone(),
        };
        // Subscriptions come first, because a method that is visible must get its events. The lock keeps other
        // registrations of the owner out in between.
        let lock = self.0.lock_registration(link).await;
        if !link.is_up() {
            // This link must not replace what a newer one has registered meanwhile.
            return Err("the link is over".to_owned());
        }
        deps.registry.check(&request).map_err(|conflict| conflict.to_string())?;
        let subscribed = deps.subscriptions.replace(id, space.name.as_str(), space.owner, &methods).await;
        subscribed.map_err(|error| format!("cannot be stored: {error}"))?;
        deps.registry.register(request).map_err(|conflict| conflict.to_string())?;
        drop(lock);
        if !self.0.is_deployed(id) {
            self.withdraw(id);
            return Err("the space was stopped".to_owned());
        }
        log::info!("space `{}` publishes {} methods", space.name, methods.len());
        deps.deliverer.space_served(id);
        Ok((groups, event_sink_warnings(&deps.sinks, space.owner, &methods)))
    }

    /// Checks that the filters of methods compile, in a worker of their owner.
    async fn check_filters(&self, owner: UserId, methods: &[Method]) -> Result<(), String> {
        let mut checked = HashSet::new();
        for (index, method) in methods.iter().enumerate() {
            let Some(filter) = method.filter.as_ref().filter(|filter| checked.insert(filter.as_str())) else {
                continue;
            };
            let program = ProgramText::filter(filter.as_str());
            // Any other error is a lack of room and says nothing about the filter.
            if let Err(error @ ScriptError::Compile(_)) =
                self.0.deps.workers.compile(&program, Owner::User(owner)).await
            {
                return Err(format!("`methods[{index}].filter`: {error}"));
            }
        }
        Ok(())
    }

    /// The groups that a registration names. A name that the agent knows the group of means that one, whatever it is
    /// called by now; otherwise the group of that name. A known group that was deleted stays: no user is in it, so it
    /// shows its methods to nobody, and the others are not affected.
    fn resolve_groups(&self, space: &Space, registration: &Registration, known: &GroupIds) -> GroupIds {
        let identity = &self.0.deps.identity;
        let resolve = |reference: &str| {
            let before = known.get(reference).copied();
            let current = before.filter(|id| identity.group(*id).is_some());
            let current = current.or_else(|| identity.find_group(reference).map(|group| group.id));
            if let (None, Some(id)) = (current, before) {
                log::warn!(
                    "space `{}`: the group `{reference}` ({id}) of its registration was deleted and shows its methods to nobody",
                    space.name
                );
            }
            Some((reference.to_owned(), current.or(before)?))
        };
        registration.group_references().filter_map(resolve).collect()
    }

    fn note_refusal(&self, link: &Arc<AgentLink>, reason: &str) {
        let deps = &self.0.deps;
        let Some(space) = deps.spaces.get(link.space()).filter(|_| link.is_up()) else { return };
        log::warn!("space `{}`: its registration is refused: {reason}", space.name);
        let refusal = RegistrationRefusal {
            space: space.id,
            space_name: space.name.to_string().into(),
            owner: space.owner,
            reason: reason.to_owned(),
            since: Timestamp::now(),
        };
        deps.registry.note_refusal(link, refusal);
    }
}
