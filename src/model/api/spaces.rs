//! Spaces: their settings, their agents and the agents' tokens.

use super::{lenient::Lenient, list::Limit, methods::RefusalView};
use crate::model::{
    health_check::HealthCheck,
    id::{ScriptId, SpaceId, TemplateId, UserId},
    json_input::JsonFields,
    space_settings::{Driver, Host, Port, SpaceName, SpaceSettings},
    space_state::{SpaceHealth, SpaceState},
    timestamp::Timestamp,
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, collections::BTreeMap, path::PathBuf};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpaceQuery {
    /// The space of this name; several if the caller sees those of others.
    pub name: Option<String>,
    /// `me`, or a user's name or id.
    pub owner: Option<String>,
    pub state: Option<SpaceState>,
    #[serde(default)]
    pub limit: Limit,
    pub cursor: Option<String>,
}

/// A space to be made.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpaceBody {
    /// The name, unique among the caller's spaces. It cannot change.
    pub name: SpaceName,
    /// The name or id of a template. Fields given here override the template's; custom fields are merged.
    pub template: Option<String>,
    /// `process` needs the permission manage_spaces.
    #[serde(default)]
    pub driver: Driver,
    pub description: Option<String>,
    /// The host name of the space, part of its URLs. `localhost` if absent.
    pub host: Option<Host>,
    pub ports: Option<Vec<Port>>,
    #[serde(default)]
    pub custom: BTreeMap<String, String>,
    /// A stored script, yours or a global one, that its agent runs when it starts.
    pub startup_script_id: Option<ScriptId>,
    pub health_check: Option<HealthCheck>,
    /// For the driver `process`: the working directory of its agent. A directory of its own if absent.
    pub directory: Option<PathBuf>,
    /// For the driver `process`: the methods that its agent registers at its start.
    pub methods_file: Option<PathBuf>,
}

/// The settings of a space that are to change; null removes one.
#[derive(Deserialize)]
#[serde(transparent)]
pub struct SpacePatch(pub JsonFields);

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Space")]
pub struct SpaceView {
    pub id: SpaceId,
    pub name: SpaceName,
    /// The owner's name.
    pub owner: String,
    pub owner_id: UserId,
    pub template_id: Option<TemplateId>,
    pub driver: Lenient<Driver>,
    pub state: Lenient<SpaceState>,
    /// True if its agent is connected now.
    pub linked: bool,
    /// The refusal of its registration, while its agent is linked and publishes nothing.
    #[serde(default)]
    pub refused_registration: Option<RefusalView>,
    pub health: Lenient<SpaceHealth>,
    /// Checks that failed since one succeeded.
    pub consecutive_failures: u32,
    /// The last check since the server started.
    pub last_check: Option<CheckView>,
    /// Its ports, as URLs.
    pub urls: Vec<String>,
    #[serde(flatten)]
    pub settings: SpaceSettings,
    /// For the driver `process`: true if the server is to run its agent.
    pub launched: bool,
    /// For the driver `process`: the agent's process, while the space is launched.
    pub process: Option<ProcessView>,
    /// The machine its agent was last linked from.
    pub node_id: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub stopped_at: Option<Timestamp>,
}

/// The result of a health check.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "CheckResult")]
pub struct CheckView {
    pub ok: bool,
    pub detail: Option<String>,
    pub checked_at: Timestamp,
}

/// An agent that the server runs.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Running")]
pub struct ProcessView {
    /// Null between two launches.
    pub pid: Option<u32>,
    /// Launches since it was started, or since the server was.
    pub launches: u32,
    /// The reason the last process ended.
    pub trouble: Option<String>,
}

/// A space and its agent's token.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct IssuedSpace {
    #[serde(flatten)]
    pub space: SpaceView,
    /// The token with which its agent authenticates. It is not kept and cannot be shown again. Null if the server runs
    /// the agent.
    pub agent_token: Option<String>,
}

impl JsonSchema for SpacePatch {
    fn schema_name() -> Cow<'static, str> {
        "SpacePatch".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        SpaceSettings::json_schema(generator)
    }
}
