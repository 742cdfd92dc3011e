//! What the commands read of the server's answers. Only what is shown: `--json` prints the rest as it came.

use crate::model::{
    body_template::BodyTemplate,
    library::Language,
    owner::OwnerSpec,
    script_spec::ScriptKind,
    sink_spec::{ScriptSinkSpec, SinkKind, WebhookSpec},
    timestamp::Timestamp,
};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use std::{collections::BTreeMap, fmt};

/// A thing with an id and a name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Named {
    pub id: String,
    pub name: String,
}

#[derive(Debug, Deserialize)]
pub struct Emitted {
    pub event_id: String,
    pub event_type: String,
    pub matched: Vec<SinkRef>,
    pub dropped: Vec<SinkRef>,
}

/// What an agent answers to an event.
#[derive(Debug, Deserialize)]
pub struct Spooled {
    pub event_id: String,
    pub event_type: String,
}

#[derive(Debug, Deserialize)]
pub struct SinkRef {
    pub name: String,
}

impl SinkRef {
    /// Whether it is a method, named SPACE/METHOD: no sink's name has a slash.
    pub fn is_method(&self) -> bool {
        self.name.contains('/')
    }
}

#[derive(Debug, Deserialize)]
pub struct Explained {
    pub event_type: String,
    pub sinks: Vec<ExplainedSink>,
}

#[derive(Debug, Deserialize)]
pub struct ExplainedSink {
    pub name: String,
    pub owner: String,
    pub events: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub matches: bool,
    pub reason: String,
}

#[derive(Debug, Deserialize)]
pub struct Methods {
    pub methods: Vec<Method>,
}

#[derive(Debug, Deserialize)]
pub struct Method {
    pub name: String,
    pub description: String,
    pub keywords: Vec<String>,
    pub scope: String,
    pub groups: Vec<Named>,
    pub owner: String,
    pub mcp_tool: bool,
    pub params_schema: Option<Box<RawValue>>,
    pub result_schema: Option<Box<RawValue>>,
    pub events: Vec<String>,
    pub provider_count: usize,
    pub available_count: usize,
    pub providers: Option<Vec<Provider>>,
}

/// A page of MCP's tools/list.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolPage {
    pub tools: Vec<Box<RawValue>>,
    pub next_cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    pub name: String,
    pub description: Option<String>,
    pub input_schema: Box<RawValue>,
    pub output_schema: Option<Box<RawValue>>,
    #[serde(default, rename = "_meta")]
    pub meta: ToolMeta,
}

#[derive(Debug, Default, Deserialize)]
pub struct ToolMeta {
    pub method: Option<String>,
    pub owner: Option<String>,
    #[serde(default)]
    pub keywords: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub struct Provider {
    pub space: String,
    pub health: String,
    pub reason: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct Event {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub ts: Timestamp,
    pub zone: String,
    pub space_id: String,
    pub actor: Actor,
    pub data: Box<RawValue>,
    #[serde(default)]
    pub deliveries: Vec<Delivery>,
}

#[derive(Debug, Deserialize)]
pub struct Actor {
    pub username: String,
    pub kind: String,
}

#[derive(Debug, Deserialize)]
pub struct Delivery {
    pub sink_id: String,
    pub name: String,
    pub state: State,
    pub sequence: u64,
    #[serde(default)]
    pub attempts: Vec<Attempt>,
}

impl Delivery {
    /// What the last attempt, if there was one, has to say.
    pub fn last_word(&self) -> String {
        self.attempts.last().map(Attempt::what_happened).unwrap_or_default()
    }
}

/// Where a delivery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Queued,
    Delivered,
    Skipped,
    Dropped,
    Dead,
    Discarded,
}

impl State {
    pub const ALL: [Self; 6] =
        [Self::Queued, Self::Delivered, Self::Skipped, Self::Dropped, Self::Dead, Self::Discarded];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Delivered => "delivered",
            Self::Skipped => "skipped",
            Self::Dropped => "dropped",
            Self::Dead => "dead",
            Self::Discarded => "discarded",
        }
    }

    /// Whether nothing more will happen to it.
    pub const fn is_settled(self) -> bool {
        !matches!(self, Self::Queued)
    }

    /// Whether the sink should have had the event and will not.
    pub const fn is_lost(self) -> bool {
        matches!(self, Self::Dropped | Self::Dead)
    }
}

impl std::str::FromStr for State {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|state| state.as_str() == text);
        known.ok_or_else(|| format!("expected one of {}", Self::ALL.map(Self::as_str).join(", ")))
    }
}

#[derive(Debug, Deserialize)]
pub struct Attempt {
    /// A test has neither a number nor a time: it is no part of any queue.
    pub number: Option<u32>,
    pub at: Option<Timestamp>,
    pub duration_ms: f64,
    pub outcome: String,
    pub status: Option<u16>,
    pub error: Option<String>,
    pub response: Option<String>,
    #[serde(default)]
    pub log: Vec<String>,
}

impl Attempt {
    /// The receiver's status and the error, as far as there are any.
    pub fn what_happened(&self) -> String {
        match (self.status, self.error.as_deref()) {
            (Some(status), Some(error)) if !error.contains(&status.to_string()) => format!("{status}: {error}"),
            (_, Some(error)) => error.to_owned(),
            (Some(status), None) => status.to_string(),
            (None, None) => String::new(),
        }
    }
}

/// What the stream tells about a delivery.
#[derive(Debug, Deserialize)]
pub struct DeliveryNews {
    pub event_id: String,
    pub event_type: String,
    pub name: String,
    pub state: String,
    pub attempt: u32,
    pub status: Option<u16>,
    pub error: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct Lagged {
    pub missed: u64,
}

#[derive(Debug, Deserialize)]
pub struct Sink {
    pub id: String,
    pub name: String,
    #[serde(default)]
    pub description: String,
    pub events: String,
    #[serde(rename = "type")]
    pub kind: SinkKind,
    pub owner: OwnerSpec,
    pub active: bool,
    /// Of these three only the one that the type says.
    pub webhook: Option<WebhookSpec>,
    pub script: Option<ScriptSinkSpec>,
    pub template: Option<BodyTemplate>,
    pub queue: Queue,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

#[derive(Debug, Deserialize)]
pub struct Script {
    pub id: String,
    pub name: String,
    pub kind: ScriptKind,
    pub language: Language,
    pub owner: OwnerSpec,
    pub description: String,
    pub active: bool,
    /// Not in lists.
    #[serde(default)]
    pub content: String,
    pub params_schema: Option<Value>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// How a run of a stored script went.
#[derive(Debug, Deserialize)]
pub struct Ran {
    pub outcome: String,
    /// Absent also if it is null.
    pub result: Option<Box<RawValue>>,
    pub error: Option<RunError>,
    pub log: Vec<String>,
    pub cpu_ms: f64,
}

#[derive(Debug, Deserialize)]
pub struct RunError {
    pub message: String,
}

/// The word for an owner.
pub const fn owner(owner: OwnerSpec) -> &'static str {
    match owner {
        OwnerSpec::Me => "me",
        OwnerSpec::Global => "global",
    }
}

#[derive(Debug, Deserialize)]
pub struct Queue {
    pub depth: u64,
    pub next_sequence: u64,
    pub dead: u64,
}

#[derive(Debug, Deserialize)]
pub struct Subscription {
    pub id: String,
    pub space: String,
    pub method: String,
    pub events: String,
    pub event_sinks: Vec<String>,
    pub queue: Queue,
    pub open: bool,
}

impl Subscription {
    /// As it is called wherever sinks are named.
    pub fn name(&self) -> String {
        format!("{}/{}", self.space, self.method)
    }
}

/// What a sink's test came to: an attempt, and what was sent.
#[derive(Debug, Deserialize)]
pub struct Tested {
    #[serde(flatten)]
    pub attempt: Attempt,
    pub sent: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct Previewed {
    pub body: String,
}

#[derive(Debug, Deserialize)]
pub struct DeadLetter {
    pub event_id: String,
    pub event_type: String,
    pub sequence: u64,
    pub died_at: Timestamp,
    pub why: String,
    pub attempts: u32,
}

#[derive(Debug, Deserialize)]
pub struct Redelivered {
    pub redelivered: u64,
    pub remaining: u64,
}

#[derive(Debug, Deserialize)]
pub struct Token {
    pub id: String,
    pub name: String,
    #[serde(default)]
    pub scopes: Vec<String>,
    pub created_at: Timestamp,
    pub last_used_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    /// Told once, when the token is made.
    pub token: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct User {
    pub id: String,
    pub name: String,
    #[serde(default)]
    pub roles: Vec<Named>,
    #[serde(default)]
    pub groups: Vec<Named>,
    pub active: bool,
    pub created_at: Option<Timestamp>,
}

#[derive(Debug, Deserialize)]
pub struct Role {
    pub id: String,
    pub name: String,
    #[serde(default)]
    pub permissions: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub struct AuditEntry {
    pub at: Timestamp,
    pub actor: Option<Actor>,
    pub action: String,
    #[serde(default)]
    pub object: String,
    #[serde(default)]
    pub detail: Value,
}

#[derive(Debug, Deserialize)]
pub struct WhoAmI {
    pub id: String,
    pub name: String,
    #[serde(default)]
    pub roles: Vec<Named>,
    #[serde(default)]
    pub groups: Vec<Named>,
    #[serde(default)]
    pub permissions: Vec<String>,
    pub via: String,
    #[serde(default)]
    pub scopes: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub struct Space {
    pub id: String,
    pub name: String,
    pub owner: String,
    #[serde(default)]
    pub description: String,
    pub template_id: Option<String>,
    pub driver: String,
    pub state: String,
    pub linked: bool,
    pub health: String,
    pub consecutive_failures: u32,
    pub last_check: Option<Check>,
    pub urls: Vec<String>,
    pub custom: BTreeMap<String, String>,
    pub startup_script_id: Option<String>,
    pub health_check: Option<Value>,
    pub directory: Option<String>,
    pub methods_file: Option<String>,
    pub process: Option<Process>,
    pub node_id: Option<String>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub stopped_at: Option<Timestamp>,
    /// Told once, when it is made.
    pub agent_token: Option<String>,
}

/// How a health check went.
#[derive(Debug, Deserialize)]
pub struct Check {
    pub ok: bool,
    pub detail: Option<String>,
    pub checked_at: Timestamp,
}

/// An agent that the server runs.
#[derive(Debug, Deserialize)]
pub struct Process {
    pub pid: Option<u32>,
    pub launches: u32,
    pub trouble: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct SpaceTemplate {
    pub id: String,
    pub name: String,
    pub description: String,
    pub ports: Vec<Port>,
    pub custom: BTreeMap<String, String>,
    pub startup_script_id: Option<String>,
    pub health_check: Option<Value>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

#[derive(Debug, Deserialize)]
pub struct Port {
    pub name: String,
    pub port: u16,
    pub protocol: String,
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}/{}", self.name, self.port, self.protocol)
    }
}

/// A health check in one line: its kind, what it asks for, and how often.
pub fn check(check: &Value) -> String {
    let word = |field: &str| match &check[field] {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(words) => Some(words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")),
        other => Some(other.to_string()),
    };
    let mut words: Vec<String> =
        ["type", "url", "port", "path", "command", "args"].into_iter().filter_map(word).collect();
    words.extend(word("interval").map(|interval| format!("every {interval}")));
    words.extend(word("timeout").map(|timeout| format!("within {timeout}")));
    words.extend(word("failures").map(|failures| format!("unhealthy after {failures} failures")));
    words.join(" ")
}

/// Names in a row, for a table.
pub fn names(list: &[Named]) -> String {
    list.iter().map(|named| named.name.as_str()).collect::<Vec<_>>().join(", ")
}
