//! The receiver of an event: a server, or the agent of this space.

use crate::{
    cli::{
        access::Access,
        client::{AgentHttp, Client, ResponseText, is_agent_named, to_json},
        failure::{Failure, TokenSource},
    },
    model::{
        api::{agent::AgentEmitBody, events::EmitBody},
        id::EventId,
    },
};
use data_encoding::HEXLOWER;
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use std::time::Duration;

/// The choice of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmitTarget {
    Server,
    /// The agent, which spools it.
    Agent,
    /// An agent if one answers, and else the default server: no server was named and no token found.
    AgentOrServer,
}

pub enum EventReceiver {
    Server(Client),
    Agent(AgentHttp),
}

/// An event as it is sent.
#[derive(Clone)]
pub struct OutgoingEvent {
    pub kind: String,
    pub payload: Box<RawValue>,
    pub id: Option<EventId>,
}

/// The part of an answer that every version of a server and an agent gives.
#[derive(Deserialize)]
struct AcceptedEvent {
    #[allow(dead_code, reason = "its presence is what counts")]
    event_id: EventId,
}

/// A receiver and the user that events are raised as. Spooled events go only to those of their own key.
///
/// A token on a flag or in the environment stands for its user; the saved login of a server is one user, also after
/// another login to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolKey {
    tag: String,
}

/// The receiver without flags that decide it: the agent in a space, and otherwise a server.
pub fn target_of(is_server_named: bool, environment: &dyn Fn(&str) -> Option<String>) -> EmitTarget {
    match !is_server_named && is_agent_named(environment) {
        true => EmitTarget::Agent,
        false => EmitTarget::Server,
    }
}

impl EventReceiver {
    pub fn address(&self) -> String {
        match self {
            Self::Server(client) => client.server().to_string(),
            Self::Agent(agent) => agent.address().to_string(),
        }
    }

    pub fn spool_key(&self) -> SpoolKey {
        match self {
            Self::Server(client) => {
                let Access { server, token, source } = client.access();
                let is_given = matches!(source, TokenSource::Flag | TokenSource::Environment);
                SpoolKey::new(&server.to_string(), token.as_deref().filter(|_| is_given))
            }
            Self::Agent(agent) => SpoolKey::new(&format!("agent {}", agent.address()), None),
        }
    }

    /// Sends an event. An answer without the id of an event is a failure: it is not one of svc.
    ///
    /// # Errors
    ///
    /// The failure is that of the request; [`Self::failure`] words it for people.
    pub fn send(&self, event: &OutgoingEvent, timeout: Duration) -> Result<ResponseText, Failure> {
        let OutgoingEvent { kind, payload, id } = event.clone();
        match self {
            Self::Server(client) => {
                let body = to_json(&EmitBody { kind, payload: Some(payload), id });
                let answer = client.post_raw_within("/api/events/emit", body, timeout)?;
                client.read::<AcceptedEvent>(&answer).map(|_| answer)
            }
            Self::Agent(agent) => {
                let body = to_json(&AgentEmitBody { kind, payload: Some(payload), id });
                let answer = agent.emit(body, timeout)?;
                agent.read_raw::<AcceptedEvent>(&answer).map(|_| answer)
            }
        }
    }

    /// The event with its deliveries; `None` while no server has it from the agent.
    pub fn event(&self, id: EventId, timeout: Duration) -> Result<Option<ResponseText>, Failure> {
        match self {
            Self::Server(client) => client.get(&format!("/api/events/{id}")).map(Some),
            Self::Agent(agent) => agent.event(id, timeout),
        }
    }

    /// The failure of a request to this receiver, worded for people.
    pub fn failure(&self, failure: Failure) -> Failure {
        match self {
            Self::Server(_) => failure,
            Self::Agent(agent) => agent.of_known_path(failure),
        }
    }

    /// The failure of a kept event: what answers in place of an agent says nothing about the event.
    pub fn failure_of_kept(&self, failure: Failure) -> Failure {
        match (self, failure) {
            (Self::Agent(agent), Failure::Rejected { status: status @ (404 | 405), .. }) => {
                Failure::Foreign { server: agent.address().to_string(), status, why: "it is no agent".to_owned() }
            }
            (_, failure) => failure,
        }
    }

    pub fn read<'a, T: Deserialize<'a>>(&self, answer: &'a ResponseText) -> Result<T, Failure> {
        match self {
            Self::Server(client) => client.read(answer),
            Self::Agent(agent) => agent.read(answer),
        }
    }
}

impl SpoolKey {
    pub fn new(address: &str, token: Option<&str>) -> Self {
        let digest = Sha256::digest(format!("{address}\n{}", token.unwrap_or_default()));
        Self { tag: HEXLOWER.encode(&digest[..8]) }
    }

    /// The key in the names of files. It does not give the token away, which has 256 random bits.
    pub fn tag(&self) -> &str {
        &self.tag
    }
}
