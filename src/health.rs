//! What a health check is: something to probe, how often, and how many failures make a space unhealthy.
//!
//! The agent of the space runs it and reports every result; the server counts them and tells of transitions.
//! A check that was read obeys the rules below. Only whether a Lua source compiles is left to whoever has a compiler.

use crate::timestamp::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{fmt, time::Duration};
use url::Url;

const DEFAULT_INTERVAL: f64 = 30.0;
const DEFAULT_TIMEOUT: f64 = 5.0;
const DEFAULT_FAILURES: u32 = 3;

/// The bounds of an interval and of a timeout, in seconds.
const SHORTEST: f64 = 0.1;
const LONGEST: f64 = 86_400.0;

const MOST_FAILURES: u32 = 1000;

/// The longest URL, address, command or argument, and the most arguments.
const MAX_TEXT: usize = 4096;
const MAX_ARGS: usize = 256;

/// The longest Lua source, as everywhere.
const MAX_SOURCE: usize = 64 << 10;

/// A check, as written: `{"type":"http","url":"http://127.0.0.1:8080/up","interval":30,"timeout":5,"failures":3}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Fields", into = "Fields")]
pub struct HealthCheck {
    pub probe: Probe,
    /// From the start of one check to that of the next. A check that takes longer delays the next: they never overlap.
    pub interval: Duration,
    /// A check that takes longer than this has failed.
    pub timeout: Duration,
    /// So many failures in a row make the space unhealthy; one success makes it healthy.
    pub failures: u32,
}

/// What is asked. Everything is seen from inside the space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A GET that must be answered with 2xx. Redirects are not followed.
    Http { url: String },
    /// A `host:port` that must accept a connection.
    Tcp { address: String },
    /// A program that must exit with 0.
    Command { command: String, args: Vec<String> },
    /// A chunk that must return `true`.
    Lua { source: String },
}

/// How one check went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckResult {
    pub ok: bool,
    /// Why it failed, in one bounded line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// When it was over.
    pub at: Timestamp,
}

/// Why fields make no check.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HealthCheckError {
    #[error("`{field}` is required for a health check of type \"{kind}\"")]
    Missing { field: &'static str, kind: Kind },
    #[error("`{field}` does not belong to a health check of type \"{kind}\": remove it, or change `type`")]
    Misplaced { field: &'static str, kind: Kind },
    #[error("`{field}` must be a number of seconds from {SHORTEST} to {LONGEST}")]
    Seconds { field: &'static str },
    #[error("`failures` must be from 1 to {MOST_FAILURES}")]
    Failures,
    #[error("`url` must be an http: or https: URL without a user name, such as http://127.0.0.1:8080/healthz")]
    Url,
    #[error("`address` must be a host and a port, such as 127.0.0.1:5432")]
    Address,
    #[error("`{field}` must not be empty, contain a zero byte, or be longer than {limit} bytes")]
    Text { field: &'static str, limit: usize },
    #[error("`args` has more than {MAX_ARGS} entries")]
    TooManyArgs,
}

/// The word that stands for a [`Probe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Http,
    Tcp,
    Command,
    Lua,
}

/// The fields of a check side by side, which is how it travels and is stored.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "HealthCheck")]
struct Fields {
    #[serde(rename = "type")]
    kind: Kind,
    /// For type `http`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// For type `tcp`: host and port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    /// For type `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    /// For type `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    args: Option<Vec<String>>,
    /// For type `lua`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    /// Seconds between checks.
    #[serde(default = "default_interval")]
    interval: f64,
    /// Seconds a check may take.
    #[serde(default = "default_timeout")]
    timeout: f64,
    /// Failures in a row that make the space unhealthy.
    #[serde(default = "default_failures")]
    failures: u32,
}

fn default_interval() -> f64 {
    DEFAULT_INTERVAL
}

fn default_timeout() -> f64 {
    DEFAULT_TIMEOUT
}

fn default_failures() -> u32 {
    DEFAULT_FAILURES
}

impl Probe {
    /// The word for it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Http { .. } => Kind::Http,
            Self::Tcp { .. } => Kind::Tcp,
            Self::Command { .. } => Kind::Command,
            Self::Lua { .. } => Kind::Lua,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "http",
            Self::Tcp => "tcp",
            Self::Command => "command",
            Self::Lua => "lua",
        })
    }
}

impl TryFrom<Fields> for HealthCheck {
    type Error = HealthCheckError;

    fn try_from(fields: Fields) -> Result<Self, HealthCheckError> {
        let kind = fields.kind;
        let present = [
            ("url", Kind::Http, fields.url.is_some()),
            ("address", Kind::Tcp, fields.address.is_some()),
            ("command", Kind::Command, fields.command.is_some()),
            ("args", Kind::Command, fields.args.is_some()),
            ("source", Kind::Lua, fields.source.is_some()),
        ];
        if let Some((field, ..)) = present.into_iter().find(|(_, of, present)| *present && *of != kind) {
            return Err(HealthCheckError::Misplaced { field, kind });
        }
        let missing = |field| HealthCheckError::Missing { field, kind };
        let probe = match kind {
            Kind::Http => Probe::Http { url: checked_url(fields.url.ok_or(missing("url"))?)? },
            Kind::Tcp => Probe::Tcp { address: checked_address(fields.address.ok_or(missing("address"))?)? },
            Kind::Command => {
                let args = fields.args.unwrap_or_default();
                if args.len() > MAX_ARGS {
                    return Err(HealthCheckError::TooManyArgs);
                }
                if args.iter().any(|arg| arg.len() > MAX_TEXT || arg.contains('\0')) {
                    return Err(HealthCheckError::Text { field: "args", limit: MAX_TEXT });
                }
                let command = fields.command.ok_or(missing("command"))?;
                Probe::Command { command: checked_text("command", command, MAX_TEXT)?, args }
            }
            Kind::Lua => {
                let source = fields.source.ok_or(missing("source"))?;
                Probe::Lua { source: checked_text("source", source, MAX_SOURCE)? }
            }
        };
        if !(1..=MOST_FAILURES).contains(&fields.failures) {
            return Err(HealthCheckError::Failures);
        }
        Ok(Self {
            probe,
            interval: checked_seconds("interval", fields.interval)?,
            timeout: checked_seconds("timeout", fields.timeout)?,
            failures: fields.failures,
        })
    }
}

impl From<HealthCheck> for Fields {
    fn from(check: HealthCheck) -> Self {
        let mut fields = Self {
            kind: check.probe.kind(),
            url: None,
            address: None,
            command: None,
            args: None,
            source: None,
            interval: check.interval.as_secs_f64(),
            timeout: check.timeout.as_secs_f64(),
            failures: check.failures,
        };
        match check.probe {
            Probe::Http { url } => fields.url = Some(url),
            Probe::Tcp { address } => fields.address = Some(address),
            Probe::Command { command, args } => {
                (fields.command, fields.args) = (Some(command), Some(args));
            }
            Probe::Lua { source } => fields.source = Some(source),
        }
        fields
    }
}

fn checked_seconds(field: &'static str, seconds: f64) -> Result<Duration, HealthCheckError> {
    // A millisecond is fine enough, and what is stored reads back as what it was.
    match (SHORTEST..=LONGEST).contains(&seconds) {
        true => Ok(Duration::from_millis((seconds * 1000.0).round() as u64)),
        false => Err(HealthCheckError::Seconds { field }),
    }
}

fn checked_text(field: &'static str, text: String, limit: usize) -> Result<String, HealthCheckError> {
    match text.trim().is_empty() || text.len() > limit || text.contains('\0') {
        true => Err(HealthCheckError::Text { field, limit }),
        false => Ok(text),
    }
}

fn checked_url(text: String) -> Result<String, HealthCheckError> {
    let text = checked_text("url", text, MAX_TEXT)?;
    let url = Url::parse(&text).map_err(|_| HealthCheckError::Url)?;
    // The client that sends it reads it once more, and is stricter about characters.
    let sendable = url.as_str().parse::<http::Uri>().is_ok();
    let bare = url.username().is_empty() && url.password().is_none();
    match matches!(url.scheme(), "http" | "https") && url.has_host() && sendable && bare {
        true => Ok(text),
        false => Err(HealthCheckError::Url),
    }
}

fn checked_address(text: String) -> Result<String, HealthCheckError> {
    let text = checked_text("address", text, MAX_TEXT)?;
    let (host, port) = text.rsplit_once(':').ok_or(HealthCheckError::Address)?;
    // An IPv6 address needs its brackets, or its last group would pass for the port.
    let bare = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
    let port = port.parse::<u16>().is_ok_and(|port| port != 0);
    match !host.is_empty() && !host.contains(char::is_whitespace) && bare && port {
        true => Ok(text),
        false => Err(HealthCheckError::Address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<HealthCheck, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn a_check_needs_only_what_it_probes() {
        let check = read(r#"{"type":"http","url":"http://127.0.0.1:8080/up"}"#).unwrap();
        assert_eq!(
            check,
            HealthCheck {
                probe: Probe::Http { url: "http://127.0.0.1:8080/up".to_owned() },
                interval: Duration::from_secs(30),
                timeout: Duration::from_secs(5),
                failures: 3,
            }
        );
    }

    #[test]
    fn every_kind_survives_json() {
        for json in [
            r#"{"type":"http","url":"https://localhost/","interval":0.25,"timeout":1.0,"failures":1}"#,
            r#"{"type":"tcp","address":"[::1]:5432","interval":30.0,"timeout":5.0,"failures":3}"#,
            r#"{"type":"command","command":"true","args":["-x",""],"interval":30.0,"timeout":5.0,"failures":3}"#,
            r#"{"type":"lua","source":"return true","interval":30.0,"timeout":5.0,"failures":3}"#,
        ] {
            assert_eq!(serde_json::to_string(&read(json).unwrap()).unwrap(), json);
        }
    }

    #[test]
    fn what_breaks_a_rule_is_refused_with_its_field() {
        for (json, field) in [
            (r#"{"type":"http"}"#, "`url` is required"),
            (r#"{"type":"tcp","address":"a:1","url":"http://a"}"#, "`url` does not belong"),
            (r#"{"type":"http","url":"http://a","args":[]}"#, "`args` does not belong"),
            (r#"{"type":"http","url":"ftp://a"}"#, "`url` must be"),
            (r#"{"type":"http","url":"/healthz"}"#, "`url` must be"),
            (r#"{"type":"http","url":"http://a:b@localhost"}"#, "`url` must be"),
            (r#"{"type":"tcp","address":"localhost"}"#, "`address` must be"),
            (r#"{"type":"tcp","address":"::1:80"}"#, "`address` must be"),
            (r#"{"type":"tcp","address":"a:0"}"#, "`address` must be"),
            (r#"{"type":"tcp","address":":80"}"#, "`address` must be"),
            (r#"{"type":"command","command":" "}"#, "`command` must not"),
            (r#"{"type":"lua","source":"return true","interval":0}"#, "`interval` must be"),
            (r#"{"type":"lua","source":"return true","timeout":1e9}"#, "`timeout` must be"),
            (r#"{"type":"lua","source":"return true","failures":0}"#, "`failures` must be"),
            (r#"{"type":"lua","source":"return true","retries":0}"#, "`retries`"),
            (r#"{"type":"ping","address":"a"}"#, "`ping`"),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.contains(field), "{json}: {error}");
        }
    }

    #[test]
    fn the_schema_is_that_of_its_fields() {
        let schema = serde_json::to_value(schemars::schema_for!(HealthCheck)).unwrap();
        assert_eq!(schema["title"], "HealthCheck");
        assert_eq!(schema["required"], serde_json::json!(["type"]));
        assert_eq!(schema["additionalProperties"], false);
        assert!(schema["properties"]["url"].is_object() && schema["properties"]["interval"].is_object());
    }
}
