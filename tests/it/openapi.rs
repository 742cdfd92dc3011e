//! The responses of the daemon against its OpenAPI document.

use crate::support::{Answer, Daemon, Receiver, Space, eventually, registration};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Compares responses with their schemas. Stricter than JSON Schema: a field that is not described is a fault, because
/// callers learn of it nowhere else.
struct DocumentCheck<'a> {
    document: &'a Value,
}

impl DocumentCheck<'_> {
    fn faults(&self, schema: &Value, value: &Value, place: &str) -> Vec<String> {
        let wrong = |what: String| vec![format!("{place}: {what}: {value}")];
        if let Some(reference) = schema["$ref"].as_str() {
            let target = self.document.pointer(&reference[1..]).unwrap_or_else(|| panic!("{reference} is not defined"));
            return self.faults(target, value, place);
        }
        if let Some(choices) = schema["anyOf"].as_array().or_else(|| schema["oneOf"].as_array()) {
            let tried: Vec<_> = choices.iter().map(|choice| self.faults(choice, value, place)).collect();
            return if tried.iter().any(Vec::is_empty) { vec![] } else { tried.concat() };
        }
        if let Some(allowed) = schema["enum"].as_array()
            && !allowed.contains(value)
        {
            return wrong(format!("is none of {allowed:?}"));
        }
        let kinds = match &schema["type"] {
            Value::Array(kinds) => kinds.clone(),
            Value::Null => vec![],
            kind => vec![kind.clone()],
        };
        if !kinds.is_empty() && !kinds.iter().any(|kind| is_of_type(value, kind.as_str().unwrap())) {
            return wrong(format!("is no {kinds:?}"));
        }
        match value {
            Value::Array(items) => {
                let each = items.iter().enumerate();
                each.flat_map(|(n, item)| self.faults(&schema["items"], item, &format!("{place}[{n}]"))).collect()
            }
            Value::Object(fields) => self.object(schema, fields, place),
            _ => vec![],
        }
    }

    fn object(&self, schema: &Value, fields: &Map<String, Value>, place: &str) -> Vec<String> {
        let required = schema["required"].as_array().into_iter().flatten().map(|name| name.as_str().unwrap());
        let missing =
            required.filter(|name| !fields.contains_key(*name)).map(|name| format!("{place}.{name} is missing"));
        let mut faults: Vec<String> = missing.collect();
        let known = schema["properties"].as_object();
        let others = schema.get("additionalProperties").filter(|others| others.is_object());
        for (name, value) in fields {
            let place = format!("{place}.{name}");
            match known.and_then(|known| known.get(name)).or(others) {
                Some(schema) => faults.extend(self.faults(schema, value, &place)),
                // Objects without described fields hold data of users.
                None if known.is_none() => {}
                None => faults.push(format!("{place} is not described")),
            }
        }
        faults
    }
}

impl DocumentCheck<'_> {
    /// Sends a request, checks the response against the description of the route, and returns its body.
    #[track_caller]
    fn exchange(&self, daemon: &Daemon, method: &str, route: &str, path: &str, body: Option<Value>) -> Value {
        let body = body.map(|body| body.to_string().into_bytes());
        let reply = daemon.send(&method.to_uppercase(), path, Some(&daemon.admin_token()), body);
        let responses = &self.document["paths"][route][method]["responses"];
        let exact = responses.get(reply.status.to_string());
        assert!(exact.is_some() || reply.status >= 400, "{method} {path} answered {}: {}", reply.status, reply.text);
        let response = exact.unwrap_or(&responses["default"]);
        if reply.status == 204 {
            assert_eq!((&response["content"], reply.text.as_str()), (&Value::Null, ""), "{method} {path}");
            return Value::Null;
        }
        let schema = &response["content"]["application/json"]["schema"];
        assert!(!schema.is_null(), "{method} {path} answered {}, which is not described", reply.status);
        assert_eq!(self.faults(schema, &reply.json(), "$"), [""; 0], "{method} {path}: {}", reply.text);
        reply.json()
    }
}

fn is_of_type(value: &Value, kind: &str) -> bool {
    match kind {
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        other => panic!("unknown type {other}"),
    }
}

#[test]
fn responses_about_events_sinks_and_identity_match_the_document() {
    let daemon = Daemon::start();
    let receiver = Receiver::answering(|_| Answer::Status(500));
    let hook = json!({
        "name": "hook", "events": "*", "type": "webhook", "owner": "global",
        "webhook": {"url": receiver.url("/"), "headers": {"X-Team": "ops"}, "template": "print('hi') return {}"},
    });
    let hook = daemon.create_sink(&hook);
    let script = json!({
        "name": "script", "events": "*", "type": "script", "script": {"source": "return svc.skip('not mine')"},
    });
    let script = daemon.create_sink(&script);
    daemon.create_user("ada", &["use_spaces"]);
    daemon.post("/api/groups", &json!({"name": "ops"}));
    let emitted = daemon.emit("deploy.done", &json!({"version": "1.2"}));
    let event = emitted["event_id"].as_str().unwrap();
    eventually("both deliveries to settle", || {
        let event = daemon.event(&emitted["event_id"]);
        let settled = |delivery: &Value| delivery["state"] == "dead" || delivery["state"] == "skipped";
        event["deliveries"].as_array().unwrap().iter().all(settled).then_some(())
    });

    let check = json!({"type": "http", "port": 8080, "interval": "1s"});
    let template =
        json!({"name": "t", "ports": [{"name": "web", "port": 80}], "custom": {"A": "b"}, "health_check": check});
    let template = daemon.post("/api/templates", &template).json()["id"].as_str().unwrap().to_owned();
    let space = daemon.post("/api/spaces", &json!({"name": "s", "template": "t"})).json();
    let space = space["id"].as_str().unwrap();

    let document = daemon.get("/api/openapi.json").json();
    let check = DocumentCheck { document: &document };
    let sink = |id: &str, rest: &str| format!("/api/event-sinks/{id}{rest}");
    for (method, template, path, body) in [
        ("get", "/healthz", "/healthz".to_owned(), None),
        ("get", "/readyz", "/readyz".to_owned(), None),
        ("get", "/api/whoami", "/api/whoami".to_owned(), None),
        ("get", "/api/tokens", "/api/tokens".to_owned(), None),
        ("post", "/api/tokens", "/api/tokens".to_owned(), Some(json!({"name": "t"}))),
        ("get", "/api/users", "/api/users".to_owned(), None),
        ("get", "/api/roles", "/api/roles".to_owned(), None),
        ("get", "/api/groups", "/api/groups".to_owned(), None),
        ("get", "/api/events", "/api/events".to_owned(), None),
        ("get", "/api/events/{id}", format!("/api/events/{event}"), None),
        ("post", "/api/events/emit", "/api/events/emit".to_owned(), Some(json!({"type": "x"}))),
        ("post", "/api/events/explain", "/api/events/explain".to_owned(), Some(json!({"type": "x"}))),
        ("get", "/api/event-sinks", "/api/event-sinks".to_owned(), None),
        ("get", "/api/event-sinks/{id}", sink(&hook, ""), None),
        ("patch", "/api/event-sinks/{id}", sink(&script, ""), Some(json!({"active": false}))),
        ("post", "/api/event-sinks/{id}/test", sink(&hook, "/test"), Some(json!({}))),
        ("post", "/api/event-sinks/{id}/test", sink(&script, "/test"), Some(json!({}))),
        ("post", "/api/event-sinks/preview", sink("preview", ""), Some(json!({"sink_id": hook}))),
        ("get", "/api/event-sinks/{id}/dead-letters", sink(&hook, "/dead-letters"), None),
        ("post", "/api/event-sinks/{id}/redeliver", sink(&hook, "/redeliver"), Some(json!({}))),
        ("get", "/api/spaces", "/api/spaces".to_owned(), None),
        ("post", "/api/spaces", "/api/spaces".to_owned(), Some(json!({"name": "x", "driver": "process"}))),
        ("get", "/api/spaces/{id}", format!("/api/spaces/{space}"), None),
        ("patch", "/api/spaces/{id}", format!("/api/spaces/{space}"), Some(json!({"description": "d"}))),
        ("post", "/api/spaces/{id}/start", format!("/api/spaces/{space}/start"), None),
        ("post", "/api/spaces/{id}/token", format!("/api/spaces/{space}/token"), None),
        ("get", "/api/templates", "/api/templates".to_owned(), None),
        ("post", "/api/templates", "/api/templates".to_owned(), Some(json!({"name": "y"}))),
        ("put", "/api/templates/{id}", format!("/api/templates/{template}"), Some(json!({"name": "z"}))),
        ("post", "/mcp", "/mcp".to_owned(), Some(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}))),
        ("post", "/mcp", "/mcp".to_owned(), Some(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/fly"}))),
        ("post", "/mcp", "/mcp".to_owned(), Some(json!([]))),
        ("get", "/api/activity", "/api/activity".to_owned(), None),
        ("get", "/api/event-sinks", "/api/event-sinks?q=hook&status=failing".to_owned(), None),
        ("get", "/api/events", "/api/events?text=version".to_owned(), None),
        ("get", "/api/subscriptions", "/api/subscriptions".to_owned(), None),
        ("get", "/api/audit", "/api/audit".to_owned(), None),
        ("get", "/api/events/{id}", "/api/events/nonsense".to_owned(), None),
    ] {
        check.exchange(&daemon, method, template, &path, body);
    }
    let described = &document["components"]["schemas"];
    for (name, field) in [("Event", "deliveries"), ("Delivery", "attempts"), ("Attempt", "outcome"), ("Actor", "kind")]
    {
        assert!(described[name]["properties"][field].is_object(), "{name}.{field} is described: {}", described[name]);
    }
    assert!(described["DeadLetter"]["properties"]["why"].is_object(), "{}", described["DeadLetter"]);
}

/// Every route of stored scripts, with a value in every optional field.
#[test]
fn responses_about_stored_scripts_match_the_document() {
    let daemon = Daemon::start();
    let document = daemon.get("/api/openapi.json").json();
    let check = DocumentCheck { document: &document };
    let mut tried = BTreeSet::new();
    let mut go = |method: &'static str, route: &'static str, parameter: &str, body: Option<Value>| {
        tried.insert((method, route));
        let path =
            if route.contains("{id}") { route.replace("{id}", parameter) } else { format!("{route}{parameter}") };
        check.exchange(&daemon, method, route, &path, body)
    };
    let tool = json!({
        "name": "t", "kind": "tool", "language": "lua", "owner": "global", "description": "d", "active": true,
        "content": "if params.n then return {n = params.n} end error{code = 7, message = 'no', data = {1}}",
        "params_schema": {"type": "object", "properties": {"n": {"type": "integer"}}},
    });
    let made = go("post", "/api/scripts", "", Some(tool.clone()));
    let id = made["id"].as_str().expect("it has an id").to_owned();
    go("post", "/api/scripts", "", Some(tool.clone()));
    go("post", "/api/scripts", "", Some(json!({"name": "x", "content": "="})));
    let script =
        go("post", "/api/scripts", "", Some(json!({"name": "s", "content": "print(1) return svc.skip('no')"})));
    let script = script["id"].as_str().expect("it has an id").to_owned();
    go("get", "/api/scripts", "", None);
    go("get", "/api/scripts", "?kind=tool&owner=global&name=t&limit=1", None);
    go("get", "/api/scripts/{id}", &id, None);
    for content in ["return 1", "return {"] {
        go("post", "/api/scripts/check", "", Some(json!({"content": content})));
    }
    let sink = json!({"name": "s", "events": "*", "type": "script", "script": {"script_id": script}});
    let sink = daemon.create_sink(&sink);
    go("get", "/api/scripts/{id}/references", &script, None);
    daemon.delete(&format!("/api/event-sinks/{sink}"));
    go("put", "/api/scripts/{id}", &id, Some(tool));
    go("patch", "/api/scripts/{id}", &id, Some(json!({"description": "e"})));
    for params in [json!({"n": 1}), json!({}), json!({"n": "one"})] {
        go("post", "/api/scripts/{id}/run", &id, Some(json!({"params": params})));
    }
    go("post", "/api/scripts/{id}/run", &script, Some(json!({"type": "a", "payload": {"n": 1}})));
    go("post", "/api/scripts/{id}/run", &script, None);
    go("delete", "/api/scripts/{id}", &id, None);
    go("get", "/api/scripts/{id}", &id, None);
    for (route, operations) in document["paths"].as_object().expect("it has paths") {
        for method in operations.as_object().expect("it has operations").keys() {
            let ours = route.starts_with("/api/scripts") && method != "parameters";
            assert!(!ours || tried.contains(&(method.as_str(), route.as_str())), "{method} {route}");
        }
    }
}

/// Every route of spaces, templates, methods and subscriptions, with a value in every optional field.
#[test]
fn responses_about_spaces_and_methods_match_the_document() {
    let daemon = Daemon::start();
    let document = daemon.get("/api/openapi.json").json();
    let check = DocumentCheck { document: &document };
    let mut tried = BTreeSet::new();
    let mut go = |method: &'static str, route: &'static str, parameter: &str, body: Option<Value>| {
        tried.insert((method, route));
        let (from, to) = (route.find('{'), route.find('}'));
        let path = match (from, to) {
            (Some(from), Some(to)) => format!("{}{parameter}{}", &route[..from], &route[to + 1..]),
            _ => format!("{route}{parameter}"),
        };
        check.exchange(&daemon, method, route, &path, body)
    };
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_else(|| panic!("{value}")).to_owned();

    let script =
        text(&daemon.post("/api/scripts", &json!({"name": "set-up", "owner": "global", "content": ""})).json(), "id");
    let template = json!({
        "name": "web", "description": "d", "ports": [{"name": "web", "port": 80}, {"name": "db", "port": 1, "protocol": "tcp"}],
        "custom": {"A": "b"}, "startup_script_id": script,
        "health_check": {"type": "command", "command": "false", "args": ["x"], "interval": "100ms", "failures": 1},
    });
    let made = go("post", "/api/templates", "", Some(template.clone()));
    let id = text(&made, "id");
    go("post", "/api/templates", "", Some(template.clone()));
    go("get", "/api/templates", "", None);
    go("get", "/api/templates/{id}", &id, None);
    go("patch", "/api/templates/{id}", &id, Some(json!({"description": "e"})));
    go("put", "/api/templates/{id}", &id, Some(template));

    let made = go("post", "/api/spaces", "", Some(json!({"name": "notes", "template": "web", "host": "box.example"})));
    let notes = text(&made, "id");
    go("post", "/api/spaces", "", Some(json!({"name": "notes"})));
    go("post", "/api/spaces", "", Some(json!({"name": "a b"})));
    go("post", "/api/spaces/{id}/start", &notes, None);
    go("post", "/api/spaces/{id}/stop", &notes, None);
    let token = text(&go("post", "/api/spaces/{id}/token", &notes, None), "agent_token");
    let mut space = Space::of(&notes, "notes", &token);
    space.start(&daemon, &[]);
    eventually("the space to be unhealthy", || (space.view(&daemon)["health"] == "unhealthy").then_some(()));
    let full = "events = [\"custom.*\"]\nevent_sinks = [\"shape\"]\nkeywords = [\"k\"]\nscope = \"shared\"\n\
                groups = [\"ops\"]\nmcp_tool = true\nparams_schema = { type = \"object\" }\nresult_schema = {}";
    assert_eq!(daemon.post("/api/groups", &json!({"name": "ops"})).status, 201);
    space.register(&registration("echo.py", "", &[("x.fail", full), ("x.echo", "")]));

    let call = |method: &str, id: Value| json!({"jsonrpc": "2.0", "method": method, "params": {"n": 1}, "id": id});
    for body in [
        call("x.echo", json!(1)),
        call("x.echo", json!("a")),
        call("x.none", json!(null)),
        json!([call("x.echo", json!(1)), call("x.none", json!(2)), 5]),
        json!([]),
        json!({"jsonrpc": "2.0", "method": "x.echo"}),
        json!([{"jsonrpc": "2.0", "method": "x.echo"}]),
        call("x.fail", json!(1.5)),
    ] {
        go("post", "/api/methods/call", "", Some(body));
    }
    go("get", "/api/methods", "", None);
    go("get", "/api/methods", "?q=k", None);
    go("get", "/api/methods/{name}", "x.fail", None);
    go("get", "/api/methods/{name}", "x.none", None);
    daemon.emit("n", &json!({"n": 1}));
    let subscriptions = go("get", "/api/subscriptions", "", None);
    assert_eq!(subscriptions["items"][0]["method"], "x.fail");
    go("get", "/api/spaces/{id}", &notes, None);
    go("get", "/api/spaces", "?state=deployed&owner=me", None);
    go("patch", "/api/spaces/{id}", &notes, Some(json!({"description": "d", "custom": {"B": "c"}})));
    go("post", "/api/spaces/{id}/stop", &notes, None);
    go("get", "/api/spaces/{id}", &notes, None);

    let boxed = text(&go("post", "/api/spaces", "", Some(json!({"name": "box", "driver": "process"}))), "id");
    go("post", "/api/spaces/{id}/start", &boxed, None);
    eventually("its agent to run", || daemon.get(&format!("/api/spaces/{boxed}")).json()["process"]["pid"].as_u64());
    go("get", "/api/spaces/{id}", &boxed, None);
    for space in [&notes, &boxed, &boxed] {
        go("delete", "/api/spaces/{id}", space, None);
    }
    go("delete", "/api/templates/{id}", &id, None);
    go("get", "/api/templates/{id}", &id, None);

    for (route, operations) in document["paths"].as_object().expect("it has paths") {
        let ours = ["spaces", "templates", "methods", "subscriptions"];
        if !route.split('/').nth(2).is_some_and(|part| ours.contains(&part)) {
            continue;
        }
        for method in operations.as_object().expect("it has operations").keys() {
            assert!(method == "parameters" || tried.contains(&(method.as_str(), route.as_str())), "{method} {route}");
        }
    }
}
