//! The settings of a space, as its owner writes them: host, ports, custom fields, health check and driver.
//!
//! Names, hosts and health checks are checked as they are deserialized, the rest by [`SpaceSettings::check`], so that
//! no record holds an invalid value. [`super::template_spec`] applies the same limits to templates.

use super::{health_check::HealthCheck, id::ScriptId};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};
use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    num::NonZeroU16,
    path::PathBuf,
    str::FromStr,
};

/// The longest name, in bytes.
const MAX_NAME: usize = 63;

/// The longest description, in characters.
const MAX_DESCRIPTION: usize = 1024;

/// The most ports of a space.
const MAX_PORTS: usize = 32;

/// Limits of the custom fields: their number, the bytes of one name and of one value, and the bytes of all together.
/// Every event of the space carries all of them.
const MAX_FIELDS: usize = 64;
const MAX_FIELD_NAME: usize = 64;
const MAX_FIELD: usize = 4096;
const MAX_ALL_FIELDS: usize = 16 << 10;

/// The name of a space or a template. It is a segment of method names, so it has no dots.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct SpaceName(String);

/// The host name or address at which a space is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Host(String);

/// The part of a space that its owner can change at any time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SpaceSettings {
    pub description: String,
    /// The host name or address of the space, part of its URLs. `localhost` if absent.
    pub host: Host,
    /// Listening ports of the space; its URLs are built from them.
    pub ports: Vec<Port>,
    /// Fields that sink templates and scripts read as `custom`.
    pub custom: BTreeMap<String, String>,
    /// A stored script of kind `script`, the space owner's or a global one, that the agent runs when it starts.
    pub startup_script_id: Option<ScriptId>,
    pub health_check: Option<HealthCheck>,
    /// For the driver `process`: the working directory of the agent. A directory of its own if absent.
    pub directory: Option<PathBuf>,
    /// For the driver `process`: the file of methods that the agent registers when it starts.
    pub methods_file: Option<PathBuf>,
}

/// A listening port of a space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Port {
    pub name: SpaceName,
    pub port: NonZeroU16,
    #[serde(default)]
    pub protocol: PortProtocol,
}

/// The protocol of a port; the scheme of its URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Protocol")]
pub enum PortProtocol {
    #[default]
    Http,
    Https,
    Tcp,
}

/// The party that runs the agent of a space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Driver {
    /// The operator of the space runs `svc agent start` in it.
    #[default]
    External,
    /// The server runs the agent as a child process.
    Process,
}

/// The error for a text that is no name of a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a name is 1 to {MAX_NAME} of [A-Za-z0-9_-] and begins with a letter or digit")]
pub struct SpaceNameError;

/// The error for a text that is no host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a host is a host name or an IP address, without protocol, port or path")]
pub struct HostError;

/// The first field of the settings that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpaceSettingsError {
    /// Of a template, to which spaces refer by its name or its id.
    #[error("`name` is a UUID, which would be taken for an id: choose another one")]
    NameIsId,
    #[error("`description` has more than {MAX_DESCRIPTION} characters: shorten it")]
    Description,
    #[error("`ports` has more than {MAX_PORTS} entries: remove some")]
    TooManyPorts,
    #[error("`ports` has two entries named `{0}`: rename one")]
    PortTwice(SpaceName),
    #[error("`custom` has more than {MAX_FIELDS} fields: remove some")]
    TooManyFields,
    #[error("`custom.{0}`: a field's name is 1 to {MAX_FIELD_NAME} of [A-Za-z0-9_.-] and begins with a letter or `_`")]
    FieldName(String),
    #[error("`custom.{0}` has more than {MAX_FIELD} bytes: shorten it")]
    Field(String),
    #[error("`custom` has more than {MAX_ALL_FIELDS} bytes in all: every event of the space carries it, so shorten it")]
    Fields,
    #[error("`{0}` belongs to spaces of the driver \"process\": remove it, or change `driver`")]
    Misplaced(&'static str),
    #[error("`{0}` must be an absolute path on the server, without NUL")]
    Path(&'static str),
}

impl SpaceSettings {
    /// Checks every field for a space of this driver and reports the first that breaks a rule.
    pub fn check(&self, driver: Driver) -> Result<(), SpaceSettingsError> {
        check_description(&self.description)?;
        check_ports(&self.ports)?;
        check_custom(&self.custom)?;
        for (field, path) in [("directory", &self.directory), ("methods_file", &self.methods_file)] {
            let Some(path) = path else { continue };
            if driver != Driver::Process {
                return Err(SpaceSettingsError::Misplaced(field));
            }
            if !path.is_absolute() || path.as_os_str().as_encoded_bytes().contains(&0) {
                return Err(SpaceSettingsError::Path(field));
            }
        }
        Ok(())
    }

    /// `protocol://host:port` for each port, in their order.
    pub fn urls(&self) -> Vec<String> {
        self.ports.iter().map(|port| format!("{}://{}:{}", port.protocol, self.host, port.port)).collect()
    }
}

pub(super) fn check_description(description: &str) -> Result<(), SpaceSettingsError> {
    match description.chars().count() > MAX_DESCRIPTION {
        true => Err(SpaceSettingsError::Description),
        false => Ok(()),
    }
}

/// Checks the number of ports and that their names differ.
pub(super) fn check_ports(ports: &[Port]) -> Result<(), SpaceSettingsError> {
    if ports.len() > MAX_PORTS {
        return Err(SpaceSettingsError::TooManyPorts);
    }
    let mut seen = HashSet::new();
    match ports.iter().find(|port| !seen.insert(&port.name)) {
        Some(twice) => Err(SpaceSettingsError::PortTwice(twice.name.clone())),
        None => Ok(()),
    }
}

/// Checks names and sizes of custom fields.
pub(super) fn check_custom(custom: &BTreeMap<String, String>) -> Result<(), SpaceSettingsError> {
    if custom.len() > MAX_FIELDS {
        return Err(SpaceSettingsError::TooManyFields);
    }
    let mut bytes = 0;
    for (name, value) in custom {
        let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
        if !begins || !plain || name.len() > MAX_FIELD_NAME {
            return Err(SpaceSettingsError::FieldName(name.chars().take(MAX_FIELD_NAME).collect()));
        }
        if value.len() > MAX_FIELD {
            return Err(SpaceSettingsError::Field(name.clone()));
        }
        bytes += name.len() + value.len();
    }
    if bytes > MAX_ALL_FIELDS { Err(SpaceSettingsError::Fields) } else { Ok(()) }
}

impl SpaceName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SpaceName {
    type Err = SpaceNameError;

    fn from_str(text: &str) -> Result<Self, SpaceNameError> {
        let starts = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
        if starts && plain && text.len() <= MAX_NAME { Ok(Self(text.to_owned())) } else { Err(SpaceNameError) }
    }
}

impl FromStr for Host {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        // Users write an IPv6 address without brackets; a URL needs them.
        if let Ok(address) = text.parse::<std::net::Ipv6Addr>() {
            return Ok(Self(format!("[{address}]")));
        }
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '[' | ']' | ':');
        let good = text.len() <= 253 && text.chars().all(legal) && url::Host::parse(text).is_ok();
        if good { Ok(Self(text.to_owned())) } else { Err(HostError) }
    }
}

impl Default for Host {
    fn default() -> Self {
        Self("localhost".to_owned())
    }
}

/// Implements `Display` and a `Deserialize` that goes through `FromStr`.
macro_rules! text_newtypes {
    ($($name:ident)*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                std::borrow::Cow::<str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }
    )*};
}
text_newtypes!(SpaceName Host);

impl fmt::Display for PortProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Tcp => "tcp",
        })
    }
}

impl Driver {
    /// The name used in JSON and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::External => "external",
            Self::Process => "process",
        }
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Driver {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = [Self::External, Self::Process].into_iter().find(|known| known.to_string() == text);
        known.ok_or_else(|| "expected external or process".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn settings(value: Value) -> Result<SpaceSettings, String> {
        let settings: SpaceSettings = serde_json::from_value(value).map_err(|error| error.to_string())?;
        settings.check(Driver::Process).map_err(|error| error.to_string())?;
        Ok(settings)
    }

    #[test]
    fn a_name_can_be_part_of_a_methods_name() {
        for good in ["a", "9", "Web_2-x", &"a".repeat(63)] {
            assert!(good.parse::<SpaceName>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "_a", "a.b", "a b", "é", &"a".repeat(64)] {
            assert_eq!(bad.parse::<SpaceName>(), Err(SpaceNameError), "{bad}");
        }
    }

    #[test]
    fn urls_are_made_of_protocol_host_and_port_in_order() {
        let ports = json!([
            {"name": "web", "port": 8080},
            {"name": "tls", "port": 443, "protocol": "https"},
            {"name": "db", "port": 5432, "protocol": "tcp"},
        ]);
        let here = settings(json!({"ports": ports})).unwrap();
        assert_eq!(here.urls(), ["http://localhost:8080", "https://localhost:443", "tcp://localhost:5432"]);
        for (host, url) in [("box.example", "http://box.example:8080"), ("::1", "http://[::1]:8080")] {
            let there = settings(json!({"host": host, "ports": [{"name": "web", "port": 8080}]})).unwrap();
            assert_eq!(there.urls(), [url]);
        }
    }

    #[test]
    fn each_refusal_names_its_field() {
        let many: BTreeMap<_, _> = (0..65).map(|n| (format!("f{n}"), "")).collect();
        let large: BTreeMap<_, _> = (0..5).map(|n| (format!("f{n}"), "x".repeat(4000))).collect();
        let port = |n: usize| json!({"name": format!("p{n}"), "port": 1});
        for (value, named) in [
            (json!({"colour": 1}), "`colour`"),
            (json!({"description": "x".repeat(1025)}), "`description`"),
            (json!({"host": "http://x"}), "a host is"),
            (json!({"host": "a/b"}), "a host is"),
            (json!({"host": ""}), "a host is"),
            (json!({"ports": [{"name": "a", "port": 0}]}), "nonzero"),
            (json!({"ports": [{"name": "a", "port": 65536}]}), "65536"),
            (json!({"ports": [{"name": "a", "port": 1, "protocol": "udp"}]}), "`http`, `https`, `tcp`"),
            (json!({"ports": [port(0), port(0)]}), "named `p0`"),
            (json!({"ports": (0..33).map(port).collect::<Vec<_>>()}), "`ports`"),
            (json!({"custom": {"a b": ""}}), "`custom.a b`"),
            (json!({"custom": {"1a": ""}}), "`custom.1a`"),
            (json!({"custom": {"a": "x".repeat(4097)}}), "`custom.a`"),
            (json!({"custom": many}), "`custom`"),
            (json!({"custom": large}), "`custom`"),
            (json!({"custom": {"a": 1}}), "string"),
            (json!({"directory": "relative"}), "`directory`"),
            (json!({"methods_file": "m.toml"}), "`methods_file`"),
        ] {
            let error = settings(value.clone()).expect_err(&value.to_string());
            assert!(error.contains(named), "{value}: {error}");
        }
    }

    #[test]
    fn only_the_process_driver_has_a_directory_and_a_methods_file() {
        let settings = settings(json!({"directory": "/srv/x", "methods_file": "/srv/x/m.toml"})).unwrap();
        assert_eq!(settings.check(Driver::External), Err(SpaceSettingsError::Misplaced("directory")));
    }
}
