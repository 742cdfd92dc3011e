//! What a server and an agent say to each other: one JSON object in each WebSocket message.
//!
//! ```text
//! agent                          server
//!   Hello  ────────────────────▶          once, first
//!          ◀──────────────────── Welcome  once, before anything else
//!          ◀──────────────────── Libraries
//!   Register ──────────────────▶
//!          ◀──────────────────── Registered | Refused
//!          ◀──────────────────── Call
//!   Reply  ────────────────────▶          unless it is a notification
//!   Event  ────────────────────▶
//!          ◀──────────────────── Confirm  once it is on disk, or can never be
//!   Goodbye ◀──────────────────▶ Goodbye  whoever leaves says why
//! ```
//! Both send WebSocket pings as heartbeats. Params, results and payloads pass through as raw JSON: the enums are
//! externally tagged because serde would otherwise have to take them apart.

use crate::model::{
    id::{EventId, SpaceId},
    jsonrpc::RpcResponse,
    library::Library,
    method::{MethodServerHealth, Registration},
    timestamp::Timestamp,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

/// The version of this conversation. Another one is refused.
pub const PROTOCOL: u32 = 1;

/// The longest message: a method server's longest line and what is around it.
pub const MAX_MESSAGE: usize = (16 << 20) + (64 << 10);

/// Said by an agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToServer {
    Hello(Hello),
    /// Replaces what the space registered before; answered under the same generation.
    Register {
        generation: u64,
        registration: Registration,
    },
    /// Removes all methods; answered with `Registered`.
    Unregister {
        generation: u64,
    },
    /// How the method server of this generation is.
    Health {
        generation: u64,
        health: MethodServerHealth,
    },
    Reply {
        id: u64,
        answer: CallReply,
    },
    /// An event raised in the space. `kind` is as the user named it, without `custom.`.
    Event {
        id: EventId,
        kind: String,
        payload: Box<RawValue>,
    },
    /// What a health check found.
    Checked {
        ok: bool,
        detail: Option<String>,
        at: Timestamp,
    },
    /// The space stops.
    Goodbye,
}

/// Said by a server.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToAgent {
    Welcome(Welcome),
    Registered {
        generation: u64,
    },
    /// Nothing changed; what was registered before still is.
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
    /// Nobody waits for that answer any more.
    Cancel {
        id: u64,
    },
    Confirm {
        id: EventId,
        #[serde(rename = "fate")]
        receipt: EventReceipt,
    },
    /// The health check to run from now on; the server knows its shape.
    Check(Option<Box<RawValue>>),
    /// Every library that what runs in the space can load: after the welcome, and again when one changes.
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
    /// Whether this process was linked to this server before: a stop meanwhile is meant for it.
    #[serde(default)]
    pub returning: bool,
}

/// What an agent needs to know of its space.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Welcome {
    pub space_id: SpaceId,
    pub space_name: String,
    pub zone: String,
    /// The largest payload of an event, in bytes.
    pub max_payload: usize,
    pub health_check: Option<Box<RawValue>>,
    /// Run by the agent once, when it is first linked.
    #[serde(default)]
    pub startup_script: Option<StartupScript>,
}

/// A stored script that sets a space up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartupScript {
    pub name: String,
    pub source: String,
}

/// What became of a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallReply {
    Result(Box<RawValue>),
    /// The method server's own error object.
    Error(Box<RawValue>),
    /// There is no process that could answer, or it died while it should have.
    Unavailable(String),
    /// The process took the call and stayed silent.
    Timeout,
    /// Too many wait for a serial server.
    Busy,
    /// The process answered something that is no JSON-RPC answer.
    Garbled(String),
}

/// What became of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventReceipt {
    /// It is on disk, from now or from before.
    Stored,
    /// It breaks a rule, and sending it again would not change that.
    Refused(String),
}

/// Why a server ends a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goodbye {
    /// The space was stopped; so should the agent.
    Stopped,
    /// Another agent came with the same token.
    Replaced,
    /// The token is not good any more, or its space is gone.
    Revoked,
    /// The server stops; come back later.
    Restarting,
    /// The agent said something it should not have.
    Unexpected(String),
}

/// Why a message could not be read.
#[derive(Debug, thiserror::Error)]
#[error("not a message we know: {0}")]
pub struct DecodeError(#[from] serde_json::Error);

/// A message as it goes over the wire.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("messages have string keys and no failing serializers")
}

/// Reads a message.
///
/// # Errors
///
/// Fails if it is none of ours.
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
