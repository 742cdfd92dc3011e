//! The environment variables that `svc` reads, to tell a mistyped one from them.

use super::default_table;
use crate::platform::spelling;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The prefix of every variable.
const PREFIX: &str = "SVC_";

/// Variables that are no settings: of clients and agents, of set-up scripts, and the flags of the systemd units.
const OTHERS: [&str; 8] = [
    "SVC_SERVER",
    "SVC_TOKEN",
    "SVC_AGENT_TOKEN",
    "SVC_AGENT_URL",
    "SVC_AGENT_SUPERVISED",
    "SVC_METHODS_FILE",
    "SVC_SETUP",
    "SVC_FLAGS",
];

/// The variables that Kubernetes sets in every container for a Service named `svc`, by their beginnings.
const KUBERNETES: [&str; 3] = ["SVC_SERVICE_HOST", "SVC_SERVICE_PORT", "SVC_PORT"];

/// Warnings about those of these variables that begin with `SVC_` and are none that `svc` reads, one line each.
pub fn variable_warnings(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut unknown: Vec<String> = names.into_iter().filter(|name| name.starts_with(PREFIX)).collect();
    if unknown.is_empty() {
        return Vec::new();
    }
    let known = variables();
    unknown.retain(|name| !known.contains(name) && !KUBERNETES.iter().any(|start| name.starts_with(start)));
    unknown.sort_unstable();
    let warning = |name: &String| match nearest(name, &known) {
        Some(meant) => format!("the environment variable {name} has no meaning: did you mean {meant}?"),
        None => format!("the environment variable {name} has no meaning: `svc config show` prints every setting"),
    };
    unknown.iter().map(warning).collect()
}

/// Every variable that `svc` reads: one for each setting, and the others.
fn variables() -> BTreeSet<String> {
    fn add(names: &mut BTreeSet<String>, prefix: &str, table: &Map<String, Value>) {
        for (key, value) in table {
            let name = format!("{prefix}{}", key.to_uppercase());
            match value {
                Value::Object(section) => add(names, &format!("{name}_"), section),
                _ => drop(names.insert(name)),
            }
        }
    }
    let mut names: BTreeSet<String> = OTHERS.map(str::to_owned).into();
    add(&mut names, PREFIX, &default_table());
    names
}

/// The known name that a person probably meant: one that differs in a few characters, or else one that only has a
/// section more.
fn nearest<'a>(name: &str, known: &'a BTreeSet<String>) -> Option<&'a str> {
    let bare = |name: &'a String| &name[PREFIX.len()..];
    if let Some(meant) = spelling::nearest(&name[PREFIX.len()..], known.iter().map(bare)) {
        return known.iter().map(String::as_str).find(|name| &name[PREFIX.len()..] == meant);
    }
    let rest = &name[PREFIX.len() - 1..];
    known.iter().find(|other| other.ends_with(rest)).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(names: &[&str]) -> Vec<String> {
        variable_warnings(names.iter().map(ToString::to_string))
    }

    #[test]
    fn a_mistyped_variable_is_told_with_the_one_that_was_meant() {
        let said =
            |name: &str, meant: &str| format!("the environment variable {name} has no meaning: did you mean {meant}?");
        for (name, meant) in [
            ("SVC_DELIVRY_QUEUE", "SVC_DELIVERY_QUEUE"),
            ("SVC_SERVERS", "SVC_SERVER"),
            ("SVC_TOKN", "SVC_TOKEN"),
            ("SVC_AGENT_URI", "SVC_AGENT_URL"),
            ("SVC_BACKOFF", "SVC_DELIVERY_BACKOFF"),
            ("SVC_LOGLEVEL", "SVC_LOG_LEVEL"),
        ] {
            assert_eq!(warnings(&[name]), [said(name, meant)]);
        }
        let unlike = "the environment variable SVC_UNLIKE_ANY has no meaning: `svc config show` prints every setting";
        assert_eq!(warnings(&["SVC_UNLIKE_ANY"]), [unlike]);
    }

    #[test]
    fn variables_that_are_read_or_set_by_others_are_not_told() {
        let settings: Vec<String> = variables().into_iter().collect();
        assert!(settings.iter().any(|name| name == "SVC_AGENT_METHODS_FILE"), "{settings:?}");
        assert_eq!(variable_warnings(settings), Vec::<String>::new());
        for name in ["HOME", "SVC", "SVCX_A", "SVC_PORT_7300_TCP_ADDR", "SVC_SERVICE_HOST", "SVC_SERVICE_PORT_HTTP"] {
            assert_eq!(warnings(&[name]), Vec::<String>::new(), "{name}");
        }
    }
}
