//! The settings of server and agent: flag over environment over file over default.
//!
//! `contrib/svc.default.toml` is embedded and documents every key; a test holds it to the defaults
//! here. An unknown key is an error with its line, never silently ignored.

mod http;
#[cfg(test)]
mod tests;
mod variables;

pub use crate::model::units::{Size, Span, UnitError};
pub use http::{AddressRange, HttpConfig, MetricsAccess};
pub use variables::variable_warnings;

use crate::{
    model::{
        json_input,
        jsonrpc::MAX_BATCH,
        toml_input::{self, InvalidToml},
    },
    platform::{
        secret_keys::KEY_FILE,
        store::{Migration, StoreOptions},
    },
};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::{Map, Value};
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

/// The documented defaults, as shipped.
pub const DEFAULT_TOML: &str = include_str!("../../../contrib/svc.default.toml");

/// The most threads, and the most processes for Lua, that a server is told to start.
const MAX_WORKERS: usize = 1024;

/// The settings of `svc server` and `svc agent start`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    #[serde(deserialize_with = "address")]
    pub listen: SocketAddr,
    /// Empty until [`Config::data_dir`] decides.
    pub data: PathBuf,
    pub zone: String,
    /// Threads that serve connections; 0 leaves it to [`Config::workers`].
    pub workers: usize,
    pub http: HttpConfig,
    pub limits: LimitsConfig,
    pub delivery: DeliveryConfig,
    pub history: HistoryConfig,
    pub store: StoreConfig,
    pub secrets: SecretsConfig,
    pub webhook: WebhookConfig,
    pub script: ScriptConfig,
    pub egress: EgressConfig,
    pub auth: AuthConfig,
    pub mcp: McpConfig,
    pub engine: EngineConfig,
    pub agent: AgentConfig,
    pub log: LogConfig,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    pub body: Size,
    pub payload: Size,
    pub connections: usize,
    pub sinks: usize,
    pub sources: usize,
    pub source_letters: usize,
    pub batch: usize,
    pub spaces: usize,
    pub scripts: usize,
    pub undelivered: Size,
    pub kv: Size,
    pub disk_free: Size,
    pub drain: Span,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeliveryConfig {
    pub queue: usize,
    pub backoff: Vec<Span>,
    pub retry_after: Span,
    pub hold_max: Span,
    pub concurrency: usize,
    pub dead_letters: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HistoryConfig {
    pub keep: Span,
    pub size: Size,
    pub audit: Span,
    pub audit_size: Size,
    pub audit_admin_size: Size,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    pub compact_at: u32,
    pub migrate: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SecretsConfig {
    /// Empty means a file in the data directory: see [`Config::key_file`].
    pub key_file: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebhookConfig {
    pub timeout: Span,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptConfig {
    pub wall: Span,
    pub cpu: Span,
    pub memory: Size,
    pub workers: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EgressConfig {
    pub allow_private: bool,
    pub deny: Vec<ipnet::IpNet>,
    pub dns: Vec<std::net::SocketAddr>,
    pub client: EgressClient,
}

/// The HTTP client of deliveries and of Lua's `http`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EgressClient {
    #[default]
    Hyper,
    /// curl.
    Isahc,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthConfig {
    pub session: Span,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct McpConfig {
    pub hosts: Vec<String>,
    pub origins: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineConfig {
    pub kind: EngineKind,
}

/// Storage engine of the queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineKind {
    #[default]
    Sled,
}

/// Settings of an agent. A server reads `heartbeat` alone. The token is not among them, because files get copied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentConfig {
    pub server: Vec<String>,
    #[serde(deserialize_with = "address")]
    pub listen: SocketAddr,
    /// Empty means the user's data directory.
    pub data: PathBuf,
    pub methods_file: PathBuf,
    pub setup_timeout: Span,
    pub spool: usize,
    pub heartbeat: Span,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    pub level: LogLevel,
    pub format: LogFormat,
}

/// The least important level that is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

/// Format of the log: text for people, JSON for programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// A value that its type allows and its meaning does not.
struct OutOfRange {
    key: &'static str,
    reason: String,
}

/// Reason for which the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: InvalidToml },
    #[error("environment variable {name}: {reason}")]
    Environment { name: String, reason: String },
    #[error("{}: `{key}` {reason}", path.display())]
    Value { path: PathBuf, key: &'static str, reason: String },
    #[error("no home directory to keep data in: set `data` in the config file, SVC_DATA, or --data")]
    NoHome,
    #[error("no home directory to keep data in: set `agent.data` in the config file, SVC_AGENT_DATA, or --data")]
    NoHomeForAgent,
}

impl Config {
    /// The settings of `file` (if any) under those of the environment.
    ///
    /// The environment comes in as a function, so that a test needs no process environment.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, has an unknown key (named with its line), or a value is out of range.
    pub fn load(file: Option<&Path>, environment: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let text = match file {
            Some(path) => {
                std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?
            }
            None => String::new(),
        };
        let at = |source| ConfigError::File { path: file.unwrap_or(Path::new("")).to_owned(), source };
        // Read as a whole first: only here does an error know its line.
        toml_input::parse::<Self>(&text).map_err(at)?;
        let mut table = toml_input::table(&text).map_err(at)?;
        overlay_environment(&mut table, &default_table(), "SVC", &environment)?;
        let config: Self = json_input::interpret(&Value::Object(table))
            .map_err(|error| ConfigError::Environment { name: "SVC_*".to_owned(), reason: error.to_string() })?;
        config.check().map_err(|OutOfRange { key, reason }| {
            let name = format!("SVC_{}", key.replace('.', "_").to_uppercase());
            match file {
                Some(path) if environment(&name).is_none() => ConfigError::Value { path: path.to_owned(), key, reason },
                _ => ConfigError::Environment { name, reason },
            }
        })?;
        Ok(config)
    }

    /// Threads that serve connections. By default one core is left to the store's writer, scripts, and agents and
    /// method servers on the same machine. On two cores a second worker costs calls more than it brings.
    pub fn workers(&self) -> usize {
        match self.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from).saturating_sub(1).max(1),
            workers => workers,
        }
    }

    /// The data directory of a server: as set, or in the user's data directory.
    ///
    /// # Errors
    ///
    /// Fails if nothing is set and there is no home directory.
    pub fn data_dir(&self, environment: impl Fn(&str) -> Option<String>) -> Result<PathBuf, ConfigError> {
        if !self.data.as_os_str().is_empty() {
            return Ok(self.data.clone());
        }
        default_data_dir(environment).ok_or(ConfigError::NoHome)
    }

    /// The data directory of an agent: as set, or in the user's data directory, beside a server's.
    ///
    /// # Errors
    ///
    /// Fails if nothing is set and there is no home directory.
    pub fn agent_data_dir(&self, environment: impl Fn(&str) -> Option<String>) -> Result<PathBuf, ConfigError> {
        if !self.agent.data.as_os_str().is_empty() {
            return Ok(self.agent.data.clone());
        }
        let server = default_data_dir(environment).ok_or(ConfigError::NoHomeForAgent)?;
        Ok(server.with_file_name("svc-agent"))
    }

    /// The file with the keys of stored secrets: as set, or in this data directory.
    pub fn key_file(&self, data: &Path) -> PathBuf {
        match self.secrets.key_file.as_os_str().is_empty() {
            true => data.join(KEY_FILE),
            false => self.secrets.key_file.clone(),
        }
    }

    /// The options with which server and agent open their data directory.
    pub fn store_options(&self) -> StoreOptions {
        let StoreConfig { compact_at, migrate } = self.store;
        let migration = if migrate { Migration::Allowed } else { Migration::Refused };
        StoreOptions { keep_free: self.limits.disk_free.0, compact_at, migration }
    }

    fn check(&self) -> Result<(), OutOfRange> {
        let wrong = |key, reason: &str| Err(OutOfRange { key, reason: reason.to_owned() });
        let positive = |key, value| match value {
            0 => wrong(key, "must be at least 1"),
            _ => Ok(()),
        };
        for (key, threads) in [("workers", self.workers), ("script.workers", self.script.workers)] {
            if threads > MAX_WORKERS {
                return wrong(key, &format!("must be at most {MAX_WORKERS}"));
            }
        }
        positive("delivery.queue", self.delivery.queue)?;
        positive("delivery.concurrency", self.delivery.concurrency)?;
        positive("limits.connections", self.limits.connections)?;
        positive("limits.batch", self.limits.batch)?;
        positive("limits.body", self.limits.body.bytes())?;
        positive("agent.spool", self.agent.spool)?;
        positive("script.memory", self.script.memory.bytes())?;
        for (key, span) in [
            ("delivery.hold_max", self.delivery.hold_max),
            ("webhook.timeout", self.webhook.timeout),
            ("script.wall", self.script.wall),
            ("script.cpu", self.script.cpu),
            ("auth.session", self.auth.session),
            ("agent.heartbeat", self.agent.heartbeat),
            ("agent.setup_timeout", self.agent.setup_timeout),
        ] {
            if span.0.is_zero() {
                return wrong(key, "must be longer than nothing");
            }
        }
        if self.zone.is_empty() {
            return wrong("zone", "must not be empty");
        }
        Ok(())
    }
}

fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| D::Error::custom("expected an IP address and a port, such as 127.0.0.1:7300"))
}

/// `$XDG_DATA_HOME/svc`, or `~/.local/share/svc`; `None` without a home.
pub fn default_data_dir(environment: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let set = |name| environment(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    Some(set("XDG_DATA_HOME").or_else(|| Some(set("HOME")?.join(".local/share")))?.join("svc"))
}

/// The values of the shipped file.
fn default_table() -> Map<String, Value> {
    toml_input::table(DEFAULT_TOML).expect("the embedded defaults parse")
}

/// Puts `SVC_SECTION_KEY` over `section.key`, read as the type the default has.
fn overlay_environment(
    table: &mut Map<String, Value>,
    defaults: &Map<String, Value>,
    prefix: &str,
    environment: &impl Fn(&str) -> Option<String>,
) -> Result<(), ConfigError> {
    for (key, default) in defaults {
        let name = format!("{prefix}_{}", key.to_uppercase());
        if let Value::Object(inner) = default {
            let entry = table.entry(key).or_insert_with(|| Map::new().into());
            if let Value::Object(section) = entry {
                overlay_environment(section, inner, &name, environment)?;
            }
            continue;
        }
        let Some(text) = environment(&name) else { continue };
        let bad = |reason: &str| ConfigError::Environment { name: name.clone(), reason: reason.to_owned() };
        let value: Value = match default {
            Value::Number(number) if !number.is_f64() => {
                text.parse::<i64>().map_err(|_| bad("expected a whole number"))?.into()
            }
            Value::Bool(_) => text.parse::<bool>().map_err(|_| bad("expected true or false"))?.into(),
            Value::Array(_) => text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect(),
            _ => text.into(),
        };
        // Checked alone first, so that the error can name this variable.
        let mut alone = Map::from_iter([(key.clone(), value.clone())]);
        for section in prefix.split('_').skip(1).collect::<Vec<_>>().into_iter().rev() {
            alone = Map::from_iter([(section.to_lowercase(), alone.into())]);
        }
        json_input::locate::<Config>(&Value::Object(alone)).map_err(|fault| bad(&fault.message))?;
        table.insert(key.clone(), value);
    }
    Ok(())
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7300)),
            data: PathBuf::new(),
            zone: "default".to_owned(),
            workers: 0,
            http: HttpConfig::default(),
            limits: LimitsConfig::default(),
            delivery: DeliveryConfig::default(),
            history: HistoryConfig::default(),
            store: StoreConfig::default(),
            secrets: SecretsConfig::default(),
            webhook: WebhookConfig::default(),
            script: ScriptConfig::default(),
            egress: EgressConfig::default(),
            auth: AuthConfig::default(),
            mcp: McpConfig::default(),
            engine: EngineConfig::default(),
            agent: AgentConfig::default(),
            log: LogConfig::default(),
        }
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            body: Size(1 << 20),
            payload: Size(256 << 10),
            connections: 10_000,
            sinks: 200,
            sources: 100,
            source_letters: 1000,
            batch: MAX_BATCH,
            spaces: 200,
            scripts: 1000,
            undelivered: Size(256 << 20),
            kv: Size(16 << 20),
            disk_free: Size(64 << 20),
            drain: seconds(10),
        }
    }
}

impl Default for DeliveryConfig {
    fn default() -> Self {
        Self {
            queue: 100,
            backoff: vec![seconds(5), seconds(15)],
            retry_after: seconds(15 * 60),
            hold_max: seconds(3600),
            concurrency: 512,
            dead_letters: 10_000,
        }
    }
}

impl Default for HistoryConfig {
    fn default() -> Self {
        Self {
            keep: seconds(7 * 86_400),
            size: Size(1 << 30),
            audit: seconds(90 * 86_400),
            audit_size: Size(256 << 20),
            audit_admin_size: Size(64 << 20),
        }
    }
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self { compact_at: 4, migrate: true }
    }
}

impl Default for WebhookConfig {
    fn default() -> Self {
        Self { timeout: seconds(10) }
    }
}

impl Default for ScriptConfig {
    fn default() -> Self {
        Self { wall: seconds(10), cpu: seconds(1), memory: Size(32 << 20), workers: 0 }
    }
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            server: vec![],
            listen: SocketAddr::from(([127, 0, 0, 1], 7301)),
            data: PathBuf::new(),
            methods_file: PathBuf::new(),
            spool: 10_000,
            setup_timeout: seconds(60),
            heartbeat: seconds(15),
        }
    }
}

impl Default for AuthConfig {
    fn default() -> Self {
        Self { session: seconds(12 * 3600) }
    }
}

const fn seconds(seconds: u64) -> Span {
    Span(Duration::from_secs(seconds))
}
