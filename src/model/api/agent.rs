//! The HTTP API of an agent, for programs inside its space: events, registrations, status and the key-value store.
//!
//! `agent::api` serves it; `cli` and `scripting::space_runtime` are its clients.

use super::lenient::Lenient;
use crate::model::{
    event::EventType,
    id::{EventId, SpaceId},
    json_input,
    method::{MethodNames, MethodServerState},
    timestamp::Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::path::PathBuf;

/// The body of `POST /event`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentEmitBody {
    /// `custom.` is put in front.
    #[serde(rename = "type")]
    pub kind: String,
    /// An object; `{}` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "json_input::payload")]
    pub payload: Option<Box<RawValue>>,
    /// Repeating an event with its id stores nothing; the agent chooses one if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<EventId>,
}

/// The receipt of an event that is on the agent's disk.
#[derive(Debug, Serialize, Deserialize)]
pub struct SpoolReceiptView {
    pub event_id: EventId,
    pub event_type: EventType,
    /// The moment of raising. Older agents do not tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_ts: Option<Timestamp>,
}

/// The body of `POST /methods`: either a file (`path` and `source`) or a registration that a script has built.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegisterBody {
    /// The absolute path of the file, in whose directory the method server runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// The content of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The server and its methods, as in a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registration: Option<Box<RawValue>>,
    /// The method server's working directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// The script that has built the registration, for messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<PathBuf>,
}

/// The effect of a registration.
#[derive(Debug, Serialize, Deserialize)]
pub struct RegisteredView {
    pub methods: Vec<MethodNames>,
    /// Methods that the script removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<MethodNames>,
    /// The output of the script, empty for a file in TOML. Absent for a registration that a script has built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Mistakes that did not prevent the registration, such as unknown names in `event_sinks`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The answer to `DELETE /methods`.
#[derive(Serialize, Deserialize)]
pub struct UnregisteredView {
    pub removed: Vec<MethodNames>,
}

/// The answer to `GET /status`.
#[derive(Debug, Serialize, Deserialize)]
pub struct AgentStatusView {
    pub version: String,
    /// None until a server has named it.
    pub space: Option<AgentSpaceView>,
    pub servers: Vec<ServerLinkView>,
    pub spool: SpoolView,
    pub registration: Option<RegistrationView>,
}

/// The space, as its server described it last.
#[derive(Debug, Serialize, Deserialize)]
pub struct AgentSpaceView {
    pub id: SpaceId,
    pub name: String,
    pub zone: String,
    /// The largest event payload that the server accepts, in bytes.
    pub max_payload: usize,
}

/// State of the link to one server.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerLinkView {
    pub url: String,
    pub connected: bool,
    /// The time at which it became connected or disconnected.
    pub since: Timestamp,
    /// The last failure to connect.
    pub error: Option<String>,
    /// True if the server has accepted the current registration.
    pub published: bool,
    /// The server's reason for refusing it.
    pub refusal: Option<String>,
}

/// The events that wait for a server.
#[derive(Debug, Serialize, Deserialize)]
pub struct SpoolView {
    pub depth: usize,
    pub limit: usize,
}

/// The registration in force.
#[derive(Debug, Serialize, Deserialize)]
pub struct RegistrationView {
    pub path: PathBuf,
    pub command: String,
    pub health: Lenient<MethodServerState>,
    /// The reason why it is not running.
    pub reason: Option<String>,
    pub methods: Vec<MethodNames>,
}

/// The body of `PUT /kv?key=NAME`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvPutBody {
    pub value: Box<RawValue>,
    /// Time to live, in seconds.
    pub ttl: Option<f64>,
    /// True to store it only if the key is absent.
    #[serde(default)]
    pub add: bool,
}

/// The answer to `PUT /kv?key=NAME`.
#[derive(Serialize, Deserialize)]
pub struct KvStoredView {
    pub stored: bool,
}

/// The body of `POST /kv/increment?key=NAME`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvIncrementBody {
    /// 1 if absent.
    pub by: Option<i64>,
    /// Time to live, in seconds.
    pub ttl: Option<f64>,
}

/// A value: raw JSON, byte for byte as it was stored, or the sum after an increment.
#[derive(Serialize, Deserialize)]
pub struct KvValueView<T> {
    pub value: T,
}

/// The answer to `DELETE /kv?key=NAME`.
#[derive(Serialize, Deserialize)]
pub struct KvDeletedView {
    pub deleted: bool,
}
