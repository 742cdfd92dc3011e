//! A registration as users write it, in TOML or JSON: one server and its methods. Unknown keys are errors.

use crate::model::toml_input::{self, InvalidToml};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// One server definition and its methods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registration {
    pub server: ServerDefinition,
    #[serde(default)]
    pub methods: Vec<MethodDefinition>,
}

/// The long-running process that serves the methods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerDefinition {
    #[serde(rename = "type", default)]
    pub transport: ServerTransport,
    pub command: String,
    #[serde(default)]
    pub args: Vec<String>,
    /// The time limit of each call, in whole seconds.
    #[serde(with = "seconds", default = "default_timeout")]
    pub timeout: Duration,
    #[serde(default)]
    pub mode: ServerMode,
}

/// The transport between agent and process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerTransport {
    #[default]
    Stdio,
}

/// The concurrency of calls to the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerMode {
    /// Any number of calls at once.
    #[default]
    Concurrent,
    /// One call at a time.
    Serial,
}

/// The visibility of a method to users other than its owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MethodScope {
    /// Only the owner sees it.
    #[default]
    Private,
    /// Users with `use_methods` see it; if it names groups, only their members.
    Shared,
}

impl std::fmt::Display for MethodScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Private => "private",
            Self::Shared => "shared",
        })
    }
}

/// One method as users write it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MethodDefinition {
    /// May hold `{{space}}`.
    pub name: String,
    pub local_name: String,
    pub description: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keywords: Vec<String>,
    #[serde(default)]
    pub scope: MethodScope,
    /// Names or ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    #[serde(default)]
    pub mcp_tool: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params_schema: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_schema: Option<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// A Lua expression: an event for which it is false is not for this method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub event_sinks: Vec<String>,
}

impl Registration {
    /// Parses the text of a TOML file.
    ///
    /// # Errors
    ///
    /// An error names the line and the field.
    pub fn from_toml(text: &str) -> Result<Self, InvalidToml> {
        toml_input::parse(text)
    }
}

const fn default_timeout() -> Duration {
    Duration::from_secs(30)
}

mod seconds {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::time::Duration;

    /// One day. A longer job should return an id to poll.
    const MOST: i64 = 86_400;

    pub fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(span.as_secs())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        match i64::deserialize(deserializer)? {
            seconds @ 1..=MOST => Ok(Duration::from_secs(seconds.unsigned_abs())),
            seconds => Err(D::Error::custom(format!("`timeout` is 1 to {MOST} seconds, not {seconds}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str =
        "[server]\ncommand = \"./serve\"\n\n[[methods]]\nname = \"a\"\nlocal_name = \"a\"\ndescription = \"A\"\n";

    #[test]
    fn omitted_fields_have_their_defaults() {
        let registration = Registration::from_toml(LEAST).unwrap();
        let server = &registration.server;
        assert_eq!(
            (server.transport, server.mode, server.timeout.as_secs()),
            (ServerTransport::Stdio, ServerMode::Concurrent, 30)
        );
        assert!(server.args.is_empty());
        let method = MethodDefinition {
            name: "a".to_owned(),
            local_name: "a".to_owned(),
            description: "A".to_owned(),
            ..MethodDefinition::default()
        };
        assert_eq!((method.scope, method.mcp_tool), (MethodScope::Private, false));
        assert_eq!(registration.methods, [method]);
    }

    #[test]
    fn every_field_is_read() {
        let text = r#"
            [server]
            type = "stdio"
            command = "python3"
            args = ["-u", "serve.py"]
            timeout = 5
            mode = "serial"
            [[methods]]
            name = "{{space}}.search"
            local_name = "search"
            description = "Searches"
            keywords = ["notes"]
            scope = "shared"
            groups = ["ops"]
            mcp_tool = true
            events = ["custom.notes.*"]
            filter = "event.data.size > 10"
            event_sinks = ["shape"]
            [methods.params_schema]
            type = "object"
            properties.query.type = "string"
            [methods.result_schema]
            type = "array"
        "#;
        let registration = Registration::from_toml(text).unwrap();
        assert_eq!(registration.server.args, ["-u", "serve.py"]);
        assert_eq!((registration.server.timeout.as_secs(), registration.server.mode), (5, ServerMode::Serial));
        let json = serde_json::json!({
            "name": "{{space}}.search", "local_name": "search", "description": "Searches", "keywords": ["notes"],
            "scope": "shared", "groups": ["ops"], "mcp_tool": true, "events": ["custom.notes.*"],
            "filter": "event.data.size > 10", "event_sinks": ["shape"], "result_schema": {"type": "array"},
            "params_schema": {"type": "object", "properties": {"query": {"type": "string"}}},
        });
        assert_eq!(serde_json::to_value(&registration.methods[0]).unwrap(), json);
        let again: Registration = serde_json::from_value(serde_json::to_value(&registration).unwrap()).unwrap();
        assert_eq!(again, registration);
    }

    #[test]
    fn an_error_carries_its_line() {
        for (from, to, line, part) in [
            ("command = \"./serve\"", "command = \"./serve\"\nport = 5", 3, "port"),
            ("description = \"A\"", "description = \"A\"\nkeyword = [\"x\"]", 8, "keyword"),
            ("command = \"./serve\"", "command = \"./serve\"\nmode = \"parallel\"", 3, "parallel"),
            ("command = \"./serve\"", "command = \"./serve\"\ntype = \"http\"", 3, "http"),
            ("command = \"./serve\"", "command = \"./serve\"\ntimeout = 0", 3, "timeout"),
            ("command = \"./serve\"", "command = \"./serve\"\ntimeout = \"5s\"", 3, "5s"),
            ("description = \"A\"", "description = \"A\"\nscope = \"public\"", 8, "public"),
            ("description = \"A\"", "", 4, "description"),
            ("local_name = \"a\"", "", 4, "local_name"),
            ("command = \"./serve\"", "", 1, "command"),
        ] {
            let error = Registration::from_toml(&LEAST.replace(from, to)).unwrap_err().to_string();
            assert!(error.starts_with(&format!("line {line}: ")) && error.contains(part), "{to}: {error}");
        }
    }
}
