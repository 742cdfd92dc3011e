//! The protocol between server and agent: one JSON object in each WebSocket message.
//!
//! ```text
//! agent                          server
//!   Hello  ────────────────────▶          once, first
//!          ◀──────────────────── Welcome  once, before anything else
//!          ◀──────────────────── Libraries
//!   Register ──────────────────▶
//!          ◀──────────────────── Registered | Refused
//!   Unregister ────────────────▶          answered in the same way
//!   Health ────────────────────▶          of the method server, at every change
//!          ◀──────────────────── Call
//!   Reply  ────────────────────▶          unless it is a notification
//!          ◀──────────────────── Cancel   the caller of a call has left
//!          ◀──────────────────── Check    the health check to run from now on
//!   Checked ───────────────────▶          the result of each check
//!   Event  ────────────────────▶
//!          ◀──────────────────── Confirm | ConfirmMany  once it is on disk, or can never be
//!   Goodbye ◀──────────────────▶ Goodbye  the leaving side gives the reason
//! ```
//! Both sides send WebSocket pings as heartbeats. Params, results and payloads pass through as raw JSON: the enums are
//! externally tagged because serde would otherwise buffer and parse them.

use crate::model::{
    id::{EventId, SpaceId},
    jsonrpc::RpcResponse,
    library::Library,
    method::{GroupIds, MethodServerHealth, Registration},
    timestamp::Timestamp,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

/// The protocol version. A server refuses an agent with another one.
pub const PROTOCOL: u32 = 1;

/// The longest message: a method server's longest line plus the envelope.
pub const MAX_MESSAGE: usize = (16 << 20) + (64 << 10);

/// A message from an agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToServer {
    Hello(Hello),
    /// Replaces the registration of the space; the reply has the same generation.
    Register {
        generation: u64,
        registration: Registration,
        /// The groups that this server found before, so that a renamed group stays the same one.
        #[serde(default, skip_serializing_if = "GroupIds::is_empty")]
        groups: GroupIds,
    },
    /// Removes all methods; the reply is `Registered`.
    Unregister {
        generation: u64,
    },
    /// The health of the method server of this generation.
    Health {
        generation: u64,
        health: MethodServerHealth,
    },
    Reply {
        id: u64,
        #[serde(rename = "answer")]
        reply: CallReply,
    },
    /// An event emitted in the space. `kind` is as the user named it, without `custom.`.
    Event {
        id: EventId,
        kind: String,
        payload: Box<RawValue>,
        /// The moment of raising by the agent's clock. Older agents do not send it.
        #[serde(default)]
        raised_at: Option<Timestamp>,
    },
    /// The result of a health check.
    Checked {
        ok: bool,
        detail: Option<String>,
        at: Timestamp,
    },
    /// The space stops.
    Goodbye,
}

/// A message from a server.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToAgent {
    Welcome(Welcome),
    Registered {
        generation: u64,
        /// The groups of the registration, for the agent to send with it next time.
        #[serde(default, skip_serializing_if = "GroupIds::is_empty")]
        groups: GroupIds,
        /// Mistakes that do not prevent the registration, each in one line for people. Older servers tell none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    },
    /// The previous registration stays in force.
    Refused {
        generation: u64,
        reason: String,
    },
    /// Answered by a `Reply` under the same id, unless it is a notification.
    Call {
        id: u64,
        generation: u64,
        method: String,
        params: Option<Box<RawValue>>,
        notification: bool,
    },
    /// The caller no longer waits for the reply.
    Cancel {
        id: u64,
    },
    Confirm(EventConfirmation),
    /// Several confirmations at once, for an agent that reads them.
    ConfirmMany(Vec<EventConfirmation>),
    /// The health check to run from now on, as the server stores it.
    Check(Option<Box<RawValue>>),
    /// Every library that programs of the space can load: after the welcome, and again when one changes.
    Libraries(Vec<Library>),
    Goodbye(Goodbye),
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    /// The agent's version, for the log.
    pub version: String,
    /// The machine it runs on.
    pub node_id: String,
    /// True if this process was connected to this server before: a stop in between is meant for it.
    #[serde(default)]
    pub returning: bool,
    /// True if the agent reads [`ToAgent::ConfirmMany`].
    #[serde(default)]
    pub confirmations_in_groups: bool,
}

/// The facts about its space that an agent needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Welcome {
    pub space_id: SpaceId,
    pub space_name: String,
    pub zone: String,
    /// The largest payload of an event, in bytes.
    pub max_payload: usize,
    pub health_check: Option<Box<RawValue>>,
    /// The agent runs it once, after its first connection.
    #[serde(default)]
    pub startup_script: Option<StartupScript>,
}

/// A stored script that the agent runs at the start of a space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartupScript {
    pub name: String,
    pub source: String,
}

/// The reply of an agent to a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallReply {
    Result(Box<RawValue>),
    /// The method server's own error object.
    Error(Box<RawValue>),
    /// No process can reply, or it died before its reply.
    Unavailable(String),
    /// The process took the call and did not reply in time.
    Timeout,
    /// Too many calls wait for a serial server.
    Busy,
    /// The reply of the process was not a JSON-RPC response.
    Garbled(String),
}

/// The outcome of one event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventConfirmation {
    pub id: EventId,
    #[serde(rename = "fate")]
    pub outcome: EventOutcome,
}

/// The outcome of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventOutcome {
    /// The event is on disk, now or from an earlier try.
    Stored,
    /// The event breaks a rule; sending it again is useless.
    Refused(String),
}

/// The reason a server ends a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goodbye {
    /// The space was stopped; the agent must end.
    Stopped,
    /// Another agent connected with the same token.
    Replaced,
    /// The token is no longer valid, or its space was deleted.
    Revoked,
    /// The server cannot serve this link now: it stops, or is overloaded. The agent reconnects.
    #[serde(rename = "restarting")]
    Unavailable,
    /// The agent sent a message that is not allowed here.
    Unexpected(String),
}

/// The error for a message that could not be decoded.
#[derive(Debug, thiserror::Error)]
#[error("not a message we know: {0}")]
pub struct DecodeError(#[from] serde_json::Error);

/// Encodes a message as JSON.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("messages have string keys and no failing serializers")
}

/// Decodes a message.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    Ok(serde_json::from_slice(bytes)?)
}

impl From<RpcResponse> for CallReply {
    fn from(outcome: RpcResponse) -> Self {
        match outcome {
            RpcResponse::Result(value) => Self::Result(value),
            RpcResponse::Error(value) => Self::Error(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_json_passes_through_as_it_is() {
        let params = RawValue::from_string(r#"{ "n": 1.0e2,"a":[ ] }"#.to_owned()).unwrap();
        let call =
            ToAgent::Call { id: 7, generation: 1, method: "m".to_owned(), params: Some(params), notification: false };
        let sent = encode(&call);
        assert!(String::from_utf8(sent.clone()).unwrap().contains(r#""params":{ "n": 1.0e2,"a":[ ] }"#));
        let ToAgent::Call { params: Some(params), .. } = decode(&sent).unwrap() else { panic!("a call") };
        assert_eq!(params.get(), r#"{ "n": 1.0e2,"a":[ ] }"#);
    }

    #[test]
    fn a_message_of_another_shape_is_an_error() {
        for text in ["{}", "{\"shout\":1}", "[]", "{\"reply\":{\"id\":1}}"] {
            assert!(decode::<ToServer>(text.as_bytes()).is_err(), "{text}");
        }
    }
}
