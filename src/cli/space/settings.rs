//! Flags of a space's or a template's settings, as the API takes them. Only given settings are sent.

use crate::{
    cli::{arguments::read_file, client::Client, failure::Failure, resource::find_script},
    model::{owner::OwnerSpec, space_settings::Port},
    platform::config::Span,
};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::{num::NonZeroU16, path::Path};

/// The field of the startup script's id; it holds the name until that is looked up.
const STARTUP_SCRIPT: &str = "startup_script_id";

/// Replaces the name of the startup script by its id. A global record names a global script.
///
/// # Errors
///
/// Fails if there is no such script, or the server cannot be asked.
pub fn look_up_script(client: &Client, owner: OwnerSpec, fields: &mut Map<String, Value>) -> Result<(), Failure> {
    if let Some(Value::String(name)) = fields.get(STARTUP_SCRIPT) {
        let id = find_script(client, owner, name)?;
        fields.insert(STARTUP_SCRIPT.to_owned(), json!(id));
    }
    Ok(())
}

/// The flags that spaces and templates share.
pub struct SettingsFlags<'a> {
    pub description: Option<&'a str>,
    pub ports: &'a [Port],
    pub custom: &'a [(String, String)],
    pub startup_script: Option<&'a str>,
    pub http: Option<&'a str>,
    pub tcp: Option<NonZeroU16>,
    pub command: Option<&'a str>,
    pub lua: Option<&'a Path>,
    pub interval: Option<Span>,
    pub timeout: Option<Span>,
    pub failures: Option<u32>,
}

impl SettingsFlags<'_> {
    /// The fields of a request.
    ///
    /// # Errors
    ///
    /// Fails if flags contradict each other, or a file cannot be read.
    pub fn fields(&self) -> Result<Map<String, Value>, Failure> {
        let mut fields = Map::new();
        let mut put = |field: &str, value: Value| drop(fields.insert(field.to_owned(), value));
        if let Some(description) = self.description {
            put("description", description.into());
        }
        if !self.ports.is_empty() {
            put("ports", json!(self.ports));
        }
        if !self.custom.is_empty() {
            let mut custom = Map::new();
            for (name, value) in self.custom {
                if custom.insert(name.clone(), value.as_str().into()).is_some() {
                    return Err(Failure::Usage(format!("--custom {name} is there twice: a field has one value")));
                }
            }
            put("custom", custom.into());
        }
        if let Some(script) = self.startup_script {
            put(STARTUP_SCRIPT, script.into());
        }
        if let Some(check) = self.health_check()? {
            put("health_check", check);
        }
        Ok(fields)
    }

    fn health_check(&self) -> Result<Option<Value>, Failure> {
        let mut checks = Vec::new();
        checks.extend(self.http.map(http));
        checks.extend(self.tcp.map(|port| json!({ "type": "tcp", "port": port })));
        checks.extend(self.command.map(command));
        if let Some(path) = self.lua {
            checks.push(json!({ "type": "lua", "source": read_file(path)? }));
        }
        if checks.len() > 1 {
            return Err(Failure::Usage(
                "give one of --health-http, -tcp, -command and -lua: there is one check".to_owned(),
            ));
        }
        let Some(mut check) = checks.pop() else {
            let detail = self.interval.is_some() || self.timeout.is_some() || self.failures.is_some();
            return match detail {
                true => Err(Failure::Usage(
                    "--interval, --timeout and --failures belong to a check: add one of --health-http, -tcp, -command \
                     and -lua"
                        .to_owned(),
                )),
                false => Ok(None),
            };
        };
        for (field, value) in [
            ("interval", self.interval.map(|span| json!(span))),
            ("timeout", self.timeout.map(|span| json!(span))),
            ("failures", self.failures.map(|count| json!(count))),
        ] {
            if let Some(value) = value {
                check[field] = value;
            }
        }
        Ok(Some(check))
    }
}

/// Parses a number of a port.
///
/// # Errors
///
/// Says which numbers there are.
pub fn parse_port_number(text: &str) -> Result<NonZeroU16, String> {
    text.parse().map_err(|_| format!("`{text}` is no port: give a number from 1 to 65535"))
}

/// A URL, or a port and perhaps a path.
fn http(target: &str) -> Value {
    let (port, path) = target.split_once('/').map_or((target, None), |(port, path)| (port, Some(format!("/{path}"))));
    match (port.parse::<u16>(), path) {
        (Ok(port), Some(path)) => json!({ "type": "http", "port": port, "path": path }),
        (Ok(port), None) => json!({ "type": "http", "port": port }),
        (Err(_), _) => json!({ "type": "http", "url": target }),
    }
}

fn command(line: &str) -> Value {
    let mut words = line.split_whitespace();
    let command = words.next().unwrap_or_default();
    json!({ "type": "command", "command": command, "args": words.collect::<Vec<_>>() })
}

/// Parses a port such as `web=8080` or `db=5432/tcp`.
///
/// # Errors
///
/// Shows the right form.
pub fn parse_port(text: &str) -> Result<Port, String> {
    let wrong = || format!("`{text}` is no port: write one as NAME=PORT or NAME=PORT/PROTOCOL, such as db=5432/tcp");
    let (name, rest) = text.split_once('=').ok_or_else(wrong)?;
    let (port, protocol) = rest.split_once('/').unwrap_or((rest, "http"));
    let port: u16 = port.parse().map_err(|_| wrong())?;
    serde_json::from_value(json!({ "name": name, "port": port, "protocol": protocol }))
        .map_err(|error| error.to_string())
}

/// Parses a custom field such as `TEAM=ops`.
///
/// # Errors
///
/// Shows the right form.
pub fn parse_custom_field(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| "write a field as NAME=VALUE".to_owned())?;
    Ok((name.to_owned(), value.to_owned()))
}

/// A health check in one line: its type, target and schedule. It goes through JSON, to print every field there is.
pub fn health_check_line(check: &impl Serialize) -> String {
    let check = json!(check);
    let field = |name: &str| match &check[name] {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(words) => Some(words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")),
        other => Some(other.to_string()),
    };
    let mut words: Vec<String> =
        ["type", "url", "port", "path", "command", "args"].into_iter().filter_map(field).collect();
    words.extend(field("interval").map(|interval| format!("every {interval}")));
    words.extend(field("timeout").map(|timeout| format!("within {timeout}")));
    words.extend(field("failures").map(|failures| format!("unhealthy after {failures} failures")));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::CreateSpace;
    use super::*;
    use argh::FromArgs as _;

    fn settings(words: &[&str]) -> Result<Value, Failure> {
        let words: Vec<&str> = ["web"].iter().chain(words).copied().collect();
        CreateSpace::from_args(&["svc", "space", "create"], &words).unwrap().settings().map(Value::Object)
    }

    #[test]
    fn only_given_settings_are_sent() {
        assert_eq!(settings(&[]).unwrap(), json!({}));
        let words = ["--port", "web=8080", "--port", "db=5432/tcp", "--custom", "TEAM=a=b", "--custom", "X="];
        let expected = json!({
            "ports": [
                { "name": "web", "port": 8080, "protocol": "http" }, { "name": "db", "port": 5432, "protocol": "tcp" },
            ],
            "custom": { "TEAM": "a=b", "X": "" },
        });
        assert_eq!(settings(&words).unwrap(), expected);
    }

    #[test]
    fn a_check_is_one_of_four() {
        let check = |words: &[&str]| settings(words).unwrap()["health_check"].clone();
        let url = "http://127.0.0.1:8080/healthz";
        assert_eq!(check(&["--health-http", url]), json!({ "type": "http", "url": url }));
        assert_eq!(check(&["--health-http", "8080"]), json!({ "type": "http", "port": 8080 }));
        assert_eq!(check(&["--health-http", "8080/h/x"]), json!({ "type": "http", "port": 8080, "path": "/h/x" }));
        let detailed = check(&["--health-tcp", "5432", "--interval", "1m", "--timeout", "2s", "--failures", "5"]);
        assert_eq!(detailed, json!({ "type": "tcp", "port": 5432, "interval": "1m", "timeout": "2s", "failures": 5 }));
        let command = json!({ "type": "command", "command": "pg_isready", "args": ["-q", "-t1"] });
        assert_eq!(check(&["--health-command", "pg_isready -q  -t1"]), command);
        for words in [&["--health-tcp", "1", "--health-http", "2"][..], &["--interval", "1s"], &["--failures", "1"]] {
            assert_eq!(settings(words).unwrap_err().exit_code(), 2, "{words:?}");
        }
        assert_eq!(settings(&["--health-lua", "/nowhere.lua"]).unwrap_err().exit_code(), 1);
    }

    #[test]
    fn a_port_out_of_shape_is_refused() {
        for bad in ["8080", "web=", "web=x", "web=0", "web=1/udp", "a.b=1", "web=70000"] {
            assert!(parse_port(bad).is_err(), "{bad}");
        }
    }
}
