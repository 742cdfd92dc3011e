//! The health check of a space: its definition as users write it, and the rule that turns results into a
//! [`SpaceHealth`].
//!
//! The agent of the space runs the check; the server counts failures in a row and applies [`HealthCheck::verdict`].

use super::{lua_source::MAX_SOURCE, space_state::SpaceHealth, timestamp::Timestamp, units::Span};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, fmt, num::NonZeroU16, ops::RangeInclusive, time::Duration};

/// The allowed and the default time between checks.
const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);
const DEFAULT_INTERVAL: Duration = Duration::from_secs(10);

/// The shortest and the default timeout; a timeout is never longer than the interval.
const MIN_TIMEOUT: Duration = Duration::from_millis(10);
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// The allowed and the default number of failures in a row that make a space unhealthy.
const FAILURES: RangeInclusive<u32> = 1..=100;
const DEFAULT_FAILURES: u32 = 3;

/// The longest URL, path, command or argument, in bytes, and the most arguments of a command.
const MAX_TEXT: usize = 2048;
const MAX_ARGS: usize = 64;

/// A checked definition: the probe, its schedule and its threshold. In JSON it is flat:
/// `{"type": "http", "port": 8080, "interval": "10s"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "HealthCheckSpec", into = "HealthCheckSpec")]
pub struct HealthCheck {
    pub probe: Probe,
    /// From the start of one check to the start of the next.
    pub interval: Duration,
    /// A check that takes longer has failed. Not longer than the interval.
    pub timeout: Duration,
    /// The number of failures in a row that makes the space unhealthy.
    pub failures: u32,
}

/// The action of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A GET request; the check passes on a 2xx status.
    Http(HttpTarget),
    /// A TCP connection to this port on the agent's machine; the check passes if it is established.
    Tcp { port: NonZeroU16 },
    /// A command; the check passes on exit status 0.
    Command { command: String, args: Vec<String> },
    /// A Lua chunk; the check passes if it returns `true`. The HTTP API compiles it before it is stored.
    Lua { source: String },
}

/// The destination of an HTTP check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpTarget {
    Url(String),
    /// A port on the agent's machine.
    Local {
        port: NonZeroU16,
        /// Begins with a slash.
        path: String,
    },
}

/// A check as users write it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HealthCheckSpec {
    #[serde(rename = "type")]
    kind: ProbeKind,
    /// For `http`: the URL to get; or give `port` and `path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// For `http` and `tcp`: a port on the agent's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    port: Option<NonZeroU16>,
    /// For `http` with a `port`; `/` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// For `command`: the program to run; exit status 0 means healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    /// For `command`: its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    args: Option<Vec<String>>,
    /// For `lua`: a chunk that returns `true` if the space is healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    /// Time between checks; `10s` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interval: Option<Span>,
    /// Time limit of one check; `5s` if absent, or the interval if that is shorter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout: Option<Span>,
    /// Failures in a row that make the space unhealthy; 3 if absent.
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

/// The rule that a check breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HealthCheckError {
    #[error("`{field}` is required for a check of type \"{kind}\"")]
    Missing { field: &'static str, kind: ProbeKind },
    #[error("`{field}` does not belong to a check of type \"{kind}\": remove it, or change `type`")]
    Misplaced { field: &'static str, kind: ProbeKind },
    #[error("give either `url`, or `port` and perhaps `path`")]
    Target,
    #[error("`url` must be an http or https URL of at most {MAX_TEXT} bytes")]
    Url,
    #[error("`path` begins with a slash and has at most {MAX_TEXT} bytes, without spaces and control characters")]
    Path,
    #[error("`command` must not be empty, nor have more than {MAX_TEXT} bytes or a NUL")]
    Command,
    #[error("`args` has at most {MAX_ARGS} entries of at most {MAX_TEXT} bytes, without NUL")]
    Args,
    #[error("`source` has 1 to {MAX_SOURCE} bytes")]
    Source,
    #[error("`interval` must be from {} to {}", Span(*INTERVAL.start()), Span(*INTERVAL.end()))]
    Interval,
    #[error("`timeout` must be from {} to the interval, {}", Span(MIN_TIMEOUT), Span(*.0))]
    Timeout(Duration),
    #[error("`failures` must be from {} to {}", FAILURES.start(), FAILURES.end())]
    Failures,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckResult {
    pub ok: bool,
    /// The reason for a failure, in one line.
    pub detail: Option<String>,
    pub checked_at: Timestamp,
}

impl HealthCheck {
    /// The new health of a space after this many failures in a row; `None` if its health does not change.
    pub fn verdict(&self, before: SpaceHealth, failures: u32) -> Option<SpaceHealth> {
        match (before, failures) {
            (SpaceHealth::Unknown | SpaceHealth::Unhealthy, 0) => Some(SpaceHealth::Healthy),
            (SpaceHealth::Unknown | SpaceHealth::Healthy, count) if count >= self.failures => {
                Some(SpaceHealth::Unhealthy)
            }
            _ => None,
        }
    }
}

impl HttpTarget {
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
        let interval = spec.interval.map_or(DEFAULT_INTERVAL, |span| span.0);
        if !INTERVAL.contains(&interval) {
            return Err(HealthCheckError::Interval);
        }
        let timeout = spec.timeout.map_or(DEFAULT_TIMEOUT.min(interval), |span| span.0);
        if !(MIN_TIMEOUT..=interval).contains(&timeout) {
            return Err(HealthCheckError::Timeout(interval));
        }
        let failures = spec.failures.unwrap_or(DEFAULT_FAILURES);
        if !FAILURES.contains(&failures) {
            return Err(HealthCheckError::Failures);
        }
        Ok(Self { probe: spec.probe()?, interval, timeout, failures })
    }
}

impl HealthCheckSpec {
    /// Rejects a field that belongs to another kind of check, instead of ignoring it.
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
                if command.trim().is_empty() || !is_argument(&command) {
                    return Err(HealthCheckError::Command);
                }
                let args = self.args.unwrap_or_default();
                if args.len() > MAX_ARGS || !args.iter().all(|arg| is_argument(arg)) {
                    return Err(HealthCheckError::Args);
                }
                Ok(Probe::Command { command, args })
            }
            ProbeKind::Lua => {
                let source = self.source.ok_or_else(|| missing("source"))?;
                if source.trim().is_empty() || source.len() > MAX_SOURCE {
                    return Err(HealthCheckError::Source);
                }
                Ok(Probe::Lua { source })
            }
        }
    }
}

/// Returns true for a text that can be an argument of a process.
fn is_argument(text: &str) -> bool {
    text.len() <= MAX_TEXT && !text.contains('\0')
}

fn check_url(url: String) -> Result<String, HealthCheckError> {
    let parsed = url::Url::parse(&url).ok();
    let good = parsed.is_some_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    if good && url.len() <= MAX_TEXT { Ok(url) } else { Err(HealthCheckError::Url) }
}

fn check_path(path: String) -> Result<String, HealthCheckError> {
    let plain = path.starts_with('/') && path.chars().all(|c| !c.is_whitespace() && !c.is_control());
    if plain && path.len() <= MAX_TEXT { Ok(path) } else { Err(HealthCheckError::Path) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(value: Value) -> Result<HealthCheck, String> {
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    #[test]
    fn the_default_interval_timeout_and_failure_count_are_ten_seconds_five_seconds_and_three() {
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
    fn the_verdict_is_only_given_when_the_health_changes() {
        let check = check(json!({"type": "tcp", "port": 80, "failures": 2})).unwrap();
        use SpaceHealth::{Healthy, Unhealthy, Unknown};
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
