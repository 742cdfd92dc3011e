//! How a space's health is checked, and what a row of results says about it. The checks themselves are run by the
//! agent; [`super::records`] counts.

use crate::{model::timestamp::Timestamp, platform::config::Span};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, fmt, num::NonZeroU16, ops::RangeInclusive, time::Duration};

/// How often a check may run, and how often it does unless told.
const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);
const USUAL_INTERVAL: Duration = Duration::from_secs(10);

/// The least time a check has, and what it has unless told; never more than its interval.
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(10);
const USUAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Failures in a row that make a space unhealthy.
const FAILURES: RangeInclusive<u32> = 1..=100;
const USUAL_FAILURES: u32 = 3;

/// The longest URL, path, command or argument, in bytes, and the most arguments.
const LONGEST: usize = 2048;
const MOST_ARGS: usize = 64;

/// The longest Lua source, in bytes.
pub const LONGEST_SOURCE: usize = 64 << 10;

/// A check and when it means what. In JSON it is flat: `{"type": "http", "port": 8080, "interval": "10s"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "HealthCheckSpec", into = "HealthCheckSpec")]
pub struct HealthCheck {
    pub probe: Probe,
    /// From the beginning of one check to that of the next.
    pub interval: Duration,
    /// After which a check has failed. Not longer than the interval.
    pub timeout: Duration,
    /// In a row, after which the space is unhealthy.
    pub failures: u32,
}

/// What the agent does to see whether the space is well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A GET that must be answered with 2xx.
    Http(HttpTarget),
    /// A connection to this port on the agent's machine that must come about.
    Tcp { port: NonZeroU16 },
    /// A command that must exit with 0.
    Command { command: String, args: Vec<String> },
    /// A chunk that must return `true`. Its syntax is checked at the HTTP edge.
    Lua { source: String },
}

/// Where an HTTP check goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpTarget {
    Url(String),
    /// On the agent's machine.
    Local {
        port: NonZeroU16,
        /// Begins with a slash.
        path: String,
    },
}

/// A check as it is written.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HealthCheckSpec {
    #[serde(rename = "type")]
    kind: ProbeKind,
    /// For `http`: what to get; or `port` and `path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// For `http` and `tcp`: a port on the agent's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    port: Option<NonZeroU16>,
    /// For `http` with a `port`; `/` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// For `command`: what to run; 0 means well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    /// For `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    args: Option<Vec<String>>,
    /// For `lua`: a chunk that returns `true` if the space is well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    /// `10s` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interval: Option<Span>,
    /// `5s` if absent, or the interval if that is less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout: Option<Span>,
    /// In a row, after which the space is unhealthy; 3 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failures: Option<u32>,
}

/// The kinds of check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProbeKind {
    Http,
    Tcp,
    Command,
    Lua,
}

/// Why a check was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HealthCheckError {
    #[error("`{field}` is required for a check of type \"{kind}\"")]
    Missing { field: &'static str, kind: ProbeKind },
    #[error("`{field}` does not belong to a check of type \"{kind}\": remove it, or change `type`")]
    Misplaced { field: &'static str, kind: ProbeKind },
    #[error("give either `url`, or `port` and perhaps `path`")]
    Target,
    #[error("`url` must be an http or https URL of at most {LONGEST} bytes")]
    Url,
    #[error("`path` begins with a slash and has at most {LONGEST} bytes, without spaces and control characters")]
    Path,
    #[error("`command` must not be empty, nor have more than {LONGEST} bytes or a NUL")]
    Command,
    #[error("`args` has at most {MOST_ARGS} entries of at most {LONGEST} bytes, without NUL")]
    Args,
    #[error("`source` has 1 to {LONGEST_SOURCE} bytes")]
    Source,
    #[error("`interval` must be from {} to {}", Span(*INTERVAL.start()), Span(*INTERVAL.end()))]
    Interval,
    #[error("`timeout` must be from {} to the interval, {}", Span(SHORTEST_TIMEOUT), Span(*.0))]
    Timeout(Duration),
    #[error("`failures` must be from {} to {}", FAILURES.start(), FAILURES.end())]
    Failures,
}

/// How a space is, as far as its checks tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It has no check, is not deployed, or nothing has been decided yet.
    #[default]
    Unknown,
    Healthy,
    Unhealthy,
}

/// How one check went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckResult {
    pub ok: bool,
    /// What was found, in a few words.
    pub detail: Option<String>,
    pub checked_at: Timestamp,
}

impl HealthCheck {
    /// What a space of this health is after so many failures in a row; `None` if it is as before.
    pub(super) fn verdict(&self, before: Health, failures: u32) -> Option<Health> {
        match (before, failures) {
            (Health::Unknown | Health::Unhealthy, 0) => Some(Health::Healthy),
            (Health::Unknown | Health::Healthy, count) if count >= self.failures => Some(Health::Unhealthy),
            _ => None,
        }
    }
}

impl HttpTarget {
    /// The URL to get.
    pub fn url(&self) -> String {
        match self {
            Self::Url(url) => url.clone(),
            Self::Local { port, path } => format!("http://127.0.0.1:{port}{path}"),
        }
    }
}

impl TryFrom<HealthCheckSpec> for HealthCheck {
    type Error = HealthCheckError;

    fn try_from(spec: HealthCheckSpec) -> Result<Self, HealthCheckError> {
        spec.refuse_misplaced()?;
        let interval = spec.interval.map_or(USUAL_INTERVAL, |span| span.0);
        if !INTERVAL.contains(&interval) {
            return Err(HealthCheckError::Interval);
        }
        let timeout = spec.timeout.map_or(USUAL_TIMEOUT.min(interval), |span| span.0);
        if !(SHORTEST_TIMEOUT..=interval).contains(&timeout) {
            return Err(HealthCheckError::Timeout(interval));
        }
        let failures = spec.failures.unwrap_or(USUAL_FAILURES);
        if !FAILURES.contains(&failures) {
            return Err(HealthCheckError::Failures);
        }
        Ok(Self { probe: spec.probe()?, interval, timeout, failures })
    }
}

impl HealthCheckSpec {
    /// Refuses a field of another kind of check, rather than forget it silently.
    fn refuse_misplaced(&self) -> Result<(), HealthCheckError> {
        use ProbeKind::{Command, Http, Lua, Tcp};
        for (field, present, homes) in [
            ("url", self.url.is_some(), &[Http][..]),
            ("port", self.port.is_some(), &[Http, Tcp]),
            ("path", self.path.is_some(), &[Http]),
            ("command", self.command.is_some(), &[Command]),
            ("args", self.args.is_some(), &[Command]),
            ("source", self.source.is_some(), &[Lua]),
        ] {
            if present && !homes.contains(&self.kind) {
                return Err(HealthCheckError::Misplaced { field, kind: self.kind });
            }
        }
        Ok(())
    }

    fn probe(self) -> Result<Probe, HealthCheckError> {
        let missing = |field| HealthCheckError::Missing { field, kind: self.kind };
        match self.kind {
            ProbeKind::Http => match (self.url, self.port) {
                (Some(url), None) if self.path.is_none() => check_url(url).map(HttpTarget::Url),
                (None, Some(port)) => {
                    let path = self.path.unwrap_or_else(|| "/".to_owned());
                    check_path(path).map(|path| HttpTarget::Local { port, path })
                }
                _ => Err(HealthCheckError::Target),
            }
            .map(Probe::Http),
            ProbeKind::Tcp => Ok(Probe::Tcp { port: self.port.ok_or_else(|| missing("port"))? }),
            ProbeKind::Command => {
                let command = self.command.ok_or_else(|| missing("command"))?;
                if command.trim().is_empty() || !is_fit(&command) {
                    return Err(HealthCheckError::Command);
                }
                let args = self.args.unwrap_or_default();
                if args.len() > MOST_ARGS || !args.iter().all(|arg| is_fit(arg)) {
                    return Err(HealthCheckError::Args);
                }
                Ok(Probe::Command { command, args })
            }
            ProbeKind::Lua => {
                let source = self.source.ok_or_else(|| missing("source"))?;
                if source.trim().is_empty() || source.len() > LONGEST_SOURCE {
                    return Err(HealthCheckError::Source);
                }
                Ok(Probe::Lua { source })
            }
        }
    }
}

/// Whether it can be handed to a process.
fn is_fit(text: &str) -> bool {
    text.len() <= LONGEST && !text.contains('\0')
}

fn check_url(url: String) -> Result<String, HealthCheckError> {
    let parsed = url::Url::parse(&url).ok();
    let good = parsed.is_some_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    if good && url.len() <= LONGEST { Ok(url) } else { Err(HealthCheckError::Url) }
}

fn check_path(path: String) -> Result<String, HealthCheckError> {
    let plain = path.starts_with('/') && path.chars().all(|c| !c.is_whitespace() && !c.is_control());
    if plain && path.len() <= LONGEST { Ok(path) } else { Err(HealthCheckError::Path) }
}

impl From<HealthCheck> for HealthCheckSpec {
    fn from(check: HealthCheck) -> Self {
        let mut spec = Self {
            kind: ProbeKind::Http,
            url: None,
            port: None,
            path: None,
            command: None,
            args: None,
            source: None,
            interval: Some(Span(check.interval)),
            timeout: Some(Span(check.timeout)),
            failures: Some(check.failures),
        };
        match check.probe {
            Probe::Http(HttpTarget::Url(url)) => spec.url = Some(url),
            Probe::Http(HttpTarget::Local { port, path }) => (spec.port, spec.path) = (Some(port), Some(path)),
            Probe::Tcp { port } => (spec.kind, spec.port) = (ProbeKind::Tcp, Some(port)),
            Probe::Command { command, args } => {
                (spec.kind, spec.command, spec.args) = (ProbeKind::Command, Some(command), Some(args));
            }
            Probe::Lua { source } => (spec.kind, spec.source) = (ProbeKind::Lua, Some(source)),
        }
        spec
    }
}

impl JsonSchema for HealthCheck {
    fn schema_name() -> Cow<'static, str> {
        "HealthCheck".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        HealthCheckSpec::json_schema(generator)
    }
}

impl fmt::Display for ProbeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "http",
            Self::Tcp => "tcp",
            Self::Command => "command",
            Self::Lua => "lua",
        })
    }
}

impl Health {
    /// The word used in JSON and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Healthy => "healthy",
            Self::Unhealthy => "unhealthy",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(value: Value) -> Result<HealthCheck, String> {
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    #[test]
    fn a_check_runs_every_ten_seconds_for_five_and_three_times_unless_told() {
        let usual = check(json!({"type": "tcp", "port": 80})).unwrap();
        let seconds = Duration::from_secs;
        assert_eq!((usual.interval, usual.timeout, usual.failures), (seconds(10), seconds(5), 3));
        let quick = check(json!({"type": "tcp", "port": 80, "interval": "1s"})).unwrap();
        assert_eq!(quick.timeout, seconds(1), "no longer than its interval");
    }

    #[test]
    fn an_http_check_goes_to_a_url_or_a_port() {
        let url = |value| match check(value).unwrap().probe {
            Probe::Http(target) => target.url(),
            other => panic!("{other:?}"),
        };
        assert_eq!(url(json!({"type": "http", "url": "https://x.example/h"})), "https://x.example/h");
        assert_eq!(url(json!({"type": "http", "port": 8080})), "http://127.0.0.1:8080/");
        assert_eq!(url(json!({"type": "http", "port": 8080, "path": "/h?a=b"})), "http://127.0.0.1:8080/h?a=b");
    }

    #[test]
    fn each_refusal_names_its_field() {
        let tcp = |field: &str, value: Value| {
            let mut check = json!({"type": "tcp", "port": 80});
            check[field] = value;
            check
        };
        for (value, named) in [
            (json!({}), "`type`"),
            (json!({"type": "ping"}), "`http`, `tcp`, `command`, `lua`"),
            (json!({"type": "http"}), "`url`, or `port`"),
            (json!({"type": "http", "url": "http://x", "port": 1}), "`url`, or `port`"),
            (json!({"type": "http", "url": "http://x", "path": "/"}), "`url`, or `port`"),
            (json!({"type": "http", "url": "ftp://x"}), "`url`"),
            (json!({"type": "http", "url": format!("http://x/{}", "y".repeat(2048))}), "`url`"),
            (json!({"type": "http", "port": 1, "path": "h"}), "`path`"),
            (json!({"type": "http", "port": 1, "path": "/a b"}), "`path`"),
            (json!({"type": "tcp"}), "`port` is required"),
            (tcp("path", json!("/")), "`path` does not belong"),
            (tcp("command", json!("x")), "`command` does not belong"),
            (tcp("source", json!("x")), "`source` does not belong"),
            (tcp("colour", json!("x")), "`colour`"),
            (tcp("interval", json!("99ms")), "`interval`"),
            (tcp("interval", json!("61m")), "`interval`"),
            (tcp("interval", json!(10)), "string"),
            (tcp("timeout", json!("11s")), "`timeout`"),
            (tcp("timeout", json!("0s")), "`timeout`"),
            (tcp("failures", json!(0)), "`failures`"),
            (tcp("failures", json!(101)), "`failures`"),
            (json!({"type": "command"}), "`command` is required"),
            (json!({"type": "command", "command": " "}), "`command`"),
            (json!({"type": "command", "command": "a\0"}), "`command`"),
            (json!({"type": "command", "command": "a", "args": vec![""; 65]}), "`args`"),
            (json!({"type": "lua"}), "`source` is required"),
            (json!({"type": "lua", "source": ""}), "`source`"),
            (json!({"type": "lua", "source": "x".repeat(64 * 1024 + 1)}), "`source`"),
        ] {
            let error = check(value.clone()).expect_err(&value.to_string());
            assert!(error.contains(named), "{value}: {error}");
        }
    }

    #[test]
    fn a_stored_check_reads_back_as_it_was() {
        for value in [
            json!({"type": "http", "url": "http://x/"}),
            json!({"type": "http", "port": 8080, "path": "/h"}),
            json!({"type": "tcp", "port": 5432, "interval": "1m", "timeout": "2s", "failures": 5}),
            json!({"type": "command", "command": "pg_isready", "args": ["-q"]}),
            json!({"type": "lua", "source": "return true"}),
        ] {
            let first = check(value.clone()).unwrap();
            let stored = serde_json::to_value(&first).unwrap();
            for (field, given) in value.as_object().unwrap() {
                assert_eq!(stored[field], *given);
            }
            assert_eq!(check(stored).unwrap(), first);
        }
    }

    #[test]
    fn only_a_change_is_a_verdict() {
        let check = check(json!({"type": "tcp", "port": 80, "failures": 2})).unwrap();
        use Health::{Healthy, Unhealthy, Unknown};
        for (before, failures, after) in [
            (Unknown, 0, Some(Healthy)),
            (Unknown, 1, None),
            (Unknown, 2, Some(Unhealthy)),
            (Healthy, 0, None),
            (Healthy, 1, None),
            (Healthy, 2, Some(Unhealthy)),
            (Healthy, 9, Some(Unhealthy)),
            (Unhealthy, 3, None),
            (Unhealthy, 0, Some(Healthy)),
        ] {
            assert_eq!(check.verdict(before, failures), after, "{before:?} {failures}");
        }
    }
}
