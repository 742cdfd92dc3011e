//! The rules of a registration. The server decides; an agent checks the same rules earlier where it can.

use super::{MAX_TOOL_NAME, Method, MethodDefinition, MethodInterface, Registration};
use crate::model::{
    event_filter::EventFilter,
    id::GroupId,
    pattern::Patterns,
    schema::{SchemaChecker, SchemaError},
};
use std::collections::HashSet;

/// The placeholder for the space's name.
const SPACE: &str = "{{space}}";

/// Reserved prefixes of canonical names.
const RESERVED: [&str; 4] = ["rpc.", "svc.", "space.", "user."];

const MAX_METHODS: usize = 1000;
const MAX_NAME: usize = 255;
const MAX_DESCRIPTION: usize = 4096;
const MAX_COMMAND: usize = 4096;
const MAX_WORDS: usize = 100;

/// The largest automata of the patterns of all schemas together, in bytes.
const MAX_AUTOMATA: usize = 8 << 20;

/// The first field of a registration that breaks a rule. Nothing is published then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}`: {reason}")]
pub struct PublishError {
    /// Such as `methods[2].events[0]`.
    pub field: String,
    pub reason: String,
}

impl Registration {
    /// The names and ids by which its methods name groups.
    pub fn group_references(&self) -> impl Iterator<Item = &str> {
        self.methods.iter().flat_map(|method| &method.groups).map(String::as_str)
    }

    /// Checks every rule and returns the methods that the space of this name publishes. `find_group` resolves the name
    /// or id of a group.
    pub fn publish(
        &self,
        space: &str,
        find_group: impl Fn(&str) -> Option<GroupId>,
    ) -> Result<Vec<Method>, PublishError> {
        self.publish_while(space, find_group, || true)
    }

    /// As [`Registration::publish`], and stops between two methods once `wanted` returns false.
    pub fn publish_while(
        &self,
        space: &str,
        find_group: impl Fn(&str) -> Option<GroupId>,
        wanted: impl Fn() -> bool,
    ) -> Result<Vec<Method>, PublishError> {
        self.check_server()?;
        if self.methods.is_empty() {
            return Err(error("methods", "there must be at least one: add a [[methods]] table"));
        }
        if self.methods.len() > MAX_METHODS {
            return Err(error("methods", format!("there are at most {MAX_METHODS}; these are {}", self.methods.len())));
        }
        let (mut names, mut tools, mut schemas) = (HashSet::new(), HashSet::new(), SchemaChecker::new(MAX_AUTOMATA));
        let mut published = Vec::with_capacity(self.methods.len());
        for (index, definition) in self.methods.iter().enumerate() {
            let at = |field: &str| format!("methods[{index}].{field}");
            if !wanted() {
                return Err(error("methods", "nobody waits for the result of the check any more"));
            }
            let method = definition.publish(space, &at, &find_group, &mut schemas)?;
            if !names.insert(method.name.clone()) {
                return Err(error(at("name"), format!("`{}` is there twice", method.name)));
            }
            if method.definition.mcp_tool && method.name.len() > MAX_TOOL_NAME {
                let reason =
                    format!("an MCP tool's has at most {MAX_TOOL_NAME} bytes: shorten it, or unset `mcp_tool`");
                return Err(error(at("name"), reason));
            }
            if method.definition.mcp_tool && !tools.insert(method.tool_name()) {
                let reason =
                    format!("`{}` and another method have the same MCP name `{}`", method.name, method.tool_name());
                return Err(error(at("name"), reason));
            }
            published.push(method);
        }
        Ok(published)
    }

    fn check_server(&self) -> Result<(), PublishError> {
        let server = &self.server;
        if server.command.trim().is_empty() || server.command.len() > MAX_COMMAND || server.command.contains('\0') {
            return Err(error("server.command", "must be the command that starts the method server"));
        }
        if server.args.iter().any(|arg| arg.contains('\0'))
            || server.args.iter().map(String::len).sum::<usize>() > 1 << 17
        {
            return Err(error("server.args", "must be at most 128 KiB, without NUL bytes"));
        }
        Ok(())
    }
}

impl MethodDefinition {
    fn publish(
        &self,
        space: &str,
        at: &impl Fn(&str) -> String,
        find_group: &impl Fn(&str) -> Option<GroupId>,
        schemas: &mut SchemaChecker,
    ) -> Result<Method, PublishError> {
        let name = self.name.replace(SPACE, space);
        check_name(&name).map_err(|reason| error(at("name"), reason))?;
        if self.local_name.is_empty() || self.local_name.len() > MAX_NAME {
            return Err(error(at("local_name"), format!("must have 1 to {MAX_NAME} bytes")));
        }
        if self.description.trim().is_empty() || self.description.len() > MAX_DESCRIPTION {
            return Err(error(at("description"), format!("must have 1 to {MAX_DESCRIPTION} bytes: say what it does")));
        }
        for (field, words) in [
            ("keywords", &self.keywords),
            ("groups", &self.groups),
            ("events", &self.events),
            ("event_sinks", &self.event_sinks),
        ] {
            if words.len() > MAX_WORDS {
                return Err(error(at(field), format!("has at most {MAX_WORDS} entries; these are {}", words.len())));
            }
            if let Some(index) = words.iter().position(|word| word.is_empty() || word.len() > MAX_NAME) {
                return Err(error(at(&format!("{field}[{index}]")), format!("must have 1 to {MAX_NAME} bytes")));
            }
        }
        for (field, schema) in [("params_schema", &self.params_schema), ("result_schema", &self.result_schema)] {
            let checked = schema.as_ref().map_or(Ok(()), |schema| schemas.check(schema));
            checked.map_err(|fault: SchemaError| error(at(field), fault.to_string()))?;
        }
        let mut groups = Vec::with_capacity(self.groups.len());
        for (index, group) in self.groups.iter().enumerate() {
            let found = find_group(group);
            let reason = || format!("there is no group named `{group}`, nor one with that id");
            groups.push(found.ok_or_else(|| error(at(&format!("groups[{index}]")), reason()))?);
        }
        groups.sort_unstable();
        groups.dedup();
        Ok(Method {
            name: name.into(),
            local_name: self.local_name.as_str().into(),
            definition: MethodInterface {
                description: self.description.clone(),
                keywords: self.keywords.clone(),
                scope: self.scope,
                groups,
                mcp_tool: self.mcp_tool,
                params_schema: self.params_schema.clone(),
                result_schema: self.result_schema.clone(),
                events: self.patterns(at)?,
            },
            filter: self.event_filter(at)?,
            event_sinks: self.event_sinks.clone(),
        })
    }

    fn event_filter(&self, at: &impl Fn(&str) -> String) -> Result<Option<EventFilter>, PublishError> {
        let Some(filter) = &self.filter else { return Ok(None) };
        if self.events.is_empty() {
            return Err(error(at("filter"), "has no effect without `events`: add those, or remove it"));
        }
        let parsed = filter.parse::<EventFilter>();
        parsed.map(Some).map_err(|fault| error(at("filter"), fault.to_string()))
    }

    fn patterns(&self, at: &impl Fn(&str) -> String) -> Result<Option<Patterns>, PublishError> {
        for (index, entry) in self.events.iter().enumerate() {
            let parsed = entry.parse::<Patterns>();
            parsed.map_err(|fault| error(at(&format!("events[{index}]")), fault.to_string()))?;
        }
        if self.events.is_empty() {
            return Ok(None);
        }
        let all = self.events.join(", ").parse::<Patterns>();
        all.map(Some).map_err(|fault| error(at("events"), fault.to_string()))
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(format!("must have 1 to {MAX_NAME} bytes"));
    }
    if !name.starts_with(plain) {
        return Err(format!("`{name}` must begin with a letter, a digit or `_`"));
    }
    if let Some(bad) = name.chars().find(|c| !plain(*c) && *c != '.' && *c != '-') {
        return Err(format!(
            "`{bad}` in `{name}` is not allowed: a name is made of [A-Za-z0-9_.-], and may hold {SPACE}"
        ));
    }
    match RESERVED.iter().find(|reserved| name.starts_with(**reserved)) {
        Some(reserved) => Err(format!("`{name}` begins with `{reserved}`, which is reserved: choose another name")),
        None => Ok(()),
    }
}

fn error(field: impl Into<String>, reason: impl Into<String>) -> PublishError {
    PublishError { field: field.into(), reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::method::MethodScope;
    use serde_json::{Value, json};

    fn publish(methods: Value) -> Result<Vec<Method>, PublishError> {
        let registration = json!({"server": {"command": "x"}, "methods": methods});
        let registration: Registration = serde_json::from_value(registration).unwrap();
        registration.publish("notes", |name| (name == "ops").then(ops))
    }

    fn method(fields: Value) -> Value {
        let mut method = json!({"name": "a", "local_name": "l", "description": "d"});
        method.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        method
    }

    fn ops() -> GroupId {
        GroupId::from_slice(&[7; 16]).unwrap()
    }

    #[test]
    fn the_placeholder_becomes_the_spaces_name() {
        let published = publish(json!([method(json!({"name": "{{space}}.x.{{space}}"}))])).unwrap();
        assert_eq!(&*published[0].name, "notes.x.notes");
        assert_eq!(published[0].tool_name(), "notes_x_notes");
    }

    #[test]
    fn groups_become_ids_and_an_unknown_one_fails_the_registration() {
        let shared = json!({"scope": "shared", "groups": ["ops", "ops"]});
        let published = publish(json!([method(shared)])).unwrap();
        assert_eq!(
            (published[0].definition.scope, &published[0].definition.groups),
            (MethodScope::Shared, &vec![ops()])
        );
        let unknown = publish(json!([method(json!({"scope": "shared", "groups": ["ops", "dev"]}))])).unwrap_err();
        assert_eq!(unknown.to_string(), "`methods[0].groups[1]`: there is no group named `dev`, nor one with that id");
    }

    #[test]
    fn a_tools_name_is_shorter_than_a_methods() {
        let named =
            |length: usize, tool: bool| publish(json!([method(json!({"name": "x".repeat(length), "mcp_tool": tool}))]));
        assert!(named(MAX_TOOL_NAME, true).is_ok() && named(MAX_TOOL_NAME + 1, false).is_ok());
        assert_eq!(named(MAX_TOOL_NAME + 1, true).unwrap_err().field, "methods[0].name");
    }

    #[test]
    fn a_broken_rule_names_its_field() {
        for (fields, field) in [
            (json!({"name": "rpc.x"}), "name"),
            (json!({"name": "svc.x"}), "name"),
            (json!({"name": "space.x"}), "name"),
            (json!({"name": "user.x"}), "name"),
            (json!({"name": ".x"}), "name"),
            (json!({"name": "-x"}), "name"),
            (json!({"name": "a b"}), "name"),
            (json!({"name": "{{zone}}"}), "name"),
            (json!({"name": ""}), "name"),
            (json!({"name": "n".repeat(256)}), "name"),
            (json!({"local_name": ""}), "local_name"),
            (json!({"description": " "}), "description"),
            (json!({"keywords": [""]}), "keywords[0]"),
            (json!({"params_schema": {"type": "text"}}), "params_schema"),
            (json!({"result_schema": {"required": 1}}), "result_schema"),
            (json!({"params_schema": 5}), "params_schema"),
            (json!({"events": ["custom.*", "a.*.b"]}), "events[1]"),
        ] {
            let fault = publish(json!([method(fields.clone())])).unwrap_err();
            assert_eq!(fault.field, format!("methods[0].{field}"), "{fields}: {fault}");
        }
        for name in ["rpc", "users.x", "_x", "9", "a.b-c_d", "User.x"] {
            assert!(publish(json!([method(json!({"name": name}))])).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_registration_has_methods_of_different_names() {
        assert_eq!(publish(json!([])).unwrap_err().field, "methods");
        let twice = publish(json!([method(json!({})), method(json!({}))])).unwrap_err();
        assert_eq!(twice.to_string(), "`methods[1].name`: `a` is there twice");
        let tools = |tool| {
            json!([method(json!({"name": "a.b", "mcp_tool": true})), method(json!({"name": "a_b", "mcp_tool": tool}))])
        };
        assert_eq!(publish(tools(true)).unwrap_err().field, "methods[1].name");
        assert!(publish(tools(false)).is_ok());
    }

    #[test]
    fn the_server_needs_a_command() {
        let registration = json!({"server": {"command": " "}, "methods": [method(json!({}))]});
        let registration: Registration = serde_json::from_value(registration).unwrap();
        assert_eq!(registration.publish("s", |_| None).unwrap_err().field, "server.command");
    }
}
